"""A spec file says what the library can: each table equals the call it stands for."""

from __future__ import annotations

import inspect
import math
import re
from datetime import date

import duckdb
import pytest

import querysmasher as qs
from querysmasher.data.framing import CSV
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError, FileError, SpecError
from querysmasher.planning.mechanisms import MECHANISMS
from querysmasher.planning.solvers import SOLVERS
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.spec import read_spec, template, workloads
from querysmasher.spec.sections import MeasureSection, PlanSection
from querysmasher.spec.spec import Source
from querysmasher.spec.workloads import Queries
from tests.spec.files import BUDGET, HEAD, SMALL, WORKLOAD, read, write

SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", ["F", "M"]),
        qs.Ordinal("age", range(10)),
        qs.Cyclic("hour", [0, 6, 12, 18]),
        qs.Binned("income", edges=[0, 10, 25.5]),
    ]
)
IN_ORDER = qs.Schema.of(sex=2, age=10, hour=4, income=2)
HALVES = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_the_schema(tmp_path):
    assert read(tmp_path, SMALL).schema == SCHEMA


def test_a_range_may_have_a_step_and_be_of_decimals(tmp_path):
    schema = read(tmp_path, SMALL.replace("[0, 9]", "[-4, 6, 5]")).schema
    assert schema["age"].values == (-4, 1, 6)
    schema = read(tmp_path, SMALL.replace("[0, 9]", "[0.5, 2.5]")).schema
    assert schema["age"].values == (0.5, 1.5, 2.5)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('kind = "marginals"\nk = 2', qs.marginals(SCHEMA, 2)),
        ('kind = "marginals"\nk = [0, 1]\nweight = 2', qs.marginals(SCHEMA, [0, 1], 2)),
        ('kind = "all_kway"\nk = 1', qs.all_kway(SCHEMA, 1)),
        ('kind = "all_kway"\nk = 1\nattributes = ["age"]', qs.all_kway(SCHEMA, 1, attributes=["age"])),
        (
            'kind = "marginals"\nk = [0, 1]\nattributes = ["sex"]',
            qs.marginals(SCHEMA, [0, 1], attributes=["sex"]),
        ),
        (
            'kind = "all_kway"\nk = 2\nfamily = "range"',
            qs.Workload(SCHEMA, qs.all_kway(IN_ORDER, 2, "range").groups),
        ),
        (
            'kind = "all_kway"\nk = 2\nfamily = {age = "range"}\nweight = 0.5',
            qs.all_kway(SCHEMA, 2, {"age": "range"}, 0.5),
        ),
        (
            'kind = "queries"\nfamilies = {age = "prefix", sex = "identity"}',
            qs.queries(SCHEMA, age="prefix", sex="identity"),
        ),
        ('kind = "queries"\n[workload.families]\nsex = [[1, -1]]', qs.queries(SCHEMA, sex=[[1, -1]])),
        ('kind = "queries"\nfamilies.sex.rows = [[1, -1]]', qs.queries(SCHEMA, sex=[[1, -1]])),
        ('kind = "queries"\nfamilies.sex.rows = "two.csv"', qs.queries(SCHEMA, sex=[[1, 1], [0, 0.5]])),
        (
            f'kind = "queries"\nfamilies.age = {{hierarchy = [{HALVES}], leaves = false}}',
            qs.queries(SCHEMA, age=qs.hierarchy(SCHEMA, "age", HALVES, leaves=False)),
        ),
        (
            'kind = "queries"\nfamilies.age = {ranges = [[0, 4], [2, 9]], weights = [1, 2]}',
            qs.queries(SCHEMA, age=qs.ranges(SCHEMA, "age", [0, 2], [4, 9], [1.0, 2.0])),
        ),
        (
            'kind = "queries"\nfamilies.hour.ranges = "spans.csv"',
            qs.queries(SCHEMA, hour=qs.ranges(SCHEMA, "hour", [0, 1], [1, 3], [1.0, 0.5])),
        ),
        (
            'kind = "queries"\nfamilies.hour.hierarchy = [{0 = "am", 6 = "am", 12 = "pm", 18 = "pm"}]',
            qs.queries(SCHEMA, hour=qs.hierarchy(SCHEMA, "hour", ["am", "am", "pm", "pm"])),
        ),
        (
            'kind = "queries"\nfamilies.hour.hierarchy = "hours.csv"',
            qs.queries(SCHEMA, hour=qs.hierarchy(SCHEMA, "hour", half=list("aabb"), day=list("xxxx"))),
        ),
        (
            'kind = "queries"\nfamilies.sex = {hierarchy = [0], weights = [3, 1]}',
            qs.queries(SCHEMA, sex=qs.hierarchy(SCHEMA, "sex", 0, weights=[3, 1])),
        ),
        (
            'kind = "queries"\n[workload.families.hour.hierarchy]\nhalf = {am = [0, 6], pm = [12, 18]}',
            qs.queries(SCHEMA, hour=qs.hierarchy(SCHEMA, "hour", half=["am", "am", "pm", "pm"])),
        ),
        (
            'kind = "queries"\nfamilies.hour = {hierarchy = ["half"], codebook = "hours.csv"}',
            qs.queries(SCHEMA, hour=qs.hierarchy(SCHEMA, "hour", list("aabb"))),
        ),
        ('kind = "affine"\nattributes = ["age", "hour"]', qs.affine(SCHEMA, "age", "hour")),
        (
            'kind = "abs_difference"\nattributes = ["hour", "age"]\nweight = 3',
            qs.abs_difference(SCHEMA, "hour", "age", 3),
        ),
        (
            'kind = "random_queries"\nattributes = ["age"]\ncount = 4\np = 0.5\nseed = 7\nweight = 2',
            qs.random_queries(SCHEMA, ["age"], 4, 0.5, seed=7, weight=2),
        ),
        (
            'kind = "linear"\nattributes = ["sex"]\nrows = [[1, 0]]\nweights = [4]\nlabels = ["a"]',
            qs.linear(SCHEMA, ["sex"], [[1, 0]], [4], ["a"]),
        ),
        (
            'kind = "linear"\nattributes = ["sex"]\nfile = "two.csv"\nweight = 5',
            5 * qs.linear(SCHEMA, ["sex"], [[1, 1], [0, 0.5]]),
        ),
        (
            'kind = "where"\npredicate = "age >= 3 and sex == \'F\'"',
            qs.where(SCHEMA, "age >= 3 and sex == 'F'"),
        ),
        (
            'kind = "where"\npredicate = ["age < 3", "hour in [0, 6]"]\nweight = 2',
            qs.where(SCHEMA, "age < 3", 2) + qs.where(SCHEMA, "hour in [0, 6]", 2),
        ),
    ],
)
def test_every_kind_of_workload(tmp_path, table, expected):
    (tmp_path / "two.csv").write_text("1,1\n0,0.5\n")
    (tmp_path / "hours.csv").write_text("hour,half,day\n18,b,x\n0,a,x\n6,a,x\n12,b,x\n")
    (tmp_path / "spans.csv").write_text("from,to,weight\n0,6,1\n6,18,0.5\n")
    assert read(tmp_path, HEAD + "[[workload]]\n" + table + BUDGET).workload == expected


def test_several_tables_add_up(tmp_path):
    text = HEAD + WORKLOAD + '[[workload]]\nkind = "marginals"\nk = 3' + BUDGET
    spec = read(tmp_path, text)
    assert spec.workload == qs.all_kway(SCHEMA, [1, 2]) + qs.marginals(SCHEMA, 3)
    assert [entry.kind for entry in spec.entries] == ["all_kway", "marginals"]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("cost = 2", qs.PrivacyCost(2)),
        ("rho = 0.1", qs.zCDP(0.1)),
        ("mu = 1.5\nrecords_per_person = 3", qs.GaussianDP(1.5, records_per_person=3)),
        (
            'epsilon = 1\ndelta = 1e-9\nneighbours = "replace_one"',
            qs.ApproxDP(1.0, 1e-9, neighbours="replace_one"),
        ),
    ],
)
def test_every_kind_of_budget(tmp_path, budget, expected):
    assert read(tmp_path, SMALL.replace("rho = 0.5", budget)).budget == expected


def test_what_is_left_out_is_what_the_library_takes():
    for function, section in ((qs.plan, PlanSection()), (qs.measure, MeasureSection())):
        parameters = inspect.signature(function).parameters
        for name, value in section:
            assert parameters[name].default == value


def test_every_choice_of_the_library_can_be_made(tmp_path):
    for noise in DISTRIBUTIONS:
        assert read(tmp_path, SMALL + f'[measure]\nnoise = "{noise}"').measuring.noise == noise
    spec = read(tmp_path, SMALL + '[plan]\nsolver = "dense"\ncentering = "uniform"\ntolerance = 0.1')
    assert (spec.planning.solver, spec.planning.centering, spec.planning.tolerance) == (
        "dense",
        "uniform",
        0.1,
    )
    planned = spec.plan(progress=False)
    assert (planned.solver, planned.centering, planned.tolerance) == ("dense", "uniform", 0.1)


def test_every_mechanism(tmp_path):
    for solver in SOLVERS:
        assert read(tmp_path, SMALL + f'[plan]\nsolver = "{solver}"').planning.solver == solver
    for name, mechanism in MECHANISMS.items():
        for key in ("mechanism", "solver"):
            spec = read(tmp_path, SMALL + f'[plan]\n{key} = "{name}"')
            planned = spec.plan(progress=False)
            assert planned.mechanism == name
            assert (planned.centering == "uniform") == mechanism.uniform_only
    bases = '[plan]\nmechanism = "basis"\nbases = {hour = "haar", sex = [[1, 0], [0, 1]]}'
    planned = read(tmp_path, SMALL + bases).plan(progress=False)
    expected = qs.plan(
        planned.workload, planned.budget, mechanism="basis", bases={"hour": "haar", "sex": [[1, 0], [0, 1]]}
    )
    assert planned.rmse == expected.rmse


def test_paths_start_where_the_file_is(tmp_path):
    spec = read(tmp_path, SMALL + '[data]\npath = "people.csv"\n[output]\nfolder = "sub/out"')
    assert spec.source.path == tmp_path / "people.csv"
    assert spec.folder == tmp_path / "sub" / "out"
    spec = read(tmp_path, SMALL + '[data]\ndatabase = "/x/people.duckdb"\ntable = "main"')
    assert (str(spec.source.path), spec.source.table) == ("/x/people.duckdb", "main")
    assert read(tmp_path, SMALL).source is None


def test_the_template_is_valid_as_it_stands(tmp_path):
    spec = read(tmp_path, template())
    assert {a.kind for a in spec.schema} == {"categorical", "ordinal", "binned", "cyclic"}
    assert spec.budget == qs.ApproxDP(1.0, 1e-6)
    paragraphs = template().split("\n\n")
    hidden = [re.sub("^# ", "", p, flags=re.MULTILINE) for p in paragraphs if p.startswith("# [[workload]]")]
    assert len(hidden) == 2
    assert len(read(tmp_path, "\n\n".join([*paragraphs, *hidden])).entries) == len(spec.entries) + 2
    assert max(map(len, template().splitlines())) <= 110


def test_the_template_for_a_codebook(tmp_path):
    (tmp_path / 'the "book".csv').write_text("attribute,kind,values\na,ordinal,0..3\nb,ordinal,0..4\n")
    spec = read(tmp_path, template('the "book".csv'))
    assert spec.schema == qs.Schema.of(a=4, b=5)


def test_a_file_that_cannot_be_read(tmp_path, refuses):
    with refuses(FileError, ValueError, "there is no file", "querysmasher init"):
        read_spec(tmp_path / "none.toml")
    with refuses(FileError, ValueError, "is a folder", "release.toml"):
        read_spec(tmp_path)
    with refuses(SpecError, ValueError, "release.toml is not valid TOML", "line 1"):
        read(tmp_path, "[[schema]\n")
    path = write(tmp_path, "")
    path.write_bytes(b"\xff\xfe")
    with refuses(SpecError, ValueError, "not valid TOML"):
        read_spec(path)


def test_a_byte_order_mark_does_not_matter(tmp_path):
    assert read(tmp_path, "\ufeff" + SMALL).schema == SCHEMA


def test_sums_and_means(tmp_path):
    entries = """
[[workload]]
kind = "sums"
attribute = "income"
by = "sex"
around = 5.0
weight = 2.0

[[workload]]
kind = "means"
attribute = "age"
by = ["sex", "hour"]
within = 2.5
size = 100.0

[[workload]]
kind = "queries"
families = {income = "sum", sex = "identity"}
"""
    asked = read(tmp_path, SMALL + entries).workload.groups[-4:]
    sums = qs.sums(SCHEMA, "income", by="sex", around=5, weight=2)
    means = qs.means(SCHEMA, "age", by=["sex", "hour"], within=2.5, size=100)
    plain = qs.queries(SCHEMA, income="sum", sex="identity")
    assert asked == (sums + means + plain).groups
    with pytest.raises(SpecError, match="size: expected a public number of records together with within"):
        read(tmp_path, SMALL + entries.replace("size = 100.0\n", ""))


def test_dates_and_stand_ins(tmp_path):
    text = SMALL.replace("range = [0, 9]", "range = [2024-02-28, 2024-03-03, 2]\nmissing = 2024-03-01")
    text = text.replace("edges = [0, 10, 25.5]", 'edges = [0, 10, 25.5]\nmissing = "[0, 10)"')
    spec = read(tmp_path, text + "[data]\nmissing = {hour = 6, age = 2024-03-01}\n")
    days = (date(2024, 2, 28), date(2024, 3, 1), date(2024, 3, 3))
    assert spec.schema["age"] == qs.Ordinal("age", days, missing=days[1])
    assert spec.schema["hour"].missing == 6
    assert spec.schema["income"].missing == "[0, 10)"
    assert spec.schema["sex"].missing is None
    assert spec.workload.schema == spec.schema
    text = SMALL.replace('values = ["F", "M"]', 'values = ["F", "M"]\nother = "other"\nmissing = "missing"')
    text = text.replace("edges = [0, 10, 25.5]", 'edges = [-inf, 0, 10, inf]\nmissing = "missing"')
    beside = read(tmp_path, text + "[data]\nmissing = {age = -1}\n").schema
    assert beside["sex"] == qs.Categorical("sex", ["F", "M"], other="other", missing="missing")
    assert beside["income"] == qs.Binned(
        "income", edges=[-math.inf, 0, 10, math.inf], missing="missing", unit=beside["income"].unit
    )
    assert beside["age"].values[-2:] == (9, -1)
    text = SMALL.replace('"binned"\nedges = [0, 10, 25.5]', '"number"\nrange = [0, 50, 5]\nmissing = "none"')
    income = qs.Number("income", 0, 50, step=5, missing="none")
    assert read(tmp_path, text).schema["income"] == income
    text = text.replace("50, 5]", '50]\noutside = "refuse"').replace('"none"', '"-"')
    income = qs.Number("income", 0, 50, outside="refuse", missing="-")
    assert read(tmp_path, text).schema["income"] == income
    listed = read(tmp_path, SMALL.replace("range = [0, 9]", "values = [2024-02-28, 2024-02-29]"))
    assert listed.schema["age"].values == (date(2024, 2, 28), date(2024, 2, 29))


def test_a_path_is_passed_on(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("a\n1\n")
    assert Source(path).open() == path
    assert Source(tmp_path / "*.csv").open() == tmp_path / "*.csv"


def test_a_table_of_a_database(tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS a")
    before = path.read_bytes()
    assert Source(path, "people").open().columns == ["a"]
    assert path.read_bytes() == before


def test_what_is_not_there(tmp_path, refuses):
    for source in (Source(tmp_path / "none.csv"), Source(tmp_path / "none.duckdb", "people")):
        with refuses(FileError, ValueError, "data: no file", "none."):
            source.open()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "no.duckdb").write_text("Ann Private")
    with pytest.raises(DataError, match="opening the database failed") as caught:
        Source(tmp_path / "no.duckdb", "people").open()
    assert "Ann" not in str(caught.value)
    duckdb.connect(str(tmp_path / "empty.duckdb")).close()
    with refuses(DataError, ValueError, "opening the table 'people' failed"):
        Source(tmp_path / "empty.duckdb", "people").open()


STYLE = 'delimiter = ";"\nquote = "\'"\nencoding = "latin-1"\ndecimal = ","\n'


def test_options_reach_the_reader(tmp_path):
    spec = read(tmp_path, f'{SMALL}[data]\npath = "people.csv"\n{STYLE}')
    name = spec.schema.names[0]
    (tmp_path / "people.csv").write_text(f"{name};'no;te é'\n", encoding="latin-1")
    data = spec.source.open()
    assert data == CSV(tmp_path / "people.csv", ";", "'", "latin-1", ",")
    assert open_table(spec.schema, data, [name]).records() == 0


def test_parquet_has_no_dialect(tmp_path):
    (tmp_path / "people.parquet").write_text("")
    spec = read(tmp_path, f'{SMALL}[data]\npath = "people.parquet"\n{STYLE}')
    assert spec.source.open() == tmp_path / "people.parquet"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('path = "a.csv"\ndelimiter = ";;"', "data.delimiter: expected a single ASCII character"),
        ('path = "a.csv"\ndecimal = ";"', "data.decimal: expected one of"),
        ('path = "a.csv"\nencoding = "klingon"', "data.encoding: expected an encoding such as"),
        ('path = "a.csv"\nquote = 3', "data.quote: expected a single character"),
        ('database = "a.db"\ntable = "t"\nquote = "+"', "data.quote: this describes a CSV file"),
    ],
)
def test_a_dialect_that_cannot_be(tmp_path, lines, words):
    with pytest.raises(SpecError, match=words):
        read(tmp_path, f"{SMALL}[data]\n{lines}\n")


class Totals(Queries):
    """The total, several times."""

    times: int

    def build(self, schema, folder):
        return self.weight * sum(
            (qs.marginals(schema, 0) for _ in range(self.times - 1)), qs.marginals(schema, 0)
        )


def every_second(attribute, given, folder):
    return qs.queries(qs.Schema([attribute]), {attribute.name: "identity"}).groups[0].families[0]


def test_a_toy_kind_of_queries_needs_a_class_and_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, "totals", Totals)
    spec = read(tmp_path, SMALL + '[[workload]]\nkind = "totals"\ntimes = 3\nweight = 2.0\n')
    assert spec.entries[-1].workload == 2 * Totals(kind="totals", times=3).build(spec.schema, tmp_path)


def test_a_toy_form_of_families_needs_a_function_and_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(workloads.FORMS, "toy", ((), every_second))
    text = '[[workload]]\nkind = "queries"\nfamilies = {sex = {toy = true}}\n'
    assert read(tmp_path, SMALL + text).entries[-1].workload.query_count == 2


def test_chosen_tables(tmp_path):
    text = SMALL.replace('"all_kway"', '"tables"').replace(
        "k = [1, 2]", 'tables = [["age"], ["sex", "hour"], []]'
    )
    path = write(tmp_path, text + "")
    spec = read_spec(path)
    schema = spec.schema
    one = (
        qs.queries(schema, age="prefix")
        + qs.queries(schema, sex="identity", hour="circular")
        + qs.queries(schema)
    )
    assert spec.workload == one
    path.write_text(text.replace("[]]", "[]]\nfamily = {age = 'range'}\nweight = 2"))
    assert read_spec(path).workload.groups[0] == (2 * qs.queries(schema, age="range")).groups[0]
    path.write_text(text.replace('["age"]', '["agee", "sex"]'))
    with pytest.raises(
        qs.SpecError, match=r"workload\[0\]\.tables: unknown attribute 'agee'; did you mean 'age'"
    ):
        read_spec(path)
    path.write_text(text.replace('["age"]', '["sex", "sex"]'))
    with pytest.raises(qs.SpecError, match=r"workload\[0\]\.tables: attribute 'sex' is named more than once"):
        read_spec(path)
    path.write_text(text.replace("tables = ", "k = 1\ntables = "))
    with pytest.raises(qs.SpecError, match=r"workload\[0\]\.k: unknown key .allowed: .*, tables."):
        read_spec(path)


def test_impossible_combinations(tmp_path):
    stated = read(tmp_path, "impossible = [\"age < 2 and sex == 'M'\", 'hour == 6']\n" + SMALL).schema
    assert stated == SCHEMA.impossible("age < 2 and sex == 'M'", "hour == 6")
    with pytest.raises(SpecError, match=r"impossible\[1\]: .*'ages'"):
        read(tmp_path, "impossible = ['hour == 6', 'ages < 2']\n" + SMALL)
    with pytest.raises(SpecError, match="impossible: expected a list of predicates"):
        read(tmp_path, "impossible = 'hour == 6'\n" + SMALL)
