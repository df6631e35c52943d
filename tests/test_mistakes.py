"""Mistakes of new users: each message says what is wrong, what is allowed, and what to write instead.

It never quotes the table, is raised before anything is written, and is one of this library's errors.
"""

import os
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import querysmasher as qs
from querysmasher.cli.app import app
from querysmasher.errors import as_given, nearest
from querysmasher.spec import read_spec
from tests.spec.files import SMALL

SECRET = "Zyx"  # noqa: S105 - it opens nothing
"""A value of the table that no message quotes."""


@cache
def names():
    """What the mistakes below are about."""
    schema = qs.Schema(
        [
            qs.Categorical("sex", ["female", "male"]),
            qs.Ordinal("age", range(20)),
            qs.Categorical("region", ["north", "south", "east"]),
            qs.Binned("income", edges=[0, 10, 20, 50]),
        ]
    )
    w = qs.marginals(schema, 1)
    b = qs.zCDP(0.5)
    plan = qs.plan(w, b)
    df = pd.DataFrame({"sex": ["female"] * 50, "age": 7, "region": ["north"] * 50, "income": [12.5] * 50})
    release = qs.measure(plan, df, seed=1)
    return {
        "qs": qs,
        "np": np,
        "schema": schema,
        "w": w,
        "b": b,
        "plan": plan,
        "df": df,
        "release": release,
        "estimate": release.estimate(),
        "other": qs.marginals(qs.Schema.of(a=3), 1),
        "private": pd.DataFrame({"sex": [SECRET] * 50, "age": 7, "region": ["north"] * 50, "income": 12.5}),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, a spec, a plan and a release."""
    folder, known = tmp_path_factory.mktemp("mistakes"), names()
    known["df"].to_csv(folder / "people.csv", index=False)
    known["plan"].save(folder / "my.plan")
    known["release"].save(folder / "my.release")
    (folder / "release.toml").write_text(SMALL)
    (folder / "folder").mkdir()
    return folder


BUDGETS = "qs.ApproxDP(epsilon=1.0, delta=1e-6)"
SCHEMA = "qs.Schema([qs.Categorical('sex', ['F', 'M']), qs.Ordinal('age', range(100))])"

PYTHON = [
    # Budgets
    ("qs.ApproxDP(1.0)", "ApproxDP: missing", "'delta'", f"write {BUDGETS}"),
    ("qs.ApproxDP()", "ApproxDP: missing", "'epsilon'", f"write {BUDGETS}"),
    ("qs.zCDP(epsilon=1)", "zCDP: unknown argument 'epsilon'", "arguments: rho", BUDGETS),
    (
        "qs.zCDP(1, neighbors='replace_one')",
        "'neighbors'; did you mean 'neighbours'?",
        "write qs.zCDP(rho=0.5)",
    ),
    ("qs.zCDP(1, neighbours='replace')", "neighbours: ", "did you mean 'replace_one'?"),
    ("qs.zCDP(1, 1e-6)", "zCDP: too many positional arguments", BUDGETS),
    ("qs.zCDP(-1)", "rho: expected a number from", "such as 0.5, got -1"),
    ("qs.zCDP(float('nan'))", "rho: ", "such as 0.5, got nan"),
    ("qs.zCDP(True)", "rho: ", "such as 0.5, got True"),
    ("qs.zCDP('0.5')", "rho: ", "such as 0.5, got '0.5'"),
    ("qs.ApproxDP(1e-6, 1)", "delta: ", "such as 1e-6, got 1"),
    ("qs.zcdp(1)", "no attribute 'zcdp'; did you mean 'zCDP'?"),
    ("b + b", "+: not defined for a zCDP and a zCDP", "as in qs.zCDP(rho=0.5)", "Ledger"),
    (
        "qs.plan(w, 1.0)",
        "budget: expected PrivacyCost, zCDP",
        "got 1.0",
        "qs.ApproxDP(epsilon=1, delta=1e-6)",
    ),
    ("qs.plan(w, qs.zCDP)", "budget: ", "got the class zCDP", BUDGETS),
    ("qs.plan(w)", "plan: missing", "'budget'", f"write qs.plan(workload, {BUDGETS})"),
    # Schemas
    ("qs.Schema(df)", "attributes: expected a list of Categorical", "got a DataFrame", f"write {SCHEMA}"),
    ("qs.Schema({'sex': ['F', 'M']})", "attributes: ", "got a dict", f"write {SCHEMA}"),
    ("qs.Schema(sex=['F', 'M'])", "Schema: unknown argument 'sex'", f"write {SCHEMA}"),
    ("qs.Schema(['sex'])", "attributes: ", "got a list with 'sex'", SCHEMA),
    (
        "qs.Categorical('sex', 'FM')",
        "values of attribute 'sex': ",
        "got 'FM'",
        "qs.Categorical('sex', ['F', 'M'])",
    ),
    ("qs.Categorical(['F', 'M'], 'sex')", "name: expected a non-empty string, got a list", "the name first"),
    (
        "qs.Categorical('sex', df['sex'])",
        "values of attribute 'sex': a value is given more than once",
        "list every possible value once",
    ),
    ("qs.Categorical('sex', 'F', 'M')", "Categorical: too many", "write qs.Categorical('sex', ['F', 'M'])"),
    (
        "qs.Ordinal('age', 100)",
        "values of attribute 'age': ",
        "got 100",
        "write qs.Ordinal('age', range(100))",
    ),
    (
        "qs.Binned('income', bins=[0, 1])",
        "Binned: unknown argument 'bins'",
        "write qs.Binned('income', edges=",
    ),
    ("qs.Binned('income')", "edges of attribute 'income'", "as in qs.Binned('income', edges=[0, 10, 20])"),
    ("qs.Schema.of(a='3')", "size of attribute 'a'", "got '3'", "write qs.Schema.of(age=100, sex=2)"),
    ("schema.age", "Schema has no 'age'", "schema['age']"),
    ("schema['agee']", "unknown attribute 'agee'; did you mean 'age'?", "the schema has 'sex', 'age'"),
    # Predicates
    (
        "qs.where(schema, \"age > 3 & sex == 'male'\")",
        "'&' is written 'and'",
        "write age > 3 and sex == 'male'",
    ),
    ("qs.where(schema, \"(age > 3) | (sex == 'male')\")", "write (age > 3) or (sex == 'male')"),
    ("qs.where(schema, \"age > 3 && sex == 'male'\")", "'&&' is written 'and'", "write age > 3 and sex"),
    ("qs.where(schema, \"age > 3 adn sex == 'male'\")", "'adn' is written 'and'", "write age > 3 and sex"),
    ("qs.where(schema, \"age > 3 AND sex == 'male'\")", "'AND' is written 'and'", "write age > 3 and sex"),
    ("qs.where(schema, '!(age > 3)')", "'!' is written 'not'", "write not (age > 3)"),
    ("qs.where(schema, \"sex = 'male'\")", "'=' is written '=='", "write sex == 'male'"),
    ("qs.where(schema, 'age => 3')", "'=>' is written '>='", "write age >= 3"),
    ("qs.where(schema, 'age between 3 and 5')", "'between'", "write 3 <= age <= 5"),
    ("qs.where(schema, \"region is not 'north'\")", "'is not' is written '!='", "write region != 'north'"),
    ("qs.where(schema, \"region like 'n%'\")", "like is not known", "region in ['north', 'south']"),
    ("qs.where(schema, '(age > 3')", "a ( is not closed", "write (age > 3)"),
    ("qs.where(schema, 'age > 3)')", "a ) has no opening bracket", "write age > 3"),
    ('qs.where(schema, "sex == \'male")', "a quotation mark ' is not closed", "write sex == 'male'"),
    ("qs.where(schema, 'sex == mael')", "strings need quotes, as in sex == 'male'"),
    (
        "qs.where(schema, \"sex == 'Mael'\")",
        "no value 'Mael'; did you mean 'male'?",
        "(it has 'female', 'male')",
    ),
    ("qs.where(schema, \"region in ['north', 'suoth']\")", "no value 'suoth'; did you mean 'south'?"),
    ("qs.where(schema, \"region in 'north'\")", "a list of values", "as in region in ['north', 'south']"),
    ("qs.where(schema, \"age > '3'\")", "no value '3'; did you mean 3?"),
    ("qs.where(schema, 'age == 30')", "no value 30", "(it has 0, 1, 2, 3, 4, 5, 6, …, 19)"),
    ("qs.where(schema, 'income == 10')", "'income' is binned", "as in 0 <= income < 10"),
    ("qs.where(schema, 'age >')", "cannot be read; write a condition such as sex == 'female'"),
    ("qs.where(schema, private)", "predicate: expected a string such as 'age >= 18', got a DataFrame"),
    ("qs.where('age > 3', schema)", "schema: expected a Schema as first argument, got 'age > 3'", SCHEMA),
    # Workloads
    ("'2' * w", "*: not defined for a Workload and '2'", "as in 2 * workload"),
    ("w * w", "*: not defined for a Workload and a Workload", "join workloads with +"),
    ("w * True", "*: not defined for a Workload and True", "as in 2 * workload"),
    ("np.ones(2) * w", "*: not defined for a Workload and an ndarray", "as in 2 * workload"),
    ("w * -1", "weight: expected positive finite numbers, got -1", "omit the query instead"),
    ("w + 1", "+: not defined for a Workload and 1", "qs.marginals(schema, 1) + qs.where("),
    ("w + other", "+: the workloads are on different schemas", "build both on the same schema"),
    ("qs.marginals(private, 2)", "schema: expected a Schema as first argument, got a DataFrame", SCHEMA),
    ("qs.marginals(schema, '2')", "k: expected an integer from 0 to 4", "got '2'; write 2"),
    ("qs.marginals(schema, 'age')", "k: ", "got 'age'", "write qs.marginals(schema, ['age'])"),
    ("qs.all_kway(schema, 2, 'prefx')", "family of attribute 'sex': ", "got 'prefx'; did you mean 'prefix'?"),
    ("qs.all_kway(schema, 2, weigth=2)", "all_kway: unknown argument 'weigth'; did you mean 'weight'?"),
    ("qs.queries(schema, agee='prefix')", "unknown attribute 'agee'; did you mean 'age'?"),
    ("qs.queries(schema, 'age')", "families: ", "got 'age'; write qs.queries(schema, age='prefix'"),
    (
        "qs.queries(schema, age=3)",
        "family of attribute 'age': ",
        "got 3; write 'prefix', or one list per query",
    ),
    ("qs.queries(schema, age='prefix', weight='2')", "weight: expected a number, such as 2, got '2'"),
    ("qs.linear(schema, 'age', [1] * 20)", "matrix: expected 2 dimensions, got 1; write one list per query"),
    ("qs.random_queries(schema, 'age', 3, p=30)", "p: ", "got 30; write 0.3 for 30%"),
    ("w.within(0)", "within: expected a positive number", "got 0; write within(50)"),
    ("w.within(30, level=95)", "level: expected a number between 0 and 1, got 95; write 0.95 for 95%"),
    ("w.within(30, 0.95)", "within: too many", "workload.within(50, level=0.95)"),
    ("w.weighing('table')", "weighing: ", "got 'table'; did you mean 'tables'?"),
    ("w.plan(b)", "Workload has no 'plan'; write qs.plan(workload, budget)"),
    # Plans
    ("plan + plan", "+: not defined for a Plan and a Plan", "qs.plan(one + other, budget)"),
    ("sum([plan, plan])", "+: not defined for a Plan and 0", "qs.plan(one + other, budget)"),
    ("qs.plan(w, b, objectiv='worst')", "plan: unknown argument 'objectiv'; did you mean 'objective'?"),
    ("qs.plan(w, b, objective='wurst')", "objective: expected one of mean, worst, got 'wurst'; did you mean"),
    ("qs.plan(w, b, centering='optimised')", "centering: ", "did you mean 'optimized'?"),
    ("qs.plan(w, b, max_records=1e6)", "max_records: ", "such as 1_000_000, got 1000000.0"),
    ("qs.plan([w, w], b)", "workload: ", "got a list; join them: sum(workloads)"),
    ("qs.plan(schema, b)", "workload: ", "got a Schema; build one, as in qs.marginals(schema, [1, 2])"),
    ("qs.plan(b, w)", "workload: ", "got a zCDP", "qs.marginals(schema, [1, 2])"),
    ("qs.least_budget(w)", "workload: expected an accuracy target", "workload.within(50)"),
    ("plan.variances('age > 3')", "workload: ", "qs.where(schema, 'age >= 18'), got 'age > 3'"),
    ("plan.answer(w)", "Plan has no 'answer'", "release = qs.measure(plan, data)"),
    ("plan.rsme", "Plan has no 'rsme'; did you mean 'rmse'?"),
    ("plan.save('my.release')", "path: ", "'my.release' contains a 'querysmasher release'", "another name"),
    ("plan.save('x.csv')", "path: 'x.csv'", "names such as 'my.plan'"),
    ("plan.save('folder')", "path: 'folder' is a folder; name a file in it"),
    ("qs.Plan.load('my.release')", "contains a 'querysmasher release'", "qs.Release.load reads it"),
    ("qs.Plan.load('people.csv')", "'people.csv' is damaged, or not", "name a file that `plan.save`"),
    ("qs.Plan.load('nowhere.plan')", "path: no file 'nowhere.plan'; relative paths start at"),
    ("qs.Plan.load(plan)", "path: ", "such as 'my.plan', got a Plan"),
    # Measuring
    (
        "qs.measure(w, df)",
        "plan: expected a Plan as first argument, got a Workload",
        "write qs.measure(qs.plan(",
    ),
    ("qs.measure(private, plan)", "plan: ", "got a DataFrame", "write qs.measure(qs.plan(workload"),
    ("qs.measure(plan)", "measure: missing", "'data'", "write qs.measure(qs.plan("),
    ("qs.measure(plan, df, sede=1)", "measure: unknown argument 'sede'; did you mean 'seed'?"),
    ("qs.measure(plan, 'nowhere.csv')", "data: no file at 'nowhere.csv'; relative paths start at"),
    ("qs.measure(plan, 'folder')", "data: no Parquet file in the folder 'folder'; name one file"),
    ("qs.measure(plan, 'my.plan')", "data: unknown kind of file 'my.plan'; expected a name ending in .csv"),
    ("qs.measure(plan, private.values)", "data: ", "got an ndarray", "pandas.DataFrame("),
    ("qs.measure(plan, df.drop(columns='age'))", "data: no column 'age'", "rename the column", "qs.check("),
    ("qs.measure(plan, df.rename(columns={'age': 'Age'}))", "no column 'age'", "'Age': rename it"),
    ("qs.measure(plan, private)", "attribute 'sex': ", "correct the data or the schema", "unknown='drop'"),
    ("qs.measure(plan, df, noise='rouned')", "noise: ", "got 'rouned'; did you mean 'rounded'?"),
    ("qs.measure(plan, df, unknown='ignore')", "unknown: expected one of refuse, drop, got 'ignore'"),
    (
        "qs.measure(plan, df, budget=0.5)",
        "budget: ",
        "not the 0.5 you intend to spend; plan again with yours",
    ),
    (
        "qs.measure(plan, df, ledger='l.ledger')",
        "ledger: ",
        "qs.Ledger('people.ledger', limit=qs.zCDP(1)), got",
    ),
    ("qs.measure(plan, df, error_share=10)", "error_share: ", "got 10; write 0.1 for 10%"),
    ("qs.explore(w, b, private)", "budget: ", "got a DataFrame", BUDGETS),
    ("qs.check(private, schema)", "schema: ", "got a DataFrame; write qs.check(schema, data)"),
    (
        "qs.Ledger('x.ledger', qs.zCDP(1))",
        "Ledger: too many",
        "write qs.Ledger('people.ledger', limit=qs.zCDP(1))",
    ),
    # Releases
    ("release.answer(3)", "workload: ", "qs.where(schema, 'age >= 18'), got 3"),
    ("estimate.answer(3)", "workload: ", "qs.where(schema, 'age >= 18'), got 3"),
    (
        "release.answer(other)",
        "its schema Schema(a: 3 ordinal values) differs",
        "build it on the schema of the release",
    ),
    ("release.answer(w).interval(95)", "level: ", "got 95; write 0.95 for 95%"),
    ("release.answer(w).to_frame('panda')", "backend: ", "got 'panda'; did you mean 'pandas'?"),
    ("release.answer(w).value", "Answers has no 'value'; did you mean 'values'?"),
    ("release.answers(w)", "Release has no 'answers'; did you mean 'answer'?"),
    ("release.answer(w)['age > 3']", "answers['age > 3']: no query", "release.answer('age > 3')"),
    ("release.marginal(['age', 'sex'])", "attribute: ", "got a list; give names one by one: 'age', 'sex'"),
    ("release.marginal('age', 'sex')", "{sex, age} are not measured", "release.estimate()"),
    ("release.quantile('sex', 0.5)", "'sex' is categorical", "release.table('sex')"),
    ("release.quantile('age', 50)", "probabilities: ", "got 50; write 0.5 for 50%"),
    ("release.quantile('age', 'median')", "probabilities: ", "such as [0.1, 0.5, 0.9], got 'median'"),
    ("release.quantile('age')", "quantile: missing", "write release.quantile('age', [0.1, 0.5, 0.9])"),
    ("release.share('age >= 3', of=\"sex == 'mael'\")", "no value 'mael'; did you mean 'male'?"),
    ("release.table('sex', total=True)", "table: unknown argument 'total'; did you mean 'totals'?"),
    ("release.write(w)", "write: missing", "'path'", "write release.write(workload, 'answers.csv')"),
    ("release + release", "+: not defined for a Release and a Release", "Ledger"),
    ("release.answer(w)[private]", "answers[…]: expected an integer, got a DataFrame"),
    ("qs.verify(private)", "folder: expected the path of a release folder", "got a DataFrame"),
    (
        "qs.Ordinal('a', [1, 2], missing=private)",
        "missing of attribute 'a': ",
        "1, 2, or a string, got a DataFrame",
    ),
    ("estimate.integers(3)", "integers: too many", "arguments: seed"),
]
"""What a user writes, and pieces of the message: the argument, what was given, and the remedy."""


@pytest.mark.parametrize(("code", "pieces"), [(code, pieces) for code, *pieces in PYTHON], ids=str)
def test_a_message_says_what_to_write_instead(code, pieces, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))  # noqa: PTH208 - names only
    with pytest.raises(qs.QuerySmasherError) as caught:
        eval(code, dict(names()))  # noqa: S307 - our own words
    message = str(caught.value)
    for piece in pieces:
        assert piece in message
    assert SECRET not in message
    assert "\n" not in message
    assert sorted(os.listdir(folder)) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("qs.ApproxDP(1.0)", (qs.BudgetError, TypeError)),
        ("qs.plan(w, b, objectiv='worst')", (qs.ArgumentError, TypeError)),
        ("plan + plan", (qs.ArgumentError, TypeError)),
        ("plan.rsme", (qs.UnknownNameError, AttributeError)),
        ("schema['agee']", (qs.UnknownAttributeError, KeyError)),
        ("qs.where(schema, 'age & 3')", (qs.PredicateError, ValueError)),
    ],
)
def test_an_error_is_also_the_builtin_that_a_user_expects(code, kinds):
    with pytest.raises(qs.QuerySmasherError) as caught:
        eval(code, dict(names()))  # noqa: S307
    for kind in kinds:
        assert isinstance(caught.value, kind)


def test_errors_inside_a_function_or_an_attribute_are_not_explained_away():
    def broken():
        raise TypeError("inside")

    with pytest.raises(TypeError, match="inside") as caught:
        qs.errors.explained("broken()")(broken)()
    assert type(caught.value) is TypeError

    class Failing(qs.errors.Explained):
        @property
        def rmse(self):
            return self._nothing

    with pytest.raises(AttributeError, match="_nothing") as caught:
        _ = Failing().rmse
    assert type(caught.value) is AttributeError
    assert not hasattr(names()["plan"], "nonsense")


COMMANDS = [
    (["answer", "my.release", "age > 3 & sex == 'male'"], "write age > 3 and sex == 'male'"),
    (["answer", "my.release", "sex == mael"], "strings need quotes, as in sex == 'male'"),
    (["answer", "my.release", "age > 3", "--level", "95"], "level: ", "write 0.95 for 95%"),
    (["answer", "nowhere", "age > 3"], "no folder or file 'nowhere'; relative paths start at"),
    (["answer", "people.csv", "age > 3"], "'people.csv' is damaged, or not", "that `querysmasher release`"),
    (
        ["answer", "my.plan", "age > 3"],
        "contains a 'querysmasher plan'",
        "`querysmasher release --plan FILE`",
    ),
    (["plan", "people.csv"], "people.csv is not valid TOML", "a spec file ends in .toml"),
    (["plan", "folder"], "'folder' is a folder; name a spec file, such as 'folder", "release.toml'"),
    (["plan", "nowhere.toml"], "there is no file 'nowhere.toml'; `querysmasher init` writes a first one"),
    (["release"], "release.toml: data: missing; name the table under [data] or with --data"),
    (["compare", "--objective", "wurst"], "objective: ", "did you mean 'worst'?"),
]


@pytest.mark.parametrize(("words", "pieces"), [(words, pieces) for words, *pieces in COMMANDS], ids=str)
def test_a_command_gets_the_same_advice(words, pieces, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))  # noqa: PTH208
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code != 0
    for piece in pieces:
        assert piece in ran.stderr
    assert "qs." not in ran.stderr
    assert sorted(os.listdir(folder)) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("code", "family", "attributes"),
    [
        ("qs.all_kway(schema, [1, 2], 'prefix')", "prefix", "'sex', 'region'"),
        ("qs.queries(schema, sex='range', age='range')", "range", "'sex'"),
        ("qs.queries(schema, region=qs.ranges(schema, 'region', 0, [1, 2]))", "ranges", "'region'"),
    ],
)
def test_an_order_that_a_categorical_attribute_does_not_have_is_warned_of_once(code, family, attributes):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        eval(code, dict(names()))  # noqa: S307
    (one,) = caught
    assert one.category is qs.QuerySmasherWarning
    assert issubclass(one.category, UserWarning)
    assert str(one.message).startswith(
        f"family {family!r} of {attributes}: the order in which the values are"
    )
    assert "declare it with qs.Ordinal(" in str(one.message)
    assert one.filename == "<string>"  # the user's line, not ours


def test_what_the_kinds_suggest_and_what_is_ordered_is_not_warned_of():
    schema = names()["schema"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qs.all_kway(schema, [1, 2])
        qs.marginals(schema, 2)
        qs.queries(schema, age="prefix", income="range", sex="identity")
        qs.queries(schema, region=qs.hierarchy(schema, "region", {"a": ["north", "south"], "b": ["east"]}))
        qs.all_kway(qs.Schema([qs.Ordinal("sex", ["F", "M"])]), 1, "prefix")


def test_a_spec_and_its_commands_remark_on_such_an_order(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = SMALL.replace("k = [1, 2]", 'k = [1, 2]\nfamily = "prefix"')
    (folder / "order.toml").write_text(text)
    remark = (
        "order.toml: workload[0]: family 'prefix' of 'sex': the order in which the values are listed is used"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (told,) = read_spec(folder / "order.toml").remarks
        ran = CliRunner().invoke(app, ["plan", "order.toml", "--json"])
    assert told.startswith(remark)
    assert "declare 'sex' with kind = \"ordinal\"" in told
    assert ran.exit_code == 0
    assert f"Remark: {told}.\n" in ran.stderr
    assert read_spec(folder / "release.toml").remarks == []


def test_what_was_given_is_shown_only_if_it_is_a_single_value():
    frame = pd.DataFrame({"name": [SECRET]})
    for data in (
        frame,
        frame["name"],
        frame.values,
        [SECRET],
        {SECRET: 1},
        (SECRET,),
        {SECRET},
        iter([SECRET]),
    ):
        assert SECRET not in as_given(data)
    assert as_given("x" * 1000) == "'" + "x" * 75 + "…'"
    assert as_given(np.float64(0.5)) == repr(np.float64(0.5))
    assert nearest("x", ["x"] * 20_000) is None  # looking for it would take long
