"""The exact privacy cost of an integer plan, worked out from its matrices and from nothing else.

Adding or removing a record changes x_A by one unit vector, hence B·x_A by one column of B. With
independent Gaussian noise of variance σ²·m_k on row k the cost of the set is max_j Σ_k B[k,j]²/(σ²·m_k),
which for a Kronecker product is the product of its blocks' maxima; the costs of independent measurements
add up. Other neighbours multiply the squared change by `Budget.sensitivity`. The planner is not asked.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.filters import Filter
from querysmasher.privacy.integer_plan import Factor, IntegerPlan, IntegerStrategy, largest_entry

GRAIN = 2**160
"""Costs are rounded up to multiples of 1/GRAIN, so that sums of many fractions stay short."""


def squared_sensitivity(strategy: IntegerStrategy) -> Fraction:
    """Return max_j Σ_k B[k,j]² / multiplier[k], or with multipliers a hair more.

    Without multipliers this is exact: the columns of a Kronecker product are products of its factors'
    columns, so their largest squared length is the product of the factors' largest; a filter's columns are
    all of one length. With multipliers, it is a sum of products of non-negative doubles: each square,
    product, quotient and sum is wrong by a relative 2⁻⁵² at most, fewer than 2²⁰ of them stand behind any
    entry, and the result is raised by a relative 2⁻³⁰: an upper bound.
    """
    if strategy.multipliers is None:
        return Fraction(math.prod(_squared_columns(factor) for _, factor in strategy.factors))
    total = 1.0 / strategy.multipliers
    for _, factor in strategy.factors:  # contracts the first axis and appends the factor's cells
        if isinstance(factor, Filter) or sum(strategy.rows) >= 2**20 or largest_entry(factor) >= 2**26:
            msg = "strategy: its factors are too large to bound its sensitivity"
            raise PrivacyError(msg)
        with np.errstate(over="ignore"):
            total = np.tensordot(total, factor.astype(float) ** 2, axes=(0, 0))
    if not np.isfinite(total).all():
        msg = "strategy: its factors are too large to bound its sensitivity"
        raise PrivacyError(msg)
    return Fraction(float(total.max())) * (1 + Fraction(1, 2**30))


def _squared_columns(factor: Factor) -> int:
    """Return the largest squared length of a factor's columns, exactly."""
    if isinstance(factor, Filter):
        return factor.squared_column()
    if largest_entry(factor) ** 2 * len(factor) >= 2**62:
        return max(sum(int(b) ** 2 for b in column) for column in factor.T)
    return int((factor**2).sum(axis=0).max())


def privacy_cost(plan: IntegerPlan) -> Fraction:
    """Return the total privacy cost of a plan, rounded up.

    Formal guarantee: for any two tables that differ as the budget's neighbours say, the sum over all
    released numbers of (change)²/(noise variance) is at most the returned number.
    """
    squares = [squared_sensitivity(s) for s in plan.strategies]
    total = 0
    for m in plan.measured:
        if m.variance <= 0:
            msg = "plan: a measurement has no noise"
            raise PrivacyError(msg)
        factor = plan.budget.sensitivity(total=not m.attributes)
        square = math.prod((squares[number] for _, number in m.blocks), start=Fraction(factor))
        total += math.ceil(square / m.variance * GRAIN)
    return Fraction(total, GRAIN)


def allowed_cost(budget: Budget, noise: str) -> float:
    """Return the privacy cost that a noise may spend under a budget.

    Rounded Gaussian noise (and float noise, in simulations) is post-processing of Gaussian noise, so
    every budget is spent by the Gaussian formulas. Discrete Gaussian noise is accounted through zCDP.
    """
    return budget.discrete_privacy_cost if noise in ("discrete", "opendp") else budget.privacy_cost


def check_budget(plan: IntegerPlan, noise: str) -> None:
    """Refuse a plan whose exact cost is above its budget."""
    spent, allowed = privacy_cost(plan), Fraction(allowed_cost(plan.budget, noise))
    if spent > allowed:
        msg = (
            f"plan: its measurements cost {float(spent):.6g}, more than the {float(allowed):.6g} its budget "
            f"allows with {noise} noise; nothing was measured"
        )
        raise PrivacyError(msg)
