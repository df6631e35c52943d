"""Reallocate the budget with the strategies fixed: for the least largest error, or the mean within targets.

With x_k the noise variance of the attribute sets of class k, a query has the variance V = Σ_k a_k x_k
relative to its target², the loss is L = Σ_k ℓ_k x_k, and the cost is C = Σ_k s_k / x_k. For the cost B, the
problems are, as V·C does not change with the scale of x,

    min B·t + C  with  V_q ≤ t  for all queries,   and   min L  with  V_q ≤ 1  and  C = B.

Only queries near the largest matter: the largest of every entry join in turn. Their constraints are linear,
and a primal-dual interior-point method with predictor and corrector meets them (Nocedal and Wright, Numerical
Optimization, algorithm 14.3). A query has few terms, so that the Hessian is quick to add up. Any multipliers
λ ≥ 0 of queries prove a lower bound, which ends the search:

    max_q V_q ≥ (Σ_k √(s_k Σ_q λ_q a_qk))² / (B Σ λ_q),
    L ≥ (Σ_k √(s_k (ℓ_k + Σ_q λ_q a_qk)))² / B − Σ λ_q   if all V_q ≤ 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import itemgetter

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.objectives.variances import Integers, VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.planning.prices import within

MOST = 4
"""Maximum number of queries of an entry that join at a time."""

LOOSE = 1e4
"""Maximum factor by which the mean variance of queries without targets grows."""

PRECISION = 3e-4
"""Fraction of its lower bound by which a solution may exceed it."""


class Reallocation:
    """The best noise variances of a table's classes, for targets of its entries."""

    def __init__(self, table: VarianceTable, targets: Array, privacy_cost: float, by_column: Array) -> None:
        """Take the target of every entry, infinite if it has none, and the expectations of the columns.

        Expected variances count as queries: they must meet the targets too, and depend on all classes.
        """
        self.table, self.squares, self.cost = table, targets**2, privacy_cost
        self._most = table.coefficients(np.array([column.max() for column in table.columns]))
        """Upper bounds on the variances of every entry at σ² = 1 on one class: entries × classes."""
        expected = table.coefficients(by_column) @ table.variances
        loose = np.where(np.isfinite(targets), self.squares, LOOSE * expected)
        loose = np.where(loose > 0, loose, math.inf)  # zeros are met
        self._expected = table.expected_terms(by_column) / loose[:, None]

    def least_largest(self, most: float = math.inf) -> tuple[Array, float]:
        """Return the noise variances that minimise the largest V, and this V: infinite if above `most`."""
        x, known, bound = self.table.variances, -1, 0.0
        best = x, math.inf
        while known < len(self.table.near) and best[1] > bound * (1 + 2 * PRECISION):
            known = len(self.table.near)
            if len(x) > 1:
                x, bound = self._solved(x, None, most)
            if bound > most:
                return x, math.inf
            best = min(best, (x, self.largest(x)), key=itemgetter(1))
        return best

    def least_loss(self, losses: Array) -> Array | None:
        """Return the noise variances of least loss within all targets, or None if there are none.

        `losses` is the loss of every class at σ² = 1.
        """
        inner, largest = self.least_largest(1.0)
        if largest > 1:
            return None
        best, known, bound = inner, 0, 0.0
        while (
            known < len(self.table.near)
            and min(len(inner) - 1, 1 - largest) > 1e-5
            and losses @ best > bound * (1 + 2 * PRECISION)
        ):
            known = len(self.table.near)
            x, bound = self._solved(self._scaled(best**0.9 * inner**0.1), losses)
            beyond = self.largest(x)  # V·C is log-convex in the logarithms of x
            part = 1.0 if beyond <= 1 else 1 / (1 - math.log(beyond) / math.log(largest))
            best = min(best, self._scaled(inner ** (1 - part) * x**part), key=losses.__matmul__)
        return best

    def _scaled(self, x: Array) -> Array:
        return np.asarray(x * (float((self.table.spent / x).sum()) / self.cost))

    def largest(self, x: Array) -> float:
        """Return the largest V at noise variances `x`; the largest queries of entries join."""
        bounds, best = self._most @ x / self.squares, 0.0
        for number in map(int, np.argsort(-bounds)):
            if bounds[number] < best:
                break
            values, queries = self.table.peaks(number, x, best * self.squares[number], MOST)
            best = max(best, float(values.max(initial=0.0)) / self.squares[number])
            self.table.near.update(dict.fromkeys(map(tuple, queries.tolist())))
        return float(best)

    def _solved(self, x: Array, losses: Array | None, most: float = math.inf) -> tuple[Array, float]:
        """Return the best noise variances for the queries that joined, and the bound that these prove."""
        rows, classes = self._expected, self.table.classes
        if self.table.near:
            joined = np.array(list(self.table.near))
            rows = np.concatenate([rows, self.table.terms(joined) / self.squares[joined[:, :1]]])
            classes = np.concatenate([classes, classes[joined[:, 0]]])
        point = _InteriorPoint(rows, classes, self.table.spent, self.cost, losses, x)
        for _ in range(30):  # about 10 suffice, unless a point circles around the optimum
            if point.is_close() or point.bound > most:
                break
            point.advance()
        return self._scaled(point.x), point.bound


class _InteriorPoint:
    """An interior point of one of the problems in the header: x, slacks and multipliers of all queries.

    Steps are relative to x. The last unknown is t, or the multiplier of the cost, its price.
    """

    def __init__(
        self, rows: Array, classes: Integers, spent: Array, budget: float, losses: Array | None, x: Array
    ) -> None:
        self.x, self.spent, self.budget, self.classes, self.free = x, spent, budget, classes, losses is None
        top = float((rows * np.append(x, 0.0)[classes]).sum(axis=1).max())
        self.unit = top if self.free else 1.0  # so that t begins near one, where it ends
        self.rows, self.losses = rows / self.unit, np.zeros(len(x)) if losses is None else losses
        self.slack = (1.1 if self.free else 1 - 1e-7) - self._each().sum(axis=1)
        self.price = 1.0 if self.free else float(self.losses @ x) / budget
        total = (1.0 if self.free else 0.1) * self.price * budget
        self.multipliers = total / self.slack / (1 / self.slack).sum()
        self.bound = 0.0
        self.upper = np.triu_indices(classes.shape[1])
        first, second = self.upper
        self.pairs = (classes[:, first] * (len(x) + 1) + classes[:, second]).ravel()

    def _each(self) -> Array:
        return np.asarray(self.rows * np.append(self.x, 0.0)[self.classes])

    def _summed(self, weights: Array) -> Array:
        """Return the weighted sum of queries' terms, by class."""
        products = (weights[:, None] * self._each()).ravel()
        return np.bincount(self.classes.ravel(), products, len(self.x) + 1)[:-1].astype(float)

    def is_close(self) -> bool:
        """Raise the bound; return whether the point is close to it."""
        total, spending = float(self.multipliers.sum()), float((self.spent / self.x).sum()) / self.budget
        losses = self.losses * self.x + self._summed(self.multipliers)
        square = float(np.sqrt(self.spent / self.x * losses).sum()) ** 2 / self.budget
        self.bound = max(self.bound, self.unit * (square / total if self.free else square - total))
        value = float(self._each().sum(axis=1).max()) if self.free else float(self.losses @ self.x)
        exact = self.free or spending < 1 + PRECISION**2
        return exact and self.unit * value * spending <= self.bound * (1 + PRECISION)

    def advance(self) -> None:
        """Take one step of predictor and corrector towards the optimum."""
        count, slack, multipliers = len(self.x) + 1, self.slack, self.multipliers
        each, cost, weights = self._each(), self.spent / self.x, multipliers / slack
        first, second = self.upper
        products = (weights[:, None] * each)[:, first] * each[:, second] / (1 + (first == second))
        H = np.bincount(self.pairs, products.ravel(), count**2).astype(float).reshape(count, count)
        H += H.T
        H.flat[: -1 : count + 1] += 2 * self.price * cost
        H[:-1, -1] = H[-1, :-1] = -(self._summed(weights) if self.free else cost)
        H[-1, -1] = weights.sum() if self.free else 0.0

        def step_to(products: Array) -> tuple[Array, Array, Array, float]:
            """Return steps towards slack × multiplier = products, and the part that stays positive."""
            aim = products / slack
            last = aim.sum() - self.budget if self.free else self.budget - cost.sum()
            slopes = self.price * cost - self.losses * self.x - self._summed(aim)
            step = np.linalg.solve(H, np.append(slopes, last))
            ahead = step[-1] * self.free - (np.append(step[:-1], 0.0)[self.classes] * each).sum(axis=1)
            turn = aim - multipliers - weights * ahead
            largest = max(np.abs(step[:-1]).max(), (-ahead / slack).max(), (-turn / multipliers).max())
            largest = largest if self.free else max(largest, -step[-1] / self.price)
            return step, ahead, turn, min(1.0, 1 / float(largest))

        _, ahead, turn, part = step_to(np.zeros(len(slack)))
        mean = float(slack @ multipliers) / len(slack)
        after = float((slack + part * ahead) @ (multipliers + part * turn)) / len(slack)
        least = PRECISION**1.5 * self.price * self.budget / len(slack)  # x may need more steps than slacks
        step, ahead, turn, part = step_to(max(mean * (after / mean) ** 3, least) - ahead * turn)
        part *= 0.95
        self.x = self.x * (1 + part * step[:-1])
        self.slack, self.multipliers = slack + part * ahead, multipliers + part * turn
        self.price += 0.0 if self.free else part * float(step[-1])


def with_noise(plan: Plan, table: VarianceTable, losses: Array, x: Array) -> Plan:
    """Return the plan with noise variances `x` and losses at σ² = 1 of the table's classes."""
    spent = float((table.spent / x).sum()) / plan.budget.privacy_cost
    x = x * max(1.0, spent * (1 + 1e-13))  # whatever the rounding error
    measured = list(plan.measured)
    for variance, loss, indexes in zip(x.tolist(), losses.tolist(), table.sets, strict=True):
        for i in indexes:
            root = math.sqrt(loss / len(indexes))
            measured[i] = replace(measured[i], variance=variance, root_loss=root)
    if plan.budget.unit.total_is_public:  # the worst pair may be another now
        strategies = [s.strategy for s in plan.solutions]
        measured = within(measured, strategies, plan.workload.schema, plan.budget)
    loss = math.fsum(m.variance * m.root_loss**2 for m in measured)
    plan = replace(plan, measured=tuple(measured), weighted_loss=loss)
    if not plan.whole or len(plan.measured) == 1:
        return plan
    each = (plan.estimator.variances(group).ravel() @ group.query_weights() for group in plan.workload)
    combined = math.fsum(map(float, each))  # of combined answers
    root = math.sqrt(combined / loss)
    measured = [replace(m, root_loss=m.root_loss * root) for m in measured]
    return replace(plan, measured=tuple(measured), weighted_loss=combined)
