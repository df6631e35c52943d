"""The whole way by the keyboard alone, and what a screen reader is given on it."""

from itertools import pairwise

import pytest

import querysmasher as qs
from tests.studio.conftest import SPEC
from tests.studio.page import Page

LEDGER = SPEC.replace("delta = 1e-6", 'delta = 1e-6\nledger = {path = "a.ledger", rho = 1}')
NAMED = {"button", "link", "textbox", "searchbox", "combobox", "slider", "checkbox", "DisclosureTriangle"}


def test_the_whole_way_by_keyboard(browser, opened):
    studio = opened(LEDGER)
    page = Page(browser, studio)
    page.until("What is reached")
    page.key("Tab", 9)
    assert page.focus == "Skip to the content"
    # describe
    follow(page, "Describe", "/describe")
    assert page.focus.startswith("What the table is about"), "a new page is read from its beginning"
    follow(page, "Change", "/attribute")
    page.tab("Labels, missing values")
    page.enter()
    page.tab("Title")
    page.write("Sex of the member")
    page.tab("Values")
    page.write("F; F")
    page.enter()
    page.until("is given more than once")
    assert page.focus.startswith("Values"), "the focus goes to what is wrong"
    page.write("F; M")
    page.enter()
    browser.until("location.pathname === '/describe'")
    page.until("Sex of the member")
    # choose: a chip by the space bar, a count, a statistic
    follow(page, "Choose", "/choose")
    page.tab("2 sex × hour")
    page.key(" ", 32, " ")
    browser.until("document.querySelector('#chip-sex-hour')?.ariaPressed === 'false'")
    assert page.focus == "2 sex × hour", "the focus stays"
    page.tab("How many records have")
    page.write("age < 3")
    page.enter()
    page.states(lambda spec: "age < 3" in spec["workload"][1]["predicate"])
    page.tab("Remove age < 3")
    page.enter()
    page.states(lambda spec: "age < 3" not in spec["workload"][1]["predicate"])
    page.tab("The share of records")
    page.enter()
    page.tab("for which this holds")
    page.write("age < 3")
    page.tab("Add")
    page.key(" ", 32, " ")
    page.states(lambda spec: spec.get("statistics") == [{"kind": "share", "predicate": "age < 3"}])
    # decide: arrow keys move ε, a target is met
    follow(page, "Decide", "/decide")
    before = page.settled()
    page.tab("epsilon, from little privacy loss")
    for _ in range(6):
        page.key("ArrowRight", 39)
    page.states(lambda spec: spec["budget"]["epsilon"] == 1.3)
    assert page.settled() < before
    assert page.focus.startswith("epsilon, from little privacy loss")
    page.tab("Target")
    page.write("50")
    page.enter()
    page.until("met, ")
    assert page.focus.startswith("Target")
    # publish and verify
    follow(page, "Publish", "/publish")
    follow(page, "Release", "/release")
    follow(page, "Yes, release it", "/release/again")
    page.tab("Measure the table now")
    page.enter()
    page.until("Released: out may be published")
    page.tab("Verify")
    page.enter()
    page.until("Verified: out")
    assert qs.verify(studio.folder / "out", qs.Ledger(studio.folder / "a.ledger")).ok


def follow(page, words, path):
    page.tab(words)
    page.enter()
    page.browser.until(f"location.pathname === '{path}'")
    page.until("is saved")


def test_the_status_tells_new_errors_and_problems(browser, fresh):
    page = Page(browser, fresh)
    page.settled()
    page.type("#budget-epsilon", "10")
    page.enter()
    page.states(lambda spec: spec["budget"]["epsilon"] == 10)
    tree = page.tree()
    at = next(
        n for n, (role, _, about) in enumerate(tree) if role == "status" and about.get("live") == "polite"
    )
    said = next(name for role, name, _ in tree[at:] if role == "StaticText")
    shown = browser.run("document.querySelector('#figures dd').textContent")
    assert said.startswith("Largest error ± ")
    assert shown in said, "the errors that are shown"
    page.type("#budget-epsilon", "-1")
    page.enter()
    page.until("expected a positive number")
    tree = page.tree()
    assert any(
        role == "StaticText" and name.startswith("Nothing was changed: 1 problem") for role, name, _ in tree
    )
    alerts = [n for n, (role, *_) in enumerate(tree) if role == "alert"]
    assert any("expected a positive number" in name for n in alerts for _, name, _ in tree[n : n + 3])
    (wrong,) = [about for role, name, about in tree if role == "textbox" and name == "ε"]
    assert wrong["invalid"] == "true"
    assert wrong["focused"]


@pytest.mark.parametrize(
    "path",
    ["decide", "choose", "describe", "see", "publish", "text", "compare", "price", "attribute", "release"],
)
def test_everything_has_a_name_and_headings_are_in_order(browser, studio, path):
    page = Page(browser, studio)
    page.settled()
    browser.run(f"location.pathname = '/{path}'")
    browser.until(f"location.pathname === '/{path}' && document.documentElement?.dataset.ready === 'yes'")
    browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
    tree = page.tree()
    assert [(role, about) for role, name, about in tree if role in NAMED and not name.strip()] == []
    levels = [about["level"] for role, _, about in tree if role == "heading"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    assert {"main", "navigation", "banner", "status"} <= {role for role, *_ in tree}
    regions = [name for role, name, _ in tree if role == "region"]
    assert all(regions)
    assert len(regions) == len(set(regions))
