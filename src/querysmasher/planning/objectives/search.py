"""One search for all objectives: multipliers rise, plans follow, until the certificate is close enough.

For targets t > 0 and plans V of one cost, whose variances are convex in V,

    min_V max_q Var_q(V)/t_q²  =  max over λ ≥ 0, Σλ = 1, of min_V Σ_q λ_q Var_q(V)/t_q²,

and the least Σ w_q Var_q with all Var_q ≤ t_q² is the maximum over μ ≥ 0 of

    min_V Σ_q (w_q + μ_q/t_q²) Var_q(V) − Σ_q μ_q.

The planner solves these minima: they are mean errors with other weights. Its certified lower bound is a lower
bound on the optimum, whatever the multipliers. Their derivatives are Var_q/t_q², less one in the second case:
multipliers of queries that come out worse than others, or than their target, grow. With the strategies of
every plan, the budget is shared anew, which gives an upper bound and closes most of the gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, PlanError
from querysmasher.planning.candidates import Cluster, Planned, Unsplit, beside, merged_groups, without
from querysmasher.planning.centre import Centres
from querysmasher.planning.limits import limits
from querysmasher.planning.nothing import is_nothing_to_measure
from querysmasher.planning.objectives.joining import merged, spread
from querysmasher.planning.objectives.multipliers import (
    MOST_STEP,
    Multipliers,
    Scopes,
    best_sum,
    class_losses,
)
from querysmasher.planning.objectives.sharing import Sharing, with_noise
from querysmasher.planning.objectives.variances import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload

FLOOR, MOST_FLOOR = 1e-3, 0.03
"""The least multipliers, as fractions of their average: a plan says little about weightless queries."""

PRECISION = 0.5
"""Tolerance of the plans with other weights, in tolerances, if nothing is subtracted from their bounds."""

MOST_WEIGHT = 1e6
"""Maximum sum of the multipliers of targets, relative to the loss: beyond, the budget does not suffice."""

FIRST_SHARE = 0.1
"""The sum of the first multipliers of targets, relative to the loss."""


class Split(Protocol):
    """Plans a workload of which all groups are split, around the best centres or around given ones."""

    def __call__(self, asked: Workload, centres: Centres | None, tolerance: float, /) -> Plan: ...


Wholes = list[tuple[tuple[int, ...], Array | None]]
"""The groups that are measured together as they are, and what is subtracted from their queries."""


@dataclass(eq=False)
class Replan:
    """Plans with other weights; the first call decides which groups are measured as they are, not split.

    Later plans answer every group from its own measurement: that is what their certificates are about.
    """

    arranged: Callable[[Workload, Planned], Plan]
    planned: Callable[[Workload, Sequence[Unsplit]], Plan | PlanError]
    split: Split
    budget: Budget
    tolerance: float
    centres: Centres | None = None
    """The only centres to use, if any."""
    whole: Wholes | None = None

    def __call__(self, workload: Workload, precision: float = 1.0) -> Plan:
        """Plan to a fraction `precision` of the tolerance."""
        if self.whole is None:
            return self._first(workload)
        tolerance = self.tolerance * precision
        if not self.whole:
            return replace(self.split(workload, self.centres, tolerance), tolerance=self.tolerance)
        unsplit = [
            Cluster(places, merged, alpha).solved(tolerance, progress=False)
            for places, alpha in self.whole
            if (merged := merged_groups(workload, places, math.inf)) is not None
        ]
        rest = without(workload, unsplit)
        split = None if rest is None else self._split(rest, tolerance)
        return beside(split, unsplit, workload, self.budget, self.tolerance, combined=False)

    def _split(self, workload: Workload, tolerance: float) -> Plan | None:
        """Plan groups beside whole ones; return None if these ask for nothing that is not public."""
        try:
            return self.split(workload, self.centres, tolerance)
        except PlanError as error:
            if is_nothing_to_measure(error):
                return None
            raise

    def _first(self, workload: Workload) -> Plan:
        made: dict[int, Wholes] = {}
        plans: list[Plan | PlanError] = []

        def planned(unsplit: Sequence[Unsplit]) -> Plan | PlanError:
            plans.append(self.planned(workload, unsplit))
            made[id(plans[-1])] = [(own.places, own.alpha) for own in unsplit]
            return plans[-1]

        best = self.arranged(workload, planned)
        self.whole = made[id(best)]
        return best if self.centres is None else self(workload)


def gap_of(value: float, bound: float) -> float:
    """Return how far the root of a value may be above the least, as a fraction."""
    return max(0.0, math.sqrt(value / bound) - 1) if bound > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Trial:
    """A plan for some multipliers, its variances, and the loss of every class at σ² = 1."""

    plan: Plan
    multipliers: Multipliers
    table: VarianceTable
    losses: Array
    bound: float = 0.0


@dataclass(frozen=True, eq=False)
class Best:
    """A plan with the budget shared anew: what is to be small, and the multipliers of its strategies."""

    plan: Plan
    value: float
    multipliers: Multipliers


class Search:
    """The search for the least largest ratio of variance to target², or for the least mean within targets."""

    def __init__(self, workload: Workload, aims: Array, replan: Replan, *, mean: bool) -> None:
        """Take the target of every group; for a `mean`, infinite ones of groups without any."""
        self.asked, self.aims, self.replan, self.mean = workload, aims, replan, mean
        self.squares = np.where(np.isfinite(aims), aims, 1.0) ** 2
        self.goal = limits().objective_gap * replan.tolerance
        self.best: Best | None = None
        self.level = 1.0
        """The fraction of target² that multipliers aim at, where plans miss their targets by a hair."""
        self._bounds: dict[Hashable, float] = {}
        """The best lower bound of plans around each choice of centres."""
        self._floor, self._weight, self._missed = FLOOR, 0.0, math.inf
        self._use(merged(workload, aimed=True) if mean else workload)

    def _use(self, workload: Workload) -> None:
        closed = all(family.closed_form for group in workload for family in group.families)
        fine = self.mean or not closed or len(set(self.aims.tolist())) > 1
        self.workload, self.scopes = workload, Scopes.of(workload, fine=fine, added=self.mean)

    @property
    def gap(self) -> float:
        """How far the best plan is from the optimum around its centres, as a fraction of standard errors."""
        return math.inf if self.best is None else gap_of(self.best.value, self.bound)

    @property
    def bound(self) -> float:
        """The best lower bound around the centres of the best plan."""
        return 0.0 if self.best is None else self.bound_at(self.best.plan.centres)

    def bound_at(self, centres: Centres) -> float:
        """Return the best lower bound around some centres."""
        return self._bounds.get(centres, 0.0)

    def run(self, start: Multipliers | None = None) -> Best | None:
        """Return the best plan, or None if none meets all targets.

        The first plans choose centres for their multipliers; then those of the best plan stay: a bound holds
        around the same centres.
        """
        multipliers, centres = self._first(start), self.replan.centres
        narrowest, stalled, trial = math.inf, 0, None
        for step in range(limits().objective_steps):
            self.replan.centres = centres
            try:
                trial = self._tried(multipliers)
            except OutsideMeasuredSpaceError:  # queries of hardly any weight are lost in rounding errors
                if trial is None:
                    raise
                if self._floor >= MOST_FLOOR:
                    break
                self._floor *= 5
                multipliers = self._stepped(trial)
                continue
            self._keep(trial)
            if self.gap <= self.goal or self._weight > MOST_WEIGHT:
                break
            multipliers = self._stepped(trial)
            if centres is None:
                centres = None if step < limits().centre_steps else (self.best or trial).plan.centres
                continue
            progress = self._missed if self.best is None else self.gap
            stalled = 0 if progress < limits().objective_narrowing * narrowest else stalled + 1
            narrowest = min(progress, narrowest)
            if stalled < limits().objective_patience:
                continue
            finer = self.workload if self.mean else merged(self.workload)
            if finer is self.workload:
                break
            self._use(finer)
            even = Multipliers.even(finer, self.scopes, self._top.groups)
            multipliers, narrowest, stalled = spread(self._top, even), math.inf, 0
        return self.best

    def _first(self, start: Multipliers | None) -> Multipliers:
        """Return the multipliers to begin with: even ones, or those of groups with targets."""
        aimed = np.isfinite(self.aims)
        first = Multipliers.even(self.workload, self.scopes, np.where(aimed, 1 / aimed.sum(), 0.0))
        if start is not None:
            first = spread(start, first)
        if not self.mean:
            return first
        plan = self.replan(self.workload)
        first = replace(first, groups=first.groups * (FIRST_SHARE * plan.weighted_loss))
        table = VarianceTable(replace(plan, workload=self.workload), self.scopes.of_group)
        return self._of_best_sum(
            first, Trial(plan, first, table, class_losses(self.workload, table, self.scopes))
        )

    def _tried(self, multipliers: Multipliers) -> Trial:
        """Plan with some multipliers, and keep the bound that this proves."""
        asked = (multipliers.added if self.mean else multipliers.weighted)(self.squares)
        plan = self.replan(asked, PRECISION / (1 + self._weight))
        total = float(multipliers.groups.sum())
        bound = plan.weighted_loss / (1 + plan.gap) ** 2 - (total if self.mean else 0.0)
        if bound > self.bound_at(plan.centres):
            self._bounds[plan.centres], self._top = bound, multipliers
        with one_core():
            table = VarianceTable(replace(plan, workload=self.workload), self.scopes.of_group)
            losses = class_losses(self.workload, table, self.scopes)
        if self.mean:
            self._weight = total / float(losses @ table.variances)
        return Trial(plan, multipliers, table, losses, bound)

    def _keep(self, trial: Trial) -> None:
        """Share the budget of a plan anew, and keep it if it is the best."""
        table, cost = trial.table, trial.plan.budget.privacy_cost
        sharing = Sharing(table, self._of_entries(table), cost)
        with one_core():
            if self.mean:
                x = sharing.least_loss(trial.losses, self._weight)
                value = math.inf if x is None else float(trial.losses @ x)
                missed = 1.0 if x is not None else max(1.0, sharing.largest(table.variances))
                self.level = (1 - self.replan.tolerance / (2 + 2 * self._weight)) / missed
                self._missed = missed - 1
            else:
                enough = self._bounds[trial.plan.centres] * (1 + 0.8 * self.goal) ** 2
                x, value = sharing.least_largest(enough)
        if x is not None and (self.best is None or value < self.best.value):
            plan = with_noise(trial.plan, self.workload, table, trial.losses, x)
            self.best = Best(plan, value, trial.multipliers)

    def _of_entries(self, table: VarianceTable) -> Array:
        """Return the target of every entry of a table."""
        return np.array([self.aims[entry.members[0]] for entry in table.entries])

    def _stepped(self, trial: Trial) -> Multipliers:
        """Return the next multipliers: rows follow their expected variance, groups their largest one.

        A group whose expected variance is small may hold a query that is far too large, with a multiplier
        close to none: by the largest, such a group is not given up.
        """
        table, multipliers = trial.table, trial.multipliers
        weights = np.array(
            [(multipliers.groups / self.squares)[list(e.members)].sum() for e in table.entries]
        )
        by_group = np.ones(len(self.aims))
        for number, entry in enumerate(table.entries):
            if weights[number] > 0:
                largest = table.near_largest(number, table.variances, 0.0, 1)[0]
                by_group[list(entry.members)] = largest
        by_group = by_group / self.squares
        if not self.mean:
            by_group = by_group / float(multipliers.groups @ by_group)
        by_column = multipliers.by_column(table)
        by_row = multipliers.row_slopes(table, table.slopes(by_column, weights, table.variances))
        floor = self._floor * min(1.0, 3 / (1 + self._weight))
        moved = multipliers.stepped(by_group / self.level, by_row, floor)
        return self._of_best_sum(moved, trial)

    def _of_best_sum(self, multipliers: Multipliers, trial: Trial) -> Multipliers:
        """Return a multiple: one in all for the largest ratio, or that of the highest bound for targets."""
        table, groups = trial.table, multipliers.groups
        total, last = float(groups.sum()), float(trial.multipliers.groups.sum())
        if not self.mean:
            return replace(multipliers, groups=groups / total)
        if len(table.sets) == 1:  # there is nothing to share
            return multipliers
        weights = np.array([(groups / self.squares)[list(entry.members)].sum() for entry in table.entries])
        added = weights @ table.coefficients(multipliers.by_column(table)) / total
        best = best_sum(added, trial.losses, table, trial.plan.budget.privacy_cost)
        change = min(max(math.log(best / last) / 2, -MOST_STEP), MOST_STEP)
        return replace(multipliers, groups=groups * (last * math.exp(change) / total))
