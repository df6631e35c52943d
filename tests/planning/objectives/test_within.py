"""Targets and a budget, also close to the least one: what is found agrees with an independent solver."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning import candidates
from querysmasher.planning.candidates import solve_whole
from querysmasher.planning.objectives import objective
from tests.builders import COST
from tests.reference import is_measured, largest_ratio, optimal_worst
from tests.strategies import schemas, workloads

SCHEMA = qs.Schema.of(a=4, b=3)
HEADLINES = qs.queries(SCHEMA, a="prefix").within(3)
TABLE = qs.queries(SCHEMA, a="prefix", b="prefix").within(6)
DETAILS = qs.queries(SCHEMA, a="range", b="prefix")


@cache
def least_budget(workload, centering="optimized"):
    return qs.least_budget(workload, centering=centering)


def least_cost(workload, centering):
    return least_budget(workload, centering).budget.privacy_cost


def least_loss(workload, plan, centres):
    """The least weighted loss within the targets at some centres, or of any mechanism."""
    cost = plan.budget.privacy_cost
    squares = np.concatenate(
        [np.full(g.rows, math.inf if g.target is None else g.target.std**2) for g in workload]
    )
    caps = [(number, cost * square) for number, square in enumerate(squares) if math.isfinite(square)]
    return optimal_worst(workload, centres, plan.budget.unit, caps) / cost


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.3, 1.02, 1.002])
@pytest.mark.parametrize(
    ("aimed", "others"), [(HEADLINES, (DETAILS,)), (HEADLINES + TABLE, (DETAILS,)), (HEADLINES + TABLE, ())]
)
def test_close_to_the_least_budget_the_mean_error_is_within_one_percent_of_the_optimum(aimed, others, factor):
    """Multipliers of queries in tables of several families that look different from every value, too."""
    workload = sum(others, aimed)
    cost = least_cost(aimed, "uniform")
    plan = qs.plan(workload, qs.PrivacyCost(factor * cost), centering="uniform")
    assert largest_ratio(plan) <= 1 + 1e-6
    assert plan.gap <= 0.01
    best = least_loss(workload, plan, plan.centres)
    assert best * (1 - 1e-5) <= plan.weighted_loss <= best * 1.01**2
    assert plan.weighted_loss / (1 + plan.gap) ** 2 <= best * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "gap"), [(1.0005, 0.05), (1.0035, 0.01)])
def test_a_hair_above_the_least_budget_the_mean_error_is_certified(factor, gap):
    """The sum of the multipliers is many times the loss, so that the bound is less close."""
    schema = qs.Schema.of(a=8, b=6)
    workload = qs.queries(schema, a="prefix").within(10) + qs.queries(schema, a="prefix", b="prefix").within(
        20
    )
    plan = qs.plan(workload, qs.PrivacyCost(factor * least_cost(workload, "uniform")), centering="uniform")
    assert largest_ratio(plan) <= 1 + 1e-6
    assert plan.gap <= gap


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.02, 1.1, 1.2])
@pytest.mark.parametrize(
    ("cells", "aimed", "others"),
    [
        (2, [[1, 1]], [[1, 0], [0, 1], [1, 1], [-1, 2], [1, 2]]),
        (6, [[2, 1, 0, 1, -2, -1], [1, -1, 2, 0, 1, 1], [0, 2, -1, 1, 1, 2]], [[1, 2, -1, 0, 2, -2]]),
    ],
)
def test_few_queries_measured_as_they_are_keep_to_targets_at_the_least_error(cells, aimed, others, factor):
    """Of the larger ones there is one measurement, so that only its strategy can meet the targets."""
    schema = qs.Schema.of(a=cells)
    targets = qs.linear(schema, ["a"], aimed).within(1)
    workload = targets + qs.linear(schema, ["a"], others)
    plan = qs.plan(workload, qs.PrivacyCost(factor * least_cost(targets, "optimized")))
    assert plan.estimator.is_single or cells == 2
    assert largest_ratio(plan) <= 1 + 1e-6
    assert plan.gap <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("centering", "factors"),
    [("uniform", (1.005, 1.01, 1.02, 1.1, 1.3, 2.0, 4.0)), ("optimized", (1.005, 1.03, 1.3))],
)
def test_more_budget_never_gives_a_larger_error_nor_a_refusal(centering, factors):
    cost = least_cost(HEADLINES, centering)
    errors = []
    for factor in factors:
        plan = qs.plan(HEADLINES + DETAILS, qs.PrivacyCost(factor * cost), centering=centering)
        assert largest_ratio(plan) <= 1 + 1e-6
        assert plan.gap <= 0.02
        errors.append(plan.rmse)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [HEADLINES, HEADLINES + DETAILS])
def test_what_the_least_budget_meets_is_never_refused(workload):
    least = least_budget(workload)
    plan = qs.plan(workload, least.budget)
    assert largest_ratio(plan) <= 1 + 1e-6
    assert plan.objective == "mean"
    assert plan.privacy_cost <= least.budget.privacy_cost
    assert plan.rmse <= least.rmse * 1.003


@pytest.mark.slow
def test_what_uniform_centres_meet_the_default_meets_too():
    workload = HEADLINES + DETAILS
    cost = least_cost(workload, "uniform")
    even = qs.plan(workload, qs.PrivacyCost(1.01 * cost), centering="uniform")
    plan = qs.plan(workload, qs.PrivacyCost(1.01 * cost))
    assert largest_ratio(plan) <= 1 + 1e-6
    assert plan.rmse <= even.rmse


@pytest.mark.slow
def test_few_queries_measured_as_they_are_have_the_least_mean_error_of_any_mechanism():
    """One strategy answers all, so that no noise is shared: the strategy itself must meet the targets."""
    schema = qs.Schema.of(a=4, b=2)
    aimed = 3 * qs.queries(schema, a=qs.hierarchy(schema, "a", [0, 0, 1, 1])).within(1.5)
    workload = aimed + 10 * qs.abs_difference(schema, "a", "b") + qs.marginals(schema, 0)
    errors = []
    for factor in (1.02, 1.1, 1.5):
        plan = qs.plan(workload, qs.PrivacyCost(factor * least_cost(aimed, "optimized")))
        assert plan.whole == (0, 1, 2)
        assert largest_ratio(plan) <= 1 + 1e-6
        assert plan.gap <= 0.01
        best = least_loss(workload, plan, None)
        assert best * (1 - 1e-5) <= plan.weighted_loss <= best * 1.01**2
        assert plan.weighted_loss / (1 + plan.gap) ** 2 <= best * (1 + 1e-5)
        errors.append(plan.rmse)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.slow
@settings(max_examples=5)
@given(st.data())
def test_any_larger_budget_gives_a_smaller_error_and_any_stricter_target_costs_more(data):
    schema = data.draw(schemas(max_attributes=2, max_size=4, max_cells=12))
    headlines = data.draw(workloads(schema, max_groups=2, max_ways=1))
    assume(is_measured(headlines, COST))
    workload = headlines.within(2) + data.draw(workloads(schema, max_groups=2, max_ways=2))
    least = qs.least_budget(workload)
    stricter = qs.least_budget(
        headlines.within(1.5) + qs.Workload(schema, workload.groups[len(headlines.groups) :])
    )
    assert stricter.budget.privacy_cost >= least.least_cost * (2 / 1.5) ** 2 * (1 - 1e-6)
    last = math.inf
    for factor in (1.1, 1.3, 4.0):
        plan = qs.plan(workload, qs.PrivacyCost(factor * least.budget.privacy_cost))
        assert largest_ratio(plan) <= 1 + 1e-6
        assert plan.weighted_loss <= last * (1 + 1e-6)
        last = plan.weighted_loss


@pytest.mark.slow
def test_what_rounding_takes_is_certified_against_the_targets_as_asked(monkeypatch):
    """A bound for tighter targets, which make up for rounding, is none for the targets themselves."""

    def rounded_coarsely(plan, _):
        return replace(plan, measured=tuple(replace(m, variance=1.004 * m.variance) for m in plan.measured))

    monkeypatch.setattr(objective, "as_measured", rounded_coarsely)
    monkeypatch.setattr(objective.Search, "reallocated", lambda *_: None)
    cost = 1.05 * least_cost(HEADLINES, "uniform")
    plan = qs.plan(HEADLINES + DETAILS, qs.PrivacyCost(cost), centering="uniform")
    assert largest_ratio(plan) == pytest.approx(1 / math.sqrt(1.004), rel=1e-4)
    best = least_loss(plan.workload, plan, plan.centres)
    assert plan.weighted_loss / (1 + plan.gap) ** 2 <= best * (1 + 1e-5)


@pytest.mark.slow
def test_multipliers_of_loose_targets_stay_small_while_the_goal_rises():
    """They rose with it: the bound fell, and the plan of least cost, with four times the error, took over."""
    schema = qs.Schema.of(a=8, b=3)
    workload = qs.linear(schema, "a", [[-2, -2, 2, 3, 1, -3, -3, -1]]).within(0.95)
    rows = [[-2, -2, 1, 2, -3, -3, 0, -1], [3, 0, -1, 0, 1, 1, -2, 2]]
    workload += qs.linear(schema, "a", rows).within(2.86) + qs.marginals(schema, 2)
    plan = qs.plan(workload, qs.PrivacyCost(1.04 * least_cost(workload, "optimized")))
    assert plan.gap < 0.01
    assert largest_ratio(plan) < 1 + 1e-6


ONE, TWO, THREE = qs.Schema.of(a=6), qs.Schema.of(a=5, c=5), qs.Schema.of(a=3, b=8, c=6)
STEEP = {
    "one query": (
        qs.linear(ONE, "a", [[-1, 2, 0, 3, 3, -2]]).within(13) + qs.queries(ONE, a="identity"),
        "scale",
    ),
    "three queries": (
        qs.linear(TWO, "c", [[0, -1, -2, 1, 0], [-1, -2, 0, -3, -3], [-3, 3, -1, -3, -3]]).within(14)
        + qs.linear(TWO, "c", [[0, 1, 0, -2, -1]]),
        "scale",
    ),
    "three queries beside tables": (
        qs.linear(THREE, "a", [[1, 1, 0], [2, 3, 0], [1, -1, 3]]).within(4.8) + qs.marginals(THREE, 2),
        1.05,
    ),
    "two families, uniform centres": (
        qs.linear(ONE, "a", [[1, 2, -2, 3, 0, 1], [-3, 1, 1, 2, -1, 0]]).within(1)
        + qs.queries(ONE, a="prefix").within(0.6)
        + qs.queries(ONE, a="identity"),
        1.02,
    ),
    "six queries with targets far apart, uniform centres": (
        qs.linear(ONE, "a", [[3, -3, 1, -1, 0, 3]]).within(9.42)
        + qs.linear(
            ONE, "a", [[-2, -1, -1, 3, 3, -1], [-1, 1, -2, -1, 3, -3], [3, -3, -1, -1, -1, 0]]
        ).within(0.47)
        + qs.linear(ONE, "a", [[2, 3, 0, 2, 1, 3], [3, 3, -3, 2, -1, -3]]).within(3.18)
        + 0.17 * qs.queries(ONE, a="range")
        + 8.7 * qs.linear(ONE, "a", [[3, 0, -2, -1, 1, 3]])
        + qs.marginals(ONE, 0),
        "scale",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEEP)
def test_a_search_that_misses_targets_by_a_hair_does_not_end_at_the_plan_of_least_cost(name):
    """The mean error of that plan was several times as large."""
    workload, factor = STEEP[name]
    centering = "uniform" if "uniform" in name else "optimized"
    cost = least_cost(workload, centering)
    if factor == "scale":
        plan = qs.plan(workload, qs.PrivacyCost(cost / 4), insufficient="scale", centering=centering)
        assert 2 * (1 - 1e-3) <= largest_ratio(plan) <= 2 * 1.003
    else:
        plan = qs.plan(workload, qs.PrivacyCost(factor * cost), centering=centering)
        assert largest_ratio(plan) <= 1 + 1e-6
    assert plan.gap <= 0.01
    if factor != "scale" and workload.schema == ONE:
        best = least_loss(workload, plan, plan.centres)
        assert best * (1 - 1e-5) <= plan.weighted_loss
        assert plan.weighted_loss / (1 + plan.gap) ** 2 <= best * (1 + 1e-5)


def test_a_budget_that_leaves_nothing_to_other_queries_is_refused_or_misses_by_a_hair():
    schema = qs.Schema.of(a=4, b=3)
    workload = qs.marginals(schema, 0).within(1.0) + qs.linear(schema, "b", [[0, 1, 1], [1, 1, 1]])
    with pytest.raises(PlanError, match="leaves nothing for queries without targets") as refused:
        qs.plan(workload, COST, centering="uniform")
    named = float(str(refused.value).split("privacy cost of ")[1].split(",")[0])
    enough = qs.plan(workload, qs.PrivacyCost(named), centering="uniform")
    assert enough.extremes[0].ratio <= 1 + 1e-6
    scaled = qs.plan(workload, COST, centering="uniform", insufficient="scale")
    assert 1 <= scaled.extremes[0].ratio <= 1.004
    assert scaled.workload == workload


@pytest.mark.slow
def test_the_search_does_not_keep_to_the_choice_of_a_plan_without_targets(monkeypatch):
    """Measuring all queries whole is best for the mean, and takes far longer than splitting them."""
    solved = []

    def counted(*arguments, **options):
        solved.append(arguments)
        return solve_whole(*arguments, **options)

    monkeypatch.setattr(candidates, "solve_whole", counted)
    schema = qs.Schema(
        [
            qs.Categorical("sex", range(2)),
            qs.Ordinal("age", range(20)),
            qs.Binned("income", edges=[0, 1, 2, 5, 9]),
            qs.Cyclic("hour", range(8)),
        ]
    )
    tables = qs.all_kway(schema, [1, 2]).weighing("tables").within(5)
    workload = tables + 2 * qs.where(schema, "age >= 18 and sex == 0") + 2 * qs.where(schema, "7 <= age < 18")
    with pytest.raises(PlanError, match="does not suffice"):
        qs.plan(workload, qs.ApproxDP(1.0, 1e-6))
    assert len(solved) <= 2
