"""Water-filling: against a dense, general optimiser; tables without signal get nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from querysmasher.exploring.filling import fill
from tests.profiles import fewer


def objective(b, variances, counts, weights):
    return float((weights[:, None] * counts * np.sqrt(variances / (1 + variances * b[:, None]))).sum())


def reference(variances, counts, weights, costs, budget):
    """The least objective over shares of the budget, which are squares normalised to one: no constraints."""

    def loss(x):
        shares = x**2 / (x**2).sum()
        return objective(shares * budget / costs, variances, counts, weights)

    starts = [np.ones(len(costs)), *np.eye(len(costs)) + 0.1]
    return min(minimize(loss, start, method="Nelder-Mead", options={"maxiter": 400}).fun for start in starts)


magnitudes = st.sampled_from([0.0, 1e-4, 0.1, 1.0, 7.0, 300.0])


@st.composite
def problems(draw):
    tables, classes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    cells = [[draw(magnitudes) for _ in range(classes)] for _ in range(tables)]
    counts = [[draw(st.integers(0, 9)) for _ in range(classes)] for _ in range(tables)]
    weights = [draw(st.sampled_from([0.5, 1.0, 4.0])) for _ in range(tables)]
    costs = [draw(st.sampled_from([0.3, 1.0, 2.0])) for _ in range(tables)]
    budget = draw(st.sampled_from([1e-3, 0.2, 1.0, 50.0]))
    return np.array(cells), np.array(counts, float), np.array(weights), np.array(costs), budget


@fewer(50)
@given(problems())
def test_no_other_shares_have_a_smaller_error(problem):
    variances, counts, weights, costs, budget = problem
    b = fill(*problem)
    assert (b >= 0).all()
    if not (variances * counts).any():
        assert not b.any()
        return
    assert b @ costs == pytest.approx(budget, rel=1e-9)
    best = reference(variances, counts, weights, costs, budget)
    assert objective(b, variances, counts, weights) <= best * (1 + 1e-9) + 1e-12


@given(problems())
def test_gains_at_the_margin_are_equal_where_anything_is_measured(problem):
    variances, counts, weights, costs, _ = problem
    b = fill(*problem)
    gain = (counts * variances**1.5 * (1 + variances * b[:, None]) ** -1.5).sum(axis=1) * weights / 2 / costs
    if b.any():
        level = gain[b > 0]
        assert level.max() <= level.min() * (1 + 1e-5)
        assert gain.max() <= level.max() * (1 + 1e-5)


def test_a_table_without_signal_gets_nothing():
    variances = np.array([[100.0], [0.0], [1e-6]])
    b = fill(variances, np.full((3, 1), 50.0), np.ones(3), np.ones(3), 0.1)
    np.testing.assert_allclose(b, [0.1, 0, 0], rtol=1e-9)


def test_alike_tables_share_alike_and_many_tables_are_quick():
    generator = np.random.default_rng(0)
    variances = np.tile(generator.lognormal(0, 3, size=(1, 24)), (5_000, 1))
    b = fill(variances, np.ones_like(variances), np.ones(5_000), np.ones(5_000), 10.0)
    np.testing.assert_allclose(b, 10.0 / 5_000, rtol=1e-9)
