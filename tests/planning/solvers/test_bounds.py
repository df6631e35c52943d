"""Lower bounds: below the dense trace root or the dense optimum of all cells, and close to it.

The last section is about the limit of all matrix mechanisms, which a plan states beside its own error.
"""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.arrays import square_root
from querysmasher.planning.centring import search_centres
from querysmasher.planning.limits import limited
from querysmasher.planning.solvers.bounds import (
    TraceRoot,
    dimension,
    exchangeable_bound,
    lower_bound,
    product_bound,
    root_loss_bound,
    trace_root_bound,
)
from querysmasher.planning.solvers.design import solve_design
from querysmasher.planning.solvers.optimum import solve_dense
from querysmasher.planning.solvers.structured import solve_structured
from tests.builders import COST, cube
from tests.planning.blocks import last_block, problems
from tests.profiles import fewer
from tests.reference import query_rows
from tests.strategies import integer_arrays, schemas, workloads


def global_optimum(workload):
    """The certified bounds on the best matrix mechanism, solved on the full domain."""
    rows, weights = query_rows(workload)
    rows = rows * np.sqrt(weights)[:, None]
    root = square_root(rows.T @ rows, 1e-12)
    design = solve_design(root, np.full(root.shape[1], 1.0), 1e-6)
    return design.value, design.upper


def trace_root(gram):
    return float(np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum())


def written_out(products, rows, weights):
    """P^½GP^½ as a matrix."""
    dense = rows.T @ rows
    for coefficient, grams in products:
        product = np.full((1, 1), coefficient)
        for own in grams:
            product = np.kron(product, own)
        dense = dense + product
    p = np.ones(1)
    for own in weights:
        p = np.kron(p, own / own.sum())
    return dense * np.sqrt(np.outer(p, p))


@st.composite
def product_sums(draw, most=3):
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    cells = math.prod(shape)
    products = []
    for _ in range(draw(st.integers(0, most))):
        roots = [draw(integer_arrays((n, n))).astype(float) for n in shape]
        grams = tuple(r.T @ r + 0.01 * np.eye(len(r)) for r in roots)
        products.append((draw(st.sampled_from([1e-4, 1.0, 50.0])), grams))
    rows = draw(integer_arrays((draw(st.integers(0 if products else 1, 4)), cells))).astype(float)
    weights = [draw(integer_arrays((n,), 1, 9)).astype(float) for n in shape]
    return products, rows, weights


@fewer(75)
@given(product_sums())
def test_it_never_exceeds_the_trace_root(drawn):
    assert trace_root_bound(*drawn) <= trace_root(written_out(*drawn)) * (1 + 1e-7) + 1e-6


@settings(max_examples=60, deadline=None)
@given(product_sums(most=1))
def test_it_is_nearly_exact_for_a_product_and_few_rows(drawn):
    if not drawn[0]:
        return
    exact = trace_root(written_out(*drawn))
    assert trace_root_bound(*drawn) == pytest.approx(exact, rel=2e-3)


def test_products_that_commute_are_exact():
    """Ranges, and marginals beside them, have the same eigenvectors at equal weights."""
    n = 12
    place = np.arange(n)
    ranges = (np.minimum.outer(place, place) + 1.0) * (n - np.maximum.outer(place, place))
    products = ((1.0, (ranges, ranges)), (300.0, (np.eye(n), np.eye(n))), (7.0, (ranges, np.eye(n))))
    summed = products, np.zeros((0, n * n)), [np.ones(n)] * 2
    assert trace_root_bound(*summed) == pytest.approx(trace_root(written_out(*summed)), rel=1e-9)


def test_gaps_of_blocks_that_are_not_written_out_are_no_ignorance(limit_planning):
    """Identity, prefix and range, none of which dominates: 4.2 % by the sum of the terms' optima."""
    n = 24
    schema = qs.Schema.of(a=n, b=n)
    identity, prefix, ranges = (qs.all_kway(schema, 2, name) for name in ("identity", "prefix", "range"))
    block = last_block(n**4 / 4 * identity + 2 * n**2 * prefix + ranges)
    best = solve_dense(block, 1e-3)
    limit_planning(bounded_cells=0)
    found = solve_structured(block, 1e-3)
    assert found.bound <= best.reached
    assert found.gap <= 0.01


@settings(max_examples=25, deadline=None)
@given(workloads(schemas(max_attributes=3, max_size=4, max_cells=24), max_groups=3))
def test_workloads_are_bounded_below_their_optimum(workload):
    assume(query_rows(workload)[0].any() and any(group.attributes for group in workload))
    bound = product_bound(workload)
    _, upper = global_optimum(workload)
    assert 0 < bound <= upper * (1 + 1e-6)


@pytest.mark.slow
def test_the_limit_of_a_large_mixture_is_known():
    """Prefixes with affine and absolute differences on 70 × 70 values: 4,900 dimensions."""
    schema = qs.Schema.of(a=70, b=70)
    workload = qs.all_kway(schema, 2, "prefix") + qs.affine(schema, "a", "b")
    limit = qs.plan(workload, COST).limit()
    assert 0 <= limit.excess <= 0.02


def test_queries_that_tie_attributes_raise_the_bound_up_to_a_limit(limit_planning):
    schema = qs.Schema.of(a=20, b=20)
    workload = qs.all_kway(schema, 2, "prefix") + qs.affine(schema, "a", "b")
    bound = product_bound(workload)
    limit_planning(product_work=400 * 2**2)  # two groups, of which the second is left out
    assert product_bound(workload) < 0.99 * bound
    limit_planning(product_work=400 * 2**2 - 1)
    assert product_bound(workload) is None


# --- values that queries treat alike -----------------------------------------------------------


def groups_of(sizes):
    """Rows that count groups of so many values each."""
    return np.repeat(np.eye(len(sizes)), sizes, axis=1)


@st.composite
def tables(draw):
    """Products of counts of single values and of groups of values, on two or three attributes."""
    attributes = draw(st.integers(2, 3))
    sizes = [draw(st.lists(st.integers(1, 3), min_size=2, max_size=3)) for _ in range(attributes)]
    schema = qs.Schema.of(**{f"a{i}": sum(own) for i, own in enumerate(sizes)})
    options = [["identity", groups_of(own), groups_of(own)[:1]] for own in sizes]
    workload = None
    for _ in range(draw(st.integers(1, 4))):
        chosen = [own[draw(st.integers(0, 2))] for own in options]
        weight = draw(st.sampled_from([0.1, 1.0, 5.0]))
        product = weight * qs.queries(schema, dict(zip(schema.names, chosen, strict=True)))
        workload = product if workload is None else workload + product
    return workload


@fewer(40)
@given(tables())
def test_the_optimum_is_that_of_all_cells(workload):
    for block, _ in problems(workload):
        bound = exchangeable_bound(block)
        optimum = solve_dense(block, 1e-4)
        assert bound <= optimum.reached * (1 + 1e-7)
        assert bound >= optimum.bound * (1 - 0.005)


def census_block():
    """Ten races, of which seven are counted in detail only among adults, by thirty ages."""
    schema = qs.Schema.of(race=10, age=30)
    adults = np.arange(30)[None] >= 12
    races, ages = groups_of([1, 1, 1, 7]), groups_of([4, 4, 4, 6, 6, 6])
    return last_block(
        qs.queries(schema, race=races, age="identity")
        + qs.queries(schema, race=races, age=ages)
        + qs.queries(schema, race="identity", age=adults.astype(float))
    )


def test_the_optimum_of_a_census_table_is_found_on_few_kinds_of_cells():
    block = census_block()
    optimum = solve_dense(block, 1e-4)
    with limited(bounded_cells=2 * 6):
        assert exchangeable_bound(block) == pytest.approx(optimum.bound, rel=1e-4)
        assert lower_bound(block) == exchangeable_bound(block)
        assert solve_structured(block, 1e-3).gap < 0.01
    with limited(bounded_cells=2 * 6 - 1):
        assert exchangeable_bound(block) is None


def test_values_that_no_query_distinguishes_get_the_same_share_of_a_centre():
    schema = qs.Schema.of(age=40, race=12)
    ages = groups_of([1] * 20 + [10, 10])
    workload = qs.queries(schema, age=ages, race=groups_of([1, 1, 10])) + qs.queries(schema, race="identity")
    workload += qs.queries(schema, age=groups_of([5] * 8))
    centre = search_centres(workload, COST.unit).at(1.0)[0].integers
    assert np.ptp(centre[20:30]) == np.ptp(centre[30:]) == 0
    assert centre[0] > centre[20]


# --- the limit of all matrix mechanisms: valid, and tight where it can be checked ---------------


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
    budget = qs.PrivacyCost(1.0, neighbours="replace_one")
    replace = qs.plan(workload, budget, centering="uniform").limit()
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
