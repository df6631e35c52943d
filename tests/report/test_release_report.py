"""The numbers of a release's page: noisy ones only, and estimates with their errors."""

import functools
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.formatting import number
from querysmasher.report import release_data, release_report
from querysmasher.report.page import asset
from querysmasher.report.release_data import Table, opening, planned_answers, table_on, tables, total
from querysmasher.report.release_report import outside
from tests.report.conftest import HOSTILE, SCHEMA, data_of, released, table


def test_tables_are_those_of_the_release(release):
    found, left_out = tables(release)
    assert left_out == 0
    assert len(found) == 4 + 6
    for own in found:
        names = [SCHEMA.names[p] for p in own.attributes]
        np.testing.assert_array_equal(own.values, release.marginal(*names).ravel())
        answers = release.answer(qs.queries(SCHEMA, dict.fromkeys(names, "identity")))
        np.testing.assert_allclose(own.std, answers.std)
        np.testing.assert_allclose(own.values, answers.values)


def test_the_page_holds_the_tables(release, tmp_path):
    page = release.report(tmp_path / "page.html", title="Our release").read_text()
    data = data_of(page)
    for places, values, std in data["tables"]:
        std = np.broadcast_to(std, len(values))  # noqa: PLW2901 - one where all are the same
        names = [SCHEMA.names[p] for p in places]
        np.testing.assert_allclose(values, release.marginal(*names).ravel(), atol=0.01 * min(std))
        answers = release.answer(qs.queries(SCHEMA, dict.fromkeys(names, "identity")))
        np.testing.assert_allclose(std, answers.std, rtol=5e-3)
    assert [a["name"] for a in data["attributes"]] == list(SCHEMA.names)
    assert "Our release" in page
    assert "satisfies differential privacy" in page
    assert f"{release.measurements:,}" in page
    assert release.measurements == sum(release.store[i].size for i in range(len(release.plan.measured)))


def test_no_exact_count_gets_in(release, tmp_path):
    """A page follows from the noisy numbers alone: a release read back from its file gives the same."""
    page = release.report(tmp_path / "page.html").read_text()
    release.save(tmp_path / "release")
    assert qs.Release.load(tmp_path / "release").report(tmp_path / "again.html").read_text() == page
    data = data_of(page)
    assert all(np.min(std) > 0 for _, _, std in data["tables"])
    assert all(std > 0 for _, _, std in data["answers"])


def test_what_the_release_cannot_answer_is_not_offered(tmp_path):
    workload = qs.queries(SCHEMA, age="prefix") + qs.where(SCHEMA, "sex == 'F' and region == 'north'")
    release = released(workload)
    found, _ = tables(release)
    names = [[SCHEMA.names[p] for p in t.attributes] for t in found]
    assert ["age"] in names
    assert ["region"] not in names
    data = data_of(release.report(tmp_path / "page.html").read_text())
    assert any("north" in label for label, _, _ in data["answers"])


def test_a_release_without_any_table(tmp_path):
    workload = qs.where(SCHEMA, "age >= 3 and region == 'north'")
    release = released(workload)
    page = release.report(tmp_path / "page.html").read_text()
    assert "No table on one or two attributes" in page
    assert len(data_of(page)["answers"]) == 1


def test_large_tables_are_left_out_and_counted(release, monkeypatch, tmp_path):
    monkeypatch.setattr(release_data, "MAX_CELLS", 40)
    found, left_out = tables(release)
    assert left_out == 2  # age by region and by quarter: 80 cells
    assert len(found) == 8
    monkeypatch.setattr(release_data, "PAGE_CELLS", 20)
    assert len(tables(release)[0]) == 4 + 2
    assert "larger tables on two attributes" in release.report(tmp_path / "page.html").read_text()


def test_planned_queries_are_answered(release):
    answers, of = planned_answers(release)
    asked = release.answer()
    known = dict(zip(release.workload.labels(), zip(asked.values, asked.std, strict=True), strict=True))
    assert 0 < len(answers) <= of
    for answer in answers:
        assert (answer.value, answer.std) == pytest.approx(known[answer.query])


def test_a_public_total_is_called_public(tmp_path):
    release = released(qs.marginals(SCHEMA, 1), budget=qs.zCDP(0.5, neighbours="replace_one"))
    assert total(release) == (3000, 0)
    assert "public, with these neighbours" in release.report(tmp_path / "page.html").read_text()


def test_a_simulation_says_so(plan, tmp_path):
    release = qs.measure(plan, table(SCHEMA), seed=1)
    page = release.report(tmp_path / "page.html").read_text()
    assert "protects nobody" in page
    assert "satisfies" not in page.split('id="data"')[0]


def test_discrete_noise_claims_no_gaussian_guarantee(tmp_path):
    release = released(qs.marginals(SCHEMA, 1), noise="discrete")
    page = release.report(tmp_path / "page.html").read_text()
    assert "μ = " not in page.split('id="data"')[0]
    assert "ρ = 0.5" in page


API = re.compile(r"\b(qs|release|plan|estimate|querysmasher)\.[a-z_]+\(|\w\(…\)")


@pytest.mark.slow
def test_readers_are_not_told_the_names_of_functions(release, plan, monkeypatch, tmp_path):
    """Not even where tables and queries are left out, on any page, in its text or in its scripts."""
    monkeypatch.setattr(release_data, "MAX_CELLS", 40)
    monkeypatch.setattr(release_data, "LISTED", 5)
    monkeypatch.setattr(release_report, "MAX_CELLS", 40)
    pages = [
        release.report(tmp_path / "release.html", estimates=True),
        plan.report(tmp_path / "plan.html", limit=False),
    ]
    for page in pages:
        text = page.read_text().split('<script type="application/json"')[0]
        assert API.findall(text) == []
    assert pages[0].read_text().count("Whoever has the released numbers can compute what is not shown") >= 3
    for name in ("release.js", "paper.js", "estimate.js", "plan.js", "targets.js"):
        said = re.findall(r'["`][^"`]*["`]', asset(name))
        assert not any(API.search(words) for words in said)


def tables_on(*places, dependent=(), clear=True):
    """Tables whose counts stand out of the noise if `clear`, on attributes that may be dependent."""
    for own in places:
        shape = [SCHEMA.sizes[p] for p in own]
        values = 100.0 * functools.reduce(np.multiply.outer, [np.arange(1.0, n + 1) for n in shape])
        if own in dependent:
            values[0, 0] += 5000
        yield Table(own, values.ravel(), np.full(values.size, 1.0 if clear else 1e4))


def opened(found, workload=None):
    workload = qs.marginals(SCHEMA, [1, 2]) if workload is None else workload
    return opening(SimpleNamespace(schema=SCHEMA, workload=workload), list(found))


def test_the_page_opens_on_a_table_worth_seeing():
    """Region has 4 values, age 20 in order, quarter 4 in order, sex 2."""
    singles, pairs = [(0,), (1,), (2,), (3,)], [(0, 1), (0, 2), (0, 3), (1, 3)]
    found = [*tables_on(*singles), *tables_on(*pairs, dependent=[(0, 3)])]
    assert opened(found) == [0, 3], "the one with a dependence, the longer attribute down"
    assert opened([*tables_on(*singles), *tables_on(*pairs, dependent=[(1, 3)])]) == [1, 3], "lines along age"
    assert opened([*tables_on(*singles), *tables_on(*pairs, dependent=[(0, 2)])]) == [2, 0], "along quarters"
    noisy = [*tables_on(*singles), *tables_on(*pairs, dependent=[(0, 3)], clear=False)]
    assert opened(noisy) == [1], "where pairs are noise, the clearest single attribute"
    assert opened([]) == []


def test_among_equals_the_page_opens_on_the_first_of_the_workload():
    found = [*tables_on((0,), (2,), (3,)), *tables_on((0, 3), (2, 3))]
    by = {name: qs.queries(SCHEMA, {name: "identity", "sex": "identity"}) for name in ("region", "quarter")}
    assert opened(found, by["region"] + by["quarter"]) == [0, 3]
    assert opened(found, by["quarter"] + by["region"]) == [2, 3]


def test_the_page_does_not_open_on_a_table_too_large_to_read():
    schema = qs.Schema.of(a=40, b=7, c=300)
    release = SimpleNamespace(schema=schema, workload=qs.marginals(schema, [1, 2]))
    ones = [Table((p,), np.arange(schema.sizes[p]) * 1e3, np.ones(schema.sizes[p])) for p in range(3)]
    pair = Table((0, 1), np.arange(280) * 1e3, np.ones(280))
    assert opening(release, [*ones, pair]) == [0], "40 rows of 7 are too many, 300 bars, too"
    assert opening(release, ones[2:]) == [2], "unless there is no other"


def test_labels_that_look_alike_are_told_apart(hostile, tmp_path):
    _, release = hostile
    labels = data_of(release.report(tmp_path / "page.html").read_text())["attributes"][0]["labels"]
    assert len(set(labels)) == len(labels)
    assert labels[-2:] == ["1", "1 (2)"]


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
    own = table_on(released(qs.marginals(schema, 2), frame, qs.zCDP(0.1), seed=3), (0, 1))
    exact = np.histogram2d(frame["a"], frame["b"], bins=[range(41), range(41)])[0].ravel()
    assert 0.028 < len(outside(exact, own)) / 1600 < 0.072
    public = Table((0, 1), own.values, np.zeros(1600))
    assert outside(exact, public) == [], "a public number has no interval"


def test_a_plain_release_has_estimates_only_if_asked(tmp_path):
    release = released(qs.marginals(SCHEMA, [1, 2]), TABLE, qs.zCDP(0.1))
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


def test_notebooks_show_every_noun(plan, release, hostile):
    evil, broken = hostile
    for own, bad in [(plan, evil), (release, broken)]:
        for shown in (own, own.workload):
            assert "<table>" in shown._repr_html_()
        for shown in (bad, bad.workload, bad.workload.schema):
            assert "<img" not in shown._repr_html_()
            assert "<script" not in shown._repr_html_()
    assert "4 attributes" in plan.workload.schema._repr_html_()
    assert f"± {number(plan.rmse)}" in plan._repr_html_()
    assert "satisfies differential privacy" in release._repr_html_()
    answers = release.answer()
    shown = answers._repr_html_()
    low, high = answers.interval(0.95)
    assert f"{low[0]:,.1f} … {high[0]:,.1f}" in shown
    assert f"… {len(answers) - 8:,} more" in shown
    assert "<img" not in broken.answer()._repr_html_()
