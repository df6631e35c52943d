"""`[measure] person`: persons in a spec file, from the release to the pages."""

import json

import pytest

import querysmasher as qs
from querysmasher.comparison.compare import Comparison
from tests.cli.conftest import PEOPLE, SPEC


@pytest.fixture
def spec(folder):
    lines = PEOPLE.splitlines()
    people = [lines[0] + ",household", *(f"{line},h{i // 10}" for i, line in enumerate(lines[1:]))]
    (folder / "people.csv").write_text("\n".join(people) + "\n")
    text = SPEC.replace("[budget]\n", "[budget]\nrecords_per_person = 2\n")
    text = text.replace("rho = 0.5", "rho = 5000.0") + '[measure]\nperson = "household"\n'
    (folder / "release.toml").write_text(text)
    return text


def test_at_most_so_many_records_of_each_household_are_counted(run, spec, folder):
    ran = run("release")
    assert "one person (a value of 'household'), of which at most 2 are counted" in ran.words
    release = qs.Release.load("out/release.qs")
    assert release.person == "household"
    assert abs(release.marginal().item() - 40) < 4  # 20 households of 10 records each
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert summary["person"] == "household"


def test_the_plan_makes_the_same_promise(run, spec):
    said = "one person (a value of 'household'), of which at most 2 are counted"
    assert said in run("plan").words
    assert said in run("plan", "--json").json["guarantee"]


def test_so_does_a_comparison(run, spec, monkeypatch):
    monkeypatch.setattr(qs, "compare", lambda workload, budget, **_: Comparison(workload, budget, (), "mean"))
    assert "one person (a value of 'household'), of which at most 2 are counted" in run("compare").words


def test_a_missing_column_is_told_by_check_and_release(run, spec, folder):
    (folder / "people.csv").write_text(PEOPLE)
    assert "no column 'household' that says to whom" in run("check", code=5).out
    assert "no column 'household' that says to whom" in run("release", code=5).err
    (folder / "release.toml").write_text(spec.replace('"household"', "3"))
    assert "measure.person: expected the name of a column" in run("plan", code=2).err


COUNTED = "Every count, its error and its interval are about the records that are counted"


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["refuse", "drop"])
@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize("report", [True, False])
def test_the_command_says_which_records_are_counted(run, spec, folder, unknown, person, report):
    text = spec if person else spec.replace('person = "household"', "")
    text += f'unknown = "{unknown}"\nreport_dropped = {str(report).lower()}\n'
    (folder / "release.toml").write_text(text)
    whole = not person and unknown == "refuse"
    if whole and report:
        said = run("release", code=5).err
        assert "report_dropped: expected False, because every record is counted" in said
        assert "[measure] person or unknown" in said
        return
    promised, ran, asked = run("plan").words, run("release").words, run("answer", "out", "sex == 'F'").err
    summary = json.loads((folder / "out" / "summary.json").read_text())
    package = json.loads((folder / "out" / "datapackage.json").read_text())
    listed = run("answer", "out").words
    for said in (promised, ran, asked, summary["guarantee"], package["description"], listed):
        assert (COUNTED in said) != whole
        assert ("is measured as part of the budget" in said) == report
        assert ("all but 2 of each person (a value of 'household')" in said) == person
        assert ("outside the schema, in a measured attribute" in said) == (unknown == "drop")
    assert ("About " in ran) == report
    assert summary["counted"]["unknown"] == unknown
    assert ("left_out" in summary["counted"]) == report
    assert "FAILED" not in run("verify", "out").words


def test_what_is_reported_and_expected(run, spec, folder):
    """20 households of 10 records, of which 2 are counted; noise of one person is the least there is."""
    without = run("plan", "--json").json["expected_error"]
    (folder / "release.toml").write_text(spec + "report_dropped = true\n")
    assert run("plan", "--json").json["expected_error"] == pytest.approx(without / 0.99**0.5)
    run("release", "--seed", "1")  # without a seed, one release in forty shows no upper end
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert without < summary["expected_error"] < without / 0.99**0.5
    left_out = summary["counted"]["left_out"]
    assert left_out["std"] < 1.1
    found = {(one["from"], one["to"]): one["value"] for one in left_out["persons"]}
    assert abs(found[7, 14] - 20) < 7  # each lacks 8
    low, high = left_out["records"]
    assert low <= 160 <= high
    run("report", "out", "--out", "page.html")
    assert "What was left out" in (folder / "page.html").read_text()


def test_resuming_with_another_person_or_policy_is_refused(run, spec, folder):
    run("release")
    for other, what in (
        (spec.replace('person = "household"', ""), "person"),
        (spec + 'unknown = "drop"\n', "policy for unknown values"),
        (spec + "report_dropped = true\n", "report_dropped"),
    ):
        (folder / "release.toml").write_text(other)
        assert f"different {what}" in run("release", "--out", "b", "--resume", "out", code=2).err


@pytest.mark.slow
def test_explore_reports_it_too(run, spec, folder):
    text = spec.replace('kind = "all_kway"', 'kind = "marginals"') + "report_dropped = true\n"
    (folder / "release.toml").write_text(text)
    said = run("explore").words
    assert COUNTED in said
    assert "Left out" in said
    assert "FAILED" not in run("verify", "out").words


@pytest.mark.parametrize(("unknown", "code"), [("refuse", 5), ("drop", 0)])
def test_check_says_what_release_does_with_records_without_a_person(run, spec, folder, unknown, code):
    with (folder / "people.csv").open("a") as table:
        table.write("F,3,0,1,\nX,3,0,1,h0\nX,3,0,1,\n")
    (folder / "release.toml").write_text(f'{spec}unknown = "{unknown}"\n')
    words = run("check", code=code).words
    assert "3 of 203 records do not fit, 2 of them without a value in 'household': " in words
    if code:
        assert words.endswith(
            "the table is refused; unless neighbours replace a record, such records are dropped with "
            '[measure] unknown = "drop".'
        )
    else:
        assert words.endswith(
            'with [measure] unknown = "drop" such records are dropped. At most 2 records of each person are '
            "counted. 160 others are left out. Counted: 40."
        )
    read = run("check", "--json", code=code).json
    assert (read["ok"], read["nameless"], read["crowded"]) == (not code, 2, 160)
    run("release", code=code)
