"""`release`: real tables in, a whole folder out, or nothing; and `answer` asks it."""

import dataclasses
import hashlib
import json

import duckdb
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import querysmasher as qs
from querysmasher.cli.folder import KNOWN
from querysmasher.release import writing
from querysmasher.spec import read_spec
from tests.cli.conftest import SPEC, names

FILES = ["answers.parquet", "datapackage.json", "plan.qs", "release.qs", "summary.json"]


def test_the_folder(run, folder):
    ran = run("release")
    assert names(folder) == ["out", "people.csv", "release.toml"]
    assert names(folder / "out") == FILES
    release = qs.Release.load("out/release.qs")
    assert release.guarantee in ran.words
    assert "Every measurement spends the budget again" in ran.words
    assert "querysmasher answer out \"sex == 'F'\"" in ran.out
    answers = release.answer()
    table = pq.read_table("out/answers.parquet")
    np.testing.assert_array_equal(table["value"].to_numpy(), answers.values)
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert summary["private"] is True
    assert summary["guarantee"] == release.guarantee
    assert summary["queries"] == len(release.workload)
    assert qs.Schema.from_json(summary["schema"]) == release.plan.schema
    assert qs.Plan.load("out/plan.qs").workload == release.workload
    assert ran.err == ""


def test_json(run, folder):
    read = run("release", "--json", "--answers", "none").json
    assert read["folder"] == "out"
    assert read["files"] == ["release.qs", "plan.qs", "summary.json"]
    assert "spends the budget again" in read["note"]
    assert names(folder / "out") == sorted(read["files"])


def test_csv_answers(run, folder):
    run("release", "--answers", "csv", "--out", "there")
    assert names(folder / "there") == ["answers.csv", *FILES[1:]]
    table = pyarrow.csv.read_csv("there/answers.csv")
    answers = qs.Release.load("there/release.qs").answer()
    about = ["table", "kind", "query", "sex", "age", "hour", "hour_from", "hour_to"]
    about += ["income", "income_from", "income_to"]
    assert table.column_names == [*about, "value", "std", "low", "high", "cv", "flag"]
    np.testing.assert_array_equal(table["value"].to_numpy(), answers.values)
    assert table["sex"][0].as_py() == "F"
    assert table["query"][0].as_py() == "sex == 'F'"


@pytest.mark.slow
def test_who_publishes_what_and_when(run, folder):
    words = 'title = "Our people"\norganisation = "Office"\ncontact = "a@b.example"\ndata = "people 2024"\n'
    (folder / "release.toml").write_text(f"{SPEC}\n[about]\n{words}")
    run("release", "--answers", "json")
    summary = json.loads((folder / "out" / "summary.json").read_text())
    release = qs.Release.load("out/release.qs")
    package = json.loads((folder / "out" / "datapackage.json").read_text())
    about = json.loads((folder / "out" / "answers.json").read_text())["about"]
    run("report", "out", "--out", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    for found in (summary, release.provenance.to_json(), package["resources"][0]["querysmasher"], about):
        assert found["title"] == "Our people"
        assert found["organisation"] == "Office"
        assert found["data"] == "people 2024"
        assert len(found["date"]) == 10
        assert found["plan_digest"] == hashlib.sha256((folder / "out" / "plan.qs").read_bytes()).hexdigest()
        assert found["spec_digest"] == hashlib.sha256((folder / "release.toml").read_bytes()).hexdigest()
        for word in ("Our people", "Office", "a@b.example", found["date"], found["plan_digest"]):
            assert word in page
    assert (
        summary["digests"]["release.qs"]
        == hashlib.sha256((folder / "out" / "release.qs").read_bytes()).hexdigest()
    )


@pytest.mark.parametrize("day", ["2024-03-01", '"2024-03-01"'])
def test_the_spec_states_date_level_thresholds_and_suppression(run, folder, day):
    """A date of TOML, or text; all of it is verified."""
    chosen = "[output]\nlevel = 0.8\nthresholds = [0.05, 0.5]\nsuppress = 0.6\n"
    (folder / "release.toml").write_text(f"{SPEC}{chosen}[about]\ndate = {day}\n")
    run("release", "--answers", "csv")
    assert json.loads((folder / "out" / "summary.json").read_text())["date"] == "2024-03-01"
    answers = qs.Release.load("out/release.qs").answer()
    expected = answers.to_frame("pandas", 0.8, thresholds=(0.05, 0.5), suppress=0.6)
    table = pyarrow.csv.read_csv("out/answers.csv").to_pandas()
    assert table["flag"].tolist() == expected["flag"].tolist()
    np.testing.assert_allclose(table["low"], expected["low"], atol=1e-2)
    assert run("verify", "out").out.startswith("VERIFIED")


@pytest.mark.slow
def test_every_source(run, folder):
    people = pyarrow.csv.read_csv("people.csv")
    pq.write_table(people, "people.parquet")
    with duckdb.connect("people.duckdb") as connection:
        connection.execute("CREATE VIEW everyone AS FROM 'people.parquet'")
    run("release", "--data", "people.parquet", "--out", "a", "--seed", "3")
    spec = SPEC.replace('path = "people.csv"', 'database = "people.duckdb"\ntable = "everyone"')
    (folder / "release.toml").write_text(spec)
    run("release", "--out", "b", "--seed", "3")
    (folder / "release.toml").write_text(SPEC)
    run("release", "--out", "c", "--seed", "3")
    values = [qs.Release.load(f"{name}/release.qs").answer().values for name in "abc"]
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])


def test_a_seed_is_told_everywhere(run, folder):
    assert "NONE: this is a simulation" in run("release", "--seed", "1").words
    assert json.loads((folder / "out" / "summary.json").read_text())["private"] is False
    ran = run("answer", "out", "age >= 5")
    assert "NONE: this is a simulation" in ran.err


@pytest.mark.slow
def test_answers(run, folder):
    run("release", "--seed", "5")
    release = qs.Release.load("out/release.qs")
    for level in (0.95, 0.5):
        texts = ["age >= 5 and sex == 'F'", "hour in [0, 6]"]
        read = run("answer", "out", *texts, "--json", "--level", level).json
        answers = release.answer(sum(qs.where(release.plan.schema, t) for t in texts))
        low, high = answers.interval(level)
        assert read["level"] == level
        assert [a["query"] for a in read["answers"]] == texts
        for name, expected in (("value", answers.values), ("std", answers.std), ("low", low), ("high", high)):
            assert [a[name] for a in read["answers"]] == expected.tolist()
    words = run("answer", "out/release.qs", texts[0]).words
    low, high = answers.interval()
    assert (
        f"{texts[0]} {answers.values[0]:,.1f} ± {answers.std[0]:,.1f} {low[0]:,.1f} to {high[0]:,.1f}"
        in words
    )
    assert "95% interval" in words.replace("┃", "")


def test_without_a_predicate_it_tells_what_can_be_asked(run, folder):
    run("release")
    words = run("answer", "out").words
    assert "sex × age" in words
    assert "age ordinal 0, 1, 2, 3, …, 9" in words
    assert "income binned [0, 10), [10, 25.5]" in words
    read = run("answer", "out", "--json").json
    assert qs.Schema.from_json(read["schema"]) == qs.Release.load("out/release.qs").plan.schema
    assert len(read["attribute_sets"]) == 10


def test_answers_that_cannot_be(run, folder):
    run("release")
    ran = run("answer", "out", "agee > 3", code=2)
    ran.fails(
        2, "unknown attribute 'agee'; did you mean 'age'? (the schema has 'sex', 'age', 'hour', 'income')"
    )
    ran = run("answer", "out", "age > 3 and sex == 'F' and hour == 0", "--json", code=2)
    assert ran.json["error"]["code"] == 2
    assert "sex, age and hour were not planned together" in ran.err
    run("answer", "out", "age > 3", "--level", "1.5", code=2).fails(
        2, "level: expected a number between 0 and 1, got 1.5"
    )
    where = f"relative paths start at {str(folder)!r}"
    run("answer", "none", "age > 3", code=4).fails(4, f"no folder or file 'none'; {where}")
    (folder / "empty").mkdir()
    run("answer", "empty", "age > 3", code=4).fails(
        4, "'empty' is not a release folder: it has no 'release.qs' in it"
    )
    run("answer", "people.csv", "age > 3", code=4)
    run("answer", "out/plan.qs", "age > 3", code=4)


@pytest.mark.slow
def test_nothing_is_replaced_unless_forced_nor_anything_that_is_no_release(run, folder):
    run("release", "--seed", "1")
    before = (folder / "out" / "release.qs").read_bytes()
    ran = run("release", code=4)
    assert ran.err.startswith(
        "error: 'out' already has a release. Query that one, or choose another folder; "
    )
    assert "spends the budget again" in ran.err
    assert (folder / "out" / "release.qs").read_bytes() == before
    run("release", "--seed", "2", "--force", "--answers", "none")
    assert names(folder / "out") == FILES[2:]
    assert (folder / "out" / "release.qs").read_bytes() != before
    (folder / "out" / "thesis.docx").write_text("precious")
    ran = run("release", "--force", code=4)
    ran.fails(4, "'out' contains 'thesis.docx', which is not part of a release; choose another folder")
    run("release", "--force", "--out", "people.csv", code=4).fails(
        4, "'people.csv' is a file; expected a folder that does not exist yet"
    )
    run("release", "--out", "no/where", code=4)
    assert (folder / "people.csv").read_text().startswith("sex")
    (folder / "empty").mkdir()
    run("release", "--out", "empty")
    assert names(folder / "empty") == FILES
    assert set(FILES) <= KNOWN


def test_a_stored_plan(run, folder):
    run("plan", "--save", "my.plan")
    run("release", "--plan", "my.plan")
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", "rho = 0.6"))
    ran = run("release", "--plan", "my.plan", "--out", "b", code=2)
    ran.fails(2, "--plan: 'my.plan' has a different budget than release.toml; plan again")
    (folder / "release.toml").write_text(SPEC.replace("k = [1, 2]", "k = 1"))
    ran = run("release", "--plan", "my.plan", "--out", "b", code=2)
    ran.fails(2, "--plan: 'my.plan' has a different workload than release.toml; plan again")


def test_a_plan_over_its_budget_is_refused_with_its_own_code(run, folder):
    plan = read_spec("release.toml").plan()
    measured = tuple(dataclasses.replace(m, variance=m.variance / 2) for m in plan.measured)
    dataclasses.replace(plan, measured=measured).save("greedy.plan")
    ran = run("release", "--plan", "greedy.plan", code=3)
    assert "nothing was measured" in ran.err
    drop = SPEC + '[measure]\nunknown = "drop"\n'
    (folder / "release.toml").write_text(drop.replace("rho = 0.5", 'rho = 0.5\nneighbours = "replace_one"'))
    assert "replace_one neighbours" in run("release", code=3).err
    assert names(folder) == ["greedy.plan", "people.csv", "release.toml"]


@pytest.mark.parametrize(
    ("table", "code", "message"),
    [
        (
            "sex,age,hour,income\nF,77,0,3\n",
            5,
            "attribute 'age': the data has a value outside",
        ),
        ("sex,years,hour,income\nF,7,0,3\n", 5, "data: no column 'age' for the attribute of that name"),
        ("", 5, "data: "),
    ],
)
def test_tables_that_do_not_fit(run, folder, table, code, message):
    (folder / "people.csv").write_text(table)
    ran = run("release", code=code)
    assert message in ran.err
    assert "77" not in ran.err
    assert names(folder) == ["people.csv", "release.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device"), 4, "No space left on device."),
        (MemoryError(), 6, "not enough memory."),
        (KeyboardInterrupt(), 130, "interrupted; no partial output is left."),
    ],
)
def test_a_failure_while_writing_leaves_the_release_and_nothing_else(
    run, folder, monkeypatch, error, code, message
):
    def failing(*arguments):
        raise error

    run("release", "--seed", "1", "--out", "old")
    before = (folder / "old" / "release.qs").read_bytes()
    monkeypatch.setattr(writing.Tidy, "tables", failing)
    for arguments in ([], ["--out", "old", "--force"]):
        ran = run("release", *arguments, code=code)
        assert ran.err.startswith(f"error: {message} The table was measured")
    new, left = sorted(p for p in folder.iterdir() if "unfinished" in p.name)
    assert names(folder) == sorted(["old", new.name, left.name, "people.csv", "release.toml"])
    assert names(new) == names(left) == ["plan.qs", "release.qs"]
    assert names(folder / "old") == FILES
    assert (folder / "old" / "release.qs").read_bytes() == before


@pytest.mark.parametrize("predicate", ["age >= 3 and sex == 'F'", "hour in [0, 6]"])
def test_what_is_offered_next_can_be_answered(run, folder, predicate):
    """Also if only some queries are measured, as they are: single values do not follow from them."""
    queries = f'kind = "where"\npredicate = "{predicate}"'
    (folder / "release.toml").write_text(SPEC.replace('kind = "all_kway"\nk = [1, 2]', queries))
    out = run("release").out
    assert out.splitlines()[-1] == f'Next: `querysmasher answer out "{predicate}"`'
    assert (
        f'such as "{predicate}". A query that does not follow from the measured ones is refused'
        in run("answer", "out").words
    )
    run("answer", "out", predicate)
    run("answer", "out", "sex == 'F'", code=2)


def test_a_predicate_is_offered_rather_than_a_sum(run, folder):
    means = 'kind = "means"\nattribute = "age"\nby = ["sex"]'
    (folder / "release.toml").write_text(SPEC.replace('kind = "all_kway"\nk = [1, 2]', means))
    assert run("release").out.splitlines()[-1] == """Next: `querysmasher answer out "sex == 'F'"`"""
