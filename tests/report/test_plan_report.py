"""The numbers of a plan's page, the file it is in, and the table of what to expect, wherever it is shown."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import norm

import querysmasher as qs
from querysmasher import demo
from querysmasher.errors import FileError, PlanError
from querysmasher.guarantees import scientific
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Limit
from querysmasher.privacy.budget import readable
from querysmasher.report import expectations, plan_report
from querysmasher.report.expectations import HEADER, by_kind, expect, expected_table, overall, together
from querysmasher.report.page import guarantee, power
from querysmasher.report.plan_report import (
    QUANTILES,
    epsilon_curve,
    error_rows,
    shares,
    shares_by_way,
    tenths,
)
from querysmasher.report.words import group_words
from tests.report.conftest import SCHEMA, data_of


def fast(workload, budget=None, **options):
    return qs.plan(workload, budget or qs.PrivacyCost(1.0), centering="uniform", **options)


def check_rows(plan, rows, rtol=1e-9):
    for row, summary in zip(rows, plan.summary(), strict=True):
        assert row.queries == summary.queries
        assert row.rmse == pytest.approx(summary.rmse, rel=rtol)
        own = np.sqrt(plan.estimator.variances(summary.group).ravel())
        exact = np.quantile(own, QUANTILES, method="inverted_cdf")
        np.testing.assert_allclose(row.spread, exact, rtol=max(rtol, 1e-9))


def test_errors_are_those_of_the_plan(plan):
    groups, kinds = error_rows(plan)
    check_rows(plan, groups)
    assert overall(groups) == pytest.approx(plan.rmse)
    assert sum(kind.queries for kind in kinds) == len(plan.workload)
    assert {kind.label for kind in kinds} >= {"prefix", "identity", "circular", "identity × prefix"}
    for kind in kinds:
        own = [g for g in groups if (g.kind, len(g.attributes)) == (kind.kind, len(kind.attributes))]
        assert len(kind.groups) == len(own)
        mean = math.sqrt(sum(g.rmse**2 * g.queries for g in own) / kind.queries)
        assert kind.rmse == pytest.approx(mean)
        assert (
            min(g.spread[0] for g in own)
            <= kind.spread[0]
            <= kind.spread[-1]
            <= max(g.spread[-1] for g in own)
        )


def test_every_class_of_queries_has_its_errors():
    schema = qs.Schema.of(a=5, b=4, c=3)
    workload = (
        qs.affine(schema, "a", "b")
        + 3 * qs.abs_difference(schema, "a", "b")
        + qs.random_queries(schema, ("a", "b", "c"), 30)
        + qs.where(schema, "a <= 2 and c == 1")
        + qs.queries(schema, a=qs.hierarchy(schema, "a", [0, 0, 1, 1, 1]))
        + qs.all_kway(schema, [0, 2], "range")
    )
    plan = fast(workload)
    check_rows(plan, error_rows(plan)[0])


@pytest.mark.slow
def test_large_groups_are_sampled_and_never_written_out(monkeypatch):
    schema = qs.Schema.of(a=30, b=20, c=3)
    plan = fast(qs.all_kway(schema, [1, 2], "range") + qs.all_kway(schema, 2, "circular"))
    full = {row.label: row for row in error_rows(plan)[0]}
    monkeypatch.setattr(plan_report, "MAX_ENTRIES", 120_000)
    monkeypatch.setattr(plan_report, "WHOLE", 1_000)
    sampled = error_rows(plan)[0]
    for row in sampled:
        if row.rmse is not None:
            assert row.rmse == pytest.approx(full[row.label].rmse, rel=1e-6)
        if row.spread is not None:
            np.testing.assert_allclose(row.spread, full[row.label].spread, rtol=0.2)
    assert sum(row.rmse is not None for row in sampled) == len(full)


@pytest.mark.slow
def test_what_would_take_too_much_memory_is_left_open(monkeypatch, tmp_path):
    plan = fast(qs.random_queries(qs.Schema.of(a=9, b=9), ("a", "b"), 40))
    monkeypatch.setattr(plan_report, "MAX_ENTRIES", 100)
    (row,), _ = error_rows(plan)
    assert row.rmse is None
    assert row.spread is None
    assert overall([row]) is None
    page = plan.report(tmp_path / "page.html").read_text()
    assert data_of(page)["groups"][0]["rmse"] is None


@pytest.mark.slow
def test_many_groups_are_cut_and_kinds_are_not(monkeypatch, tmp_path):
    schema = qs.Schema.of({f"a{i}": 3 for i in range(14)})
    plan = fast(qs.marginals(schema, [1, 2, 3]))
    monkeypatch.setattr("querysmasher.report.plan_report.GROUPS", 50)
    page = plan.report(tmp_path / "page.html").read_text()
    data = data_of(page)
    assert len(data["groups"]) == 50
    assert data["all_groups"] == len(plan.workload.groups)
    assert f"Not on this page: {len(plan.workload.groups) - 50:,} groups with the smallest errors." in page
    assert len(data["charts"]["spread"]["layer"]) == 4


def test_shares_add_up(plan):
    for most in (3, 100):
        rows = shares(plan, most)
        assert math.fsum(share for _, share in rows) == pytest.approx(1)
        assert len(rows) == min(most + 1, len(plan.measured))


def test_many_sets_are_added_up_by_their_number_of_attributes(tmp_path):
    schema = qs.Schema.of({f"a{i}": 3 for i in range(8)})
    plan = fast(qs.marginals(schema, [1, 2]))
    rows = shares_by_way(plan)
    assert [label for label, _ in rows] == [
        "total",
        "1 attribute (8 attribute sets)",
        "2 attributes (28 attribute sets)",
    ]
    assert math.fsum(share for _, share in rows) == pytest.approx(1)
    page = plan.report(tmp_path / "page.html").read_text()
    assert "other attribute sets together" not in page
    shown = [row["said"] for row in plan_report._share_rows(plan)]
    assert all(said in page for said in shown)
    assert sum(round(10 * float(said.rstrip("%"))) for said in shown) == 1000
    assert "The attribute sets one by one<" in page
    assert "a0 × a1" in page


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
def test_written_shares_add_up_to_a_hundred(amounts):
    parts = [amount / sum(amounts) for amount in amounts]
    written = [float(said.rstrip("%")) for said in tenths(parts)]
    assert round(10 * math.fsum(written)) == 1000
    assert all(abs(100 * part - said) <= 0.1 + 1e-9 for part, said in zip(parts, written, strict=True))


@pytest.mark.slow
def test_predicates_and_levels_are_printed_in_full(tmp_path):
    schema = qs.Schema([qs.Categorical("county", list("abcd")), qs.Ordinal("age", range(9))])
    levels = qs.hierarchy(
        schema, "county", dict(zip("abcd", ["north", "north", "south", "south"], strict=True))
    )
    workload = (
        qs.where(schema, "age >= 3 and county == 'a'")
        + qs.queries(schema, county=levels, age="prefix")
        + qs.where(schema, "age < 2 or county != 'b'")
    )
    plan = fast(workload)
    page = plan.report(tmp_path / "page.html").read_text()
    labels = [row["label"] for row in data_of(page)["groups"]]
    assert labels[0] == "age >= 3 and county == 'a'"
    assert labels[1] == "county (hierarchy: north, south; each value) and age ≤ y"
    assert labels[1] in " ".join(str(plan).split())
    assert labels[2] == "age < 2 or county != 'b'"
    assert "age < 2 or county != 'b'" in str(plan)
    named = qs.hierarchy(schema, "county", side={"west": list("abc"), "east": ["d"]}, leaves=False)
    assert group_words(qs.queries(schema, county=named).groups[0]) == "county (hierarchy: side west, east)"


@pytest.mark.parametrize(
    "budget", [qs.ApproxDP(1.0, 1e-6), qs.zCDP(0.3), qs.GaussianDP(0.5), qs.PrivacyCost(2.0)]
)
def test_the_curve_is_what_planning_with_another_epsilon_gives(budget):
    workload = qs.all_kway(SCHEMA, 1)
    start, grid, factors = epsilon_curve(budget)
    delta = budget.delta if isinstance(budget, qs.ApproxDP) else 1e-6
    assert start == pytest.approx(budget.epsilon_at(delta))
    assert factors[grid.index(start)] == 1
    assert sorted(factors, reverse=True) == factors
    rmse = fast(workload, budget).rmse
    for place in (0, 50, len(grid) - 1):
        other = fast(workload, qs.ApproxDP(grid[place], delta)).rmse
        assert rmse * factors[place] == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("cost", [1e-24, 1e30])
def test_budgets_out_of_reach_of_epsilon(cost, tmp_path):
    plan = fast(qs.all_kway(SCHEMA, 1), qs.PrivacyCost(cost))
    assert epsilon_curve(plan.budget) is None
    page = plan.report(tmp_path / "page.html").read_text()
    assert "too far from common values" in page


def test_odds_are_those_of_gaussian_noise():
    budget = qs.GaussianDP(0.8)
    assert "65.6%" in guarantee(budget)  # Φ(μ/2), rounded up
    for alarm in (0.01, 0.05, 0.3):
        exact = norm.cdf(norm.ppf(alarm) + 0.8)
        assert exact - 1e-9 <= power(budget, alarm) <= exact + 2e-3
        discrete = power(qs.zCDP(0.32), alarm, discrete=True)
        assert exact - 1e-9 <= discrete <= 1


def test_guarantees_in_words():
    said = guarantee(qs.ApproxDP(1.0, 2.5e-7, neighbours="replace_one", records_per_person=3))
    for words in (
        "2.5 × 10⁻⁷",
        "which of two versions of the records of one person",
        "make it public",
        "3 records",
    ):
        assert words in said
    assert "gives little protection" in guarantee(qs.zCDP(10.0))
    assert "gives little protection" not in guarantee(qs.zCDP(0.1))
    assert scientific(1e-10) == "10⁻¹⁰"


@pytest.mark.slow
@pytest.mark.parametrize("as_text", [True, False])
def test_the_page_is_one_file(plan, tmp_path, as_text):
    path = tmp_path / "page.html"
    path.write_text("old")
    written = plan.report(str(path) if as_text else path, title="A <b> title")
    assert written == path
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "A &lt;b&gt; title" in page
    assert len(page) < 1_500_000
    assert page.count("<script") == 3  # data, libraries, ours
    assert "<link" not in page
    assert " src=" not in page.split("<script", 1)[0]


@pytest.mark.slow
def test_paths_that_cannot_be(plan, release, tmp_path, refuses):
    for report in (plan.report, release.report):
        for path in (tmp_path, str(tmp_path), Path(tmp_path)):
            with refuses(FileError, ValueError, "path", "is a folder", "report.html"):
                report(path)
        with refuses(FileError, ValueError, "path", "does not exist"):
            report(tmp_path / "nowhere" / "page.html")
        for path in (None, 7, ""):
            with refuses(FileError, ValueError, "path", "got"):
                report(path)
        for name in ("page", "page.pdf", "page.xlsx", "html"):
            with refuses(FileError, ValueError, "path", ".html or .htm", name):
                report(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_fails_leaves_what_was_there(plan, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plan.report(path)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_the_limit_is_told_where_it_is_wanted(plan, tmp_path, monkeypatch, refuses):
    asked = []
    monkeypatch.setattr(Plan, "limit", lambda self: asked.append(self) or Limit(1.0, 0.1))
    path = tmp_path / "page.html"
    assert "was not computed" in plan.report(path, limit=False).read_text()
    assert asked == []
    assert "No matrix mechanism has" in plan.report(path, limit=True).read_text()
    small = fast(qs.all_kway(qs.Schema.of(a=3, b=4), 1))
    assert "No matrix mechanism has" in small.report(path).read_text()
    large = fast(qs.all_kway(qs.Schema.of(a=30, b=40), 2))
    assert "was not computed" in large.report(path).read_text()
    with refuses(PlanError, ValueError, "limit", "'yes'"):
        plan.report(path, limit="yes")


def test_a_limit_that_cannot_be_computed_says_why(tmp_path):
    plan = fast(qs.all_kway(SCHEMA, 1), qs.zCDP(0.1, neighbours="replace_one"))
    assert "add/remove neighbours only" in plan.report(tmp_path / "page.html").read_text()


def words(text):
    return " ".join(text.split())


@pytest.fixture(scope="module")
def small():
    schema = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(9))])
    workload = qs.all_kway(schema, [0, 1, 2]) + 2 * qs.where(schema, "age >= 3 and sex == 'F'")
    return qs.plan(workload, qs.zCDP(0.5), centering="uniform")


def test_an_error_that_takes_too_much_memory_is_left_open(small):
    rows = list(expect(small, max_entries=8))
    assert [row.rmse is None for row in rows] == [False, False, False, False, True]
    assert rows[-1].cells()[2] == "not computed"
    assert rows[-1].scaled(2.0).rmse is None
    assert overall(rows) is None


def test_print_and_notebook_show_the_table(small):
    text, html = words(repr(small)), small._repr_html_()
    assert " ".join(HEADER) in text
    for row in expect(small):
        assert " ".join(row.cells()) in text
        for cell in row.cells()[1:]:
            assert f'<td class="n">{cell}</td>' in html


@pytest.mark.slow
def test_print_and_notebook_show_targets_and_which_queries_have_the_largest_errors():
    schema = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(6))])
    ages, sexes = qs.queries(schema, age="prefix"), qs.queries(schema, sex="identity")
    plain = words(repr(qs.plan(ages + sexes, qs.PrivacyCost(1.0))))
    assert " ".join((*HEADER, "largest error of")) in plain
    plan = qs.least_budget(ages.within(9, level=0.9) + sexes)
    text, html = repr(plan), plan._repr_html_()
    assert " ".join((*HEADER, "target", "largest error of")) in words(text)
    for row, extreme, target in zip(expect(plan), plan.extremes, ("± 9.00 at 90%", ""), strict=True):
        assert row.extreme == extreme
        query = extreme.query(schema)
        assert words(" ".join((*row.cells(), target, query))) in words(text)
        assert query.replace("'", "&#x27;").replace("<", "&lt;").replace(">", "&gt;") in html
    rho, mu = (readable(amount, digits=4) for amount in (plan.budget.rho, plan.budget.mu))
    assert f"rho = {rho:.4g}, mu = {mu:.4g}, epsilon = " in text


def test_rows_of_several_groups_name_the_worst_query_of_all(small):
    kinds = by_kind(expect(small))
    assert len(expected_table(kinds, small.workload.schema)) == 1 + len(kinds)
    everything = together("all", expect(small))
    worst = max(small.extremes, key=lambda one: one.std)
    _, cells = expected_table([everything], small.workload.schema)
    assert cells[-1] == worst.query(small.workload.schema)
    assert everything.largest == worst.std
    aimed = qs.plan(small.workload.within(1e9) + small.workload, small.budget)
    _, cells = expected_table([together("all", expect(aimed))], small.workload.schema)
    assert cells[-2] == "several"


def test_many_groups_are_printed_by_kind_and_very_many_not(small, monkeypatch):
    monkeypatch.setattr(expectations, "MOST_ROWS", 4)
    assert HEADER[-1] not in repr(small)  # five kinds
    monkeypatch.setattr(expectations, "MOST_ROWS", 12)
    monkeypatch.setattr(expectations, "MOST_GROUPS", 4)
    assert HEADER[-1] not in repr(small)
    many = qs.plan(qs.marginals(qs.Schema.of({f"a{i}": 2 for i in range(14)}), 1), qs.zCDP(1))
    monkeypatch.setattr(expectations, "MOST_GROUPS", 20)
    assert "identity 28 ±" in words(repr(many))


@pytest.mark.slow
def test_page_and_demo_show_the_same_numbers(small, tmp_path, capsys):
    data = data_of(small.report(tmp_path / "plan.html").read_text())
    rows = list(expect(small))
    assert [shown["queries"] for shown in data["groups"]] == [row.queries for row in rows]
    assert [shown["rmse"] for shown in data["groups"]] == pytest.approx([row.rmse for row in rows], rel=1e-4)
    demo.plan_without_data(Console(width=200))
    said = words(capsys.readouterr().out.replace("│", " ").replace("┃", " "))
    assert " ".join(HEADER) in said
    assert "income (prefix) × age (prefix) × marital (identity) 35,000 ±" in said
