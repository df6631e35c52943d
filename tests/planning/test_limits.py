"""The tuning constants of planning stand in one place, and tests change them there."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.limits import PlanningLimits, limited, limits


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
