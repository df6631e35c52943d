"""`check`: what does not fit, on the screen only; and what the command says of a table that is refused."""

import json

import pytest

from querysmasher.data.check import NOTICE
from tests.cli.conftest import PEOPLE, SPEC, names


def test_a_table_that_fits(run, folder):
    ran = run("check")
    assert ran.out.splitlines()[0] == NOTICE
    assert ran.out.splitlines()[-1] == "All 200 records fit."
    assert ran.err == ""
    assert names(folder) == ["people.csv", "release.toml"]


def test_a_table_that_does_not(run, folder):
    (folder / "people.csv").write_text(PEOPLE + "X,3,0,1\nX,77,,1\n")
    ran = run("check", code=5)
    assert ran.out.splitlines()[0] == NOTICE
    assert "'X' × 2" in ran.words
    assert "77" in ran.words
    assert (
        "2 of 202 records do not fit: the table is refused; unless neighbours replace a record, such records "
        'are dropped with [measure] unknown = "drop".' in ran.words
    )
    read = run("check", "--json", code=5).json
    assert read["notice"] == NOTICE
    assert (read["ok"], read["records"], read["bad_records"]) == (False, 202, 2)
    columns = {column["name"]: column for column in read["columns"]}
    assert columns["sex"]["values"] == [["'X'", 2]]
    assert (columns["hour"]["missing"], columns["income"]["unmatched"]) == (1, 0)
    assert names(folder) == ["people.csv", "release.toml"]


def test_a_table_whose_records_are_dropped(run, folder):
    """The spec decides: `release` drops them and ends well, so `check` says so and ends well, too."""
    (folder / "people.csv").write_text(PEOPLE + "X,3,0,1\nX,77,,1\n")
    (folder / "release.toml").write_text(SPEC + '[measure]\nunknown = "drop"\nmax_records = 200\n')
    said = (
        '2 of 202 records do not fit: with [measure] unknown = "drop" such records are dropped. Counted: 200.'
    )
    assert run("check").words.endswith(said)
    assert run("check", "--json").json["ok"]
    run("release")
    (folder / "release.toml").write_text(SPEC + '[measure]\nunknown = "drop"\nmax_records = 199\n')
    assert "more records than max_records = 199" in run("check", code=5).words
    assert "more records than max_records = 199" in run("release", "--force", code=5).err


def test_what_no_table_can_fit_is_refused_as_by_release(run, folder):
    added = 'neighbours = "replace_one"\n[measure]\nunknown = "drop"'
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", f"rho = 0.5\n{added}"))
    assert run("check", code=3).err == run("release", code=3).err


@pytest.mark.parametrize(
    ("budget", "measuring", "code", "said"),
    [
        ('neighbours = "replace_one"', 'person = "sex"', 3, 'use [budget] neighbours = "add_remove"'),
        ('neighbours = "replace_one"', 'unknown = "drop"', 3, 'use [measure] unknown = "refuse"'),
        ("", "report_dropped = true", 5, 'use it together with [measure] person or unknown = "drop"'),
    ],
)
def test_what_no_table_can_fit_is_refused_before_planning(
    run, folder, monkeypatch, budget, measuring, code, said
):
    monkeypatch.setattr("querysmasher.spec.spec.plan", lambda *_, **__: pytest.fail("planned"))
    spec = SPEC.replace("rho = 0.5", f"rho = 0.5\n{budget}\n[measure]\n{measuring}")
    (folder / "release.toml").write_text(spec)
    for command in ("check", "plan", "release"):
        assert said in run(command, code=code).err


def test_another_table_is_read_in_the_dialect_of_the_spec(run, folder):
    (folder / "other.csv").write_text(PEOPLE.replace(",", "|"))
    spec = SPEC.replace('path = "people.csv"', 'path = "people.csv"\ndelimiter = "|"')
    (folder / "release.toml").write_text(spec)
    run("check", code=5)
    assert run("check", "--data", "other.csv").words.endswith("All 200 records fit.")


def test_a_file_without_a_header_is_named_as_that(run, folder):
    (folder / "people.csv").write_text("F,1,0,5\nM,2,6,10\n")
    said = run("check", code=5).words
    assert "the first line of file 'people.csv' has no name of an attribute: is it a header? " in f"{said} "


def test_only_what_is_asked_about_is_looked_at(run, folder):
    spec = SPEC.replace('kind = "all_kway"\nk = [1, 2]', 'kind = "queries"\nfamilies = {age = "prefix"}')
    (folder / "release.toml").write_text(spec)
    (folder / "people.csv").write_text("age\n1\n2\n")
    assert "All 2 records fit." in run("check").out


def test_another_table_and_none(run, folder):
    (folder / "other.csv").write_text(PEOPLE.replace("F,", "f,"))
    assert "'f' × 100" in run("check", "--data", "other.csv", code=5).words
    run("check", "--data", "none.csv", code=4).fails(4, "data: no file 'none.csv'")
    (folder / "release.toml").write_text(SPEC.replace('[data]\npath = "people.csv"', ""))
    run("check", code=2).fails(2, "release.toml: data: missing; name the table under [data] or with --data")


# --- remedies in the words of the spec -----------------------------------------------------------


def test_strangers(run, folder):
    (folder / "people.csv").write_text(PEOPLE + "X,3,0,1\n")
    ran = run("release", code=5)
    assert '[measure] unknown = "drop"' in ran.err
    assert "querysmasher check" in ran.err
    assert "unknown='drop'" not in ran.err
    assert "qs." not in ran.err
    (folder / "release.toml").write_text(SPEC + '[measure]\nunknown = "drop"\n')
    run("release")  # the remedy is one


def test_missing_values_that_are_declared(run, folder):
    (folder / "people.csv").write_text(PEOPLE + ",3,0,1\n")
    run("check", code=5)
    for spec in (
        SPEC.replace('values = ["F", "M"]', 'values = ["F", "M", "?"]\nmissing = "?"'),
        SPEC.replace('values = ["F", "M"]', 'values = ["F", "M", "?"]') + 'missing = {sex = "?"}\n',
    ):
        (folder / "release.toml").write_text(spec)
        assert "1 as '?'" in run("check").words
        run("release", "--force")
        read = json.loads((folder / "out" / "summary.json").read_text())
        assert read["schema"][0]["missing"] == "?"


@pytest.mark.parametrize(
    ("added", "options", "code", "said"),
    [
        (
            'rho = 0.5\nneighbours = "replace_one"\n[measure]\nunknown = "drop"',
            (),
            3,
            '[measure] unknown = "refuse"',
        ),
        ('rho = 0.5\n[measure]\nnoise = "opendp"', ("--seed", "1"), 3, '[measure] noise = "discrete"'),
    ],
)
def test_other_remedies(run, folder, added, options, code, said):
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", added))
    err = run("release", *options, code=code).err
    assert said in err
    for python in ("unknown='", "noise='", "zCDP(", "solver="):
        assert python not in err


# --- several predicates --------------------------------------------------------------------------


def test_one_bad_predicate_of_five_leaves_four_answers(run, folder):
    run("release", "--seed", "1")
    good = ["age >= 5", "sex == 'F'", "hour in [0, 6]", "income < 10"]
    alone = [run("answer", "out", text, "--json").json["answers"][0] for text in good]
    asked = [*good[:2], "agee > 3", *good[2:]]
    ran = run("answer", "out", *asked, code=2)
    for text in good:
        assert text in ran.words
    assert "'agee > 3': unknown attribute 'agee'; did you mean 'age'?" in ran.err
    assert "agee" not in ran.out
    read = run("answer", "out", *asked, "--json", code=2).json["answers"]
    assert [a for a in read if "error" not in a] == alone
    assert read[2]["query"] == "agee > 3"
    assert read[2]["error"]["code"] == 2


def test_predicates_of_which_none_can_be_answered(run, folder):
    run("release")
    ran = run("answer", "out", "age >", "age > 3 and sex == 'F' and hour == 0", code=2)
    assert ran.out == ""
    assert (
        ran.err.splitlines()[0]
        == "error: predicate 'age >': it cannot be read; write a condition such as sex == 'F'"
    )
    assert "sex, age and hour were not planned together" in ran.err
    run("answer", "out", "age > 3", "age > 4", "--level", "1.5", code=2).fails(
        2, "level: expected a number between 0 and 1, got 1.5"
    )


def test_names_with_signs(run, folder):
    (folder / "release.toml").write_text(SPEC.replace('name = "sex"', 'name = "sex-at-birth"'))
    (folder / "people.csv").write_text(PEOPLE.replace("sex,", "sex-at-birth,"))
    ran = run("release", "--seed", "1")
    assert "querysmasher answer out \"[sex-at-birth] == 'F'\"" in ran.out
    run("answer", "out", "[sex-at-birth] == 'F'")
    ran = run("answer", "out", "sex-at-birth == 'F'", code=2)
    assert "needs brackets: [sex-at-birth] == 'F'" in ran.err
    assert "[hours-per-week]" in run("answer", "out").out


# --- dates ---------------------------------------------------------------------------------------


def test_dates_from_the_spec_to_the_answer(run, folder):
    spec = SPEC.replace(
        'kind = "ordinal"\nrange = [0, 9]', 'kind = "ordinal"\nrange = [2024-02-27, 2024-03-02]'
    )
    (folder / "release.toml").write_text(spec)
    days = ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]
    people = "".join(f"{'FM'[i % 2]},{days[i % 5]},0,1\n" for i in range(100))
    (folder / "people.csv").write_text("sex,age,hour,income\n" + people)
    assert "All 100 records fit." in run("check").out
    run("release", "--seed", "1")
    answer = run("answer", "out", "age < '2024-03-01'", "--json").json["answers"][0]
    assert abs(answer["value"] - 60) < 6 * answer["std"]
    assert "'2024-02-27'" in run("answer", "out").out
    (folder / "people.csv").write_text("sex,age,hour,income\nF,2024-2-27,0,1\n")
    assert "'2024-2-27' × 1" in run("check", code=5).words


# --- large budgets -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "remark"),
    [
        ("epsilon = 20\ndelta = 1e-3", "delta = 0.001 is above 0.0001"),
        ("rho = 50", "(at delta = 1e-06) is above 10"),
        ("epsilon = 10\ndelta = 1e-4", None),
    ],
)
def test_large_budgets_are_remarked_wherever_the_guarantee_is_stated(run, folder, budget, remark):
    (folder / "release.toml").write_text(SPEC.replace("rho = 0.5", budget))
    said = [
        run("plan").words,
        run("plan", "--json").json["guarantee"],
        run("release").words,
        json.loads((folder / "out" / "summary.json").read_text())["guarantee"],
        run("answer", "out").words,
        run("answer", "out", "age > 3", "--json").json["guarantee"],
    ]
    for text in said:
        assert ("Remark: " in text) == (remark is not None)
        assert remark is None or remark in text
