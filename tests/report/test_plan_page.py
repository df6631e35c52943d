"""The page about a plan in a real browser: largest errors, targets, what they cost, links, downloads."""

import csv
import io

import pytest

import querysmasher as qs
from querysmasher.formatting import number
from querysmasher.report.plan_report import MULTIPLES, closest, cost_of, target_section
from tests.report.conftest import data_of

SCHEMA = qs.Schema(
    [
        qs.Categorical("region", ["north", "south", "=east()"]),
        qs.Ordinal("age", range(6)),
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
    queries = {text for _, text in cells(browser, 0)} - {""}
    assert queries == {f"largest: {one.query(SCHEMA)}" for one in worst if one.group.rows > 1}
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
    assert "Targetsmetthe closest at 100.0%" in "".join(browser.texts(".figures > div"))
    budget = browser.texts(".figures > div")[0]
    assert f"ε = {number(least.budget.epsilon_at(1e-6))}" in budget
    assert "at δ = 10⁻⁶, the least that meets the targets" in budget
    browser.open(pages["short"])
    targets = cells(browser, 4)
    missed = [said for words, said in targets if words != "none" and "missed by ×" in said]
    ratios = [one.ratio for one in short.extremes if one.group.target is not None]
    assert len(missed) == sum(ratio > 1 + 1e-6 for ratio in ratios) > 0
    assert f"missedin {len(missed)} of 4 groups" in "".join(browser.texts(".figures > div"))
    browser.set("#epsilon", "8")
    assert all(said.startswith("met") for words, said in cells(browser, 4) if words != "none")


@pytest.mark.slow
@pytest.mark.parametrize("multiple", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_costs_are_those_of_plans_for_other_targets(multiple, neighbours):
    """Planned anew, targets `multiple` times as wide cost what the page says, but for rounding."""
    tables = qs.all_kway(SCHEMA, [1, 2])
    options = {"centering": "uniform", "neighbours": neighbours}
    asked = qs.least_budget(tables.within(20), **options)
    other = qs.least_budget(tables.within(20 * multiple), **options)
    said = cost_of(asked, closest(asked), multiple)
    assert said.privacy_cost == pytest.approx(other.budget.privacy_cost, rel=1e-3)
    assert "up to 0.6% more or less" in target_section(asked, closest(asked), with_curve=False)


@pytest.mark.slow
def test_a_plan_that_misses_its_targets_says_what_would_meet_them(short):
    assert closest(short) > 1
    enough = cost_of(short, closest(short), 1.0)
    met = qs.plan(WORKLOAD, enough, insufficient="scale", centering="uniform")
    assert closest(met) == pytest.approx(1, abs=5e-3)
    assert enough.privacy_cost > short.budget.privacy_cost


def control(browser, name):
    return float(browser.run(f"document.querySelector('#{name}').value"))


def test_targets_and_epsilon_move_each_other(browser, pages, least):
    browser.open(pages["least"])
    assert control(browser, "target") == pytest.approx(1, rel=1e-3)
    before = errors(browser, 3)
    browser.set("#target", "2")
    assert errors(browser, 3) == pytest.approx([2 * e for e in before], rel=1e-2)
    twice = cost_of(least, closest(least), 2.0)
    assert control(browser, "epsilon") == pytest.approx(twice.epsilon_at(1e-6), rel=6e-3)
    said = browser.texts("#cost")[0]
    assert f"ρ = {twice.rho:.3g}" in said
    assert f"μ = {twice.mu:.3g}" in said
    assert all("missed by × 2" in said for words, said in cells(browser, 4) if words != "none")
    browser.set("#epsilon", f"{least.budget.epsilon_at(1e-6)}")
    assert control(browser, "target") == pytest.approx(1, rel=1e-3)
    middle = control(browser, "target-slider")
    browser.set("#target-slider", "1000")
    assert control(browser, "target") > 3
    assert control(browser, "epsilon") < 0.15
    browser.run("document.querySelector('#asked-targets').click()")
    assert errors(browser, 3) == before
    assert control(browser, "target-slider") == pytest.approx(middle, abs=1)
    assert browser.complaints() == []


def test_what_follows_epsilon_is_said(browser, pages):
    """Every error of the section; not the key figures."""
    browser.open(pages["least"])
    figures, before = browser.texts(".figures"), errors(browser, 3)
    browser.set("#epsilon", "3")
    assert errors(browser, 3) != before
    assert browser.texts(".figures") == figures
    said = " ".join(browser.texts("main p"))
    assert "every error in this section follows" in said
    assert "the figures at the top of the page stay as planned" in said
    assert "every error on this page" not in said


def test_missed_targets_are_met_as_asked(browser, pages, short):
    """The button finds the ε that meets the targets of a plan that misses them."""
    browser.open(pages["short"])
    assert control(browser, "target") == pytest.approx(closest(short), rel=1e-3)
    browser.run("document.querySelector('#asked-targets').click()")
    assert all(said.startswith("met") for words, said in cells(browser, 4) if words != "none")
    enough = cost_of(short, closest(short), 1.0)
    assert control(browser, "epsilon") == pytest.approx(enough.epsilon_at(1e-6), rel=6e-3)


def test_one_target_is_shown_as_itself(browser, tmp_path):
    plan = qs.least_budget(qs.all_kway(SCHEMA, 1).within(50, level=0.95), centering="uniform")
    browser.open(plan.report(tmp_path / "one.html"), width=360)
    assert control(browser, "target") == 50
    rows = browser.texts(".costs td:first-child")
    assert rows[MULTIPLES.index(1.0)] == "± 50.0 at 95% (as stated)"
    assert rows[MULTIPLES.index(2.0)] == "± 100 at 95%"
    assert "± at 95%" in "".join(browser.texts("#costs .role-axis-title"))
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.complaints() == []


@pytest.mark.parametrize("cost", [1e-24, 1e20])
def test_costs_out_of_reach_of_epsilon(browser, tmp_path, cost):
    workload = qs.all_kway(SCHEMA, 1).within(1 / cost**0.5)
    plan = qs.plan(workload, qs.PrivacyCost(cost), objective="worst", centering="uniform")
    page = plan.report(tmp_path / "far.html")
    assert "targets" not in data_of(page.read_text(encoding="utf-8"))
    browser.open(page)
    assert len(browser.texts(".costs tbody tr")) == len(MULTIPLES)
    assert browser.complaints() == []


def test_without_targets_there_is_no_cost_of_them(plan, tmp_path):
    page = plan.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What the targets cost" not in page
    assert "targets" not in data_of(page)


def saved(browser, click):
    """The name and the content of the file that a click saves."""
    browser.run(
        "window.saves = []; save = async (blob, name) => window.saves.push([name, await blob.text()])"
    )
    browser.run(click)
    browser.until("window.saves.length === 1")
    return browser.run("window.saves[0]")


def test_every_table_and_chart_can_be_saved(browser, pages, least):
    browser.open(pages["least"])
    scrolls = browser.run("document.querySelectorAll('.scroll > table').length")
    buttons = browser.texts(".save button")
    assert buttons.count("Table as CSV") == scrolls > 4
    assert buttons.count("Chart as SVG") == buttons.count("Chart as PNG") == 4
    browser.set("#filter", "region")
    name, text = saved(
        browser, "document.querySelector('#groups').closest('.scroll').nextSibling.firstChild.click()"
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name == "expected-error-by-group.csv"
    worst = sorted(
        (one for one in least.extremes if "region" in one.group.attributes), key=lambda one: -one.std
    )
    assert [float(row["largest_error"]) for row in rows] == pytest.approx([o.std for o in worst], rel=1e-4)
    assert [row["largest_error_of"] for row in rows] == [one.query(SCHEMA) for one in worst]
    assert rows[-1]["target"] == "± 50.0 at 95%"
    assert rows[-1]["target_status"].startswith("met")
    name, text = saved(browser, "document.querySelector('#targets .scroll + .save button').click()")
    costs = list(csv.reader(io.StringIO(text)))
    assert name == "what-the-targets-cost.csv"
    assert [row[0] for row in costs[1:]][:2] == ["× 4", "× 2"]
    half = cost_of(least, closest(least), 4.0)
    assert float(costs[1][4]) == pytest.approx(half.privacy_cost, rel=6e-3)
    name, text = saved(
        browser, "document.querySelector('#costs').closest('figure').querySelector('button').click()"
    )
    assert name == "what-the-targets-cost.svg"
    assert text.startswith("<svg")
    assert "var(--" not in text
    assert browser.complaints() == []


def test_a_link_opens_the_same_groups(browser, pages):
    browser.open(pages["least"])
    assert browser.run("location.hash") == ""
    browser.set("#filter", "age")
    browser.set("#ways", "2", "change")
    browser.set("#cv", "0.3", "change")
    browser.set("#epsilon", "2.5")
    browser.run("document.querySelector('#groups th:nth-child(3) button').click()")
    browser.run("document.querySelector('#groups th:nth-child(3) button').click()")
    browser.until("location.hash.includes('sort=error-up') && location.hash.includes('epsilon=2.5')")
    link, shown = browser.run("location.hash"), browser.texts("#groups")
    assert link.startswith("#error?")
    browser.open(pages["short"])
    browser.open(pages["least"])
    assert browser.texts("#groups") != shown
    browser.run(f"location.hash = {link!r}")
    browser.until("document.querySelector('#filter').value === 'age'")
    assert browser.texts("#groups") == shown
    browser.run("location.hash = '#error?ways=9&sort=toString-up&cv=x&epsilon=-1&filter=%3Cb%3E'")
    browser.until("document.querySelector('#filter').value === '<b>'")
    assert browser.texts("#groups tbody tr") == []
    assert browser.complaints() == []
