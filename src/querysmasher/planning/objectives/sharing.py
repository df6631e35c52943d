"""Share the budget anew, with the strategies fixed: for the least largest error, or the mean within targets.

With x_k the noise variance of the attribute sets of class k, a query has the variance V = Σ_k a_k x_k
relative to its target², the loss is L = Σ_k ℓ_k x_k, and the cost is C = Σ_k s_k / x_k. Their logarithms are
convex in log x, and V·C and L·C do not change with the scale of x. A query keeps to its target at the cost B
if V·C ≤ B. So both problems are the minimum without constraints of

    a log(L·C) + (w/τ) log(a + Σ_q (V_q C / B)^τ)

for growing τ: with a = 0 and w = 1 a smooth bound of the largest V·C, with a = 1 the loss and a penalty that
vanishes where all targets are met, if w exceeds the sum of their multipliers. Newton's method finds it. Only
queries near the largest matter: they join as they come close. A query has few terms, so that the Hessian is
quick to add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.variances import Integers, VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload

LONGEST = 0.5
"""Maximum change of log x in one step."""

CLOSE, FIRST = 0.25, 16
"""At first, up to so many queries of an entry join that are within this fraction of the largest."""

FIRST_POWER, GROWTH = 100.0, 4.0
"""The first τ, and its growth."""

MOST_WEIGHT = 1e6
"""Maximum weight of the penalty, and of multipliers of targets, relative to the loss: beyond, it is lost in
rounding errors."""


class Sharing:
    """The best noise variances of a table's classes, for targets of its entries."""

    def __init__(self, table: VarianceTable, targets: Array, privacy_cost: float) -> None:
        """Take the target of every entry, infinite for those without any."""
        self.table, self.squares, self.cost = table, targets**2, privacy_cost
        self._rows: list[Array] = []
        """The terms of queries that joined, relative to target², entry by entry."""
        self._classes: list[Integers] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._last: tuple[Array, Array] | None = None

    def least_largest(self, enough: float = 0.0) -> tuple[Array, float]:
        """Return the noise variances of the least largest V, and this; it need not be below `enough`."""
        x = self.table.variances
        best = x, self._join(x, CLOSE, FIRST)
        power = FIRST_POWER
        for _ in range(limits().sharing_rounds):
            if best[1] <= enough or len(x) == 1:
                break
            x = self._scaled(self._lowered(x, power, None, 1.0))
            before, largest = best[1], self._join(x, 3 / power, 1)
            best = (x, largest) if largest < before else best
            if largest < before * (1 + 1 / power):
                power *= GROWTH
            if power > limits().last_power:
                break
        return best[0], self.largest(best[0])

    def least_loss(self, losses: Array, weight: float) -> Array | None:
        """Return the noise variances of least loss within all targets, or None if none are found.

        `losses` is the loss of every class at σ² = 1, `weight` an estimate of the sum of the targets'
        multipliers relative to the loss.
        """
        x, room, power = self.table.variances, self.cost, FIRST_POWER
        if len(x) == 1:
            return x if self.largest(x) <= 1 else None
        weight = min(2 * weight + 0.5, MOST_WEIGHT)
        self._join(x, CLOSE, FIRST)
        for _ in range(limits().sharing_rounds):
            x = self._scaled(self._lowered(x, power, losses, weight, room))
            self._join(x, 3 / power, 1)
            largest = self.largest(x)
            if largest > 1 + 3 / power:
                weight = min(5 * weight, MOST_WEIGHT)
            if power < max(limits().last_power, 2_000 * weight):
                power *= GROWTH
            elif largest <= 1:
                return x
            else:
                room /= largest * (1 + 1e-7)
        return None

    def largest(self, x: Array) -> float:
        """Return the largest V at noise variances `x`."""
        bounds, best = self.table.bounds(x) / self.squares, 0.0
        for number in map(int, np.argsort(-bounds)):
            if bounds[number] <= best:
                break
            best = max(best, float(self.table.largest(number, x)[0] / self.squares[number]))
        return best

    def _scaled(self, x: Array) -> Array:
        return np.asarray(x * (float((self.table.spent / x).sum()) / self.cost))

    def _join(self, x: Array, close: float, most: int) -> float:
        """Return the largest V; up to `most` queries of an entry within the fraction `close` of it join.

        An entry is searched only if it can come that close: variances grow at most by the largest factor by
        which the noise of a class grows.
        """
        bounds = self.table.bounds(x) / self.squares
        if self._last is not None:
            bounds = np.minimum(bounds, self._last[1] * self.table.growth(x / self._last[0]))
        values, best = bounds.copy(), 0.0
        for number in map(int, np.argsort(-bounds)):
            least = best * (1 - close)
            if bounds[number] < least:
                break
            square = self.squares[number]
            value, terms = self.table.near_largest(number, x, least * square, most)
            values[number] = value / square
            best = max(best, float(values[number]))
            if values[number] >= least:
                self._add(number, terms / square)
        self._last = x, values
        return best

    def _add(self, number: int, terms: Array) -> None:
        fresh = [row for row in terms if (number, row.tobytes()) not in self._seen]
        if fresh:
            self._seen |= {(number, row.tobytes()) for row in fresh}
            wide = np.zeros((len(fresh), self.table.classes.shape[1]))
            wide[:, : terms.shape[1]] = fresh
            self._rows.append(wide)
            self._classes.append(np.broadcast_to(self.table.classes[number], wide.shape))

    def _lowered(
        self, x: Array, power: float, losses: Array | None, weight: float, budget: float = 1.0
    ) -> Array:
        """Return noise variances at which the sum of loss and penalty is least."""
        self._rows, self._classes = [np.concatenate(self._rows)], [np.concatenate(self._classes)]
        smooth = _Smooth(self._rows[0], self._classes[0], self.table.spent, losses, power, weight, budget)
        point = smooth.at(x)
        for _ in range(limits().newton_steps):
            step = -np.linalg.solve(smooth.hessian(point), point.gradient)
            promise = -float(point.gradient @ step)
            if promise < 1e-3 / power:
                break
            step *= min(1.0, LONGEST / float(np.abs(step).max()))
            for _ in range(20):
                trial = smooth.at(point.x * np.exp(step))
                if trial.value <= point.value + 0.05 * float(point.gradient @ step):
                    break
                step = step / 3
            else:
                break
            point = trial
        return point.x


@dataclass(frozen=True, eq=False)
class _Point:
    """The function at a point: its value and gradient, and what its Hessian is made of."""

    x: Array
    value: float
    gradient: Array
    loss: Array
    """The shares of the classes in the loss; zero without any."""
    cost: Array
    """Their shares in the cost."""
    queries: Array
    """The weights of the queries, which sum to one."""
    terms: Array
    """The shares of their terms."""
    mean: Array
    penalty: float
    """The derivative of the penalty by the logarithm of the largest variance."""
    part: float
    """The part of the penalty that is due to queries rather than to the constant."""


@dataclass(frozen=True, eq=False)
class _Smooth:
    """The smooth function of log x in the header."""

    rows: Array
    classes: Integers
    spent: Array
    losses: Array | None
    power: float
    weight: float
    budget: float

    def at(self, x: Array) -> _Point:
        """Return the function at a point."""
        each = self.rows * np.append(x, 0.0)[self.classes]
        values = each.sum(axis=1)
        cost = self.spent / x
        total, top = float(cost.sum()), float(values.max())
        queries = (values / top) ** self.power
        over = self.power * math.log(top * total / self.budget) + math.log(float(queries.sum()))
        value, part, loss = over, 1.0, np.zeros(len(x))
        if self.losses is not None:
            value = max(over, 0.0) + math.log1p(math.exp(-abs(over)))
            part = math.exp(over - value)
            loss = self.losses * x
        value *= self.weight / self.power
        if self.losses is not None:
            value += math.log(float(loss.sum()) * total)
            loss = loss / loss.sum()
        cost, queries, terms = cost / total, queries / queries.sum(), each / values[:, None]
        products = (queries[:, None] * terms).ravel()
        mean = np.bincount(self.classes.ravel(), products, len(x) + 1)[:-1].astype(float)
        gradient = loss - float(self.losses is not None) * cost + self.weight * part * (mean - cost)
        return _Point(x, value, gradient, loss, cost, queries, terms, mean, self.weight * part, part)

    def hessian(self, point: _Point) -> Array:
        """Return the Hessian, made regular where it is flat: along a change of scale."""
        count = len(point.x) + 1
        matter = point.queries > 1e-12 * point.queries.max()
        own, q = self.classes[matter], point.terms[matter]
        pairs = own[:, :, None] * count + own[:, None, :]
        products = (point.queries[matter, None] * q)[:, :, None] * q[:, None, :]
        second = np.bincount(pairs.ravel(), products.ravel(), count**2).reshape(count, count)[:-1, :-1]
        slope, power = point.mean - point.cost, self.power
        H = point.penalty * ((power - 1) * second - power * np.outer(point.mean, point.mean))
        H += point.penalty * power * (1 - point.part) * np.outer(slope, slope)
        costs = float(self.losses is not None) + point.penalty
        H -= np.outer(point.loss, point.loss) + costs * np.outer(point.cost, point.cost) - 1.0 / len(point.x)
        H.flat[::count] += point.loss + costs * point.cost + point.penalty * point.mean + 1e-9
        H.flat[::count] += 1e-15 * float(np.trace(H))  # of a weight that dwarfs the loss
        return np.asarray(H)


def with_noise(plan: Plan, workload: Workload, table: VarianceTable, losses: Array, x: Array) -> Plan:
    """Return the plan for `workload` with noise variances `x` and losses at σ² = 1 of the table's classes."""
    variances, by_set = np.empty(len(plan.measured)), np.empty(len(plan.measured))
    for number, own in enumerate(table.sets):
        variances[own], by_set[own] = x[number], losses[number] / len(own)
    unit, cost = plan.budget.unit, plan.budget.privacy_cost
    factors = np.array([unit.change(m.attributes) for m in plan.measured], dtype=float)
    while (spent := math.fsum(factors / variances)) > cost:  # by rounding error
        variances *= max(spent / cost, 1 + 1e-15)
    measured = tuple(
        replace(m, variance=variance, whole=tuple(p for p in m.whole if p < len(workload.groups)))
        for m, variance in zip(plan.measured, variances.tolist(), strict=True)
    )
    found = replace(plan, workload=workload, measured=measured)
    total = float(by_set @ variances)
    if plan.whole and len(measured) > 1:  # of combined answers
        combined = math.fsum(
            float(found.estimator.variances(group).ravel() @ group.query_weights()) for group in workload
        )
        by_set, total = by_set * (combined / total), combined
    roots = np.sqrt(by_set).tolist()
    measured = tuple(replace(m, root_loss=root) for m, root in zip(measured, roots, strict=True))
    return replace(
        found, measured=measured, weighted_loss=math.fsum(m.variance * m.root_loss**2 for m in measured)
    )
