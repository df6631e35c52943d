"""[[statistics]]: in the spec, in files, on the page, in description and summary; and `verify` knows them."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.cli.folder import KNOWN
from querysmasher.errors import SpecError
from querysmasher.release.release_file import release_from_data, release_to_data
from querysmasher.release.verify import FAILED, OK, OPEN
from querysmasher.spec import read_spec
from querysmasher.spec.spec_statistics import Expected, check_asked
from querysmasher.statistics.statistic import KINDS, Statistic, read_statistics
from tests.cli.conftest import SPEC, names
from tests.profiles import fewer
from tests.reference import query_rows
from tests.release.folders import statuses, text, with_digests
from tests.spec.files import write

STATED = """
[[statistics]]
kind = "table"
attributes = ["sex", "income"]
percent = "row"
totals = false

[[statistics]]
kind = "mean"
attribute = "income"
by = "sex"
title = "Mean income of women, and of men"
name = "incomes"

[[statistics]]
kind = "total"
attribute = "age"
where = "sex == 'F'"

[[statistics]]
kind = "quantile"
attribute = "age"
probabilities = [0.1, 0.9]
by = ["sex"]

[[statistics]]
kind = "share"
predicate = "age >= 5"
of = "sex == 'F'"

[[statistics]]
kind = "difference"
a = {kind = "mean", attribute = "age", where = "sex == 'F'"}
b = {kind = "mean", attribute = "age", where = "sex == 'M'"}

[[statistics]]
kind = "ratio"
a = "age >= 5"
b = "age < 5"
by = "sex"
"""
OF_THE_LIBRARY = {
    "1": lambda r: r.table("sex", "income", percent="row", totals=False).figures,
    "incomes": lambda r: r.mean("income", by="sex"),
    "3": lambda r: r.total("age", where="sex == 'F'"),
    "4": lambda r: r.quantile("age", [0.1, 0.9], by=["sex"]),
    "5": lambda r: r.share("age >= 5", of="sex == 'F'"),
    "6": lambda r: r.difference(r.mean("age", where="sex == 'F'"), r.mean("age", where="sex == 'M'")),
    "7": lambda r: r.ratio("age >= 5", "age < 5", by="sex"),
}
FILES = [f"statistic-{name}" for name in OF_THE_LIBRARY]


@pytest.fixture
def stated(folder):
    """A folder whose spec states one statistic of every kind."""
    (folder / "release.toml").write_text(SPEC + STATED)
    return folder


@pytest.mark.slow
def test_one_file_for_each_with_the_figures_of_the_library(run, stated):
    told = run("release", "--answers", "csv", "--json").json
    out, release = stated / "out", qs.Release.load("out/release.qs")
    assert names(out) == sorted(told["files"])
    assert [name for name in told["files"] if "statistic" in name] == [f"{name}.csv" for name in FILES]
    assert {statistic.kind for statistic in release.statistics} == set(KINDS)
    package = json.loads((out / "datapackage.json").read_text())
    described = {resource["path"]: resource for resource in package["resources"]}
    assert list(described) == ["answers.csv", *(f"{name}.csv" for name in FILES)]
    for name, statistic in zip(OF_THE_LIBRARY, release.statistics, strict=True):
        figures = OF_THE_LIBRARY[name](release)
        title = statistic.title or figures.title
        table = pyarrow.csv.read_csv(out / f"statistic-{name}.csv")
        expected = figures.to_frame()
        assert table["table"].to_pylist() == [title] * len(figures)
        assert table.drop("table").column_names == expected.column_names
        for column in expected.column_names:
            assert table[column].to_pylist() == expected[column].to_pylist()
        resource = described[f"statistic-{name}.csv"]
        assert resource["title"] == title
        assert resource.get("description", "") == figures.note
        assert [field["name"] for field in resource["schema"]["fields"]] == table.column_names
        assert all(field["description"] for field in resource["schema"]["fields"])
        assert Statistic.read(resource["querysmasher"]["statistic"], "") == statistic
    assert [Statistic.read(given, "") for given in told["statistics"]] == list(release.statistics)
    run("report", "out")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '<section id="statistics">' in page
    assert "<h3>Mean income of women, and of men</h3>" in page
    assert "<h3>Share of age &gt;= 5, among sex == &#x27;F&#x27;</h3>" in page
    verdict = qs.verify(out)
    assert verdict.ok, verdict


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv.gz", "json", "xlsx"])
def test_every_format_is_verified_also_if_digits_differ_by_rounding(run, stated, monkeypatch, form):
    run("release", "--answers", form)
    assert run("verify", "out").code == 0
    of = Statistic.of

    def elsewhere(self, source):
        """As on a machine that rounds otherwise."""
        figures = of(self, source)
        ends = figures.reaching
        return dataclasses.replace(
            figures,
            values=figures.values + 1e-12 * figures.std,
            std=figures.std * (1 - 1e-15),
            ends=lambda reach: tuple(end * (1 + 1e-15) for end in ends(reach)),
            corners=(),
        )

    monkeypatch.setattr(Statistic, "of", elsewhere)
    verdict = qs.verify(stated / "out")
    found = statuses(verdict)
    assert {found[f"{name}.{form}"] for name in FILES} == {OK}, str(verdict)


@pytest.mark.slow
def test_changed_figures_fail_whatever_the_digests_say(run, stated):
    run("release", "--answers", "csv")
    out, path = stated / "out", stated / "out" / "statistic-incomes.csv"
    before = path.read_text()
    for name in ("value", "std", "low", "high", "cv"):
        table = pyarrow.csv.read_csv(path)
        changed = [value * 1.001 for value in table[name].to_pylist()]
        pyarrow.csv.write_csv(table.set_column(table.column_names.index(name), name, pa.array(changed)), path)
        verdict = with_digests(out)
        assert statuses(verdict)[path.name] == FAILED, name
        assert repr(name) in text(verdict, path.name)
        path.write_text(before)
    path.write_text(before.replace("F", "M"))
    assert statuses(with_digests(out))[path.name] == FAILED
    path.write_text(before.replace("women", "girls"))
    assert statuses(with_digests(out))[path.name] == FAILED
    path.rename(out / "statistic-other.csv")
    verdict = with_digests(out)
    assert statuses(verdict)["other files"] == OPEN
    assert "statistic-other.csv" in text(verdict, "other files")


@pytest.mark.slow
def test_statistics_without_answers_are_csv_and_a_folder_of_them_can_be_replaced(run, stated):
    told = run("release", "--answers", "none", "--json").json
    assert told["files"] == [
        *("release.qs", "plan.qs", "summary.json"),
        *(f"{name}.csv" for name in FILES),
        "datapackage.json",
    ]
    assert run("verify", "out").code == 0
    assert not KNOWN & {f"{name}.csv" for name in FILES}
    run("release", "--force")
    (stated / "out" / "statistic-a.b.csv").write_text("")
    assert "which is not part of a release" in run("release", "--force", code=4).err


@pytest.mark.slow
def test_figures_are_flagged_and_left_out_as_the_spec_states(run, stated):
    (stated / "release.toml").write_text(
        SPEC + STATED + '[output]\nanswers = "csv"\nlevel = 0.5\nthresholds = [0.01]\nsuppress = 0.02\n'
    )
    run("release", "--seed", "3")
    figures = OF_THE_LIBRARY["incomes"](qs.Release.load("out/release.qs"))
    expected = figures.to_frame(level=0.5, thresholds=[0.01], suppress=0.02)
    table = pyarrow.csv.read_csv("out/statistic-incomes.csv")
    for name in ("value", "low", "flag"):
        assert table[name].to_pylist() == expected[name].to_pylist()
    assert set(table["flag"].to_pylist()) & {"suppressed"}
    assert statuses(qs.verify("out"))["statistic-incomes.csv"] == OK


MEASURED = "the queries on (age, sex, hour) cannot be answered: sex, age and hour were not planned together"


def test_what_no_plan_answers_is_refused_before_anything_is_measured(run, stated, monkeypatch):
    run("plan", "--save", "my.plan")
    (stated / "release.toml").write_text(
        SPEC + STATED + '[[statistics]]\nkind = "mean"\nattribute = "age"\nby = ["sex", "hour"]\n'
    )
    before = names(stated)
    for command in (["plan"], ["release"], ["release", "--plan", "my.plan"]):
        assert run(*command, code=2).err.startswith(f"error: release.toml: statistics[7]: {MEASURED}")
    read = read_spec("release.toml")
    with pytest.raises(SpecError, match=r"Add \[\[workload\]\] kind = \"means\", attribute = \"age\", by = "):
        read.check()
    with pytest.raises(SpecError, match="statistics"):
        read.measure(qs.Plan.load("my.plan"), "people.csv")
    assert names(stated) == before


X = qs.Schema(
    [
        qs.Number("x", 0, 3, missing="missing"),
        qs.Categorical("g", ["a", "b"]),
        qs.Categorical("h", ["c", "d"]),
    ]
)
ASKED = (
    *(ask(X, "x", by=by) for ask in (qs.sums, qs.means) for by in ((), "g", ("g", "h"))),
    *(qs.marginals(X, names) for names in (["x"], ["g"], ["h"], ["g", "h"], ["x", "h"])),
    *(qs.queries(X, x=rows, g="identity") for rows in ("prefix", [[0, 0, 1, 1, 0]], [[1, 1, 1, 1, 0]])),
    *(qs.where(X, text) for text in ("x >= 2", "x == 1 and g == 'a'", "x == 1 or g == 'a'", "x > 5")),
)
FIGURES = (
    *(
        {"kind": kind, "attribute": "x", "by": by}
        for kind in ("mean", "total")
        for by in ([], "g", ["g", "h"])
    ),
    *({"kind": "quantile", "attribute": "x", "probabilities": 0.5, "by": by} for by in ([], "g")),
    *({"kind": "share", "predicate": text, "of": "x <= 3"} for text in ("x >= 2", "x >= 2 and g == 'a'")),
    {"kind": "table", "attributes": ["x", "h"]},
    {"kind": "mean", "attribute": "x", "where": "g == 'a'"},
)


@fewer(25)
@given(st.lists(st.sampled_from(ASKED), min_size=1, max_size=4), st.sampled_from(FIGURES))
@example([qs.sums(X, "x", by="g"), qs.marginals(X, ["g"])], FIGURES[1])  # how many numbers are known is not
@example([qs.means(X, "x", by="g")], FIGURES[1])
def test_what_follows_from_the_queries_is_never_refused_before_planning(asked, figure):
    """And what does not is, but for queries that tie attributes, and sums over several sets."""
    workload, statistic = sum(asked[1:], start=asked[0]), Statistic.read(figure)
    statistic.of(source := Expected(X))
    known = query_rows(workload)[0]
    known = np.vstack([known, np.ones_like(known[:1])])
    wanted = query_rows(qs.Workload(X, tuple(source.asked)))[0]
    follows = np.linalg.matrix_rank(np.vstack([known, wanted])) == np.linalg.matrix_rank(known)
    try:
        check_asked([statistic], workload, [], "release.toml")
    except SpecError as error:
        assert not follows
        assert "Add [[workload]]" in str(error)  # noqa: PT017
    else:
        assert follows or len(asked) > 1 or "or" in next(iter(workload.labels()))


def test_an_exploration_has_none(run, stated):
    run("explore", code=2).fails(
        2,
        "release.toml: statistics: expected none to explore, got 7; what is measured is not known in advance: "
        "`querysmasher answer` shows statistics afterwards",
    )


def test_a_draft_is_completed_with_its_statistics_only(run, stated, monkeypatch):
    from querysmasher.cli import releasing
    from tests.cli.conftest import FULL, draft_of, fail

    with monkeypatch.context() as patch:
        patch.setattr(releasing, "write_statistic", fail(FULL))
        run("release", code=4)
    draft = draft_of(stated)
    (stated / "release.toml").write_text(SPEC)
    assert "a different list of [[statistics]]" in run("release", "--resume", draft.name, code=2).err
    (stated / "release.toml").write_text(SPEC + STATED)
    run("release", "--resume", draft.name)
    assert {f"{name}.parquet" for name in FILES} <= set(names(stated / "out"))


WRONG = {
    "3": "statistics[0]: expected a table with a kind",
    '{kind = "means"}': "statistics[0].kind: expected one of table, mean, total, quantile, share, difference, "
    "ratio, got 'means'; did you mean 'mean'?",
    '{kind = "mean"}': "statistics[0].attribute: missing; a mean needs attribute",
    '{kind = "ratio", a = "age > 3"}': "statistics[0].b: missing; a ratio needs a and b",
    '{kind = "mean", attribute = "age", byy = "sex"}': "statistics[0].byy: unknown key; did you mean 'by'? "
    "(allowed: kind, name, title, attribute, by, where, assume)",
    '{kind = "mean", attribute = "age", by = 3}': "statistics[0].by: expected the name of an attribute or a list "
    "of names, got 3",
    '{kind = "mean", attribute = "age", by = {}}': "statistics[0].by: expected a string, a number or a list of "
    "these, got {}",
    '{kind = "mean", attribute = 2024-03-01}': "statistics[0].attribute: expected a string, a number or a list of "
    "these, got datetime.date(2024, 3, 1)",
    '{kind = "table", attributes = 3}': "statistics[0].attributes: expected a list of names, got 3",
    '{kind = "table", attributes = ["sex"], name = "a/b"}': "statistics[0].name: expected up to 60 letters, "
    "digits, - and _, for the name of a file, got 'a/b'",
    '{kind = "table", attributes = ["sex"], title = " "}': "statistics[0].title: expected a non-empty string, "
    "got ' '",
    '{kind = "share", predicate = "agee > 3"}': "statistics[0].predicate: unknown attribute 'agee'; did you mean 'age'? "
    "(the schema has 'sex', 'age', 'hour', 'income')",
    '{kind = "ratio", a = {kind = "mean", attribute = "sex"}, b = "age > 3"}': "statistics[0].a: attribute: "
    "expected a number, a binned attribute, or an ordinal one with numbers as values; 'sex' is categorical with "
    "values that are not numbers; ask for its counts",
    '{kind = "ratio", a = {kind = "mean", attribute = "age", title = "x"}, b = "age > 3"}': "statistics[0]: "
    "title: unknown key (allowed: kind, attribute, by, where, assume)",
    '{kind = "quantile", attribute = "age", probabilities = 50}': "statistics[0].probabilities: expected numbers "
    "between 0 and 1 such as [0.1, 0.5, 0.9], got 50; write 0.5 for 50%",
}


@pytest.mark.parametrize("table", WRONG)
def test_what_a_spec_cannot_state(tmp_path, table):
    path = write(tmp_path, f"statistics = [{table}]\n{SPEC}")
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    assert str(caught.value).partition(": ")[2] == WRONG[table] or WRONG[table] in str(caught.value)


def test_names_are_distinct(tmp_path):
    tables = (
        '{kind = "table", attributes = "sex", name = "A"}, {kind = "mean", attribute = "age", name = "a"}'
    )
    with pytest.raises(SpecError, match="'a' is the name of two statistics; each has a file of its own"):
        read_spec(write(tmp_path, f"statistics = [{tables}]\n{SPEC}"))


def test_a_release_file_with_statistics_that_do_not_exist_is_refused(run, stated):
    run("release", "--seed", "1", "--answers", "none")
    release = qs.Release.load("out/release.qs")
    data = release_to_data(release)
    assert read_statistics(data["statistics"]) == release.statistics
    for wrong in ([{"kind": "save"}], [{"kind": "mean", "attribute": "age", "name": "../x"}], 3, [3]):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            release_from_data(data | {"statistics": wrong})
