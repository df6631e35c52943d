"""One table of what to expect, wherever it is shown."""

import math

import numpy as np
import pytest
from rich.console import Console

import querysmasher as qs
from querysmasher import demo
from querysmasher.privacy.budget import readable
from querysmasher.report import expectations
from querysmasher.report.expectations import HEADER, by_kind, expect, expected_table, overall, together
from tests.report.conftest import data_of


def words(text):
    return " ".join(text.split())


@pytest.fixture(scope="module")
def small():
    schema = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(9))])
    workload = qs.all_kway(schema, [0, 1, 2]) + 2 * qs.where(schema, "age >= 3 and sex == 'F'")
    return qs.plan(workload, qs.zCDP(0.5), centering="uniform")


def test_rows_are_the_errors_of_all_queries(small):
    rows = list(expect(small))
    assert [row.queries for row in rows] == [1, 2, 9, 18, 1]
    assert [row.label for row in rows][::4] == ["total", "age >= 3 and sex == 'F'"]
    for row in rows:
        own = small.variances(qs.Workload(small.workload.schema, row.groups))
        assert row.rmse == pytest.approx(math.sqrt(np.mean(own)))
        assert row.budget_share == small.budget_shares()[tuple(sorted(row.attributes, reverse=True))]
    assert overall(rows) == pytest.approx(small.rmse)


def test_rows_add_up_and_a_share_counts_once(small):
    rows = list(expect(small))
    everything = together("all", rows)
    assert everything.queries == len(small.workload)
    assert everything.rmse == pytest.approx(small.rmse)
    assert everything.budget_share == pytest.approx(1)
    assert sum(row.budget_share for row in rows) > 1  # two groups are on the same attributes
    kinds = by_kind(rows)
    assert [kind.label for kind in kinds][:4] == ["total", "identity", "prefix", "identity × prefix"]
    assert sum(kind.queries for kind in kinds) == len(small.workload)


def test_larger_noise_scales_errors_and_nothing_else(small):
    for row in expect(small):
        twice = row.scaled(2.0)
        assert twice.rmse == 2 * row.rmse
        assert (twice.label, twice.queries, twice.budget_share) == (row.label, row.queries, row.budget_share)


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
