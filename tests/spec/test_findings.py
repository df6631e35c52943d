"""A mistake in a spec file: the message names the key, what was given, what is allowed, the nearest name."""

import pytest

import querysmasher as qs
from querysmasher.errors import QuerySmasherError, SpecError
from querysmasher.spec import read_codebook
from querysmasher.spec.findings import line_of
from tests.builders import PRIVATE
from tests.spec.files import BUDGET, HEAD, SMALL, WORKLOAD, read, write

KINDS = (
    "marginals, all_kway, tables, queries, affine, abs_difference, random_queries, linear, where, sums, means"
)
TOP = (
    "codebook, schema, impossible, workload, statistics, budget, data, plan, measure, output, estimate, about"
)
HAS = "(the schema has 'sex', 'age', 'hour', 'income')"


def entry(table):
    """A file with one more [[workload]] table, from line 29 on."""
    return HEAD + WORKLOAD + "\n[[workload]]\n" + table + BUDGET


MISTAKES = [
    (
        "buget = 1\n" + SMALL,
        f"line 1: buget: unknown key; did you mean 'budget'? (allowed: {TOP})",
    ),
    ("neighbours = 1\n" + SMALL, "line 1: neighbours: unknown key; it belongs under [budget]"),
    (HEAD + BUDGET, "workload: missing; expected [[workload]] tables"),
    ("workload = []\n" + HEAD + BUDGET, "line 1: workload: expected [[workload]] tables, got []"),
    ("budget = 1\n" + HEAD + WORKLOAD, "line 1: budget: expected a [budget] table, got 1"),
    (WORKLOAD + BUDGET, "expected either [[schema]] tables or a codebook, got neither"),
    ('codebook = "x.csv"\n' + SMALL, "expected either [[schema]] tables or a codebook, got both"),
    (
        "schema = [3]\n" + WORKLOAD + BUDGET,
        "line 1: schema[0]: expected a table with name, kind, and values, range or edges",
    ),
    (
        SMALL.replace('"ordinal"', '"ordnal"'),
        "line 8: schema[1].kind: expected one of categorical, ordinal, binned, number, cyclic, got 'ordnal'; did you mean 'ordinal'?",
    ),
    (
        SMALL.replace('kind = "ordinal"\n', ""),
        "line 6: schema[1].kind: missing; expected one of categorical, ordinal, binned, number, cyclic",
    ),
    (
        SMALL.replace("values = [0,", "valeus = [0,"),
        "line 14: schema[2].valeus: unknown key; did you mean 'values'? (allowed: name, kind, values, range, missing, other, title, description, unit, labels)",
    ),
    (
        SMALL.replace("edges = [0, 10, 25.5]", "edges = [0]"),
        "line 19: schema[3].edges: expected a list of increasing numbers, got [0]",
    ),
    (
        SMALL.replace("10, 25.5", "10, 5"),
        "line 19: schema[3].edges: edges of attribute 'income': expected increasing numbers, got [0, 10, 5]",
    ),
    (
        SMALL.replace("range = [0, 9]", "range = [9, 0]"),
        "line 9: schema[1].range: expected first <= last and a step above 0, got [9, 0, 1]",
    ),
    (
        SMALL.replace("range = [0, 9]", "range = [0, 1e12]"),
        "line 9: schema[1].range: 1,000,000,000,001 values are more than the 1,000,000 allowed, got [0, 1000000000000.0, 1]",
    ),
    (
        SMALL.replace("range = [0, 9]", ""),
        "line 6: schema[1]: attribute 'age': expected either values or range, got neither",
    ),
    (
        SMALL.replace('["F", "M"]', '["F", "F"]'),
        "line 4: schema[0].values: values of attribute 'sex': 'F' is given more than once; list every possible value once",
    ),
    (
        SMALL.replace('values = ["F", "M"]', 'values = ["F", "M"]\nmissing = 3'),
        "line 5: schema[0].missing: missing of attribute 'sex': expected one of its values, 'F', 'M', or a string, got 3",
    ),
    (
        SMALL.replace("range = [0, 9]", 'range = [0, 9]\nother = "other"'),
        "line 10: schema[1].other: expected a categorical attribute, got ordinal 'age'",
    ),
    (
        SMALL + "[data]\nmissing = {sex = 3}",
        "line 28: data.missing.sex: missing of attribute 'sex': expected one of its values, 'F', 'M', or a string, got 3",
    ),
    (
        SMALL + '[data]\nmissing = {sexe = "F"}',
        f"line 28: data.missing.sexe: unknown attribute 'sexe'; did you mean 'sex'? {HAS}",
    ),
    (
        SMALL.replace('values = ["F", "M"]', 'values = ["F", "M"]\nmissing = "F"')
        + '[data]\nmissing = {sex = "M"}',
        "line 29: data.missing.sex: the schema has 'F', got 'M'; state it once",
    ),
    (
        SMALL + '[data]\nmissing = "?"',
        "line 28: data.missing: expected a table of attributes and the value that missing ones count as, got '?'",
    ),
    (SMALL + '[data]\nunknown = "drop"', "line 28: data.unknown: unknown key; it belongs under [measure]"),
    (
        SMALL.replace("range = [0, 9]", "range = [2024-01-01, 9]"),
        'line 9: schema[1].range: expected two dates and optionally an integer number of days, got ["2024-01-01", 9, 1]',
    ),
    (
        SMALL.replace("range = [0, 9]", "range = [2024-01-02, 2024-01-01]"),
        "line 9: schema[1].range: expected first <= last, got '2024-01-02' and '2024-01-01'",
    ),
    (
        SMALL.replace("range = [0, 9]", "values = [2024-01-02T12:00:00]"),
        "line 9: schema[1].values: values of attribute 'age': expected dates without time or time zone, got 2024-01-02 12:00:00",
    ),
    (SMALL + '[about]\ndate = "soon"', "line 28: about.date: expected a date such as 2024-03-01, got 'soon'"),
    (
        SMALL + "[about]\ndate = 2024-03-01T12:00:00",
        'line 28: about.date: expected a date such as 2024-03-01, got "2024-03-01 12:00:00"',
    ),
    (
        SMALL + "[output]\nlevel = 95",
        "line 28: output.level: expected a number between 0 and 1, got 95; write 0.95 for 95%",
    ),
    (
        SMALL + "[output]\nthresholds = [0.2, 0.1]",
        "line 28: output.thresholds: expected a list of increasing positive numbers, got [0.2, 0.1]",
    ),
    (SMALL + "[output]\nsuppress = 0", "line 28: output.suppress: expected a positive number, got 0"),
    (SMALL.replace('"age"', '"sex"'), "line 1: schema: attributes: the name 'sex' is used more than once"),
    (SMALL.replace('"age"', "5"), "line 7: schema[1].name: expected a name as a string, got 5"),
    (
        SMALL.replace('"all_kway"', '"all_kwy"'),
        f"line 22: workload[0].kind: expected one of {KINDS}, got 'all_kwy'; did you mean 'all_kway'?",
    ),
    (entry("k = 1"), f"line 25: workload[1].kind: missing; expected one of {KINDS}"),
    (
        entry('kind = "marginals"'),
        "line 25: workload[1].k: missing; expected an integer number of attributes, or a list of them",
    ),
    (
        entry('kind = "marginals"\nk = "2"'),
        "line 27: workload[1].k: expected an integer number of attributes, or a list of them, got '2'",
    ),
    (
        entry('kind = "marginals"\nk = 5'),
        "line 27: workload[1].k: expected an integer from 0 to 4, the number of attributes, got 5",
    ),
    (
        entry('kind = "marginals"\nk = 2\nweight = 0'),
        "line 28: workload[1].weight: expected a positive number, got 0",
    ),
    (
        entry('kind = "all_kway"\nk = 2\nfamily = "prefx"'),
        "line 28: workload[1].family: expected one of identity, prefix, range, circular, sum, got 'prefx'; did you mean 'prefix'?",
    ),
    (
        entry('kind = "all_kway"\nk = 2\nfamily = {agee = "prefix"}'),
        f"line 28: workload[1].family.agee: unknown attribute 'agee'; did you mean 'age'? {HAS}",
    ),
    (
        entry('kind = "queries"\nfamilies = {age = "prefx"}'),
        "line 27: workload[1].families.age: expected one of identity, prefix, range, circular, sum, got 'prefx'; did you mean 'prefix'?",
    ),
    (
        entry('kind = "queries"\nfamilies = {age = 3}'),
        "line 27: workload[1].families.age: expected a name, a list of rows, {rows = …}, {ranges = …}, or {hierarchy = …}, got 3",
    ),
    (
        entry('kind = "queries"\nfamilies = {age.ranges = [[0, 4], [3]]}'),
        "line 27: workload[1].families.age: ranges: expected a list of pairs of values, [first, last], or the name of a CSV file, got [[0, 4], [3]]",
    ),
    (
        entry('kind = "queries"\nfamilies = {age.ranges = [[0, 99]]}'),
        "line 27: workload[1].families.age: ranges: attribute 'age' has no value 99 (it has 0, 1, 2, 3, 4, 5, 6, …, 9)",
    ),
    (
        entry('kind = "queries"\nfamilies = {age.ranges = [[0, 3], [5, 4]]}'),
        "line 27: workload[1].families.age: ranges: the first value of range 2 comes after its last one",
    ),
    (
        entry('kind = "queries"\nfamilies = {age = {ranges = [[0, 3]], weights = [-1]}}'),
        "line 27: workload[1].families.age: weights: expected positive finite numbers, got -1.0 (omit the query instead)",
    ),
    (
        entry('kind = "queries"\nfamilies = {age = {ranges = [[0, 3]], weights = [1, 2]}}'),
        "line 27: workload[1].families.age: weights: expected 1, one per range, got 2",
    ),
    (
        entry('kind = "queries"\nfamilies = {sex = [[1, 2, 3]]}'),
        "line 27: workload[1].families.sex: matrix: expected 2 columns, one per cell of a marginal of shape (2,), got 3",
    ),
    (
        entry('kind = "queries"\nfamilies.sex = {hierarchy = [{F = "x", N = "y"}]}'),
        "line 27: workload[1].families.sex: hierarchy: attribute 'sex' has no value 'N'",
    ),
    (
        entry('kind = "queries"\nfamilies.sex = {hierarchy = [{F = "x"}]}'),
        "line 27: workload[1].families.sex: hierarchy: a level has no group for value 'M' of attribute 'sex'",
    ),
    (
        entry('kind = "queries"\nfamilies.sex = {rows = "none.csv"}'),
        "line 27: workload[1].families.sex: the file 'none.csv' cannot be read (FileNotFoundError)",
    ),
    (
        entry('kind = "affine"\nattributes = ["age", "our"]'),
        f"line 27: workload[1].attributes: unknown attribute 'our'; did you mean 'hour'? {HAS}",
    ),
    (
        entry('kind = "affine"\nattributes = ["age"]'),
        'line 27: workload[1].attributes: expected a list of two names of attributes, got ["age"]',
    ),
    (
        entry('kind = "random_queries"\nattributes = ["age"]\ncount = 0'),
        "line 28: workload[1].count: expected an integer from 1 to 10^9, got 0",
    ),
    (
        entry('kind = "linear"\nattributes = ["sex"]'),
        "line 25: workload[1]: expected either rows or file, got neither",
    ),
    (
        entry('kind = "linear"\nattributes = ["sex"]\nrows = [[1, 1]]\nweights = [1, 2]'),
        "line 29: workload[1].weights: expected 1, one per query, got 2",
    ),
    (
        entry('kind = "linear"\nattributes = ["sex"]\nfile = "words.csv"'),
        "line 28: workload[1].file: 'words.csv', line 1: expected numbers only, and no header",
    ),
    (
        entry('kind = "where"\npredicate = "agee > 3"'),
        f"line 27: workload[1].predicate: unknown attribute 'agee'; did you mean 'age'? {HAS}",
    ),
    (
        entry('kind = "where"\npredicate = "age >"'),
        "line 27: workload[1].predicate: predicate 'age >': it cannot be read; write a condition such as sex == 'F'",
    ),
    (
        entry('kind = "where"\npredicate = "age > 3 & sex == \'F\'"'),
        "line 27: workload[1].predicate: predicate \"age > 3 & sex == 'F'\": '&' is written 'and'; write age > 3 and sex == 'F'",
    ),
    (
        entry('kind = "where"\npredicate = "sex == \'f\'"'),
        "line 27: workload[1].predicate: predicate \"sex == 'f'\": attribute 'sex' has no value 'f'; did you mean 'F'? (it has 'F', 'M')",
    ),
    (
        entry('kind = "where"\npredicate = []'),
        "line 27: workload[1].predicate: expected at least one predicate, got []",
    ),
    (
        SMALL.replace("rho = 0.5", ""),
        "line 25: budget: expected rho, or mu, or cost, or epsilon and delta, got none of them",
    ),
    (
        SMALL.replace("rho = 0.5", "epsilon = 1"),
        "line 25: budget: expected rho, or mu, or cost, or epsilon and delta, got epsilon",
    ),
    (SMALL.replace("rho = 0.5", "rho = -1"), "line 26: budget.rho: expected a positive number, got -1"),
    (
        SMALL.replace("rho = 0.5", "rho = 1e-99"),
        "line 26: budget.rho: expected a number from 1e-30 to 1e+30, such as 0.5, got 1e-99",
    ),
    (
        SMALL + 'neighbours = "replaceone"',
        "line 27: budget.neighbours: expected one of add_remove, replace_one, got 'replaceone'; did you mean 'replace_one'?",
    ),
    (
        SMALL + "records_per_person = 0",
        "line 27: budget.records_per_person: expected an integer from 1 to 10^9, got 0",
    ),
    (SMALL + '[data]\ndatabase = "x"', "line 27: data: expected path, or database and table, got database"),
    (
        SMALL + '[plan]\nsolver = "best"',
        "line 28: plan.solver: expected one of optimal, dense, structured, querysmasher, basis, residual, fourier, whole, got 'best'",
    ),
    (
        SMALL + '[plan]\ncentering = "unform"',
        "line 28: plan.centering: expected one of optimized, uniform, got 'unform'; did you mean 'uniform'?",
    ),
    (
        SMALL + '[plan]\nsolver = "fourier"\ncentering = "optimized"',
        "line 29: plan.centering: expected uniform, the only choice for mechanism = 'fourier', got 'optimized'",
    ),
    (
        SMALL + '[plan]\nbases = {age = "prefix"}',
        "line 28: plan.bases: allowed only with mechanism = 'basis', got 'querysmasher'",
    ),
    (
        SMALL + '[plan]\nsolver = "basis"\nbases = {agee = "prefix"}',
        f"line 29: plan.bases.agee: unknown attribute 'agee'; did you mean 'age'? {HAS}",
    ),
    (
        SMALL + '[plan]\nsolver = "basis"\nbases = {age = "har"}',
        "line 29: plan.bases.age: expected one of identity, prefix, range, circular, haar, rows of numbers, got 'har'; did you mean 'haar'?",
    ),
    (
        SMALL + "[plan]\ntolerance = 2",
        "line 28: plan.tolerance: expected a number between 0 and 1, got 2; write 0.02 for 2%",
    ),
    (
        SMALL + '[measure]\nunknown = "ignore"',
        "line 28: measure.unknown: expected one of refuse, drop, got 'ignore'",
    ),
    (
        SMALL + "[measure]\nmax_records = 0",
        "line 28: measure.max_records: expected an integer from 1 to 2^40, got 0",
    ),
    (
        SMALL.replace("rho = 0.5", "mu = 1") + '[measure]\nnoise = "discrete"',
        "line 28: measure.noise: mu: discrete Gaussian noise satisfies no exact Gaussian-DP guarantee, so Gaussian DP with mu = 1.0 cannot be met with it; ask for [budget] rho = 0.5, which is mu²/2, instead",
    ),
    (
        SMALL + '[output]\nanswers = "xls"',
        "line 28: output.answers: expected one of parquet, csv, csv.gz, arrow, feather, json, xlsx, none, got 'xls'; did you mean 'xlsx'?",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_the_exact_message(tmp_path, text, message):
    (tmp_path / "words.csv").write_text("F,M\n1,1\n")
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    separator = ", " if message.startswith("line ") else ": "
    assert str(caught.value) == f"release.toml{separator}{message}"


def test_all_mistakes_are_told_at_once_in_the_order_of_lines(tmp_path):
    text = SMALL.replace("[0, 9]", "[9, 0]").replace("k = [1, 2]", "").replace("rho", "roh")
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    assert str(caught.value).splitlines() == [
        "release.toml has 3 problems:",
        "  line 9: schema[1].range: expected first <= last and a step above 0, got [9, 0, 1]",
        "  line 21: workload[0].k: missing; expected an integer number of attributes, or a list of them",
        "  line 26: budget.roh: unknown key; did you mean 'rho'? (allowed: cost, rho, mu, epsilon, delta, least, neighbours, records_per_person, ledger)",
    ]


def test_long_values_are_cut(tmp_path):
    with pytest.raises(SpecError) as caught:
        read(tmp_path, SMALL.replace("k = [1, 2]", f"k = '{'x' * 500}'"))
    assert len(str(caught.value)) < 200


HIERARCHY = ": expected a header, then in each line a value and its group at each level"
RANGES = ": expected a header, then in each line a first value, a last one and perhaps a weight"


@pytest.mark.parametrize(
    ("form", "lines", "problem"),
    [
        (
            "hierarchy",
            ["sex,level", "F,x", "M,y", f"{PRIVATE},x"],
            ", line 4: its first column is not a value of attribute 'sex'",
        ),
        (
            "hierarchy",
            ["sex,level", "F,x", "", "M,y", f'F,"{PRIVATE}\nz"'],
            ", line 6: its value already has a line",
        ),
        (
            "hierarchy",
            ["sex,level", f"F,{PRIVATE},x", "M,y"],
            ", line 2: expected 2 columns, as in the header, got 3",
        ),
        (
            "hierarchy",
            ["sex,level", f"F,{PRIVATE}"],
            ": a value of attribute 'sex' has no line; expected one for each of 2",
        ),
        ("hierarchy", [f"{PRIVATE}"], HIERARCHY),
        ("hierarchy", [PRIVATE, PRIVATE], HIERARCHY),
        ("hierarchy", [], HIERARCHY),
        ("ranges", ["from,to", "F,M,3"], ", line 2: expected 2 columns, as in the header, got 3"),
        ("ranges", ["from,to", "F,M", f"F,{PRIVATE}"], ", line 3: expected two values of attribute 'sex'"),
        ("ranges", ["from,to,weight", f"F,M,{PRIVATE}"], ", line 2: expected a number as weight"),
        ("ranges", [PRIVATE], RANGES),
        ("ranges", ["from,to"], RANGES),
    ],
)
def test_the_mistakes_of_a_file_are_told_without_its_values(tmp_path, form, lines, problem):
    """The file may be the private table, named by mistake; nor is it told which values are not in it."""
    (tmp_path / "x.csv").write_text("\n".join(lines))
    with pytest.raises(SpecError) as caught:
        read(tmp_path, entry(f'kind = "queries"\nfamilies.sex = {{{form} = "x.csv"}}'))
    assert f"'x.csv'{problem}" in str(caught.value)
    assert PRIVATE not in str(caught.value)
    assert "'M'" not in str(caught.value)


TEXT = """\
codebook = "x"
"workload" = 3
[[schema]]
name = "a"
[[ schema ]]  # second
name = "b"
values = [
[1],
]
[[workload]]
kind = "x"
[workload.families]
a = "prefix"
[[workload]]
families.a = 3
[budget]
'rho' = 1
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("codebook",), 1),
        (("schema", 0), 3),
        (("schema", 0, "name"), 4),
        (("schema", 1), 5),
        (("schema", 1, "name"), 6),
        (("schema", 1, "values"), 7),
        (("schema", 1, "kind"), 5),
        (("schema", 2), None),
        (("workload", 0, "families", "a"), 12),
        (("workload", 1, "families", "a"), 15),
        (("budget", "rho"), 17),
        (("budget",), 16),
        (("output",), None),
        ((), None),
    ],
)
def test_lines(place, line):
    assert line_of(TEXT, place) == line
    assert line_of("", place) is None


LONG = "9" * 5_000
LARGE = "9" * 400


ODD = [
    *(
        (SMALL.replace("[0, 9]", given), r"schema\[1\]\.range")
        for given in (
            *("[0, nan]", "[0, inf]", "[-inf, 0]", "[0, 9, nan]", "[0, 1, 1e-308]"),
            *(f"[0, {LARGE}]", f"[{LARGE}, {LARGE}]"),
        )
    ),
    *(
        (f"{HEAD}[[workload]]\n{workload}\n{BUDGET}", r"workload\[0\]")
        for workload in (
            f'kind = "random_queries"\nattributes = ["sex"]\ncount = {LARGE}',
            'kind = "linear"\nattributes = ["sex"]\nrows = [[1e308, 1e308]]',
            'kind = "queries"\nfamilies = {sex = {rows = "a\\u0000b"}}',
            'kind = "linear"\nattributes = ["sex"]\nfile = "a\\u0000b"',
        )
    ),
    (f"{SMALL}records_per_person = {LARGE}\n", None),
    (f'{SMALL}[output]\nfolder = "a\\u0000b"\n', None),
    (f'{SMALL}[data]\npath = "a\\u0000b"\n', None),
    (f'codebook = "a\\u0000b.csv"\n{WORKLOAD}{BUDGET}', None),
    (f"{SMALL}[measure]\nmax_records = {LONG}\n", None),
    (f"deep = {'[' * 3_000}{']' * 3_000}\n{SMALL}", None),
]


@pytest.mark.parametrize(("text", "words"), ODD)
def test_numbers_and_texts_that_no_one_means(tmp_path, text, words):
    with pytest.raises(SpecError, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", f"attribute,kind,values\na,ordinal,1..{LONG}\nb,binned,1;2;{LONG}\n"),
        ("a.csv", f"attribute,kind,values\na,categorical,{'x' * 200_000}\n"),
        ("a.json", "[" * 100_000),
    ],
)
def test_codebooks_that_no_one_means(tmp_path, name, text):
    with pytest.raises(QuerySmasherError):
        read_codebook(write(tmp_path, text, name))


@pytest.mark.slow
def test_a_value_given_twice_among_a_million_is_found_at_once():
    with pytest.raises(qs.SchemaError, match="999999 is given more than once"):
        qs.Ordinal("a", [*range(1_000_000), 999_999])
