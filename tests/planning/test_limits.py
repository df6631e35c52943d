"""The tuning constants of planning stand in one place, and tests change them there."""

from dataclasses import FrozenInstanceError
from functools import cache

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.integer import MAX_RECORDS
from querysmasher.planning.limits import PlanningLimits, limited, limits
from querysmasher.planning.objectives.objective import as_measured
from tests.planning.test_random_workloads import drawn


def test_limits_are_frozen_and_changed_for_a_while_only():
    with limited(light_cells=3) as inside:
        assert limits() is inside
        assert limits().light_cells == 3
    assert limits() == PlanningLimits()
    with pytest.raises(FrozenInstanceError):
        limits().light_cells = 3
    with pytest.raises(TypeError, match="nonsense"), limited(nonsense=3):
        pass


# --- what limits gain --------------------------------------------------------------------------


def plan(workload, limit=None, **options):
    """Return a plan at privacy cost 1, with some other limits."""
    with limited(**(limit or {})):
        return qs.plan(workload, qs.PrivacyCost(1.0), **options)


def test_attributes_of_too_many_values_are_refused():
    workload = qs.queries(qs.Schema.of(a=7000), a="prefix")
    assert plan(workload).rmse > 0
    with pytest.raises(TooLargeError, match="up to 6,500"):
        plan(workload, {"most_values": 6500})


def test_too_many_queries_are_not_searched_for_the_largest_error():
    schema = qs.Schema.of(a=5, b=6)
    mixed = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    with pytest.raises(TooLargeError, match="30 are too many to search"):
        plan(mixed, {"worst_queries": 20}, objective="worst", centering="uniform")
    workload = qs.queries(qs.Schema.of(a=2000, b=2), a="prefix", b="identity")
    assert plan(workload).worst_std > 0
    with limited(large_worst_queries=1500):
        assert plan(workload).worst_std is None


def test_plans_that_rounding_spoils_are_refused():
    workload = qs.queries(qs.Schema.of(a=30), a="prefix")
    assert plan(workload, {"most_bits": 4}).rmse > 0
    with pytest.raises(PlanError, match="some queries are lost"):
        plan(workload, {"most_bits": 4, "most_loss": 1.0})


@pytest.mark.parametrize("limit", ["merged_values", "merged_work", "merged_numbers"])
def test_merged_families_bring_the_largest_error_closer_to_its_bound(limit):
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.queries(schema, a="prefix", b="identity") + qs.queries(schema, a="identity", b="prefix")
    assert plan(workload, objective="worst").gap < 0.005
    assert plan(workload, {limit: 0}, objective="worst").gap > 0.02


def test_the_number_of_records_is_learnt_for_its_share_of_the_budget():
    workload = qs.marginals(qs.Schema.of(a=4, b=5, c=6, d=3), 3)
    few, many = (plan(workload, {"size_share": share}, purpose="estimate") for share in (0.01, 0.2))
    assert few.budget_shares()[()] < 0.05
    assert many.budget_shares()[()] > 0.2


def test_larger_tables_are_measured_for_enough_of_the_budget_only():
    workload = qs.marginals(qs.Schema.of(a=4, b=5, c=6, d=3), 3)
    kept, left = (
        plan(workload, {"table_share": share}, purpose="estimate", records=1000).budget_shares()
        for share in (0.0, 1.01)
    )
    assert ("a", "b", "c") in kept
    assert ("a", "b", "c") not in left
    assert sum(cost for names, cost in kept.items() if len(names) < 3) < 1


def test_errors_of_estimates_are_stated_for_a_usual_number_of_records():
    workload = qs.marginals(qs.Schema.of(a=4, b=5, c=6, d=3), 3)
    few, many = (plan(workload, {"usual_records": n}, purpose="estimate") for n in (100, 100_000))
    assert few.budget_shares()["a",] > many.budget_shares()["a",]


def test_many_whole_queries_are_solved_more_closely_if_that_is_asked():
    rows = np.random.default_rng(0).integers(0, 2, (20, 1600)).tolist()
    workload = qs.linear(qs.Schema.of(a=40, b=40), ("a", "b"), rows)
    near, nearer = (plan(workload, {"interior_work": 0, "whole_nearness": n}).gap for n in (20, 0))
    assert nearer < near <= 0.02


# --- what constants beside algorithms gain ---------------------------------------------------------

LINE = qs.queries(qs.Schema.of(a=700), a="prefix")


def changed(name, value, monkeypatch):
    """Change a constant of a module of planning."""
    module, constant = name.rsplit(".", 1)
    monkeypatch.setattr(f"querysmasher.planning.{module}.{constant}", value)


def with_public_total(workload):
    return qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one")).rmse


@pytest.mark.parametrize("weight", [0.0, 1e5])
def test_a_public_total_has_a_weight_that_is_neither_small_nor_huge(weight, monkeypatch):
    before = with_public_total(LINE)
    changed("lines.splitting.PUBLIC", weight, monkeypatch)
    assert with_public_total(LINE) > 1.03 * before


def test_the_weight_of_a_total_beside_queries_is_bounded(monkeypatch):
    workload, budget = drawn(1320)
    before = qs.plan(workload, budget).rmse
    changed("centring.HEAVIEST", 1e3, monkeypatch)
    assert qs.plan(workload, budget).rmse > 1.02 * before


def rounded(seed):
    """Return the largest factor by which whole numbers raise a variance of a random workload."""
    planned = qs.plan(*drawn(seed))
    queries = planned.workload
    return (as_measured(planned, MAX_RECORDS).variances(queries) / planned.variances(queries)).max()


@pytest.mark.parametrize(
    ("name", "value", "seed", "most"),
    [
        ("strategies.dense.FEW_ROWS", 3, 5126, 1.1),
        ("strategies.dense.SCALES", [1.0], 5126, 1.1),
        ("strategies.dense.LATTICE_BITS", 0, 115, 1.003),
        ("lattice.MOST_DENOMINATOR", 504, 100, 1.003),
    ],
)
def test_rows_in_whole_numbers_keep_the_planned_errors(name, value, seed, most, monkeypatch):
    before = rounded(seed)
    changed(name, value, monkeypatch)
    assert before < 1.0025
    assert rounded(seed) > most


SCHEMA = qs.Schema.of(a=6, b=5, c=4)
FEW = qs.Schema.of(a=5, b=4, c=3)
SEARCHES = {
    "worst": lambda: plan(qs.all_kway(SCHEMA, [1, 2], "prefix") + qs.marginals(SCHEMA, 2), objective="worst"),
    "least": lambda: qs.least_budget(
        qs.all_kway(FEW, 1, "prefix").within(2.0) + qs.marginals(FEW, 2).within(4.0) + qs.marginals(FEW, 3)
    ),
}


@cache
def usual(search):
    """Return the plan of a search with the usual constants."""
    return SEARCHES[search]()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("multipliers.MOST_RATE", 1e9),
        ("multipliers.FIRST_RATE", 0.3),
        ("search.GROWTH", 2.0),
        ("search.PROMISED", 0.1),
    ],
)
def test_the_search_for_the_least_largest_error_ends_closer(name, value, monkeypatch):
    before = usual("worst").gap
    changed(f"objectives.{name}", value, monkeypatch)
    assert SEARCHES["worst"]().gap > 1.2 * before


def test_queries_without_targets_get_a_little_more_than_the_least_cost(monkeypatch):
    before = usual("least").rmse
    changed("objectives.objective.SPARE", 1.0, monkeypatch)
    assert SEARCHES["least"]().rmse > 1.2 * before
