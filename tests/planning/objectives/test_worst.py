"""The worst-case objective against an independent convex solver on all queries, and the figures to reach."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from tests.builders import COST, UNITS, cps, cube
from tests.reference import is_measured, optimal_worst, variances
from tests.strategies import aimed, schemas, workloads


def ratios(plan):
    """The standard error of every query relative to its target, from the measured rows themselves."""
    aims = [1.0 if g.target is None else g.target.std for g in plan.workload]
    counts = [g.rows for g in plan.workload]
    return np.sqrt(variances(plan, plan.workload)) / np.repeat(aims, counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "units"),
    [
        ({"centering": "uniform", "mechanism": "querysmasher"}, UNITS),
        ({"solver": "dense"}, [{}]),
        ({}, [{}]),
    ],
    ids=["uniform centres", "optimised centres", "every mechanism"],
)
@settings(max_examples=8)
@given(data=st.data())
def test_the_value_agrees_with_an_independent_solver_to_the_certified_gap(options, units, data):
    """At the plan's centres, or of any mechanism where all queries may be measured as they are."""
    schema = data.draw(
        schemas(max_attributes=3 if options else 2, max_size=4, max_cells=16 if options else 12)
    )
    workload = data.draw(aimed(workloads(schema, max_groups=3, max_ways=2)))
    budget = qs.PrivacyCost(1.0, **data.draw(st.sampled_from(units)))
    assume(is_measured(workload, budget))
    plan = qs.plan(workload, budget, objective="worst", **options)
    assert plan.objective == "worst"
    assert plan.privacy_cost <= budget.privacy_cost
    assert plan.worst == pytest.approx(ratios(plan).max(), rel=1e-6)
    best = math.sqrt(optimal_worst(workload, plan.centres if options else None, budget.unit))
    assert plan.worst >= best * (1 - 1e-5)
    if options or plan.estimator.is_single:
        assert plan.worst / (1 + plan.gap) <= best * (1 + 1e-5)
    if budget.unit.total_is_public:  # certificates of split plans are not as close there
        assert plan.worst <= 1.1 * best
    elif "solver" not in options and (options or plan.estimator.is_single):
        assert plan.gap <= 0.01
    if not options:
        assert plan.worst <= 1.1 * best  # centres come close to every mechanism


def test_a_query_of_nothing_changes_nothing():
    schema = qs.Schema.of(a=4, b=3)
    some = qs.queries(schema, a="prefix", b="prefix")
    nothing = qs.linear(schema, ("b",), [[0, 0, 0]])
    plan = qs.plan(some + nothing, COST, objective="worst", mechanism="querysmasher")
    assert plan.worst == pytest.approx(
        qs.plan(some, COST, objective="worst", mechanism="querysmasher").worst, rel=0.01
    )
    assert plan.extremes[-1].std == 0


def test_a_product_of_queries_that_count_everybody_is_known_exactly():
    """Of a predicate that is true of all, nothing is measured if the total is public."""
    schema = qs.Schema.of(a=2, b=2, c=2, d=2)
    true = qs.where(schema, "b in [0, 1] and c + d <= 5")
    plan = qs.plan(
        true + 10 * qs.queries(schema, a="identity"), qs.PrivacyCost(1.0, neighbours="replace_one")
    )
    assert plan.worst_std == pytest.approx(np.sqrt(plan.variances(plan.workload).max()))
    assert plan.extremes[0].std == 0


def small(**families):
    """Products of queries on few values, beside a table and a total with targets of their own."""
    schema = qs.Schema.of(a=3, b=2)
    return (
        qs.queries(schema, **families)
        + qs.queries(schema, a="identity").within(1.5)
        + qs.marginals(schema, 0).within(20)
    )


@pytest.mark.slow
@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize(
    "families",
    [{"b": "circular", "a": "prefix"}, {"a": "prefix", "b": "range"}, {"a": "range", "b": "range"}],
)
def test_where_a_record_is_replaced_the_largest_error_is_near_the_optimum(families, centering):
    """All records are known exactly, a product of rows that each matter: no product says that it does not."""
    workload, budget = small(**families), qs.PrivacyCost(1.0, neighbours="replace_one")
    plan = qs.plan(workload, budget, objective="worst", centering=centering, mechanism="querysmasher")
    best = math.sqrt(optimal_worst(workload, None if plan.whole else plan.centres, budget.unit))
    assert best * (1 - 1e-5) <= plan.worst == pytest.approx(ratios(plan).max(), rel=1e-6)
    assert plan.worst / (1 + plan.gap) <= best * (1 + 1e-5)
    assert plan.worst <= 1.05 * best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "ways", "family", "worst"),
    [
        ((21, 20), 2, "prefix", 7.30),
        ((10, 10, 10, 10), [1, 2], "range", 11.45),
    ],
)
def test_where_a_record_is_replaced_larger_tables_have_small_largest_errors(sizes, ways, family, worst):
    """Charged for four times the longest column, they were 7.30 and 11.45."""
    schema = qs.Schema.of({f"x{place}": size for place, size in enumerate(sizes)})
    workload = qs.all_kway(schema, ways, family)
    budget = qs.PrivacyCost(1.0, neighbours="replace_one")
    plan = qs.plan(workload, budget, objective="worst", centering="uniform")
    assert plan.worst <= worst
    assert plan.gap <= 0.3


FIGURES = {
    "prefix 100": (lambda: qs.all_kway(qs.Schema.of(a=100), 1, "prefix"), 2.250, 2.582),
    "prefix [10]^4": (lambda: qs.all_kway(cube(10, 4), [1, 2], "prefix"), 4.46, 5.68),
    "ranges [10]^4": (lambda: qs.all_kway(cube(10, 4), [1, 2], "range"), 5.58, 6.23),
    "CPS": (lambda: qs.all_kway(cps(), [1, 2, 3]), 8.03, 10.42),
    "prefix [10]^40": (lambda: qs.all_kway(cube(10, 40), [1, 2], "prefix"), 35.6, 38.8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_the_largest_standard_error_at_cost_one(name):
    make, optimized, uniform = FIGURES[name]
    workload = make()
    for centering, most, gap in (("uniform", uniform, 0.005), ("optimized", optimized, 0.006)):
        plan = qs.plan(workload, COST, objective="worst", centering=centering, mechanism="querysmasher")
        assert plan.worst <= most
        assert plan.gap <= gap
        assert plan.worst == plan.worst_std  # no targets


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_circular_ranges_are_weighed_by_their_length(mixed):
    """Every value looks the same, but a range of one value is known better than one of half of them."""
    schema = qs.Schema.of(a=5, b=3)
    workload = qs.all_kway(schema, [1, 2], "circular")
    workload += qs.queries(schema, a="prefix") if mixed else qs.marginals(schema, 0)
    plan = qs.plan(workload, COST, objective="worst", centering="uniform")
    best = math.sqrt(optimal_worst(workload, plan.centres, COST.unit))
    assert best * (1 - 1e-5) <= plan.worst <= best * (1 + plan.gap + 1e-5)
    assert plan.gap <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, [0, 1, 2], 3])
def test_marginals_reach_the_optimum_of_residual_planner(k):
    """For marginals the even strategy is optimal, so that only the shares of the budget are to be found."""
    schema = qs.Schema.of(a=2, b=3, c=5)
    workload = qs.marginals(schema, k)
    plan = qs.plan(workload, COST, objective="worst", mechanism="querysmasher")
    theirs = qs.plan(workload, COST, objective="worst", mechanism="residual")
    best = math.sqrt(optimal_worst(workload, plan.centres, COST.unit))
    assert plan.worst == pytest.approx(best, rel=1e-3)
    assert theirs.worst == pytest.approx(best, rel=1e-3)


@pytest.mark.slow
def test_predicates_and_targets_that_differ_by_table_are_certified_within_one_percent():
    schema = qs.Schema.of(age=12, income=8, sex=2, region=4)
    rules = [f"age >= {2 + i} and income <= {1 + i} and sex == {i % 2}" for i in range(6)]
    predicates = sum((qs.where(schema, rule) for rule in rules), 0)
    tables = qs.all_kway(schema, 1).within(2) + qs.all_kway(schema, 2).within(5)
    for workload in (tables, predicates + qs.all_kway(schema, [1, 2]), predicates.within(3) + tables):
        plan = qs.plan(workload, COST, objective="worst", centering="uniform", mechanism="querysmasher")
        assert plan.gap <= 0.01


def test_weights_play_no_role_and_targets_do():
    schema = qs.Schema.of(a=6, b=4)
    one, two = qs.queries(schema, a="prefix"), qs.queries(schema, b="identity")
    plain = qs.plan(one + two, COST, objective="worst", mechanism="querysmasher")
    heavy = qs.plan(100 * one + two, COST, objective="worst", mechanism="querysmasher")
    assert heavy.worst == pytest.approx(plain.worst, rel=1e-3)
    tight = qs.plan(one.within(0.5) + two, COST, objective="worst", mechanism="querysmasher")
    largest = [np.sqrt(tight.variances(part)).max() for part in (one, two)]
    assert largest[0] / largest[1] == pytest.approx(0.5, rel=5e-3)
    assert largest[0] < 0.95 * plain.worst


def test_a_worst_case_plan_is_stored_with_its_objective(tmp_path):
    plan = qs.plan(qs.all_kway(cube(4, 2), [1, 2], "prefix"), COST, objective="worst")
    plan.save(tmp_path / "plan.qs")
    again = qs.Plan.load(tmp_path / "plan.qs")
    assert (again.objective, again.worst, again.gap) == (plan.objective, plan.worst, plan.gap)
    assert again.weighted_loss == pytest.approx(plan.variances(plan.workload).sum(), rel=1e-9)


@pytest.mark.parametrize("objective", ["best", None, 2, True])
def test_an_unknown_objective_is_refused(objective):
    with pytest.raises(PlanError, match="objective: expected one of mean, worst"):
        qs.plan(qs.marginals(cube(2, 2), 1), COST, objective=objective)


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_a_plan_states_the_tolerance_that_was_asked(objective):
    """Plans with other weights, on the way, may be rougher."""
    workload = qs.all_kway(qs.Schema.of(a=5, b=4), [1, 2], "prefix")
    assert qs.plan(workload, COST, objective=objective).tolerance == 1e-3
    assert qs.plan(workload, COST, objective=objective, tolerance=1e-4).tolerance == 1e-4
