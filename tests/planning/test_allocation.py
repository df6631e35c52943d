"""Shares of the budget: optimal, never above it, and never without noise."""

import math

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning.prices import priced
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import DenseStrategy

SCHEMA = qs.Schema.of(a=3, b=2)

roots = st.lists(st.floats(-6, 6).map(lambda x: 10.0**x), min_size=1, max_size=8)
records = st.sampled_from([1, 2, 3, 6])
costs = st.floats(-8, 8).map(lambda x: 10.0**x)


def noise(losses, r, cost):
    """The noise variances of measurements with these root losses, for r records per person."""
    measured = [Measured((), (), 1.0, root) for root in losses]
    made = priced(measured, [], SCHEMA, qs.PrivacyCost(cost, records_per_person=r))
    return np.array([m.variance for m in made])


@settings(max_examples=300)
@given(roots, records, costs)
def test_the_cost_is_the_budget_and_never_above_it_by_any_rounding(losses, r, cost):
    variances = noise(losses, r, cost)
    spent = math.fsum(r**2 / v for v in variances.tolist())
    assert spent <= cost
    assert spent >= cost * (1 - 1e-12)
    assert np.all(variances > 0)


@settings(max_examples=50)
@given(st.lists(st.floats(0.05, 20), min_size=1, max_size=5), records, st.floats(0.1, 10))
def test_no_other_shares_lose_less(losses, r, cost):
    root, variances = np.array(losses), noise(losses, r, cost)

    def total(log_shares):
        shares = np.exp(log_shares - log_shares.max())
        shares = cost * shares / shares.sum()
        return float(np.sum(root**2 * r**2 / shares))  # a share of the cost s buys variance r²/s

    found = scipy.optimize.minimize(total, np.zeros(len(root)), method="BFGS", options={"gtol": 1e-10})
    mine = float(np.sum(root**2 * variances))
    assert mine == pytest.approx(found.fun, rel=1e-6)
    assert mine <= found.fun * (1 + 1e-9)


@pytest.mark.parametrize("losses", [[1.0, 0.0], [1.0, -1.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_what_would_get_no_noise_is_refused(losses, refuses):
    with refuses(PlanError, ValueError, "no noise"):
        noise(losses, 1, 1.0)


# --- if a record is replaced: the worst pair of cells costs the budget ---


def residual(n, generator):
    rows = generator.normal(size=(n - 1, n))
    rows -= rows.mean(axis=1, keepdims=True)
    return rows / np.sqrt(np.einsum("ij,ij->j", rows, rows).max())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_no_other_noise_is_better_where_a_record_is_replaced(seed, cost):
    """Against the convex problem over all pairs, written out."""
    generator = np.random.default_rng(seed)
    matrices = [residual(3, generator), residual(2, generator)]
    strategies = [DenseStrategy((n,), matrix) for n, matrix in zip((3, 2), matrices, strict=True)]
    blocks = [((0,), (((0,), 0),)), ((1,), (((0,), 1),)), ((0, 1), (((0,), 0), ((1,), 1)))]
    r = generator.uniform(0.1, 3, 3)
    measured = [Measured(on, block, 1.0, root) for (on, block), root in zip(blocks, r.tolist(), strict=True)]
    made = priced(measured, strategies, SCHEMA, qs.PrivacyCost(cost, neighbours="replace_one"))
    one, other = np.ones((1, 3)), np.ones((1, 2))
    lifted = [np.kron(matrices[0], other), np.kron(one, matrices[1]), np.kron(*matrices)]
    pairs = [(u, v) for u in range(6) for v in range(u)]
    changes = np.array([[np.sum((b[:, u] - b[:, v]) ** 2) for b in lifted] for u, v in pairs])
    precisions = np.array([1 / m.variance for m in made])
    assert (changes @ precisions).max() == pytest.approx(cost, rel=1e-6)
    assert (changes @ precisions).max() <= cost * (1 + 1e-12)
    assert sum(m.price / m.variance for m in made) == pytest.approx(cost, rel=1e-9)
    limits = {"type": "ineq", "fun": lambda x: cost - changes @ np.exp(x)}
    best = scipy.optimize.minimize(
        lambda x: float(np.sum(r**2 * np.exp(-x))),
        np.log(precisions * 0.9),
        constraints=limits,
        method="SLSQP",
    )
    mine = float(np.sum(r**2 / precisions))
    assert mine <= best.fun * (1 + 1e-4)
