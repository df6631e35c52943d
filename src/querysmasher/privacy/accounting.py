"""The exact privacy cost of an integer plan, computed from its matrices alone.

Adding or removing a record changes x_A by one unit vector, hence B·x_A by one column of B. With
independent Gaussian noise of variance σ²·m_k on row k the cost of the set is max_j Σ_k B[k,j]²/(σ²·m_k),
which for a Kronecker product is the product of its blocks' maxima; the costs of independent measurements
add up. Other neighbours multiply it by `Unit.squared_change`. The planner is not consulted.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.integer_plan import IntegerPlan, IntegerStrategy

GRAIN = 2**160
"""Costs are rounded up to multiples of 1/GRAIN, so that sums of many fractions stay short."""


def squared_sensitivity(strategy: IntegerStrategy) -> Fraction:
    """Return max_j Σ_k B[k,j]² / multiplier[k]; with multipliers, a tight upper bound.

    Without multipliers this is exact: the columns of a Kronecker product are products of its factors'
    columns, so their largest squared length is the product of the factors' largest; a filter's columns are
    all of one length. With multipliers, it is a sum of products of non-negative doubles: each square,
    product, quotient and sum has a relative error of at most 2⁻⁵², fewer than 2²⁰ of them contribute to any
    entry, and the result is increased by a relative 2⁻³⁰: an upper bound.
    """
    factors = [factor for _, factor in strategy.factors]
    if strategy.multipliers is None:
        return Fraction(math.prod(factor.squared_column() for factor in factors))
    if sum(strategy.rows) >= 2**20 or any(factor.largest >= 2**26 for factor in factors):
        raise PrivacyError("strategy: its factors are too large to bound its sensitivity")
    total = 1.0 / strategy.multipliers
    with np.errstate(over="ignore"):
        for factor in factors:  # contracts the first axis and appends the factor's cells
            total = factor.weighted_squares(total)
    if not np.isfinite(total).all():
        raise PrivacyError("strategy: its factors are too large to bound its sensitivity")
    return Fraction(float(total.max())) * (1 + Fraction(1, 2**30))


def privacy_cost(plan: IntegerPlan) -> Fraction:
    """Return the total privacy cost of a plan, rounded up.

    Formal guarantee: for any two tables that differ as the budget's neighbours say, the sum over all
    released numbers of (change)²/(noise variance) is at most the returned number.
    """
    squares = [squared_sensitivity(s) for s in plan.strategies]
    total = 0
    for m in plan.measured:
        if m.variance <= 0:
            raise PrivacyError("plan: a measurement has no noise")
        change = plan.budget.unit.squared_change(total=not m.attributes)
        square = math.prod((squares[number] for _, number in m.blocks), start=Fraction(change))
        total += math.ceil(square / m.variance * GRAIN)
    return Fraction(total, GRAIN)


def check_budget(plan: IntegerPlan, noise: Distribution) -> None:
    """Refuse a plan whose exact cost exceeds its budget."""
    spent, allowed = privacy_cost(plan), Fraction(noise.allowed_cost(plan.budget))
    if spent > allowed:
        raise PrivacyError(
            f"plan: its measurements cost {float(spent):.6g}, more than the {float(allowed):.6g} its budget "
            f"allows with {noise.name} noise; nothing was measured"
        )
