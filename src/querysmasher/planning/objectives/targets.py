"""The least mean error within targets: multipliers of queries that miss their targets add to the weights.

For multipliers μ ≥ 0, Σ_q (w_q + μ_q) Var_q − Σ_q μ_q t_q² is at most the mean loss of every plan that keeps
to its targets. So a certified bound on the loss of the weights w + μ, less Σ μ t², is a lower bound.
Multipliers of queries above their target grow, others shrink; with the strategies of each plan, the budget is
shared anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.again import Again
from querysmasher.planning.objectives.apart import ApartTable, is_mixed
from querysmasher.planning.objectives.ascent import Height, raised
from querysmasher.planning.objectives.capping import capped
from querysmasher.planning.objectives.combining import combined
from querysmasher.planning.objectives.finish import best_sum, class_losses, with_noise
from querysmasher.planning.objectives.found import Found, gap_of, weighted
from querysmasher.planning.objectives.merging import merged_aimed
from querysmasher.planning.objectives.multipliers import FLOOR, MOST_STEP, Multipliers, Scopes
from querysmasher.planning.objectives.paces import Paces
from querysmasher.planning.objectives.sharing import all_largest, largest_ratio
from querysmasher.planning.objectives.spreading import plus, spread_rows
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload

RATE, RATE_GROWTH, MOST_RATE = 2.0, 1.25, 4.0
"""The power of the ratio of variance to target² by which multipliers of rows grow: at first, its growth, and
its maximum; those of groups grow by the first."""

FIRST_SHARE = 0.1
"""The sum of the first multipliers, relative to the loss."""

MOST_CHANGE, MOST_WEIGHT = 4.0, 1e6
"""Maximum change of the logarithm of the sum of the multipliers in one step, and its maximum relative to the
loss: beyond, the budget does not suffice."""

MET = 1 + 5e-7
"""A target is met if no variance exceeds its square by more than this factor."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A plan for some multipliers: the lower bound that it proves, its table, and the loss of every class."""

    multipliers: Multipliers
    plan: Plan
    bound: float
    table: VarianceTable
    losses: Array

    @property
    def is_rigid(self) -> bool:
        """Whether there is a single class, so that the budget cannot be shared anew."""
        return len(self.table.sets) == 1


class CappedSearch:
    """The search for the multipliers of targets, around fixed centres."""

    def __init__(self, workload: Workload, again: Again) -> None:
        """Take a workload of which some groups have targets."""
        self.workload = merged_aimed(workload)
        self.again = again
        self.goal = 3 * again.tolerance
        self.aims = np.array([math.inf if g.target is None else g.target.std for g in workload])
        self.scopes = Scopes.of(self.workload, own=True, single=True)
        self.best: Plan | None = None
        self.bound = 0.0
        self._table: VarianceTable | None = None
        self._tried_last: Multipliers | None = None
        self._loss, self._weight = math.inf, 0.0
        self._precision = 1.0
        self._level = 1.0
        """The fraction of target² that an ascent aims at."""
        self._paces = Paces()

    def run(
        self, start: Multipliers | None = None, most: float = math.inf, worst: Multipliers | None = None
    ) -> Found | None:
        """Return the best plan that meets all targets, unless its loss exceeds `most` for sure.

        The search starts from multipliers of the same search, or of the least largest ratio of queries with
        targets, or from the plan that ignores the targets; these do not go on if they meet no targets, which
        is close to the least budget. It ends where queries of hardly any weight are lost in rounding errors.
        """
        try:
            return self._searched(start, most, worst)
        except OutsideMeasuredSpaceError:
            return None if self.best is None or self._tried_last is None else self._found(self._tried_last)

    def _searched(self, start: Multipliers | None, most: float, worst: Multipliers | None) -> Found | None:
        """Return what `run` does."""
        first = None if worst is None else self._following(worst)
        multipliers = start or first or self._first()
        last, rate = 0.0, RATE
        for step in range(limits().target_steps):
            trial = self._tried(multipliers)
            if self.bound > most or self._weight > MOST_WEIGHT:
                return None
            settled = 0 < trial.bound < last * limits().target_settled
            rate = min(MOST_RATE, rate * RATE_GROWTH) if trial.bound >= last else rate / 2
            last = max(trial.bound, last)
            if (step == limits().target_steps - 1 or settled) and self._shared(trial):
                return self._found(multipliers)
            multipliers = self._stepped(trial, rate)
            if trial.is_rigid:
                break
        ascents = limits().target_ascents if self._gap > limits().ascent_gap * self.goal else 0
        if self.best is None and worst is None:
            if not trial.is_rigid:
                return None
            ascents = 1
        for _ in range(ascents):
            gap = self._gap
            trial = self._tried(self._raised(multipliers))
            if self.bound > most:
                return None
            if self._met(trial, first) or (
                self.best is not None and self._gap > gap * limits().ascent_narrowing
            ):
                break
            multipliers = self._stepped(trial, RATE)  # none stays at zero
        return None if self.best is None else self._found(trial.multipliers)

    def _tried(self, multipliers: Multipliers) -> Trial:
        """Plan with some multipliers."""
        plan = self.again(weighted(multipliers), None, self._precision)
        bound = plan.weighted_loss / (1 + plan.gap) ** 2 - float(multipliers.groups.sum())
        self.bound = max(bound, self.bound)
        table, losses = self._tabulated(plan)
        self._loss = float(losses @ table.variances)
        self._weight = float(multipliers.groups.sum()) / self._loss
        self._precision = min(
            1.0, max(limits().target_precision / (1 + self._weight), limits().target_finest)
        )
        self._tried_last = multipliers
        return Trial(multipliers, plan, bound, table, losses)

    def _raised(self, multipliers: Multipliers) -> Multipliers:
        """Return multipliers of a higher bound; no bound may be known yet."""
        return raised(
            multipliers, self._height, self.bound or self._loss, limits().ascent_steps, limits().ascent_gain
        )

    def _height(self, multipliers: Multipliers) -> Height:
        """Return the bound at some multipliers, and its derivatives; none if these are far too large."""
        nowhere = Height(-math.inf, np.zeros(len(self.aims)), [np.zeros(len(u)) for u in multipliers.rows])
        if not float(multipliers.groups.sum()) <= MOST_WEIGHT * self._loss:  # the budget does not suffice
            return nowhere
        try:
            trial = self._tried(multipliers)
        except OutsideMeasuredSpaceError:  # queries of hardly any weight are lost in rounding errors
            return nowhere
        by_column = multipliers.by_column(trial.table)
        expected = trial.table.expected(by_column, trial.table.variances)
        groups, weights = np.zeros(len(self.aims)), np.zeros(len(trial.table.entries))
        for number, entry in enumerate(trial.table.entries):
            aim = self.aims[entry.members[0]]
            groups[list(entry.members)] = expected[number] / aim**2 - self._level
            weights[number] = multipliers.groups[list(entry.members)].sum() / aim**2
        slopes = trial.table.slopes(by_column, weights, trial.table.variances)
        bound = trial.bound + (1 - self._level) * float(multipliers.groups.sum())
        return Height(bound, groups, multipliers.row_slopes(trial.table, slopes), self._level)

    def _first(self) -> Multipliers:
        """Return the first multipliers."""
        plan = self.again(self.workload)
        self.bound = plan.weighted_loss / (1 + plan.gap) ** 2
        aimed = np.isfinite(self.aims)
        groups = np.where(aimed, FIRST_SHARE * plan.weighted_loss / aimed.sum(), 0.0)
        even = replace(Multipliers.even(self.workload, self.scopes), groups=groups)
        return self._stepped(Trial(even, plan, self.bound, *self._tabulated(plan)), RATE)

    def _following(self, worst: Multipliers) -> Multipliers:
        """Return the first multipliers if those of the least largest ratio are known."""
        first = self._first()
        total, rows, groups = float(first.groups.sum()), list(first.rows), first.groups.copy()
        aimed = np.flatnonzero(np.isfinite(self.aims)).tolist()
        for place, group, own, amount in zip(
            aimed, worst.workload, worst.scopes.of_group, worst.groups.tolist(), strict=True
        ):
            groups[place] = amount * total
            spread = spread_rows(group, [worst.rows[s] for s in own], self.workload.groups[place])
            for s, u in zip(self.scopes.of_group[place], spread, strict=True):
                rows[s] = rows[s] if u is None or self.scopes.scopes[s].fixed else u
        return replace(first, groups=groups, rows=tuple(rows))

    def _tabulated(self, plan: Plan) -> tuple[VarianceTable, Array]:
        """Return the table of a plan, and the loss of every class at σ² = 1."""
        own = replace(plan, workload=self.workload)
        kind = ApartTable if is_mixed(plan) else VarianceTable
        self._table = kind(own, self.scopes.of_group, self._table)
        return self._table, class_losses(self.workload, self._table, self.scopes)

    @property
    def _gap(self) -> float:
        return math.inf if self.best is None else gap_of(self.best.weighted_loss, self.bound)

    def _found(self, multipliers: Multipliers) -> Found:
        assert self.best is not None  # noqa: S101 - only called if a plan was found
        plan = self._combined(self.best) if is_mixed(self.best) else self.best
        return Found(plan, self.bound, multipliers, self._weight)

    def _combined(self, plan: Plan) -> Plan:
        """Share the budget for combined answers, where some groups are measured as they are."""

        def value(table: VarianceTable, x: Array) -> float:
            if largest_ratio(table, self._targets(table), x) > MET:
                return math.inf
            return float(class_losses(self.workload, table, self.scopes) @ x)

        def share(table: VarianceTable, losses: Array) -> Array | None:
            return capped(table, losses, self._targets(table), plan.budget.privacy_cost, self._weight)

        return combined(plan, self.workload, self.scopes, value, share)

    def _met(self, trial: Trial, worst: Multipliers | None) -> bool:
        """Share the budget anew, also with the strategies of larger multipliers if these miss their targets.

        Those of the least largest ratio are added, or multiples of the same ones if they are unknown.
        """
        start, before = trial.multipliers, self.best
        if trial.is_rigid:
            trial = self._tightened(trial)
        for part in limits().target_multiples:
            if self._shared(trial) or self.best is not before:
                return self._gap <= self.goal
            trial = self._tried(plus(start, worst or start, part))
        return self._shared(trial)

    def _tightened(self, trial: Trial) -> Trial:
        """Return a trial that meets all targets, if that takes tighter ones by a hair."""
        for _ in range(limits().target_tightenings):
            missed = largest_ratio(trial.table, self._targets(trial.table), trial.table.variances)
            if missed <= 1:
                break
            self._level /= missed**2
            trial = self._tried(self._raised(trial.multipliers))
        self._level = 1.0
        return trial

    def _shared(self, trial: Trial) -> bool:
        """Share the budget anew, keep the best plan that meets all targets, and return whether it will do."""
        table, targets = trial.table, self._targets(trial.table)
        with one_core():
            x = capped(table, trial.losses, targets, trial.plan.budget.privacy_cost, self._weight)
        if x is not None and largest_ratio(table, targets, x) <= MET:
            found = with_noise(trial.plan, self.workload, table, self.scopes, x)
            if self.best is None or found.weighted_loss < self.best.weighted_loss:
                self.best = found
        return self._gap <= self.goal

    def _targets(self, table: VarianceTable) -> Array:
        return np.array([self.aims[entry.members[0]] for entry in table.entries])

    def _stepped(self, trial: Trial, rate: float) -> Multipliers:
        """Return the next multipliers: larger for queries with larger ratios, and of the best sum."""
        table, multipliers = trial.table, trial.multipliers
        by_group, largest = np.ones(len(self.aims)), all_largest(table, table.variances)
        weights = np.zeros(len(table.entries))
        for number, entry in enumerate(table.entries):
            aim = self.aims[entry.members[0]]
            if math.isfinite(aim):
                by_group[list(entry.members)] = largest[number] / aim**2
                weights[number] = multipliers.groups[list(entry.members)].sum() / aim**2
        slopes = table.slopes(multipliers.by_column(table), weights, table.variances)
        self._paces.rate = rate
        rows = multipliers.stepped(
            by_group, table, slopes, self._paces, 0.0, FLOOR * min(1.0, 3 / (1 + self._weight))
        ).rows
        steps = np.clip(RATE * np.log(np.maximum(by_group, 1e-300)), -MOST_STEP, MOST_STEP)
        moved = replace(multipliers, groups=multipliers.groups * np.exp(steps), rows=rows)
        if trial.is_rigid:
            return moved
        total = float(multipliers.groups.sum())
        change = math.log(best_sum(moved, self.aims, table, trial.losses) / total)
        best = total * math.exp(min(max(change, -MOST_CHANGE), MOST_CHANGE))
        return replace(moved, groups=moved.groups * (best / float(moved.groups.sum())))
