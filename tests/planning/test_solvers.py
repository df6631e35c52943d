"""Solvers: every certificate against the paper's semidefinite program, shortcuts against the dense solver."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import TooLargeError
from querysmasher.planning.centre import Centre, uniform
from querysmasher.planning.decomposition import Decomposer
from querysmasher.planning.solvers import solve
from querysmasher.planning.solvers.circulant import fourier_basis, is_circulant, solve_circulant
from querysmasher.planning.solvers.dense import _merge_cells, solve_dense
from querysmasher.planning.solvers.roots import is_thin
from querysmasher.planning.solvers.structured import solve_structured
from querysmasher.planning.solving import solve_blocks
from querysmasher.planning.subworkload import Block, Part, separate
from querysmasher.workload.families import Prefix
from querysmasher.workload.groups import Group
from querysmasher.workload.rows import Rows
from tests.builders import COST, plan_split, plan_uniform
from tests.reference import complement, kron, loss, optimal_loss, strategy_rows, terms_gram
from tests.strategies import full_rank_matrices, schemas, workloads


def problems(workload, centres=None):
    """The blocks of every subworkload, each with its attributes."""
    schema = workload.schema
    decomposer = Decomposer(schema, centres or uniform(schema))
    found = []
    for s in decomposer.decompose(workload.groups):
        _, blocks = separate(s.terms)
        found += [(placed.block, [s.attributes[a] for a in placed.axes]) for placed in blocks]
    return found


def last_block(workload, centres=None):
    """The block of the largest attribute set."""
    return problems(workload, centres)[-1][0]


def kronecker_sum(n, *terms):
    """A block on two attributes of n values: coefficient × family ⊗ family, summed; never split."""
    schema = qs.Schema.of(a=n, b=n)
    decomposer = Decomposer(schema, uniform(schema))
    subworkloads = decomposer.decompose(
        tuple(g for c, f in terms for g in (c * qs.queries(schema, a=f, b=f)).groups)
    )
    return Block((n, n), subworkloads[-1].terms)


def check(solution, block):
    """Check everything a solution claims about itself, and return the Gram matrix of the block."""
    gram = terms_gram(block.shape, block.terms)
    rows = strategy_rows(solution.strategy)
    assert solution.strategy.shape == block.shape
    assert (rows**2).sum(axis=0).max() == pytest.approx(1.0, abs=1e-9)
    projector = np.linalg.pinv(rows, rcond=1e-9) @ rows
    np.testing.assert_allclose(projector @ gram, gram, atol=1e-6 * np.abs(gram).max())
    assert math.sqrt(loss(gram, rows)) == pytest.approx(solution.reached, rel=1e-6)
    assert solution.bound <= solution.reached * (1 + 1e-12)
    assert solution.gap == pytest.approx(solution.reached / solution.bound - 1)
    return gram


def residual(shape, centres=None):
    centres = centres or [Centre.uniform(n) for n in shape]
    return kron([complement(c.weights) for c in centres])


# --- against the semidefinite program ----------------------------------------------------------


@settings(max_examples=40)
@given(workloads(schemas(max_attributes=3, max_size=4, max_cells=30), max_groups=3))
def test_solutions_enclose_the_optimum_of_the_semidefinite_program(workload):
    found = problems(workload)
    for block, _ in found:
        solution = solve(block, 1e-4)
        gram = check(solution, block)
        optimum = math.sqrt(optimal_loss(gram, residual(block.shape)))
        assert solution.bound <= optimum * (1 + 1e-5)
        assert optimum <= solution.reached * (1 + 1e-5)
        assert solution.gap <= 1e-4


@pytest.mark.parametrize("family", ["prefix", "range"])
@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_one_attribute_is_solved_to_the_optimum(family, n):
    block = last_block(qs.queries(qs.Schema.of(a=n), a=family))
    solution = solve(block, 1e-4)
    gram = check(solution, block)
    assert solution.reached**2 == pytest.approx(optimal_loss(gram, residual((n,))), rel=1e-5)
    assert solution.gap <= 1e-6
    assert solution.strategy.rank == n - 1


def test_around_other_centres_the_optimum_is_that_of_their_residual_space():
    schema = qs.Schema.of(a=4, b=3)
    centres = (Centre.ratio(np.array([1, 2, 3, 4])), Centre.ratio(np.array([1, 1, 2])))
    workload = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    found = problems(workload, centres)
    assert len(found) == 3
    for block, places in found:
        solution = solve(block, 1e-4)
        gram = check(solution, block)
        inside = residual(block.shape, [centres[p] for p in places])
        assert solution.reached**2 == pytest.approx(optimal_loss(gram, inside), rel=1e-4)
        rows = strategy_rows(solution.strategy)
        assert np.abs(rows - rows @ inside.T @ inside).max() < 1e-9


@given(workloads(schemas(max_attributes=2, max_size=4), max_groups=2), st.data())
def test_no_random_feasible_strategy_loses_less(workload, data):
    found = problems(workload)
    for block, _ in found:
        gram = terms_gram(block.shape, block.terms)
        inside = residual(block.shape)
        rows = data.draw(full_rank_matrices(len(inside) + 1, len(inside))) @ inside
        rows /= np.sqrt((rows**2).sum(axis=0).max())
        assert solve(block, 1e-4).bound ** 2 <= loss(gram, rows) * (1 + 1e-9)


def test_a_tighter_tolerance_is_met():
    block = kronecker_sum(17, (1.0, "prefix"), (3.0, "identity"))  # 289 cells
    for tolerance in (1e-2, 1e-4, 1e-6):
        assert solve_dense(block, tolerance).gap <= tolerance


@pytest.mark.parametrize("solver", ["optimal", "structured"])
def test_cells_that_no_query_counts_are_no_obstacle(solver):
    """After centring their column is zero: they have no leverage, and need no weight."""
    schema = qs.Schema.of(a=2, b=3)
    row = np.array([[1.0, 0, -1, -1, 0, 1]])  # a contrast: its middle cells count nothing
    block = last_block(qs.linear(schema, ("a", "b"), row))
    check(solve(block, 1e-4, solver=solver), block)
    wide = qs.Schema.of(a=30, b=20)
    rows = np.zeros((3, 600))
    rows[0, :5], rows[1, 300], rows[2, 599] = 1, 2, 1
    block = last_block(qs.linear(wide, ("a", "b"), rows))
    check(solve(block, 1e-4, solver=solver), block)


# --- Kronecker products ------------------------------------------------------------------------


def test_the_optimum_of_a_kronecker_product_is_the_product_of_the_optima():
    schema = qs.Schema.of(a=4, b=3)
    decomposer = Decomposer(schema, uniform(schema))
    workload = qs.queries(schema, a="prefix", b="range")
    whole = Block((4, 3), decomposer.decompose(workload.groups)[-1].terms)
    solution = solve_dense(whole, 1e-6)
    gram = check(solution, whole)
    product = math.prod(solve(placed.block, 1e-6).reached for placed in separate(whole.terms)[1])
    assert len(separate(whole.terms)[1]) == 2
    assert solution.reached == pytest.approx(product, rel=1e-6)
    assert product**2 == pytest.approx(optimal_loss(gram, residual((4, 3))), rel=1e-5)


# --- circulant ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["identity", "circular"])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_the_closed_form_is_the_optimum_of_the_dense_solver(family, n):
    block = last_block(qs.queries(qs.Schema.of(a=n), a=family))
    assert is_circulant(block)
    closed, dense = solve_circulant(block), solve_dense(block, 1e-6)
    check(closed, block)
    assert closed.reached == pytest.approx(closed.bound, rel=1e-10)
    assert closed.reached == pytest.approx(dense.reached, rel=1e-7)
    np.testing.assert_allclose((strategy_rows(closed.strategy) ** 2).sum(axis=0), 1, atol=1e-10)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_closed_form_holds_for_sums_of_products(n):
    block = kronecker_sum(n, (1.0, "identity"), (0.2, "circular"))
    assert is_circulant(block)
    closed = solve(block, 1e-4)
    assert closed.method == "circulant"
    check(closed, block)
    assert closed.reached == pytest.approx(closed.bound, rel=1e-10)
    assert closed.reached == pytest.approx(solve_dense(block, 1e-6).reached, rel=1e-6)


def test_what_looks_different_from_different_cells_is_not_circulant():
    schema = qs.Schema.of(a=4, b=4)
    for workload in (
        qs.queries(schema, a="prefix"),
        qs.queries(schema, a="range"),
        qs.queries(schema, a=[[1, 0, 1, 0], [0, 1, 0, 1]]),  # circulant, but of deficient rank
        qs.affine(schema, "a", "b"),
        qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix"),
    ):
        assert not is_circulant(last_block(workload))
    skew = (Centre.ratio(np.array([1, 2, 3, 4])),) * 2
    assert not is_circulant(last_block(qs.queries(schema, a="identity"), skew))


def test_a_nearly_circulant_gram_is_not_taken_for_one():
    n = 12
    block = last_block(qs.queries(qs.Schema.of(a=n), a="circular"))
    (part,) = {piece.part for piece in block.pieces}
    content = part.content.copy()
    content[5, 7] = content[7, 5] = content[5, 7] + 1e-6 * content.max()
    assert not is_circulant(Block.of(Part((n,), part.centres, content)))


@pytest.mark.parametrize("n", [2, 3, 4, 7, 10])
def test_the_fourier_basis_is_orthonormal_and_without_the_constant(n):
    basis = fourier_basis(n)
    assert basis.shape == (n - 1, n)
    np.testing.assert_allclose(basis @ basis.T, np.eye(n - 1), atol=1e-12)
    np.testing.assert_allclose(basis.sum(axis=1), 0, atol=1e-12)


# --- merging -----------------------------------------------------------------------------------


def test_cells_that_no_query_tells_apart_are_solved_as_one():
    schema = qs.Schema.of(a=4, b=3)
    rows = np.array([[1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]], dtype=float)
    block = last_block(qs.linear(schema, ("a", "b"), rows))
    assert is_thin(block)
    solution = solve_dense(block, 1e-6)
    gram = check(solution, block)
    assert solution.reached**2 == pytest.approx(optimal_loss(gram, residual((4, 3))), rel=1e-4)
    (centred,) = (piece.part.content for piece in block.pieces)
    centred = centred[centred.any(axis=1)]  # the second query leaves nothing on both attributes
    merged, back = _merge_cells(centred)
    assert merged.shape[1] < 12
    np.testing.assert_allclose(merged[:, back], centred, atol=1e-9)
    columns = strategy_rows(solution.strategy)
    for one in range(12):
        for two in range(one):
            if back[one] == back[two]:
                np.testing.assert_array_equal(columns[:, one], columns[:, two])


def test_one_query_on_a_large_attribute_is_as_easy_as_on_a_small_one():
    large, small = qs.Schema.of(x=5_000), qs.Schema.of(x=50)
    plans = [
        plan_uniform(qs.where(large, "x < 2_000"), COST, tolerance=1e-5),
        plan_uniform(qs.where(small, "x < 20"), COST, tolerance=1e-5),
    ]
    assert plans[0].rmse == pytest.approx(plans[1].rmse, rel=1e-5)
    assert plans[0].measurements == plans[1].measurements == 2


@example([(0, 0, 0)], [])
@given(
    st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(0, 4), max_size=9),
)
def test_merging_keeps_one_of_each_column(columns, repeated):
    distinct = np.array(columns, dtype=float).T
    which = [*range(len(columns)), *(place % len(columns) for place in repeated)]
    merged, back = _merge_cells(distinct[:, which])
    assert merged.shape == distinct.shape
    np.testing.assert_array_equal(merged[:, back], distinct[:, which])


# --- structured --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "ratio"),
    [(10, r) for r in (0.1, 1, 10, 100, 1000)]
    + [(20, r) for r in (0.1, 3, 30, 1000)]
    + [pytest.param(30, ratio, marks=pytest.mark.slow) for ratio in (10, 300)],
)
def test_structured_strategies_are_honest_and_nearly_optimal_on_marginals_and_prefixes(n, ratio):
    block = kronecker_sum(n, (float(ratio), "identity"), (1.0, "prefix"))
    structured = solve_structured(block, 1e-3)
    dense = solve_dense(block, 1e-3)
    if n == 10:
        check(structured, block)
    assert structured.bound <= dense.reached
    assert dense.bound <= structured.reached * (1 + 1e-9)
    assert structured.reached <= 1.02 * dense.bound
    assert structured.method == "structured"


@settings(max_examples=25)
@given(workloads(schemas(min_attributes=2, max_attributes=3, max_size=4), max_groups=4))
def test_structured_strategies_are_honest_on_anything(workload):
    found = problems(workload)
    for block, _ in found:
        if len(block.shape) > 1:
            structured = solve_structured(block, 1e-3)
            gram = terms_gram(block.shape, block.terms)
            rows = strategy_rows(structured.strategy)
            assert (rows**2).sum(axis=0).max() <= 1 + 1e-9
            projector = np.linalg.pinv(rows, rcond=1e-12) @ rows
            np.testing.assert_allclose(projector @ gram, gram, atol=1e-5 * np.abs(gram).max())
            assert structured.reached**2 >= loss(gram, rows) * (1 - 1e-6)
            optimum = solve_dense(block, 1e-4)
            assert structured.bound <= optimum.reached * (1 + 1e-9)
            assert optimum.bound <= structured.reached * (1 + 1e-9)


def test_structured_strategies_take_families_on_attributes_that_are_not_neighbours():
    schema = qs.Schema.of(a=3, b=2, c=4)
    rows = np.random.default_rng(4).integers(0, 3, (14, 12)).astype(float)  # more queries than cells
    apart = Group(("a", "c", "b"), (Rows((3, 4), rows), Prefix((2,))))
    thin = Group(("c", "a", "b"), (Rows((4, 3), rows[:2]), Prefix((2,))))
    for group in (apart, thin):
        workload = qs.Workload(schema, (group,)) + qs.all_kway(schema, 3, "range")
        decomposer = Decomposer(schema, uniform(schema))
        terms = decomposer.decompose(workload.groups)[-1].terms
        block = Block((3, 2, 4), terms)
        check(solve_structured(block, 1e-3), block)
        check(solve_dense(block, 1e-3), block)


def test_structured_strategies_leave_no_direction_without_noise_or_measurement():
    """The bases span four products, of which the queries use two: the others still get a little."""
    schema = qs.Schema.of(a=4, b=4)
    one, two = [[1, -1, 0, 0]], [[0, 0, 1, -1]]
    workload = qs.queries(schema, a=one, b=one) + qs.queries(schema, a=two, b=two)
    block = last_block(workload)
    solution = solve_structured(block, 1e-3)
    assert solution.strategy.weights.min() > 1e-8 * solution.strategy.weights.max()
    rows = strategy_rows(solution.strategy)
    gram = terms_gram(block.shape, block.terms)
    assert loss(gram, rows) == pytest.approx(solution.reached**2, rel=1e-4)
    plan = plan_uniform(workload, COST, solver="structured")
    assert np.all(np.isfinite(plan.variances(qs.queries(schema, a=[*one, *two], b=[*one, *two]))))


def test_rounding_errors_do_not_lift_the_lower_bound():
    block = last_block(qs.affine(qs.Schema.of(a=3, b=2), "a", "b"))
    assert solve_structured(block, 1e-3).bound <= solve_dense(block, 1e-6).reached * (1 + 1e-12)


def test_the_structured_loss_is_the_loss_of_its_strategy():
    block = kronecker_sum(5, (1.0, "identity"), (1.0, "range"), (4.0, "prefix"))
    check(solve_structured(block, 1e-3), block)


# --- the choice of a solver --------------------------------------------------------------------


def methods(plan):
    return {
        len(plan.solutions[n].strategy.shape): plan.solutions[n].method
        for m in plan.measured
        for _, n in m.blocks
    }


@pytest.mark.slow
def test_the_solver_follows_the_table():
    schema = qs.Schema.of(a=70, b=60)
    marginal, prefix = qs.marginals(schema, 2), qs.all_kway(schema, 2, "prefix")
    assert methods(plan_uniform(marginal + qs.all_kway(schema, 2, "circular"), COST)) == {
        1: "circulant",
        2: "circulant",
    }
    assert methods(plan_uniform(prefix, COST)) == {1: "dense"}  # a product: solved attribute by attribute
    assert methods(plan_uniform(qs.abs_difference(schema, "a", "b"), COST)) == {
        1: "dense",
        2: "dense",
    }  # thin
    large = plan_uniform(marginal + prefix, COST)  # 4,200 cells
    assert methods(large) == {1: "dense", 2: "structured"}
    assert large.gap > 0


def test_the_solver_can_be_chosen():
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    default = plan_uniform(workload, COST)
    structured = plan_uniform(workload, COST, solver="structured")
    assert (
        methods(default) == methods(plan_uniform(workload, COST, solver="dense")) == {1: "dense", 2: "dense"}
    )
    assert methods(structured) == {1: "dense", 2: "structured"}
    assert default.rmse <= structured.rmse <= 1.02 * default.rmse
    assert default.rmse >= structured.rmse / (1 + structured.gap)


@pytest.mark.parametrize(
    ("limits", "solver", "words"),
    [
        ({"dense_cells": 20, "structured_cells": 29}, "optimal", ["30 cells", "the 29", "solver 'optimal'"]),
        ({"structured_cells": 29}, "structured", ["30 cells", "the 29", "solver 'structured'"]),
        ({"dense_cells_forced": 29}, "dense", ["30 cells", "the 29", "solver 'dense'"]),
    ],
)
def test_what_no_solver_takes_is_refused_with_its_size_and_remedies(
    limits, solver, words, limit_planning, refuses
):
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    limit_planning(**limits)
    with refuses(
        TooLargeError,
        ValueError,
        "sizes (6, 5)",
        "2 families",
        "coarser",
        "fewer attributes",
        "one family",
        *words,
    ):
        plan_uniform(workload, COST, solver=solver)


def test_the_real_limit_of_the_dense_solver_is_twelve_thousand_cells(refuses):
    schema = qs.Schema.of(a=110, b=110)
    workload = qs.marginals(schema, 2) + qs.all_kway(schema, 2, "prefix")
    with refuses(TooLargeError, ValueError, "12,100 cells", "12,000"):
        plan_uniform(workload, COST, solver="dense")


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize(
    "asked",
    [
        lambda s: qs.queries(s, a="prefix"),
        lambda s: qs.marginals(s, 2) + qs.queries(s, a="range"),
        lambda s: qs.queries(s, a=np.eye(40)[:21], b="identity"),
        lambda s: qs.marginals(s, 1) + qs.queries(s, a=np.eye(40)[:2]),
    ],
)
def test_an_attribute_that_is_too_large_is_refused_before_any_work(
    asked, centering, limit_planning, refuses, monkeypatch
):
    from querysmasher.planning import around

    limit_planning(axis_values=39)
    monkeypatch.setattr(around, "search_centres", lambda *_, **__: pytest.fail("searched"))
    monkeypatch.setattr(around, "plan_at", lambda *_: pytest.fail("planned"))
    workload = asked(qs.Schema.of(a=40, b=3))
    with refuses(TooLargeError, ValueError, "'a' has 40 values", "up to 39", "coarser"):
        qs.plan(workload, COST, centering=centering)


def test_many_values_are_no_obstacle_to_what_looks_alike_from_each_or_is_little(limit_planning, refuses):
    limit_planning(axis_values=300, closed_form_values=400)
    schema = qs.Schema.of(a=400, b=3)
    plan_uniform(qs.marginals(schema, 2) + qs.queries(schema, a="circular"), COST)
    plan_uniform(qs.where(schema, "a < 100 and b == 1") + qs.queries(schema, a=np.eye(400)[:3]), COST)
    larger = qs.marginals(qs.Schema.of(a=401, b=3), 2)
    with refuses(TooLargeError, ValueError, "'a' has 401 values", "up to 400"):
        plan_uniform(larger, COST)


# --- in parallel -------------------------------------------------------------------------------


def test_solutions_come_in_the_order_of_the_blocks_also_in_parallel(limit_planning):
    schema = qs.Schema.of({f"a{n}": n for n in range(2, 9)})
    found = problems(qs.all_kway(schema, 1, "prefix"))
    blocks = [block for block, _ in found]
    expected = [solve(block, 1e-3).reached for block in blocks]
    assert len(set(expected)) == 7
    for light in (300, 5, 0):
        limit_planning(light_cells=light)
        solutions = solve_blocks(blocks, 1e-3, solve)
        assert [s.strategy.shape for s in solutions] == [b.shape for b in blocks]
        assert [s.reached for s in solutions] == pytest.approx(expected)


def test_queries_that_all_tie_attributes_are_written_out_beyond_the_usual_limit(limit_planning):
    """No product basis comes near the optimum of random rows; centres stay uniform, as a plan is heavy."""
    limit_planning(dense_cells=20, joint_dense_cells=30)
    schema = qs.Schema.of(a=6, b=5)
    random = qs.random_queries(schema, ("a", "b"), 20, seed=1)
    plan = plan_split(random)
    assert {block.method for block in plan.methods} == {"dense"}
    assert plan.gap < 1e-3
    assert plan.stopped_early
    assert all(centre.is_uniform for centre in plan.centres)
    tables = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    assert "structured" in {block.method for block in plan_split(tables).methods}
