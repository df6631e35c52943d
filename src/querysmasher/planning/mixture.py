"""Whole measurements beside split ones: the share of the budget that each kind gets.

The noise variances within each kind keep their ratios. All answers are combined by generalised least squares
(`combination`), so the loss depends on the share of the whole measurements through small matrices only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.limits import limits
from querysmasher.planning.measured import Measured
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.privacy.budget import Budget
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Unsplit:
    """Groups of a workload that are measured together, as they are."""

    places: tuple[int, ...]
    """Indexes of the groups in the workload."""
    attributes: tuple[int, ...]
    """Indexes of their attributes in the schema, increasing."""
    solution: Solution
    rows: Array
    """The groups' queries, or rows with the same Gram matrix, on the distinct columns of their cells."""
    weights: Array
    """The weight of each of these."""
    alpha: Array | None = None
    """The multiple of the total that was subtracted from every query, if the rows are centred."""

    @property
    def total_loss(self) -> float:
        """The loss per variance of the total, from which queries that are centred follow."""
        return 0.0 if self.alpha is None else float(self.weights @ self.alpha**2)

    @cached_property
    def queries(self) -> Array:
        """The rows as combinations of the strategy's."""
        return self.solution.strategy.combinations(self.rows)


GOLDEN = (math.sqrt(5) - 1) / 2

LEAST, MOST = -4.0, 4.0
"""Range of the logarithm of the ratio of both shares."""


def beside(
    split: Plan | None,
    unsplit: Sequence[Unsplit],
    workload: Workload,
    budget: Budget,
    tolerance: float,
    *,
    combined: bool = True,
) -> Plan:
    """Return a plan that measures some groups as they are, beside the plan of all others.

    Unless `combined`, loss and shares are those of answering every group from its own measurement.
    """
    roots = [math.sqrt(budget.unit.squared_change()) * own.solution.reached for own in unsplit]
    bounds = [math.sqrt(budget.unit.squared_change()) * own.solution.bound for own in unsplit]
    solutions = [] if split is None else list(split.solutions)
    measured: tuple[Measured, ...] = ()
    lost = math.sqrt(sum(own.total_loss for own in unsplit))
    change = math.sqrt(budget.unit.squared_change(total=True))
    if split is not None:
        known, root = _with_total(split, lost, change)
        roots.append(root)
        bounds.append(root / (1 + split.gap))
        measured = rescaled(known, sum(roots) / root)
    elif lost * change:
        roots.append(lost * change)
        bounds.append(roots[-1])
        measured = (Measured((), (), sum(roots) * change / lost / budget.privacy_cost, lost),)
    for own, root in zip(unsplit, roots, strict=False):
        blocks = ((tuple(range(len(own.attributes))), len(solutions)),)
        solutions.append(own.solution)
        variance = sum(roots) / root * budget.unit.squared_change() / budget.privacy_cost
        measured += (Measured(own.attributes, blocks, variance, own.solution.reached, own.places),)
    plan = Plan(
        workload,
        budget,
        uniform(workload.schema) if split is None else split.centres,
        tuple(solutions),
        measured,
        weighted_loss=sum(roots) ** 2 / budget.privacy_cost,
        gap=max(0.0, sum(roots) / sum(bounds) - 1),
        centering="optimized",
        tolerance=tolerance,
        stopped_early=split is not None and split.stopped_early,
    )
    if len(roots) == 1 or not combined:
        return plan
    if split is None:
        return _with_loss(plan, _loss(plan))
    return _shared(plan, split, unsplit)


def _with_total(split: Plan, lost: float, change: float) -> tuple[tuple[Measured, ...], float]:
    """Return what a plan measures if the total matters this much more, and the root of its loss."""
    root = math.sqrt(split.weighted_loss * split.budget.privacy_cost)
    if not lost * change:
        return split.measured, root
    ((place, total),) = ((i, m) for i, m in enumerate(split.measured) if not m.attributes)
    own = math.hypot(total.root_loss, lost)
    measured = list(split.measured)
    measured[place] = replace(total, root_loss=own, variance=total.variance * total.root_loss / own)
    more = root + change * (own - total.root_loss)
    return rescaled(measured, more / root), more


def _with_loss(plan: Plan, loss: float) -> Plan:
    """Return the plan with the loss of the combined answers."""
    gap = max(0.0, math.sqrt(loss / plan.weighted_loss) * (1 + plan.gap) - 1)
    return replace(plan, weighted_loss=loss, gap=gap)


def _loss(plan: Plan) -> float:
    """Return the weighted loss of the combined answers, query by query."""
    variances = ((group, plan.estimator.variances(group)) for group in plan.workload)
    return math.fsum(float(group.query_weights() @ own.ravel()) for group, own in variances)


def _shared(plan: Plan, split: Plan, unsplit: Sequence[Unsplit]) -> Plan:
    """Return the plan with the best shares of the budget, and the loss of the combined answers."""
    count = len(plan.measured) - len(unsplit)
    residual, whole = plan.measured[:count], plan.measured[count:]
    mixture = Mixture.of(plan, split.workload.groups, unsplit)
    share = math.fsum(plan.budget.unit.squared_change() / m.variance for m in whole)
    loss, of_residual, of_whole = mixture.shared(share / plan.budget.privacy_cost)
    measured = rescaled(residual, of_residual) + rescaled(whole, of_whole)
    return _with_loss(replace(plan, measured=measured), loss)


@dataclass(frozen=True, eq=False)
class Mixture:
    """The loss of a workload, as a function of the noise of residual and of whole measurements."""

    estimator: Estimator
    base: float
    """The loss of the groups that are split, from what residual measurements know."""
    gram: Array
    """The sum of weight × (c outer c) over their queries."""
    queries: Array
    """The other queries, as combinations of the whole rows and of the total."""
    weights: Array
    alpha: Array
    """The multiples of the total."""
    covariances: Array
    """Those of the total with the whole rows."""
    variance: float
    """That of the total."""

    @classmethod
    def of(cls, plan: Plan, split: Sequence[Group], unsplit: Sequence[Unsplit]) -> Mixture:
        """Return the mixture of groups that are split and others that are not."""
        count = len(plan.measured) - len(unsplit)
        strategies = [solution.strategy for solution in plan.solutions]
        estimator = Estimator.of(
            plan.workload.schema,
            plan.centres,
            strategies,
            [(m,) for m in plan.measured],
            public_total=plan.budget.unit.total_is_public,
        )
        rows = estimator.whole_rows
        gram = np.zeros((rows.count, rows.count))
        for group in split if rows.corrects_known else ():
            gram += estimator.known_gram(group)
        total = Group((), ())
        variance = float(estimator.residual.variances(total, known=True))
        lost = sum(own.total_loss for own in unsplit)
        base = math.fsum(m.variance * m.root_loss**2 for m in plan.measured[:count]) - lost * variance
        queries = np.zeros((sum(len(own.queries) for own in unsplit), rows.count))
        start = stop = 0
        for own in unsplit:
            height, width = own.queries.shape
            queries[start : start + height, stop : stop + width] = own.queries
            start, stop = start + height, stop + width
        alpha = [np.zeros(len(own.rows)) if own.alpha is None else own.alpha for own in unsplit]
        return cls(
            estimator,
            base,
            gram,
            queries,
            np.concatenate([own.weights for own in unsplit]),
            np.concatenate(alpha),
            rows.known(total),
            variance,
        )

    def loss(self, residual: float = 1.0, whole: float = 1.0) -> float:
        """Return the weighted loss if the noise variances were these multiples of theirs."""
        weights = self.estimator.whole_rows.weights_at(residual, whole)
        gain = np.einsum("ir,ij,jr->", weights.root, self.gram, weights.root, optimize=True)
        loss = residual * self.base - residual**2 * float(gain)
        known = residual * (
            self.queries @ self.estimator.whole_rows.spread + np.outer(self.alpha, self.covariances)
        )
        variances = np.einsum("ij,ij->i", known, self.queries)
        variances += residual * self.alpha * (self.queries @ self.covariances + self.alpha * self.variance)
        change = weights.change(known, self.queries @ self.estimator.whole_rows.gram)
        return loss + float(self.weights @ (variances + change))

    def shared(self, share: float) -> tuple[float, float, float]:
        """Return the least loss, and both multiples of the noise variances that reach it.

        `share` is the budget share of the whole measurements at the variances they have now.
        """

        def at(ratio: float) -> tuple[float, float, float]:
            own = 1 / (1 + math.exp(-ratio))
            multiples = (1 - share) / (1 - own), share / own
            return self.loss(*multiples), *multiples

        now = math.log(share / (1 - share))
        found = _minimum(at, max(now + LEAST, -12.0), min(now + MOST, 12.0))
        return min(found, (self.loss(), 1.0, 1.0))


def _minimum(
    function: Callable[[float], tuple[float, float, float]], low: float, high: float
) -> tuple[float, float, float]:
    """Return the least value found by golden-section search."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(limits().mixture_steps):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return min(at_left, at_right)


def rescaled(measured: Sequence[Measured], factor: float) -> tuple[Measured, ...]:
    """Return the measurements with a multiple of their noise variances."""
    return tuple(replace(m, variance=m.variance * factor) for m in measured)
