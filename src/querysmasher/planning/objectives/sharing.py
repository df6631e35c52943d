"""Share the budget anew, with fixed strategies, so that the largest ratio of variance to target² is least.

With x_k the noise variance of the attribute sets of class k, a query has the variance V = Σ_k a_k x_k
relative to its target², and the cost is C = Σ_k n_k c_k / x_k. Their logarithms are convex in log x, and
max_q V_q · C does not change with the scale of x, so its smooth upper bound

    (1/τ) log Σ_q V_q^τ + log C

is minimised without constraints by Newton's method, for growing τ. Only queries near the largest matter: they
join as they come close. A query has few terms, so that the Hessian is quick to add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.table import VarianceTable

Integers = NDArray[np.intp]

LONGEST = 0.5
"""Maximum change of log x in one step."""

FIRST, LATER = (0.25, 16), (0.03, 1)
"""Queries join within this fraction of the largest, so many of an entry: at first, and later."""

WINDOW = 30.0
"""Queries whose weight is smaller than exp(-30) of the largest are left out of the Hessian."""


@dataclass(frozen=True, eq=False)
class Shares:
    """The noise variance of every class, and the largest ratio of variance to target²."""

    variances: Array
    largest: float


class Sharing:
    """The queries that may attain the largest ratio, as the noise variances change."""

    def __init__(self, table: VarianceTable, targets: Array) -> None:
        """Take a table, and the target of every entry."""
        self.table = table
        self.squares = targets**2
        self.rows: list[Array] = []
        """The terms of queries that joined, relative to target², entry by entry."""
        self.classes: list[Integers] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._last: Array | None = None
        self._values = np.zeros(len(targets))

    def join(self, x: Array, close: float, most: int) -> float:
        """Return the largest ratio; up to `most` queries of an entry within the fraction `close` of it join.

        An entry is searched only if it can come that close: variances grow at most by the largest factor by
        which the noise of a class grows.
        """
        bounds = self.table.bounds(x) / self.squares
        if self._last is not None:
            bounds = np.minimum(bounds, self._values * self.table.growth(x / self._last))
        known = self.table.single_peaks(x) if most == 1 or len(bounds) > limits().sharing_entries else {}
        for number, (value, _) in known.items():
            bounds[number] = value / self.squares[number]
        self._values, self._last = bounds.copy(), x
        best = 0.0
        for number in map(int, np.argsort(-bounds)):
            least = best * (1 - close)
            if bounds[number] < least:
                break
            if number in known:
                value, terms = known[number][0], known[number][1][None]
            else:
                value, terms = self.table.near_largest(number, x, least * self.squares[number], most)
            self._values[number] = value / self.squares[number]
            best = max(best, float(self._values[number]))
            if self._values[number] >= least:
                self._add(number, terms / self.squares[number])
        return best

    def arrays(self) -> tuple[Array, Integers]:
        """Return the terms of all queries that joined, and their classes."""
        self.rows, self.classes = [np.concatenate(self.rows)], [np.concatenate(self.classes)]
        return self.rows[0], self.classes[0]

    def _add(self, number: int, terms: Array) -> None:
        classes = self.table.classes_of(number)
        fresh = []
        for row in terms:
            key = (number, row.tobytes())
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(row)
        if fresh:
            wide = np.zeros((len(fresh), len(classes)))
            wide[:, : terms.shape[1]] = fresh
            self.rows.append(wide)
            self.classes.append(np.broadcast_to(classes, wide.shape))


def share(table: VarianceTable, targets: Array, privacy_cost: float, enough: float = 0.0) -> Shares:
    """Return the best shares for these strategies; `targets` has the target of every entry.

    The search ends when the largest ratio of variance to target² is at most `enough`.
    """
    spent = table.counts * table.changes
    sharing = Sharing(table, targets)
    x = table.variances
    best = Shares(x, sharing.join(x, *FIRST))
    if len(table.sets) == 1 or not table.is_linear:
        return Shares(x, largest_ratio(table, targets, x))
    for power in limits().sharing_powers:
        if best.largest <= enough:
            break
        for _ in range(limits().sharing_rounds):
            aim = np.log(_lowered(*sharing.arrays(), spent, best.variances, power) / best.variances)
            before = best.largest
            for part in limits().sharing_parts:
                x = best.variances * np.exp(part * aim)
                x = x * (float((spent / x).sum()) / privacy_cost)
                largest = sharing.join(x, *LATER)
                if largest < best.largest:
                    best = Shares(x, largest)
                    break
            if part == 1.0 or best.largest > before * (1 - 1 / power):
                break
    return Shares(best.variances, largest_ratio(table, targets, best.variances))


def all_largest(table: VarianceTable, x: Array) -> Array:
    """Return the largest variance of every entry at noise variances `x`, by a rough search."""
    known = table.single_peaks(x)
    return np.array(
        [
            known[number][0] if number in known else table.largest(number, x, rough=True)[0]
            for number in range(len(table.entries))
        ]
    )


def largest_ratio(table: VarianceTable, targets: Array, x: Array) -> float:
    """Return the largest ratio of variance to target² at noise variances `x`."""
    squares = targets**2
    bounds = table.bounds(x) / squares
    best = 0.0
    for number, (value, _) in table.single_peaks(x).items():
        best, bounds[number] = max(best, value / squares[number]), 0.0
    for number in map(int, np.argsort(-bounds)):
        if bounds[number] <= best:
            break
        best = max(best, float(table.largest(number, x)[0] / squares[number]))
    return best


def _lowered(terms: Array, classes: Integers, spent: Array, x: Array, power: float) -> Array:
    """Return noise variances at which the smooth bound of the largest ratio times the cost is least."""
    value, weights, ratios = _smooth(terms, classes, spent, x, power)
    for _ in range(limits().sharing_newton):
        cost = spent / x
        cost /= cost.sum()
        mean = _summed(classes, weights[:, None] * ratios, len(x))
        gradient = mean - cost
        step = -_solved(weights, ratios, classes, mean, cost, power, gradient)
        promise = -float(gradient @ step)
        if promise < limits().sharing_still / power:
            break
        step *= min(1.0, LONGEST / float(np.abs(step).max()))
        for _ in range(20):
            trial = _smooth(terms, classes, spent, x * np.exp(step), power)
            if trial[0] <= value - 0.05 * float(-gradient @ step):
                break
            step = step / 3
        else:
            break
        x, (value, weights, ratios) = x * np.exp(step), trial
    return x


def _solved(
    weights: Array, ratios: Array, classes: Integers, mean: Array, cost: Array, power: float, gradient: Array
) -> Array:
    """Return H⁻¹·gradient, with H the Hessian of the smooth bound, or its diagonal for many classes."""
    count = len(mean) + 1
    if count > limits().sharing_classes:
        square = _summed(classes, weights[:, None] * ratios**2, len(mean))
        return np.asarray(gradient / (mean + cost + (power - 1) * (square - mean**2) + 1e-9))
    matter = weights > math.exp(-WINDOW) * weights.max()
    own, r = classes[matter], ratios[matter]
    pairs = own[:, :, None] * count + own[:, None, :]
    products = (weights[matter, None] * r)[:, :, None] * r[:, None, :]
    second = np.bincount(pairs.ravel(), products.ravel(), count**2).reshape(count, count)[:-1, :-1]
    H = (power - 1) * second - power * np.outer(mean, mean) - np.outer(cost, cost) + 1.0 / len(mean)
    H.flat[:: len(H) + 1] += mean + cost + 1e-9
    return np.asarray(np.linalg.solve(H, gradient))


def _summed(classes: Integers, terms: Array, count: int) -> Array:
    """Return the sum of the terms of every class."""
    return np.bincount(classes.ravel(), terms.ravel(), count + 1)[:-1].astype(float)


def _smooth(
    terms: Array, classes: Integers, spent: Array, x: Array, power: float
) -> tuple[float, Array, Array]:
    """Return the smooth bound, the weights of the queries in it, and the shares of their terms."""
    each = terms * np.append(x, 0.0)[classes]
    values = each.sum(axis=1)
    top = float(values.max())
    weights = (values / top) ** power
    total = float(weights.sum())
    value = np.log(top) + np.log(total) / power + np.log(float((spent / x).sum()))
    return float(value), weights / total, each / values[:, None]
