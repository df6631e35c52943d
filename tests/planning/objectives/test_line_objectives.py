"""Other objectives where attributes are not split: against the search with matrices, on small cases."""

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.limits import limited
from querysmasher.planning.objectives.objective import as_measured
from querysmasher.planning.strategies import AxisStrategy
from tests.builders import COST, SPLIT, as_lines

SCHEMA = qs.Schema.of(a=48, b=2)
PREFIXES = qs.queries(SCHEMA, a="prefix")
TREE = qs.queries(SCHEMA, a=qs.hierarchy(SCHEMA, "a", np.arange(48) // 12, np.arange(48) // 4))
CROSSED = qs.queries(SCHEMA, a="prefix", b="identity") + qs.queries(SCHEMA, b="identity")


def implicitly(make, *args, **options):
    """Plan without matrices."""
    with as_lines(5, axis_values=5), limited(**SPLIT):
        return make(*args, **options)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [PREFIXES, TREE, CROSSED], ids=["prefixes", "tree", "crossed"])
def test_the_largest_error_is_nearly_least(workload):
    plan = implicitly(qs.plan, workload, COST, objective="worst")
    reference = qs.plan(workload, COST, objective="worst")
    assert any(isinstance(solution.strategy, AxisStrategy) for solution in plan.solutions)
    assert plan.objective == "worst"
    assert plan.privacy_cost == pytest.approx(1.0)
    assert plan.worst == pytest.approx(np.sqrt(plan.variances(workload).max()))
    assert plan.worst < qs.plan(workload, COST).worst
    assert plan.worst <= 1.01 * reference.worst
    assert plan.worst / (1 + plan.gap) <= reference.worst * (1 + 1e-6)
    assert plan.gap < (0.06 if workload is TREE else 0.01)
    assert plan.rmse == pytest.approx(np.sqrt(plan.variances(workload).mean()))


@pytest.mark.parametrize("n", [1_501, 6_001])
def test_all_prefixes_of_many_values_are_answered_equally_well(n):
    """Without matrices on both sides of what matrices could search."""
    workload = qs.queries(qs.Schema.of(a=n), a="prefix")
    plan = qs.plan(workload, COST, objective="worst")
    assert plan.gap < 0.005
    assert plan.rmse > 0.995 * plan.worst


def test_families_that_were_merged_are_searched_around_uniform_centres():
    """Multipliers of the best plan may be older than the merging: the search stopped with an error."""
    schema = qs.Schema.of(a=5, b=5)
    some = qs.ranges(schema, "a", [2, 2, 0], [2, 2, 0])
    tree = qs.hierarchy(schema, "a", part=[0, 0, 0, 0, 1])
    workload = 9.17 * qs.queries(schema, a=some, b="prefix") + 4.03 * qs.queries(schema, a=tree, b="identity")
    workload += 0.37 * qs.linear(schema, ("b",), [[0.122, 0.061, -0.061, 0, 0.082]])
    with as_lines(2, line_matrix=2), limited(**SPLIT):
        plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"), objective="worst")
    assert plan.worst == pytest.approx(np.sqrt(plan.variances(workload).max()))


@pytest.mark.slow
def test_the_least_budget_meets_targets_as_measured():
    workload = PREFIXES.within(3.0) + qs.queries(SCHEMA, b="identity")
    plan = implicitly(qs.least_budget, workload)
    reference = qs.least_budget(workload)
    assert plan.budget.privacy_cost <= 1.06 * reference.budget.privacy_cost
    assert plan.least_cost <= reference.budget.privacy_cost
    measured = as_measured(plan, 10**8)
    assert np.sqrt(measured.variances(PREFIXES).max()) <= 3.0 * (1 + 1e-6)
    assert np.isfinite(plan.variances(workload)).all()


def test_targets_hold_at_little_cost_to_others():
    sexes = qs.queries(SCHEMA, b="identity")
    free = implicitly(qs.plan, CROSSED, COST)
    target = 0.8 * float(np.sqrt(free.variances(sexes).max()))
    workload = qs.queries(SCHEMA, a="prefix", b="identity") + sexes.within(target)
    plan = implicitly(qs.plan, workload, COST)
    assert np.sqrt(plan.variances(sexes).max()) <= target * (1 + 1e-9)
    assert plan.weighted_loss / (1 + plan.gap) ** 2 >= free.weighted_loss / (1 + free.gap) ** 2 * (1 - 1e-9)
    reference = qs.plan(workload, COST)
    assert plan.rmse <= 1.03 * reference.rmse
    assert implicitly(qs.plan, CROSSED.within(1e4), COST).rmse == pytest.approx(free.rmse)


def test_a_budget_that_does_not_suffice():
    with pytest.raises(PlanError, match="does not suffice for the targets"):
        implicitly(qs.plan, PREFIXES.within(0.5), COST)
    scaled = implicitly(qs.plan, PREFIXES.within(0.5), COST, insufficient="scale")
    assert scaled.worst > 1


def test_targets_of_all_queries_are_missed_by_the_same_factor():
    """Nothing is left over for queries without targets, of which there are none."""
    workload = PREFIXES.within(1.8) + qs.queries(SCHEMA, b="identity").within(5)
    scaled = implicitly(qs.plan, workload, COST, insufficient="scale")
    least = implicitly(qs.least_budget, workload)
    assert scaled.worst == pytest.approx(np.sqrt(least.budget.privacy_cost), rel=0.01)


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        (20_000, "limited to 5,000,000 queries per group"),
        *((size, "families that can be written out") for size in (1_000, 2_000, 3_500)),
    ],
)
def test_too_many_ranges_are_refused_before_any_work(size, problem):
    ranges = qs.queries(qs.Schema.of(a=size), a="range")
    with pytest.raises(TooLargeError, match=problem):
        qs.plan(ranges, COST, objective="worst")
    with pytest.raises(TooLargeError, match=problem):
        qs.least_budget(ranges.within(5))


@pytest.mark.slow
def test_the_largest_errors_of_uneven_trees_are_nearly_least():
    """Large groups are hard to answer as well as small ones: nodes that no query asks about help."""
    coarse = np.repeat(np.arange(4), [5, 30, 12, 58])
    fine = np.repeat(np.arange(12), [2, 3, 4, 8, 18, 1, 5, 6, 3, 9, 16, 30])
    schema = qs.Schema.of(a=105)
    levels = [qs.hierarchy(schema, "a", groups, leaves=False) for groups in (coarse, fine)]
    targets = dict(zip((*levels, "identity"), (1.4, 1.2, 2.0), strict=True))
    asked = [qs.queries(schema, a=family).within(target) for family, target in targets.items()]
    workload = asked[0] + asked[1] + asked[2]
    plan = implicitly(qs.plan, workload, COST, objective="worst")
    reference = qs.plan(workload, COST, objective="worst")
    assert plan.gap < 0.01
    assert reference.worst / (1 + reference.gap) <= plan.worst <= 1.005 * reference.worst
    assert plan.worst / (1 + plan.gap) <= reference.worst * (1 + 1e-6)


@pytest.mark.slow
def test_the_least_budget_of_a_hierarchy_too_large_to_write_out():
    """All its levels are one family, of more queries than values."""
    schema = qs.Schema.of(a=21_000, b=2)
    levels = [np.arange(21_000) // size for size in (5_250, 70)]
    workload = qs.queries(schema, a=qs.hierarchy(schema, "a", *levels), b="identity").within(5)
    plan = qs.least_budget(workload)
    assert plan.gap < 0.01
    assert 1 - 1e-2 <= plan.worst <= 1 + 1e-6
