"""Estimates on the page about a release: their errors first, both columns, and a switch."""

import itertools

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.report.release_data import Table, table_on
from querysmasher.report.release_report import outside
from tests.report.conftest import HOSTILE, SCHEMA, data_of, table

TABLE = table(SCHEMA)


@pytest.fixture(scope="module")
def explored():
    return qs.explore(qs.marginals(SCHEMA, [2, 3]), TABLE, qs.ApproxDP(1.0, 1e-6))


@pytest.fixture(scope="module")
def page(explored, tmp_path_factory):
    return explored.report(tmp_path_factory.mktemp("pages") / "estimates.html")


def test_the_error_comes_first_with_its_interval(explored, page):
    text = page.read_text()
    mean = explored.estimate().error()
    assert text.index("Error of the estimates") < text.index("Noisy numbers")
    assert text.index('id="estimates"') < text.index('id="tables"')
    assert f"{mean.share:.1%}" in text
    assert "measured privately" in text
    assert "biased" in text


def test_both_columns_are_those_of_the_release(explored, page):
    data = data_of(page.read_text())["estimates"]
    estimate = explored.estimate()
    names = SCHEMA.names
    assert len(data) == 10
    for places, values, unbiased, *_ in data:
        own = [names[p] for p in places]
        assert values == pytest.approx(estimate.marginal(*own).ravel(), abs=0.051)
        if unbiased is not None:
            assert unbiased == pytest.approx(explored.marginal(*own).ravel(), abs=0.051)
    assert any(unbiased is not None for _, _, unbiased, *_ in data)


def test_the_lead_calls_only_counts_unbiased(explored, page, tmp_path):
    assert "The estimates come from the same noisy numbers, but are biased." in page.read_text()
    plain = explored.report(tmp_path / "plain.html", estimates=False).read_text()
    assert "consistent with each other and unbiased. Everything on this page" in plain


def test_tables_on_two_attributes_add_up_as_shown(page):
    """To what is lost when each cell is rounded to a tenth."""
    sizes, data = SCHEMA.sizes, data_of(page.read_text())["estimates"]
    pairs = {tuple(places): np.array(values) for places, values, *_ in data if len(places) == 2}
    margins = {}
    for (a, b), values in pairs.items():
        cells = values.reshape(sizes[a], sizes[b])
        margins.setdefault(a, []).append((cells.sum(1), sizes[b]))
        margins.setdefault(b, []).append((cells.sum(0), sizes[a]))
    for found in margins.values():
        for (one, width), (other, height) in itertools.combinations(found, 2):
            np.testing.assert_allclose(one, other, rtol=0, atol=0.05 * (width + height) + 0.01)


def test_marks_are_the_estimates_outside_their_intervals(explored, page):
    estimate = explored.estimate()
    for places, _, unbiased, _, marks in data_of(page.read_text())["estimates"]:
        names = [SCHEMA.names[p] for p in places]
        if unbiased is None:
            assert marks == []
            continue
        low, high = explored.answer(qs.queries(SCHEMA, dict.fromkeys(names, "identity"))).interval(0.95)
        values = estimate.marginal(*names).ravel()
        assert marks == np.flatnonzero((values < low) | (values > high)).tolist()
    assert "about 5 of 100 would be marked" in page.read_text()


def test_about_five_of_a_hundred_exact_numbers_would_be_marked():
    """By noise alone: 1,600 cells, of which 5% ± 2.2% (four standard errors) are marked."""
    schema = qs.Schema.of(a=40, b=40)
    frame = table(schema, 20_000)
    plan = qs.plan(qs.marginals(schema, 2), qs.zCDP(0.1), centering="uniform")
    own = table_on(qs.measure(plan, frame, seed=3), (0, 1))
    exact = np.histogram2d(frame["a"], frame["b"], bins=[range(41), range(41)])[0].ravel()
    assert 0.028 < len(outside(exact, own)) / 1600 < 0.072
    public = Table((0, 1), own.values, np.zeros(1600))
    assert outside(exact, public) == [], "a public number has no interval"


def test_a_plain_release_has_estimates_only_if_asked(tmp_path):
    plan = qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(0.1), centering="uniform")
    release = qs.measure(plan, TABLE)
    assert "estimates" not in data_of(release.report(tmp_path / "plain.html").read_text())
    text = release.report(tmp_path / "both.html", estimates=True).read_text()
    assert "model-based" in text
    assert len(data_of(text)["estimates"]) == 10


@pytest.mark.slow
def test_the_switch_in_a_browser(browser, page, tmp_path):
    browser.open(page)
    heads = "#estimate-cells thead th"
    assert browser.texts(heads)[-3:] == ["estimate", "unbiased", "95% interval"]
    data = data_of(page.read_text())["estimates"]
    for index, (_, values, _, _, marks) in enumerate(data):
        browser.set("#estimate-table", str(index))
        browser.run("window.dispatchEvent(new Event('beforeprint'))")
        column = len(browser.texts(heads)) - 2
        shown = browser.texts(f"#estimate-cells td:nth-child({column})")
        assert [text for i, text in enumerate(shown) if text.startswith("† ")] == [shown[i] for i in marks]
        assert [float(text.lstrip("† ").replace(",", "")) for text in shown] == values, "to a tenth"
        note = f"{len(marks)} of {len(values)} estimate"
        assert browser.texts("#estimate-note")[0].startswith(("This table was not measured.", note))
    browser.set("#estimate-view", "estimate")
    assert browser.texts(heads)[-1] == "estimate"
    browser.set("#estimate-view", "unbiased")
    assert browser.texts(heads)[-2:] == ["unbiased", "95% interval"]
    assert browser.complaints() == []
    schema = qs.Schema([qs.Categorical(HOSTILE, [HOSTILE, "b"]), qs.Ordinal("<b>", range(3))])
    frame = table(schema, 50)
    hostile = qs.explore(qs.marginals(schema, 2), frame, qs.zCDP(1.0)).report(tmp_path / "h.html")
    browser.open(hostile)
    assert browser.run("window.broken === undefined")
    assert browser.complaints() == []
