"""Structured strategies: honest on anything, nearly optimal where they are used."""

import numpy as np
import pytest
from hypothesis import given, settings

import querysmasher as qs
from querysmasher.planning.centre import uniform
from querysmasher.planning.solvers.optimum import solve_dense
from querysmasher.planning.solvers.structured import solve_structured
from querysmasher.planning.split import Block, Decomposer
from querysmasher.workload.families import Prefix
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group
from tests.builders import COST, plan_uniform
from tests.planning.blocks import check_solution, kronecker_sum, last_block, problems
from tests.reference import loss, strategy_rows, terms_gram
from tests.strategies import schemas, workloads


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
        check_solution(structured, block)
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
        check_solution(solve_structured(block, 1e-3), block)
        check_solution(solve_dense(block, 1e-3), block)


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
