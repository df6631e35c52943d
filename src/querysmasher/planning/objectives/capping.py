"""Share the budget anew, with the strategies fixed: least mean error, and every variance within its target².

In the notation of `sharing`, log Σ_k ℓ_k x_k + log C is the logarithm of the loss at a fixed cost, whatever
the scale of x. A query keeps to its target if V·C is at most the budget. The penalty

    (weight / τ) log(1 + Σ_q (V_q C / budget)^τ)

is convex in log x and vanishes where all do; with a weight above the sum of the multipliers, its minimum for
growing τ is the best one that keeps to them. What rounding leaves is blended away: variances are linear in x,
and a mixture of noise variances costs no more than the mixture of their costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.sharing import (
    FIRST,
    LATER,
    Integers,
    Sharing,
    largest_ratio,
    share,
)
from querysmasher.planning.objectives.table import VarianceTable

FIRST_POWER, POWER_GROWTH, LAST_POWER = 200.0, 4.0, 15_000.0
"""The values of τ: the first, their growth, and the least of the last ones."""

MISSED, HEAVIER = 3.0, 5.0
"""Where a target is missed by more than this multiple of 1/τ, the weight of the penalty grows by the other
factor."""

MOST_WEIGHT = 1e6
"""Maximum weight of the penalty: beyond, the loss is lost in rounding errors."""

MOST_GROWTH = 30.0
"""Maximum growth of the noise of classes that no target needs."""

LONGEST = 0.5
"""Maximum change of log x in one step."""


def capped(
    table: VarianceTable, losses: Array, targets: Array, privacy_cost: float, weight: float
) -> Array | None:
    """Return noise variances of least loss that keep to the targets, or None if these strategies cannot.

    `losses` is the loss of every class at σ² = 1, `targets` has the target of every entry, infinite for those
    without any, and `weight` is an estimate of the sum of the targets' multipliers relative to the loss.
    """
    spent = table.counts * table.changes

    def scaled(x: Array) -> Array:
        return np.asarray(x * (float((spent / x).sum()) / privacy_cost))

    x = table.variances
    largest = largest_ratio(table, targets, x)
    if not table.is_linear:
        return x if largest <= 1 else None
    sharing = Sharing(table, targets)
    sharing.join(x, *FIRST)
    room, weight, power, tightened = privacy_cost, min(2 * weight + 0.5, MOST_WEIGHT), FIRST_POWER, 0
    for _ in range(limits().capping_rounds):
        penalised = _Penalised(*sharing.arrays(), losses, spent, room)
        x = scaled(penalised.lowered(x, power, weight))
        sharing.join(x, *LATER)
        largest = largest_ratio(table, targets, x)
        if largest > 1 + MISSED / power:
            weight = min(HEAVIER * weight, MOST_WEIGHT)
        if power < max(LAST_POWER, limits().capping_precision * weight):
            power *= POWER_GROWTH
        elif largest <= 1:
            return x
        elif tightened == limits().capping_tightenings:
            break
        else:
            room /= largest * (1 + 1e-7)
            tightened += 1
    return _blended(table, targets, privacy_cost, x, largest, scaled)


def _blended(
    table: VarianceTable,
    targets: Array,
    privacy_cost: float,
    x: Array,
    largest: float,
    scaled: Callable[[Array], Array],
) -> Array | None:
    """Return a mixture with variances well within the targets, or None if these strategies have none."""
    safe = scaled(np.minimum(share(table, targets, privacy_cost).variances, MOST_GROWTH * x))
    least = largest_ratio(table, targets, safe)
    if not least < 1:
        return None
    part = (largest - 1) / (largest - least)
    return scaled((1 - part) * x + part * safe)


@dataclass(frozen=True, eq=False)
class _Penalised:
    """The logarithm of the loss, with a penalty on variances above their targets, at a given cost."""

    terms: Array
    """The terms of the variances of queries, each relative to its target²."""
    classes: Integers
    """The class of every term."""
    losses: Array
    """The loss of every class at σ² = 1."""
    spent: Array
    """The privacy cost of every class at σ² = 1."""
    budget: float

    def lowered(self, x: Array, power: float, weight: float) -> Array:
        """Return noise variances at which loss and penalty are least."""
        value, parts = self._at(x, power, weight)
        for _ in range(limits().capping_newton):
            r, cost, p, ratios, share = parts
            count = len(x) + 1
            mean = np.bincount(self.classes.ravel(), (p[:, None] * ratios).ravel(), count)[:-1]
            slope = mean - cost
            gradient = r - cost + weight * share * slope
            matter = p > 1e-12 * p.max()
            own, q = self.classes[matter], ratios[matter]
            pairs = own[:, :, None] * count + own[:, None, :]
            products = (p[matter, None] * q)[:, :, None] * q[:, None, :]
            second = np.bincount(pairs.ravel(), products.ravel(), count**2).reshape(count, count)[:-1, :-1]
            H = weight * share * ((power - 1) * second - power * np.outer(mean, mean))
            H += weight * share * power * (1 - share) * np.outer(slope, slope)
            H -= np.outer(r, r) + (1 + weight * share) * np.outer(cost, cost) - 1.0 / len(x)
            H.flat[:: len(H) + 1] += r + (1 + weight * share) * cost + weight * share * mean + 1e-9
            H.flat[:: len(H) + 1] += 1e-15 * float(np.trace(H))  # of a weight that dwarfs the loss
            step = -np.linalg.solve(H, gradient)
            if -float(gradient @ step) < 1e-3 / power:
                break
            step *= min(1.0, LONGEST / float(np.abs(step).max()))
            for _ in range(20):
                found = self._at(x * np.exp(step), power, weight)
                if found[0] <= value + 0.05 * float(gradient @ step):
                    break
                step = step / 3
            else:
                break
            x, (value, parts) = x * np.exp(step), found
        return x

    def _at(
        self, x: Array, power: float, weight: float
    ) -> tuple[float, tuple[Array, Array, Array, Array, float]]:
        """Return loss and penalty, and the shares of classes in loss and cost, of queries in the penalty."""
        each = self.terms * np.append(x, 0.0)[self.classes]
        values = each.sum(axis=1)
        loss, cost = self.losses * x, self.spent / x
        total = float(cost.sum())
        top = float(values.max())
        own = (values / top) ** power
        over = power * math.log(top * total / self.budget) + math.log(float(own.sum()))
        penalty = over + math.log1p(math.exp(-over)) if over > 0 else math.log1p(math.exp(over))
        value = math.log(float(loss.sum())) + math.log(total) + weight / power * penalty
        share = 1 / (1 + math.exp(-over)) if over > -700 else 0.0
        return value, (loss / loss.sum(), cost / total, own / own.sum(), each / values[:, None], share)
