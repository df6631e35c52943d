"""Estimates on the page about a release: their errors first, both columns, and a switch."""

import pytest

import querysmasher as qs
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
    for places, values, unbiased, _ in data:
        own = [names[p] for p in places]
        assert values == pytest.approx(estimate.marginal(*own).ravel(), abs=0.051)
        if unbiased is not None:
            assert unbiased == pytest.approx(explored.marginal(*own).ravel(), abs=0.051)
    assert any(unbiased is not None for _, _, unbiased, _ in data)


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
