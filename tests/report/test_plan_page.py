"""The page about a plan in a real browser: largest errors, targets, what they cost, links, downloads."""

import pytest

import querysmasher as qs

SCHEMA = qs.Schema(
    [
        qs.Categorical("region", ["north", "south", "=east()"]),
        qs.Ordinal("age", range(12)),
        qs.Categorical("sex", ["F", "M"]),
    ]
)
HEADLINES = qs.marginals(SCHEMA, 0).within(10) + qs.all_kway(SCHEMA, 1).within(50, level=0.95)
WORKLOAD = HEADLINES + qs.all_kway(SCHEMA, 2)


@pytest.fixture(scope="module")
def least():
    return qs.least_budget(WORKLOAD, centering="uniform")


@pytest.fixture(scope="module")
def short():
    """A plan that misses every target by the same factor."""
    return qs.plan(WORKLOAD, qs.zCDP(0.002), insufficient="scale", centering="uniform")


@pytest.fixture(scope="module")
def pages(least, short, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {"least": least.report(folder / "least.html"), "short": short.report(folder / "short.html")}


def cells(browser, column):
    """The main text of every cell of a column, and the remark under it."""
    read = (
        "[...document.querySelectorAll('#groups tbody tr')].map((row) => row.children[%d])"
        ".map((cell) => [cell.firstChild.textContent, cell.querySelector('small')?.textContent ?? ''])"
    )
    return browser.run(read % column)


def errors(browser, column):
    return [float(text.lstrip("± ").replace(",", "")) for text, _ in cells(browser, column)]


def test_the_largest_error_stands_beside_the_mean_with_its_query(browser, pages, least):
    browser.open(pages["least"])
    worst = sorted(least.extremes, key=lambda one: -one.std)
    assert browser.texts("#groups th")[2:5] == ["Expected error", "Largest error", "Target"]
    assert errors(browser, 3) == pytest.approx([one.std for one in worst], rel=6e-3)
    queries = {text for _, text in cells(browser, 3)} - {""}
    assert queries == {one.query(SCHEMA) for one in worst if one.group.rows > 1}
    assert all(mean <= most * 1.01 for mean, most in zip(errors(browser, 2), errors(browser, 3), strict=True))
    (largest,) = [text for text in browser.texts(".figures > div") if text.startswith("Largest error")]
    assert worst[0].query(SCHEMA) in largest
    assert browser.complaints() == []


def test_every_target_says_whether_it_is_met(browser, pages, least, short):
    browser.open(pages["least"])
    targets = cells(browser, 4)
    assert sum(words == "none" for words, _ in targets) == 3
    assert {words for words, _ in targets} == {"none", "± 10.0", "± 50.0 at 95%"}
    assert all(said.startswith("met, at ") for words, said in targets if words != "none")
    assert "Targetsmet" in "".join(browser.texts(".figures > div"))
    browser.open(pages["short"])
    targets = cells(browser, 4)
    missed = [said for words, said in targets if words != "none" and "missed by a factor of" in said]
    ratios = [one.ratio for one in short.extremes if one.group.target is not None]
    assert len(missed) == sum(ratio > 1 + 1e-6 for ratio in ratios) > 0
    assert f"missedin {len(missed)} of 4 groups" in "".join(browser.texts(".figures > div"))
    browser.set("#epsilon", "8")
    assert all(said.startswith("met") for words, said in cells(browser, 4) if words != "none")
