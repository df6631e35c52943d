"""Designs of few queries on many cells: against the general solver, and as a plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.limits import limited
from querysmasher.planning.solvers import design
from querysmasher.planning.solvers.design import Design, solve_design
from querysmasher.planning.solvers.optimum import independent_root
from tests.builders import COST
from tests.strategies import integer_arrays


@st.composite
def wide_rows(draw):
    """A few 0/1 rows on many cells, some of them dependent, and their scales."""
    count = draw(st.integers(1, 5))
    rows = draw(integer_arrays((count, 40), 0, 1)).astype(float)
    rows = np.concatenate([rows, rows[:1] + rows[-1:], np.ones((1, 40))])
    scales = 10.0 ** np.array(draw(st.lists(st.integers(-1, 1), min_size=len(rows), max_size=len(rows))))
    return rows, scales


@settings(max_examples=40, deadline=None)
@given(wide_rows(), st.sampled_from([1, 10**6]))
def test_single_precision_finds_the_optimum_of_double(drawn, chunk):
    rows, scales = drawn
    root = independent_root(rows * scales[:, None])
    start = np.ones(root.shape[1])
    with pytest.MonkeyPatch.context() as patch, limited(light_work=0.0, light_cells=1):
        patch.setattr(design, "CHUNK", chunk)
        found = solve_design(root, start, 1e-3)
    np.testing.assert_allclose(root.T @ root, (rows.T * scales**2) @ rows, atol=1e-9 * (scales**2).max())
    again = Design.at(root, found.weights)
    assert (found.value, found.upper) == pytest.approx((again.value, again.upper))
    best = solve_design(root, start, 1e-6)
    assert found.value <= best.upper * (1 + 1e-9)
    assert best.value * (1 - 1e-9) <= found.upper <= best.upper * (1 + 2e-3)
    matrix = found.strategy()
    assert (matrix**2).sum(axis=0).max() == pytest.approx(1.0)
    # the loss that is claimed is that of the rows
    own = np.linalg.lstsq(matrix.T, (rows * scales[:, None]).T, rcond=None)[0]
    assert (own**2).sum() == pytest.approx(found.upper**2)


def test_cells_left_out_at_first_join_later():
    """Few random rows, all cells needed, of which half take part at first."""
    rows = np.random.default_rng(0).integers(0, 2, (10, 600)).astype(float)
    with limited(light_work=0.0):
        found = solve_design(independent_root(rows), np.ones(600), 1e-3)
    assert found.upper <= 1.0011 * found.value


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, 100])
def test_mixed_predicates_reach_the_tolerance(count):
    """Gap at most 0.1 % where the fixed point on all cells stops at more, in well under a second each."""
    rng = np.random.default_rng(1)
    schema = qs.Schema.of(a=30, b=20, c=5, d=2)
    words = []
    for _ in range(count):
        low, high = sorted(rng.integers(0, 30, 2).tolist())
        words.append(
            f"{low} <= a <= {high} and b < {rng.integers(1, 20)}"
            if rng.random() < 0.5
            else f"b >= {rng.integers(1, 20)} and c == {rng.integers(5)} and d == {rng.integers(2)}"
        )
    workload = sum((qs.where(schema, one) for one in words[1:]), qs.where(schema, words[0]))
    plan = qs.plan(workload, COST, mechanism="whole")
    assert plan.gap <= 1e-3
    assert plan.weighted_loss == pytest.approx(float(plan.variances(workload).sum()), rel=1e-6)
