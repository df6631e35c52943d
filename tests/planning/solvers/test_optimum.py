"""Solvers: every certificate against the paper's semidefinite program, shortcuts against the dense solver."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

import querysmasher as qs
from querysmasher.planning.centre import Centre, uniform
from querysmasher.planning.solvers import solve
from querysmasher.planning.solvers.optimum import (
    block_root,
    is_circulant,
    is_thin,
    solve_circulant,
    solve_circulant_pairs,
    solve_dense,
)
from querysmasher.planning.split import Block, Decomposer, Part, separate
from tests.builders import COST, plan_uniform
from tests.planning.blocks import check_solution, kronecker_sum, last_block, problems
from tests.reference import complement, kron, optimal_loss, pair_bounds, strategy_rows
from tests.strategies import schemas, workloads


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
        gram = check_solution(solution, block)
        optimum = math.sqrt(optimal_loss(gram, residual(block.shape)))
        assert solution.bound <= optimum * (1 + 1e-5)
        assert optimum <= solution.reached * (1 + 1e-5)
        assert solution.gap <= 1e-4


def test_around_other_centres_the_optimum_is_that_of_their_residual_space():
    schema = qs.Schema.of(a=4, b=3)
    centres = (Centre.ratio(np.array([1, 2, 3, 4])), Centre.ratio(np.array([1, 1, 2])))
    workload = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    found = problems(workload, centres)
    assert len(found) == 3
    for block, places in found:
        solution = solve(block, 1e-4)
        gram = check_solution(solution, block)
        inside = residual(block.shape, [centres[p] for p in places])
        assert solution.reached**2 == pytest.approx(optimal_loss(gram, inside), rel=1e-4)
        rows = strategy_rows(solution.strategy)
        assert np.abs(rows - rows @ inside.T @ inside).max() < 1e-9


@pytest.mark.parametrize("solver", ["optimal", "structured"])
def test_cells_that_no_query_counts_are_no_obstacle(solver):
    """After centring their column is zero: they have no leverage, and need no weight."""
    schema = qs.Schema.of(a=2, b=3)
    row = np.array([[1.0, 0, -1, -1, 0, 1]])  # a contrast: its middle cells count nothing
    block = last_block(qs.linear(schema, ("a", "b"), row))
    check_solution(solve(block, 1e-4, solver=solver), block)
    wide = qs.Schema.of(a=30, b=20)
    rows = np.zeros((3, 600))
    rows[0, :5], rows[1, 300], rows[2, 599] = 1, 2, 1
    block = last_block(qs.linear(wide, ("a", "b"), rows))
    check_solution(solve(block, 1e-4, solver=solver), block)


# --- Kronecker products ------------------------------------------------------------------------


def test_the_optimum_of_a_kronecker_product_is_the_product_of_the_optima():
    schema = qs.Schema.of(a=4, b=3)
    decomposer = Decomposer(schema, uniform(schema))
    workload = qs.queries(schema, a="prefix", b="range")
    whole = Block((4, 3), decomposer.decompose(workload.groups)[-1].terms)
    solution = solve_dense(whole, 1e-6)
    gram = check_solution(solution, whole)
    product = math.prod(solve(block, 1e-6).reached for _, block in separate(whole.terms)[1])
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
    check_solution(closed, block)
    assert closed.reached == pytest.approx(closed.bound, rel=1e-10)
    assert closed.reached == pytest.approx(dense.reached, rel=1e-7)
    np.testing.assert_allclose((strategy_rows(closed.strategy) ** 2).sum(axis=0), 1, atol=1e-10)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_closed_form_holds_for_sums_of_products(n):
    block = kronecker_sum(n, (1.0, "identity"), (0.2, "circular"))
    assert is_circulant(block)
    closed = solve(block, 1e-4)
    assert closed.method == "circulant"
    check_solution(closed, block)
    assert closed.reached == pytest.approx(closed.bound, rel=1e-10)
    assert closed.reached == pytest.approx(solve_dense(block, 1e-6).reached, rel=1e-6)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 10])
def test_for_pairs_of_values_the_closed_form_is_the_optimum_of_all_pairs(n):
    schema = qs.Schema.of(a=n)
    for weight in (0.01, 1.0, 100.0):
        workload = qs.queries(schema, a="circular") + weight * qs.queries(schema, a="identity")
        block = last_block(workload)
        solution = solve_circulant_pairs(block, 1e-3)
        low, high = pair_bounds([block_root(block)], steps=2000)
        strategy = strategy_rows(solution.strategy)
        columns = strategy.T[:, None] - strategy.T
        farthest = math.sqrt((columns**2).sum(axis=2).max())
        assert low * (1 - 1e-9) <= solution.reached * farthest <= high * 1.001
        assert low * 0.999 <= solution.bound * farthest <= high


def test_values_around_a_circle_are_near_the_optimum_where_a_record_is_replaced():
    workload = qs.all_kway(qs.Schema.of(a=30, b=20, c=400), 1, "circular")
    assert qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one")).gap < 5e-3


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


# --- merging -----------------------------------------------------------------------------------


def test_cells_that_no_query_tells_apart_are_solved_as_one():
    schema = qs.Schema.of(a=4, b=3)
    rows = np.array([[1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]], dtype=float)
    block = last_block(qs.linear(schema, ("a", "b"), rows))
    assert is_thin(block)
    solution = solve_dense(block, 1e-6)
    gram = check_solution(solution, block)
    assert solution.reached**2 == pytest.approx(optimal_loss(gram, residual((4, 3))), rel=1e-4)


def test_one_query_on_a_large_attribute_is_as_easy_as_on_a_small_one():
    large, small = qs.Schema.of(x=5_000), qs.Schema.of(x=50)
    plans = [
        plan_uniform(qs.where(large, "x < 2_000"), COST, tolerance=1e-5),
        plan_uniform(qs.where(small, "x < 20"), COST, tolerance=1e-5),
    ]
    assert plans[0].rmse == pytest.approx(plans[1].rmse, rel=1e-5)
    assert plans[0].measurements == plans[1].measurements == 2
