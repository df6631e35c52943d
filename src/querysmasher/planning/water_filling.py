"""Shares of a budget among tables whose cells have prior variances: the least expected absolute error.

A cell with prior variance v that is measured at precision b (one divided by the variance of the noise) has
the posterior variance v/(1 + v b), and an expected absolute error in proportion to its root. The precisions
b_k >= 0 of tables k minimise Σ_k w_k Σ_c √(v_kc/(1 + v_kc b_k)) at the cost Σ_k c_k b_k <= β. The problem is
convex and separable: with a multiplier λ, the gain of table k at the margin,
g_k(b) = w_k Σ_c v^(3/2) (1 + v b)^(-3/2) / 2, decreases in b, so that either g_k(b_k) = λ c_k, or b_k = 0
where g_k(0) <= λ c_k: a table without enough signal gets nothing. One bisection finds λ.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array

EXACT = 1e-10
"""Relative accuracy at which both stop."""


def fill(
    variances: Array, counts: Array, weights: Array, costs: Array, budget: float, accuracy: float = EXACT
) -> Array:
    """Return the precision of every table, at least zero, whose costs add up to the budget.

    Args:
        variances: the prior variances of classes of cells, at least zero, one row per table.
        counts: the number of cells in each class.
        weights: how much the errors of each table count.
        costs: the privacy cost of a precision of 1.
        budget: the privacy cost to spend.
        accuracy: the relative accuracy of the precisions; their costs add up to the budget in any case.

    If no cell has prior variance, nothing is worth measuring, and all precisions are zero.
    """
    roots = counts * variances * np.sqrt(variances) * (weights / 2 / costs)[:, None]  # g(0)/c, by class
    first = roots.sum(axis=1)
    active = first > 0
    result = np.zeros(len(first))
    if not active.any():
        return result
    roots, own, start = roots[active], variances[active], first[active]
    low, high = 0.0, float(start.max())  # the multiplier; at `high` nothing is measured
    found = np.zeros(len(start))
    for _ in range(100):
        middle = np.sqrt(low * high) if low else high / 1e3
        found = _precisions(roots, own, start, middle, found, accuracy)
        spent = float(found @ costs[active])
        if abs(spent - budget) <= accuracy * budget:
            break
        low, high = (low, middle) if spent < budget else (middle, high)
        if low and high / low - 1 <= accuracy:
            break
    spent = float(found @ costs[active])
    result[active] = found * (budget / spent) if spent > 0 else 0.0
    return result


def _precisions(
    roots: Array, variances: Array, start: Array, level: float, guess: Array, accuracy: float
) -> Array:
    """Return b with g(b)/c = level, and zero where g(0)/c is below, by Newton's method from a guess.

    The method solves for g^(-2/3), which is linear in b for one class of cells, and concave for several (a
    CES function of linear ones). So every step ends to the left of the solution, and few are needed.
    """
    b = np.where(start > level, guess, 0.0)
    busy = np.flatnonzero(start > level)
    for _ in range(60):
        if not busy.size:
            break
        own = variances[busy]
        factor = 1.0 / (1.0 + own * b[busy, None])
        gains = roots[busy] * factor * np.sqrt(factor)
        gain, slope = gains.sum(axis=1), -1.5 * (gains * own * factor).sum(axis=1)
        steps = -1.5 * gain * ((gain / level) ** (2 / 3) - 1) / slope
        moved = np.maximum(b[busy] + steps, 0.0)
        still = np.abs(moved - b[busy]) > accuracy * moved
        b[busy] = moved
        busy = busy[still]
    return b
