"""The whole way in a real browser: describe, choose, move ε, meet a target, publish the example, verify."""

import pytest

import querysmasher as qs
from tests.studio.conftest import MANY, SPEC
from tests.studio.page import NUMBER, SETTLED, Page


def test_the_whole_way(browser, opened):
    studio = opened()
    page = Page(browser, studio)
    page.until("What is reached")
    first = page.settled()
    # describe
    page.go("Describe", "/describe")
    page.go("Add an attribute", "/attribute")
    page.type("#attribute", "region")
    page.type("#values", "N; N")
    page.click("Save")
    page.until("is given more than once")
    assert browser.run("document.querySelector('#attribute').value") == "region"
    page.type("#values", "N; S")
    page.enter()
    browser.until("location.pathname === '/describe' && document.body?.innerText.includes('region')")
    # choose
    page.go("Choose", "/choose")
    browser.run("document.querySelector('#chip-age-region').focus()")
    browser.until("document.querySelector('#chip-age-region')?.ariaPressed === 'true'")
    page.enter()
    browser.until(f"document.querySelector('#chip-age-region')?.ariaPressed === 'false' && {SETTLED}")
    assert browser.run("document.activeElement.id") == "chip-age-region", "the focus stays"
    page.type("#predicate", "region == 'X'")
    browser.until("document.querySelector('#predicate-said')?.textContent.includes('no value')")
    page.type("#predicate", "region == 'S' and age < 3")
    browser.until("document.querySelector('#predicate-said')?.textContent.includes('Valid')")
    page.enter()
    browser.until("[...document.querySelectorAll('code')].some((e) => e.textContent.includes('age < 3'))")
    # decide: move ε by keys, meet a target
    page.go("Decide", "/decide")
    before = page.settled()
    browser.run("document.querySelector('#position').focus()")
    for _ in range(5):
        page.key("PageUp", 33)
    browser.until("document.querySelector('#budget-epsilon').value === '100.0'")  # where the last key led
    assert page.settled() < 0.6 * before
    assert page.spec["budget"]["epsilon"] == 100
    page.type("#workload-1-target", "3.5")
    page.enter()
    page.until("met, ")
    said = browser.run("document.querySelector('#said').textContent")
    assert said.startswith("Largest error ± ")
    page.click("Undo")
    browser.until("document.querySelector('#workload-1-target')?.value === ''")
    page.click("Redo")
    browser.until("document.querySelector('#workload-1-target')?.value === '3.5'")
    # see
    page.go("See", "/see")
    browser.until("document.querySelectorAll('svg rect').length > 1")
    page.go("Decide", "/decide")
    page.go("Compare two settings", "/compare")
    page.until("Two settings side by side")
    # publish; the column that was added is not in the table, which the release refuses
    page.go("Publish", "/publish")
    page.type("#budget-ledger-path", "people.ledger")
    page.type("#budget-ledger-rho", "5")
    page.type("#budget-ledger-label", "members")
    page.enter()
    ledger = {"path": "people.ledger", "rho": 5, "label": "members"}
    page.states(lambda spec: spec["budget"].get("ledger") == ledger)
    page.click("Check the table")
    page.until("For the custodian only")
    page.until("region")
    # nothing was spent; publish the example itself
    ledger = 'delta = 1e-6\nledger = {path = "a.ledger", rho = 1}'
    (studio.folder / "release.toml").write_text(SPEC.replace("delta = 1e-6", ledger))
    page.go("Publish", "/publish")
    page.go("Release", "/release")
    page.until("Release?")
    page.go("Yes, release it", "/release/again")
    page.until("Really spend it?")
    page.click("Measure the table now")
    page.until("Released: out may be published")
    page.click("Verify")
    page.until("Verified: out")
    assert qs.verify(studio.folder / "out", qs.Ledger(studio.folder / "a.ledger")).ok
    page.click("Write the page for readers")
    page.until("Written: out/report.html")
    assert first > 0
    refused = [said for said in browser.complaints() if "422" not in str(said)]  # the form with a problem
    assert refused == []
    asked = {url.split("/")[2] for url in browser.requests()}
    assert asked == {f"127.0.0.1:{studio.port}"}, "nothing from elsewhere"


def test_what_is_typed_while_an_answer_is_on_its_way_stays(browser, fresh):
    page = Page(browser, fresh)
    page.go("Choose", "/choose")
    browser.run("document.querySelector('#chip-sex-age').click()")
    page.type("#predicate", "age < 3")
    browser.until("document.querySelector('#chip-sex-age')?.ariaPressed === 'false'")
    browser.until("document.querySelector('#predicate-said')?.textContent.includes('Valid')")
    assert browser.run("document.querySelector('#predicate').value") == "age < 3"
    page.enter()
    browser.until("[...document.querySelectorAll('code')].some((e) => e.textContent === 'age < 3')")
    assert browser.run("document.querySelector('#predicate').value") == "", "what was sent does not"


def test_an_old_page_does_not_take_back_what_another_has_changed(browser, fresh):
    page = Page(browser, fresh)
    page.settled()
    fresh.post("/set", **{"n:workload[0].weight": "3"})
    page.type("#workload-1-target", "40")
    page.enter()
    page.until("was changed in the meantime")
    assert "target" not in fresh.spec
    assert browser.run("document.querySelector('#workload-1-target').value") == "40"
    page.click("Set", within="section[aria-labelledby=targets-title]")
    page.states(lambda spec: spec["workload"][1].get("target") == 40)
    assert page.spec["workload"][0]["weight"] == 3


def test_a_long_plan_tells_its_progress_and_is_cancelled(browser, opened):
    page = Page(browser, opened(MANY.replace('"worst"', '"mean"')))
    before = page.settled()
    browser.run("document.querySelector('#plan-objective').value = 'worst'")
    page.click("Set", within="section[aria-labelledby=targets-title]")
    browser.until("document.querySelector('#figures .progress')?.textContent.includes('solving')")
    page.go("Choose", "/choose")
    page.go("Decide", "/decide")
    grey = "[...document.querySelectorAll('#figures .stale')].map((e) => getComputedStyle(e).opacity < 0.5)"
    assert browser.run(grey) == [True], "the figures of the setting before are greyed"
    assert browser.run(NUMBER) == before
    page.click("Cancel")
    page.until("Planning was cancelled")
    page.until("These figures are certified for the setting before")
    assert browser.run(grey) == [True]
    assert browser.complaints() == []


@pytest.mark.parametrize("path", ["decide", "choose", "describe", "see", "publish", "text"])
def test_a_small_window_and_the_dark(browser, studio, path):
    page = Page(browser, studio, width=380, dark=True)
    page.go(path.capitalize(), f"/{path}")
    page.until("is saved")
    assert browser.run("document.documentElement.scrollWidth") <= 380
    assert browser.run("scrollY") == 0, "a page is shown from its beginning"
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    ink = browser.run("getComputedStyle(document.querySelector('h1')).color")
    bright = [sum(map(int, colour.split("(")[1].rstrip(")").split(",")[:3])) for colour in (paper, ink)]
    assert bright[0] < 150
    assert bright[1] > 600
    every = "[...document.querySelectorAll('main :is(button, input:not([type=hidden]), select)')]"
    seen = "!e.closest('details:not([open]), noscript')"
    assert browser.run(f"{every}.filter((e) => {seen} && e.offsetHeight < 20).map((e) => e.outerHTML)") == []
    assert browser.complaints() == []


def test_what_a_screen_reader_is_told(browser, studio):
    page = Page(browser, studio)
    page.until("What is reached")
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = {}
    for node in tree:
        if not node.get("ignored"):
            role, name = node.get("role", {}).get("value"), node.get("name", {}).get("value", "")
            roles.setdefault(role, []).append(name)
    for role in ("button", "link", "textbox", "slider", "combobox"):
        assert all(roles.get(role, ["", ""])), (role, roles.get(role))
    assert roles["slider"] == ["epsilon, from little privacy loss to small errors"]
    assert "status" in roles
    assert {"main", "navigation", "banner"} <= set(roles)


def test_without_a_server_the_page_says_so(browser, opened):
    studio = opened()
    page = Page(browser, studio)
    page.until("What is reached")
    studio.process.kill()
    studio.process.wait()
    page.click("Choose")
    page.browser.until("document.querySelector('#said')?.textContent.includes('no longer answers')")
    assert browser.run("document.querySelector('#said').offsetHeight") > 10
