"""The limit of all matrix mechanisms: valid, and tight where it can be checked."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.arrays import square_root
from querysmasher.planning.solvers.bounds import TraceRoot, dimension, root_loss_bound
from querysmasher.planning.solvers.design import solve_design
from tests.builders import COST, cube
from tests.profiles import fewer
from tests.reference import query_rows


def global_optimum(workload):
    """The certified bounds on the best matrix mechanism, solved on the full domain."""
    rows, weights = query_rows(workload)
    rows = rows * np.sqrt(weights)[:, None]
    root = square_root(rows.T @ rows, 1e-12)
    design = solve_design(root, np.full(root.shape[1], 1.0), 1e-6)
    return design.value, design.upper


FAMILIES = st.sampled_from(["identity", "prefix", "range", "circular"])
BESIDE = {
    "nothing": lambda schema, entries: None,
    "affine": lambda schema, entries: qs.affine(schema, "a1", "a0"),
    "rows": lambda schema, entries: qs.linear(schema, ("a0", "a1"), np.array(entries).reshape(3, -1)),
    "predicate": lambda schema, entries: qs.where(schema, "a0 >= 1 and a1 == 0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("beside", BESIDE)
@fewer(8)
@given(data=st.data())
def test_bound_below_global_optimum_below_plan(beside, data):
    """Products of every family on one to three attributes, and every kind that ties two."""
    sizes = data.draw(st.lists(st.integers(2, 4), min_size=1 if beside == "nothing" else 2, max_size=3))
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    workload = qs.all_kway(schema, 1, data.draw(FAMILIES))
    if len(sizes) > 1:
        workload += data.draw(st.integers(1, 40)) / 10 * qs.all_kway(schema, 2, data.draw(FAMILIES))
        count = 3 * sizes[0] * sizes[1] if beside == "rows" else 0
        entries = data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
        assume(not count or any(entries))
        more = BESIDE[beside](schema, entries)
        workload = workload if more is None else workload + more
    low, high = global_optimum(workload)
    assert root_loss_bound(workload) <= high * (1 + 1e-9)
    plan = qs.plan(workload, COST, centering="optimized", tolerance=1e-6)
    assert low <= math.sqrt(plan.weighted_loss) * (1 + 1e-9)


def test_trace_root_is_that_of_the_full_domain():
    schema = qs.Schema.of(a=2, b=4, c=3)
    workload = (
        qs.all_kway(schema, 1, "prefix") + 3 * qs.all_kway(schema, 2, "range") + qs.affine(schema, "b", "a")
    )
    rng = np.random.default_rng(1)
    distributions = [rng.dirichlet(np.ones(n)) for n in workload.schema.sizes]
    bound, _ = TraceRoot(workload).at(distributions)
    p = np.ones(())
    for q in distributions:
        p = np.multiply.outer(p, q)
    rows, weights = query_rows(workload)
    rows = rows * np.sqrt(np.outer(weights, p))
    assert bound == pytest.approx(np.linalg.svd(rows, compute_uv=False).sum(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "excess"),
    [
        (qs.all_kway(cube(10, 1), 1, "prefix"), 0.0005),
        (qs.all_kway(cube(10, 2), [1, 2], "prefix"), 0.001),
        (qs.all_kway(cube(10, 2), [1, 2], "range"), 0.001),
        (qs.all_kway(cube(10, 3), [1, 2], "prefix"), 0.005),
        (qs.all_kway(cube(4, 4), [1, 2], "prefix"), 0.0024),
        (qs.marginals(cube(5, 4), [1, 2]), 1e-4),
    ],
)
def test_plans_are_close_to_the_limit(workload, excess):
    limit = qs.plan(workload, COST, centering="optimized", tolerance=1e-5).limit()
    assert -1e-9 <= limit.excess <= excess
    assert "no matrix mechanism" in str(limit)


def test_limit_scales_with_the_budget_and_with_records_per_person():
    workload = qs.all_kway(cube(4, 2), [1, 2], "prefix")
    one = qs.plan(workload, COST).limit()
    four = qs.plan(workload, qs.PrivacyCost(4.0)).limit()
    persons = qs.plan(workload, qs.PrivacyCost(4.0, records_per_person=2)).limit()
    assert four.rmse == pytest.approx(one.rmse / 2)
    assert persons.rmse == pytest.approx(one.rmse)
    assert persons.excess == pytest.approx(one.excess, abs=1e-9)


@pytest.mark.slow
def test_what_is_too_large_or_unknown_is_said_and_not_guessed(limit_planning):
    workload = qs.all_kway(cube(4, 3), [1, 2], "prefix")
    replace = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one")).limit()
    assert (replace.rmse, replace.excess) == (None, None)
    assert "add/remove" in str(replace)
    assert dimension(workload) == 1 + 9 + 27
    known = qs.plan(workload, COST).limit()
    limit_planning(limit_dimension=37)
    assert qs.plan(workload, COST).limit().rmse == known.rmse > 0
    limit_planning(limit_dimension=36)
    rougher = qs.plan(workload, COST).limit()
    assert 0.9 * known.rmse < rougher.rmse <= known.rmse * (1 + 1e-3)
    limit_planning(limit_dimension=36, product_cells=10)
    large = qs.plan(workload, COST).limit()
    assert (large.rmse, large.excess) == (None, None)
    assert "37 dimensions, more than 36" in str(large)


def test_attributes_of_one_value_change_nothing():
    one, none = qs.Schema.of(a=1, b=3), qs.Schema.of(b=3)
    asked = qs.plan(qs.queries(one, a="identity", b="prefix"), qs.PrivacyCost(1.0)).limit()
    same = qs.plan(qs.queries(none, b="prefix"), qs.PrivacyCost(1.0)).limit()
    assert asked.rmse == pytest.approx(same.rmse, rel=1e-5)


def test_limits_of_other_objectives_are_those_of_the_mean_error(limit_planning):
    """The certificate of a largest error, or of targets, says nothing about the least mean error."""

    def plans(size, mechanism):
        schema = qs.Schema.of(a=size)
        prefixes, values = qs.queries(schema, a="prefix"), 1000 * qs.queries(schema, a="identity")
        least = qs.plan(prefixes + values, COST, mechanism=mechanism)
        yield least
        yield qs.plan(prefixes + values, COST, mechanism=mechanism, objective="worst")
        yield qs.plan(prefixes.within(0.7 * least.worst) + values, COST, mechanism=mechanism)

    least, *others = plans(20, "whole")
    for plan in (least, *others):
        limit = plan.limit()
        assert least.weighted_rmse * 0.99 < limit.rmse <= least.weighted_rmse * (1 + 1e-9)
        assert limit.excess == pytest.approx(plan.weighted_rmse / limit.rmse - 1, abs=1e-6)
    least, *others = plans(2000, None)
    limit_planning(limit_dimension=1000)
    assert least.limit().excess == least.gap < 1e-3
    assert ["mean error without targets" in str(plan.limit()) for plan in others] == [True, True]
