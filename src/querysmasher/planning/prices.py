"""Prices of measurements: which part of the privacy cost each causes, per unit of 1/σ².

If records are added or removed, every measurement of unit sensitivity has the same price, and the costs of
all add up. If a record is replaced, the cost is the maximum over pairs of cells of the sum of the changes of
all measurements, c_A(pair)/σ²_A (`privacy.pairs`). With root losses r_A, the best noise solves

    min Σ r_A² σ²_A  with  Σ c_A(pair)/σ²_A ≤ 1 for all pairs,

whose dual is max over μ ≥ 0, Σμ = 1, of Σ r_A √s_A, with the prices s_A = Σ_pairs μ c_A(pair), and
1/σ²_A ∝ r_A/√s_A. It is the design of weights of pairs, with a diagonal matrix (`solvers.design`). Few pairs
matter: the worst one joins, until it costs hardly more than those that are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.planning.solution import Measured
from querysmasher.planning.solvers.design import Iterate, newton
from querysmasher.planning.strategies import Strategy
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.pairs import Pairs
from querysmasher.schema import Schema

CLOSE = 5e-5
"""The worst pair may cost more than those that are known by this fraction."""


def priced(
    measured: Sequence[Measured], strategies: Sequence[Strategy], schema: Schema, budget: Budget
) -> list[Measured]:
    """Return measurements with the best noise for their root losses under a budget, and their prices."""
    r = np.array([m.root_loss for m in measured], dtype=float)
    if not (np.all(np.isfinite(r)) and np.all(r > 0)):
        raise PlanError("allocation: expected positive losses; a zero would leave no noise")
    pairs = _pairs(measured, strategies, schema, budget, r)
    prices = np.ones(len(r)) if pairs is None else prices_of_pairs(pairs, r)
    prices = budget.unit.records_per_person**2 * prices
    roots = np.sqrt(prices)
    variances = roots / r * float(roots @ r) / budget.privacy_cost
    return _spending(measured, variances, prices, pairs, budget)


def within(
    measured: Sequence[Measured], strategies: Sequence[Strategy], schema: Schema, budget: Budget
) -> list[Measured]:
    """Return measurements with their noise scaled, and their prices, so that these spend a budget."""
    variances, prices = (
        np.array(each, float) for each in zip(*((m.variance, m.price) for m in measured), strict=True)
    )
    pairs = _pairs(measured, strategies, schema, budget, 1 / variances)
    return _spending(measured, variances, prices, pairs, budget)


def _spending(
    measured: Sequence[Measured], variances: Array, prices: Array, pairs: Pairs | None, budget: Budget
) -> list[Measured]:
    """Return measurements with multiples of noise variances and of prices, so that these spend a budget."""
    if pairs is not None:
        largest, _ = pairs.largest(1 / variances)
        prices = prices * (budget.unit.records_per_person**2 * largest / float((prices / variances).sum()))
    spent = math.fsum((prices / variances).tolist())
    while True:
        variances = variances * (spent / budget.privacy_cost)
        spent = math.fsum((prices / variances).tolist())
        if spent <= budget.privacy_cost:
            break
        spent = max(spent, (1 + 1e-15) * budget.privacy_cost)  # by rounding error
    noise = zip(variances.tolist(), prices.tolist(), strict=True)
    return [
        Measured(m.attributes, m.blocks, variance, m.root_loss, m.whole, price)  # quicker than `replace`
        for m, (variance, price) in zip(measured, noise, strict=True)
    ]


def _pairs(
    measured: Sequence[Measured],
    strategies: Sequence[Strategy],
    schema: Schema,
    budget: Budget,
    weights: Array,
) -> Pairs | None:
    """Return what pairs of cells cost, or None if records are added or removed."""
    if not budget.unit.total_is_public:
        return None
    parts = [
        tuple((tuple(m.attributes[a] for a in axes), strategies[n].column_products()) for axes, n in m.blocks)
        for m in measured
    ]
    known = budget.unit.known(schema)
    return Pairs(schema.sizes, parts, weights, known.agreed, known.groups)


@dataclass(frozen=True, eq=False)
class _Shared(Iterate):
    """Weights of pairs, what each pair costs, and the prices."""

    prices: Array


class Costs(Protocol):
    """What pairs of cells cost, or draws of pairs."""

    def largest(self, weights: Array) -> tuple[float, Array]:
        """Return the largest sum of weights × costs, or a bound on it, and the costs that attain it."""


def prices_of_pairs(pairs: Costs, r: Array, first: Array | None = None, close: float = CLOSE) -> Array:
    """Return the prices at the best noise, if one record is replaced.

    They are means of what pairs cost, if `first`, the costs of a pair to begin with, has no zeros.
    """
    known, weights = [pairs.largest(r)[1] if first is None else first], np.ones(1)
    while True:
        changes, start = np.array(known), weights
        kept = changes.max(axis=0) <= CLOSE
        if kept.any():  # by all pairs that are known yet: they get a price, too, until one changes them
            changes, start = np.vstack([changes, np.where(kept, 2.0, 0.0)]), np.append(weights, weights.max())

        def at(mu: Array, changes: Array = changes) -> _Shared:
            prices = mu @ changes
            each = r * np.sqrt(prices)
            return _Shared(mu, changes @ (each / prices), float(each.sum()), prices)

        def curvature(shared: _Shared, _: bool, changes: Array = changes) -> Array:
            return np.asarray(0.5 * (changes * (r * shared.prices**-1.5)) @ changes.T)

        best = at(newton(at, curvature, start, close))
        largest, worst = pairs.largest(r / np.sqrt(best.prices))
        near = largest <= float(best.leverages.max()) * (1 + close)  # else bounds may exceed what pairs cost
        if near or np.abs(np.array(known) - worst).max(axis=1).min() <= CLOSE:
            return best.prices
        known.append(worst)
        weights = np.append(best.weights[: len(weights)], 0.1)
