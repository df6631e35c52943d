"""What a person does: every change is checked, saved and planned, and nothing that was written is lost."""

import os
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from querysmasher.spec import read_spec
from tests.studio.conftest import MANY, SPEC, error_of

pytestmark = pytest.mark.slow


def stated(studio):
    return tomllib.loads(studio.spec)


def expected(studio):
    return read_spec(studio.folder / "release.toml").plan().rmse


def test_the_page_shows_what_the_spec_states(fresh):
    studio = fresh
    text = studio.planned("/decide")
    for words in (
        "4 tables on 1 attribute, 6 tables on 2 attributes",
        "age &gt;= 5 and sex == &#39;F&#39;",
        "is saved",
        "54.8%",
    ):
        assert words in text
    assert error_of(text) == pytest.approx(expected(studio), rel=6e-3)
    assert studio.spec == SPEC, "looking changes nothing"


def test_a_moved_slider_changes_file_and_errors(fresh):
    studio = fresh
    before = error_of(studio.planned())
    studio.post("/slide", position=130)
    assert stated(studio)["budget"]["epsilon"] == 4.0
    assert error_of(studio.planned()) < before / 3
    assert error_of(studio.planned()) == pytest.approx(expected(studio), rel=6e-3)
    changed = [line for line in studio.spec.splitlines() if line not in SPEC.splitlines()]
    assert changed == ["epsilon = 4.0                     # decided by the board"]


def test_targets_and_importance(fresh):
    studio = fresh
    before = studio.spec
    studio.post(
        "/set", **{"n:workload[1].target": "40", "n:workload[0].weight": "1", "t:plan.objective": "mean"}
    )
    assert stated(studio)["workload"][1]["target"] == 40
    assert "weight" not in studio.spec + before, "what a form merely shows is not stated"
    assert "met, " in studio.planned()
    studio.post("/set", **{"n:workload[1].target": "0.01"})
    panel = studio.planned()
    assert re.search(r'class="warning" role="alert">[^<]*targets', panel), "the budget is too small, in words"
    assert 'class="stale"' in panel
    studio.post("/set", **{"n:workload[1].target": ""})
    assert "target" not in studio.spec


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("n:budget.epsilon", "-3", "expected a positive number, got -3"),
        ("n:budget.epsilon", "ten", "expected a positive number, got &#39;ten&#39;"),
        ("n:budget.delta", "1e-6%", "expected a number between 0 and 1"),
        ("n:workload[0].weight", "0", "expected a positive number, got 0"),
        ("n:workload[1].target", "1e-99", "write target = 50"),
        ("n:workload[1].level", "0.9", "allowed only together with target"),
        ("t:plan.objective", "wurst", "did you mean &#39;worst&#39;?"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_is_lost(studio, name, value, words):
    before = studio.spec
    other = "n:workload[0].level" if name == "n:workload[0].weight" else "n:workload[0].weight"
    text = studio.post("/set", 422, **{name: value, other: "0.123"})
    ident = re.sub(r"[\[.]", "-", name[2:].replace("]", ""))
    problem = re.search(rf'<p class="problem" id="{ident}-problem" role="alert">(.*?)</p>', text, re.DOTALL)[
        1
    ]
    assert words in problem
    assert f'id="{ident}"' in text
    assert 'aria-invalid="true"' in text
    assert 'value="0.123"' in text, "also what was right"
    assert studio.spec == before


def test_budgets_in_other_definitions_cost_as_much(fresh):
    studio = fresh
    cost = read_spec(studio.folder / "release.toml").budget.privacy_cost
    for name in ("rho", "mu", "cost", "epsilon"):
        studio.post("/definition", definition=name)
        budget = read_spec(studio.folder / "release.toml").budget
        assert name in stated(studio)["budget"]
        assert cost <= budget.privacy_cost <= cost * 1.01
        cost = budget.privacy_cost
    assert "# decided by the board" in studio.spec


def test_the_least_budget_needs_a_target(fresh):
    studio = fresh
    assert "expected a target in some [[workload]] table" in studio.post(
        "/definition", 422, definition="least"
    )
    studio.post("/set", **{"n:workload[0].target": "30"})
    studio.post("/definition", definition="least")
    text = studio.planned("/decide")
    assert "met, 100% of the target" in text
    found = read_spec(studio.folder / "release.toml").plan().budget.epsilon_at(1e-6)
    studio.post("/definition", definition="epsilon")
    assert stated(studio)["budget"]["epsilon"] == pytest.approx(found, rel=5e-3)


def test_changes_are_undone_and_done_again(opened):
    studio = opened()
    studio.get("/decide")
    for position in (110, 120, 130):
        studio.post("/slide", position=position)
    studio.post("/set", **{"n:workload[0].weight": "3"})
    studio.post("/undo")
    assert "weight" not in studio.spec
    assert stated(studio)["budget"]["epsilon"] == 4.0
    studio.post("/undo")
    assert studio.spec == SPEC, "a slide is one change"
    studio.post("/undo")
    assert studio.spec == SPEC
    studio.post("/redo")
    studio.post("/redo")
    assert stated(studio)["workload"][0]["weight"] == 3


def seen(studio, path="/decide"):
    return re.search(r'id="page" data-seen="(\w+)"', studio.get(path))[1]


def test_two_pages_change_the_file(fresh):
    studio = fresh
    old = seen(studio)
    studio.post("/set", **{"n:workload[1].weight": "3", "n:workload[1].target": "40"})
    studio.post("/set", seen=old, **{"n:budget.epsilon": "2.0", "n:budget.delta": "1e-6"})
    assert stated(studio)["budget"]["epsilon"] == 2
    assert stated(studio)["workload"][1]["weight"] == 3
    before = studio.spec
    late = {"n:workload[1].weight": "1", "n:workload[1].target": "", "t:plan.objective": "worst"}
    studio.post("/set", seen=old, **late)
    assert stated(studio)["workload"][1]["target"] == 40, (
        "an old page does not take back what it never showed"
    )
    assert stated(studio)["plan"]["objective"] == "worst"
    text = studio.post("/set", 422, seen=old, **late | {"n:workload[1].weight": "7"})
    assert "was changed in the meantime" in text
    assert 'value="7"' in text, "what was given stays"
    assert 'value="40"' in text, "what was not changed is what the file states now"
    text = studio.post("/text", 422, seen=old, text=SPEC + "# mine\n")
    assert "was changed in the meantime" in text
    assert "# mine" in text
    studio.post("/family?back=/choose", **{"family:age": "range"})
    studio.post("/family?back=/choose", seen=old, **{"family:age": "", "family:sex": "identity"})
    assert stated(studio)["workload"][0]["family"] == {"age": "range", "sex": "identity"}
    for path in ("/set", "/text"):
        studio.post(path, 422, seen="0123456789ab", **late, text=before)


@pytest.mark.parametrize("key", ["workload[9].weight", "workload[0][1]", "a[0][0]", "data.path.x"])
def test_places_that_the_file_does_not_have_change_nothing(studio, key):
    before = studio.spec
    text = studio.post("/set", 422, **{f"n:{key}": "3"})
    assert 'role="alert"' in text
    assert studio.spec == before


def test_planning_is_cancelled_and_begun_again(opened):
    studio = opened(MANY)
    assert 'action="/cancel"' in studio.get("/figures")
    assert "Planning was cancelled" in studio.post("/cancel", 200)
    assert "Planning was cancelled" in studio.get("/decide"), "it does not begin by itself"
    assert 'action="/cancel"' in studio.post("/resume", 200)
    studio.post("/set", **{"t:plan.objective": "mean", "n:workload[0].k": "1"})
    assert error_of(studio.planned()) == pytest.approx(expected(studio), rel=6e-3)


def test_a_price_ends_when_the_file_changes(opened):
    studio = opened(MANY)
    with ThreadPoolExecutor() as pool:
        asked, position = pool.submit(studio.ask, "GET", "/price?target=10&level="), 100
        while not asked.done():
            position += 1
            studio.post("/slide", position=position)
    assert "this was cancelled" in asked.result()[2]


def test_a_price_does_not_end_because_another_page_is_opened(fresh):
    studio = fresh
    studio.planned()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(studio.ask, "GET", "/price?target=10&level=")
        while not asked.done():
            studio.get("/text")
    assert "Least budget" in asked.result()[2]


def test_old_figures_stay_and_are_marked_as_old(opened):
    studio = opened(MANY.replace('"worst"', '"mean"').replace("k = [1, 2]", "k = 1"))
    old = error_of(studio.planned())
    studio.post("/set", **{"t:plan.objective": "worst", "l:workload[0].k": "1, 2"})
    text = studio.get("/figures")
    assert 'class="stale"' in text
    assert "certified for the setting before" in text
    assert error_of(text) == old


def test_a_file_that_another_program_changes_is_read_again(fresh):
    studio = fresh
    studio.planned()
    path = studio.folder / "release.toml"
    path.write_text(SPEC.replace("epsilon = 1.0", "epsilon = 0.1"))
    assert error_of(studio.planned()) == pytest.approx(expected(studio), rel=6e-3)
    path.write_text(SPEC.replace("epsilon = 1.0", "epsilon = oops"))
    assert "is not valid TOML" in studio.get("/")
    path.write_text("a = " + 5_000 * "[")
    assert "is not valid TOML" in studio.get("/")
    path.write_text(SPEC.replace('kind = "where"', 'kind = "were"'))
    text = studio.get("/decide")
    assert "did you mean &#39;where&#39;?" in text
    assert "epsilon = 1.0" in text, "the text can be mended here"
    studio.post("/text", text=SPEC)
    assert studio.get("/decide")
    path.unlink()
    assert "There is no file release.toml yet" in studio.get("/")


def test_a_first_file_is_written(opened):
    studio = opened(None)
    assert "There is no file release.toml yet" in studio.get("/decide")
    studio.post("/start")
    assert error_of(studio.planned()) == pytest.approx(expected(studio), rel=6e-3)
    assert studio.spec.startswith("# What to publish")
    before = studio.spec
    studio.post("/start")
    assert studio.spec == before


def test_a_first_file_is_begun_by_form(opened):
    studio = opened(None)
    assert 'href="/attribute"' in studio.get("/")
    form = {"attribute": "zone", "kind": "categorical", "values": "A; A"}
    assert "is given more than once" in studio.post("/attribute", 422, **form)
    assert not (studio.folder / "release.toml").exists()
    studio.post("/attribute", **form | {"values": "A; B"})
    assert [table["name"] for table in stated(studio)["schema"]] == ["zone"]
    assert error_of(studio.planned()) == pytest.approx(expected(studio), rel=6e-3)


def test_writing_keeps_permissions_and_links(opened):
    studio = opened()
    path = studio.folder / "release.toml"
    path.chmod(0o640)
    path.rename(studio.folder / "real.toml")
    path.symlink_to("real.toml")
    studio.post("/slide", position=90)
    assert path.is_symlink()
    assert (studio.folder / "real.toml").stat().st_mode & 0o777 == 0o640
    assert "epsilon = 0.63" in path.read_text()
    assert sorted(os.listdir(studio.folder)) == [  # noqa: PTH208
        ".querysmasher-studio.lock",
        "people.csv",
        "real.toml",
        "release.toml",
    ]


def test_a_kill_loses_nothing_that_was_saved(opened):
    studio = opened()
    studio.post("/slide", position=110)
    after = studio.spec
    studio.process.kill()
    studio.process.wait()
    assert studio.spec == after
    again = opened()
    assert again.spec == after
    assert error_of(again.planned()) == pytest.approx(expected(again), rel=6e-3)


def test_it_stays_small(opened):
    """At rest: the server, and what the others fork from. What processes share is counted once."""
    studio = opened()
    studio.planned("/decide")
    tasks = Path(f"/proc/{studio.process.pid}/task").glob("*/children")
    resting = [studio.process.pid, *(int(number) for task in tasks for number in task.read_text().split())]
    assert len(resting) >= 2, "the server, and what forks"
    anonymous, mapped = 0, {}
    for number in resting:
        name = ""
        with open(f"/proc/{number}/smaps") as file:  # noqa: PTH123
            for line in file:
                if header := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ (\S+) \S+ \S+ *(.*)", line):
                    name = f"{header[1]} {header[2]}"
                elif line.startswith("Rss:"):
                    rss = int(line.split()[1])
                elif line.startswith("Anonymous:"):
                    anonymous += int(line.split()[1])
                    mapped.setdefault(number, {})
                    mapped[number][name] = mapped[number].get(name, 0) + rss - int(line.split()[1])
    files = {name for own in mapped.values() for name in own}
    shared = sum(max(own.get(name, 0) for own in mapped.values()) for name in files)
    assert (anonymous + shared) / 1024 < 150, "MiB"
