"""`[measure] person`: persons in a spec file, from the release to the pages."""

import json

import pytest

import querysmasher as qs
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


def test_a_missing_column_is_told_by_check_and_release(run, spec, folder):
    (folder / "people.csv").write_text(PEOPLE)
    assert "no column 'household' that says to whom" in run("check", code=5).out
    assert "no column 'household' that says to whom" in run("release", code=5).err
    (folder / "release.toml").write_text(spec.replace('"household"', "3"))
    assert "measure.person: expected the name of a column" in run("plan", code=2).err


def test_resuming_with_another_person_is_refused(run, spec, folder):
    run("release")
    (folder / "release.toml").write_text(spec.replace('person = "household"', ""))
    assert "different person" in run("release", "--out", "b", "--resume", "out", code=2).err


@pytest.mark.parametrize(("unknown", "code"), [("refuse", 5), ("drop", 0)])
def test_check_says_what_release_does_with_records_without_a_person(run, spec, folder, unknown, code):
    with (folder / "people.csv").open("a") as table:
        table.write("F,3,0,1,\nX,3,0,1,h0\nX,3,0,1,\n")
    (folder / "release.toml").write_text(f'{spec}unknown = "{unknown}"\n')
    words = run("check", code=code).words
    assert "3 of 203 records do not fit, 2 of them without a value in 'household': " in words
    if code:
        assert words.endswith(
            'the table is refused, or with [measure] unknown = "drop" such records are dropped.'
        )
    else:
        assert words.endswith(
            'with [measure] unknown = "drop" such records are dropped. At most 2 records of each person are '
            "counted: 160 others are left out. Counted: 40."
        )
    read = run("check", "--json", code=code).json
    assert (read["ok"], read["nameless"], read["crowded"]) == (not code, 2, 160)
    run("release", code=code)
