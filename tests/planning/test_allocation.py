"""Shares of the budget: optimal, never above it, and never without noise."""

import math

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.errors import PlanError
from querysmasher.planning.allocation import allocate

roots = st.lists(st.floats(-6, 6).map(lambda x: 10.0**x), min_size=1, max_size=8)
sensitivities = st.sampled_from([1, 4, 9, 36])
costs = st.floats(-8, 8).map(lambda x: 10.0**x)


@settings(max_examples=300)
@given(roots, sensitivities, costs)
def test_the_cost_is_the_budget_and_never_above_it_by_any_rounding(losses, factor, cost):
    variances = allocate(losses, [factor] * len(losses), cost)
    spent = math.fsum(factor / v for v in variances.tolist())
    assert spent <= cost
    assert spent >= cost * (1 - 1e-12)
    assert np.all(variances > 0)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0.05, 20), sensitivities), min_size=1, max_size=5), st.floats(0.1, 10))
def test_no_other_shares_lose_less(parts, cost):
    r = np.array([root for root, _ in parts])
    c = np.array([factor for _, factor in parts])
    variances = allocate(r, c, cost)

    def total(log_shares):
        shares = np.exp(log_shares - log_shares.max())
        shares = cost * shares / shares.sum()
        return float(np.sum(r**2 * c / shares))  # a share of the cost s buys variance c/s

    found = scipy.optimize.minimize(total, np.zeros(len(r)), method="BFGS", options={"gtol": 1e-10})
    mine = float(np.sum(r**2 * variances))
    assert mine == pytest.approx(found.fun, rel=1e-6)
    assert mine <= found.fun * (1 + 1e-9)


@pytest.mark.parametrize(
    ("losses", "factors"),
    [
        ([1.0, 0.0], [1, 1]),
        ([1.0, -1.0], [1, 1]),
        ([math.nan, 1.0], [1, 1]),
        ([math.inf, 1.0], [1, 1]),
        ([1.0, 1.0], [1, 0]),
    ],
)
def test_what_would_get_no_noise_is_refused(losses, factors, refuses):
    with refuses(PlanError, ValueError, "no noise"):
        allocate(losses, factors, 1.0)
