"""The pages in a real browser."""

import pytest

import querysmasher as qs
from querysmasher.formatting import number

PAPER = "getComputedStyle(document.body).backgroundColor"
INK = "getComputedStyle(document.body).color"
DRAWN = "document.querySelectorAll('.chart svg').length"


@pytest.fixture(scope="module")
def pages(plan, release, hostile, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        "plan": plan.report(folder / "plan.html"),
        "release": release.report(folder / "release.html"),
        "hostile plan": hostile[0].report(
            folder / "hostile-plan.html", title=hostile[0].workload.schema.names[0]
        ),
        "hostile release": hostile[1].report(folder / "hostile-release.html"),
    }


@pytest.mark.parametrize("name", ["plan", "release", "hostile plan", "hostile release"])
@pytest.mark.parametrize("width", [1100, 360])
def test_pages_open_quietly(browser, pages, name, width):
    browser.open(pages[name], width=width)
    assert browser.run(DRAWN) == (3 if "plan" in name else 1)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("window.broken === undefined")
    assert browser.run("document.images.length") == 0
    assert browser.complaints() == []
    assert browser.requests() == []


def test_the_browser_refuses_requests(browser, pages):
    browser.open(pages["plan"])
    answer = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
    assert browser.run(answer) == "refused"
    assert any("Content Security Policy" in str(said) for said in browser.complaints())


def numbers(texts):
    return [float(text.replace("±", "").replace(",", "")) for text in texts]


def test_epsilon_moves_every_number(browser, pages, plan):
    browser.open(pages["plan"])
    errors, needed = "#groups td:nth-child(3)", "#groups td:nth-child(6)"
    browser.run("document.querySelector('#groups th:nth-child(3) button').click()")
    planned = numbers(browser.texts(errors))
    assert planned == pytest.approx(worst_first(plan), rel=6e-3)
    assert numbers(browser.texts(needed)) == pytest.approx([e / 0.1 for e in planned], rel=2e-2)
    assert browser.texts("#groups th")[-1] == "Smallest count with CV ≤ 10%"
    before = browser.run("document.querySelector('#curve svg').outerHTML")
    browser.set("#epsilon", "2.345")
    other = qs.plan(plan.workload, qs.ApproxDP(2.345, 1e-6), centering="uniform")
    assert numbers(browser.texts(errors)) == pytest.approx(worst_first(other), rel=6e-3)
    browser.until(f"document.querySelector('#curve svg').outerHTML !== {before!r}")
    browser.set("#slider", "0")
    assert min(numbers(browser.texts(errors))) > 5 * max(planned)
    assert float(browser.run("document.querySelector('#epsilon').value")) == pytest.approx(0.1)
    browser.run("document.querySelector('#reset').click()")
    assert numbers(browser.texts(errors)) == planned
    browser.set("#cv", "0.3", "change")
    assert numbers(browser.texts(needed)) == pytest.approx([e / 0.3 for e in planned], rel=2e-2)
    assert browser.texts("#groups th")[-1] == "Smallest count with CV ≤ 30%"
    assert browser.complaints() == []


def test_numbers_are_rounded_as_in_text(browser, pages):
    """Also just below a power of ten: 9.9996 is 10.0, not 10.00."""
    browser.open(pages["plan"])
    values = [9.9996, 9.99, 99.96, 999.6, 1234.5, 0.012345, 0.0099996, 1e16, 25.51, 0.0]
    assert browser.run(f"{values}.map(digits)") == [number(value) for value in values]


def worst_first(plan):
    return sorted((s.rmse for s in plan.summary()), reverse=True)


def test_tables_are_sorted_by_a_click(browser, pages):
    browser.open(pages["plan"])
    order = "document.querySelector('#groups th:nth-child(4)').getAttribute('aria-sort')"
    assert browser.run(order) == "descending", "the worst error first"
    for _ in range(2):
        planned = numbers(browser.texts("#groups td:nth-child(3)"))
        browser.run("document.querySelector('#groups th:nth-child(3) button').click()")
    assert numbers(browser.texts("#groups td:nth-child(3)")) == planned[::-1]
    browser.run("document.querySelector('#groups th:nth-child(1) button').click()")
    labels = browser.texts("#groups .query")
    assert labels == sorted(labels)
    browser.open(pages["release"])
    browser.set("#first", "1", "change")
    browser.set("#second", "", "change")
    browser.run("document.querySelector('#cells th:nth-child(2) button').click()")
    counts = numbers(t.replace("−", "-") for t in browser.texts("#cells td:nth-child(2)"))
    assert counts == sorted(counts, reverse=True)
    browser.run("document.querySelector('#cells th:nth-child(1) button').click()")
    assert browser.texts("#cells td:nth-child(1)") == [str(n) for n in range(20)]
    assert browser.complaints() == []


def test_labels_stand_beside_the_plot(browser, pages):
    browser.open(pages["plan"])
    ends = browser.run(
        "[...document.querySelectorAll('#spread .role-axis-label text')].map((text) =>"
        " text.getBoundingClientRect().right)"
    )
    start = browser.run(
        "Math.min(...[...document.querySelectorAll('#spread .mark-rule line, #spread .mark-rect path')]"
        ".map((mark) => mark.getBoundingClientRect().left))"
    )
    kinds = [text for text in browser.texts("#spread .role-axis-label text") if "group" in text]
    assert len(kinds) > 3
    assert sorted(ends)[len(kinds) - 1] <= start


def test_groups_are_filtered(browser, pages):
    browser.open(pages["plan"])
    browser.set("#filter", "AGE sex")
    assert browser.texts("#groups .query") == ["age ≤ x and sex = y"]
    assert browser.texts("#found") == ["1 group"]
    browser.set("#filter", "")
    browser.set("#ways", "1", "change")
    assert len(browser.texts("#groups tbody tr")) == 4
    browser.set("#filter", "nothing of the kind")
    assert browser.texts("#groups tbody tr") == []


def test_tables_follow_the_chosen_attributes(browser, pages, release):
    browser.open(pages["release"])
    browser.set("#first", "0", "change")
    browser.set("#second", "", "change")
    assert len(browser.texts("#cells tbody tr")) == 4
    shown = numbers(t.replace("−", "-") for t in browser.texts("#cells tbody td:nth-child(2)"))
    assert shown == pytest.approx(release.marginal("region").tolist(), abs=1)
    browser.set("#second", "3", "change")
    assert browser.texts("#cells thead th")[:2] == ["region", "sex"]
    shown = numbers(t.replace("−", "-") for t in browser.texts("#cells tbody td:nth-child(3)"))
    assert shown == pytest.approx(release.marginal("region", "sex").ravel().tolist(), abs=1)
    browser.until("document.querySelectorAll('#chart .mark-rect path').length === 8")
    browser.set("#first", "3", "change")
    browser.set("#second", "0", "change")
    shown = numbers(t.replace("−", "-") for t in browser.texts("#cells tbody td:nth-child(3)"))
    assert shown == pytest.approx(release.marginal("sex", "region").ravel().tolist(), abs=1)
    browser.set("#view", "only 1", "change")
    assert browser.texts("#cells tbody td:nth-child(2)") == ["south", "south"]
    browser.set("#filter", "f")
    assert browser.texts("#cells tbody td:first-child") == ["F"]
    assert browser.complaints() == []


def test_categories_can_be_sorted(browser, pages):
    browser.open(pages["release"])
    browser.set("#first", "0", "change")
    browser.set("#second", "", "change")
    browser.set("#view", "sorted", "change")
    shown = numbers(t.replace("−", "-") for t in browser.texts("#cells tbody td:nth-child(2)"))
    assert shown == sorted(shown, reverse=True)
    assert browser.complaints() == []


def test_hostile_tips_are_texts(browser, pages):
    browser.open(pages["hostile release"])
    browser.set("#first", "0", "change")
    browser.set("#second", "", "change")
    bar = "document.querySelector('#chart .mark-rect path')"
    browser.run(f"{bar}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = browser.run(
        f"(() => {{ const {{x, y, width, height}} = {bar}.getBoundingClientRect();"
        " return [x + width / 2, y + height / 2]; })()"
    )
    for step in (-3, 0):
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + step, y=box[1])
    browser.until("document.querySelector('#vg-tooltip-element')?.textContent.includes('onerror')")
    assert browser.run("document.images.length") == 0
    assert browser.run("window.broken === undefined")


def test_ordered_attributes_get_bands(browser, pages):
    browser.open(pages["release"])
    browser.set("#first", "1", "change")
    browser.set("#second", "", "change")
    browser.until("document.querySelectorAll('#chart .mark-area path').length === 1")
    browser.set("#second", "3", "change")
    browser.until("document.querySelectorAll('#chart .mark-area path').length === 2")
    assert browser.texts("#legend span") == ["F", "M"]
    assert browser.texts("#found") == ["40 rows"]
    browser.set("#answer-filter", "age sex")
    shown = browser.texts("#queries tbody td:first-child")
    assert shown
    assert all("age" in text and "sex" in text for text in shown)
    assert browser.complaints() == []


def brightness(colour):
    return sum(map(float, colour.split("(")[1].rstrip(")").split(",")[:3]))


@pytest.mark.parametrize("name", ["plan", "release"])
def test_light_dark_and_paper(browser, pages, name, tmp_path):
    axis = "getComputedStyle(document.querySelector('.chart .role-axis-label text')).fill"
    browser.open(pages[name])
    light = [brightness(browser.run(what)) for what in (PAPER, INK, axis)]
    browser.scheme("dark")
    dark = [brightness(browser.run(what)) for what in (PAPER, INK, axis)]
    assert light[0] > 600
    assert light[1] < 150
    assert dark[0] < 150
    assert dark[1] > 600
    assert light[2] < dark[2]  # charts follow without being drawn again
    browser.scheme("dark", media="print")
    assert brightness(browser.run(INK)) < 150
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.scheme("light")
    browser.paper(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
