"""The least largest standard error, relative to targets, by plans with other weights.

For scales t > 0 and plans V of one cost, whose variances are convex in V,

    min_V max_q Var_q(V)/t_q²  =  max over λ ≥ 0, Σλ = 1, of F(λ),   F(λ) = min_V Σ_q λ_q Var_q(V)/t_q².

F(λ) is what the planner solves with the weights λ_q/t_q². Its certified lower bound is therefore a lower
bound on the best worst case, whatever λ; the largest Var_q/t_q² of a plan is an upper bound. The derivative
of F is Var_q/t_q²: multipliers of queries that come out worse than average grow, and the next plan follows.
After every plan the budget is shared anew with the strategies fixed, which closes most of the gap.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import Centres
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.again import Replan, kind_of
from querysmasher.planning.objectives.apart import ApartTable, is_mixed
from querysmasher.planning.objectives.found import gap_of
from querysmasher.planning.objectives.merging import merged, merged_few
from querysmasher.planning.objectives.multipliers import FLOOR, Multipliers, Scopes
from querysmasher.planning.objectives.paces import Paces
from querysmasher.planning.objectives.sharing import Shares, all_largest, share
from querysmasher.planning.objectives.spreading import spread
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload

FIRST_RATE, RATE_GROWTH, MOST_RATE = 3.0, 1.25, 6.0
"""The power of the ratio by which the multipliers of rows grow at least: at first, its growth, and its
maximum."""

LEAST_RATE = 1.5
"""The maximum is halved down to this if the largest variance does not fall: a row that is measured by itself
oscillates at a power of 4, while 2 is exact for it."""

GROUP_RATE = 2.5
"""Maximum of the same for groups, where 2 is exact if every group has a set of its own."""

LEFT, CLOSER = 0.2, 0.6
"""Before that, the budget is shared anew for the best plan if this promises the gap that is wanted: sharing
leaves the first fraction of a gap, until more is known. The gap of a plan of a lower bound than one for which
it was shared is at most the second fraction of that one's."""

FIRST_FLOOR, MOST_FLOOR = 6e-3, 0.03
"""The least multipliers, as fractions of the average: at first if not all queries are products, at most."""

FAR, FLOOR_GROWTH = 1.03, 3.0
"""If the largest variance exceeds the bound by this factor, strategies neglect queries of hardly any weight:
the least multipliers grow by the other factor."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A plan for some multipliers: its table, its best shares, and the lower bound that it proves."""

    plan: Plan
    table: VarianceTable
    multipliers: Multipliers
    bound: float
    """A lower bound of the least largest ratio of variance to target², around the plan's centres."""
    before: Array
    """The largest variance of every entry of the table, before the budget is shared anew."""
    rough: float
    """The largest ratio of variance to target² before that."""
    shares: Shares | None = None

    @property
    def largest(self) -> float:
        """The largest ratio of variance to target² with the best shares."""
        return math.inf if self.shares is None else self.shares.largest


class Search:
    """The search for the multipliers at which the largest ratio is least."""

    def __init__(self, workload: Workload, aims: Array, replan: Replan, tolerance: float) -> None:
        """Take the target of every group, and how to plan with other weights."""
        self.workload = workload
        self.aims = aims
        self.replan = replan
        self.tolerance = tolerance
        self.best: Trial | None = None
        self._closest: Trial | None = None
        """The best trial before its budget is shared anew, unless that is done."""
        self._left = LEFT
        self._precision = 1.0
        self.bounds: dict[Hashable, float] = {}
        """The best lower bound of plans of each kind that was tried: around the same centres, for one."""
        self._tops: dict[Hashable, Multipliers] = {}
        """The multipliers of these bounds."""
        self._table: VarianceTable | None = None
        self._paces = Paces()
        self._differ = len(set(aims.tolist())) > 1
        predicates = any(not f.closed_form for group in workload for f in group.families)
        self._own = self._differ or predicates
        self._floor = FIRST_FLOOR if predicates else FLOOR
        self._most_floor = MOST_FLOOR

    @property
    def gap(self) -> float:
        """How far the best plan is from the optimum around its centres, as a fraction of standard errors."""
        if self.best is None or self.best.shares is None:
            return math.inf
        return gap_of(self.best.largest, self.bounds[kind_of(self.best.plan)])

    def run(self) -> Trial:
        """Return the best trial."""
        self._search(self._even(), None)
        if self.gap > self.tolerance * limits().worst_gaps[-1][1]:
            public = self._kept.plan.budget.unit.total_is_public
            finer = merged_few(self.workload, public_total=public)
            if finer is not self.workload or self._floor > FIRST_FLOOR:
                self._search_finer(finer)
        return self._kept

    def _search_finer(self, workload: Workload) -> None:
        """Go on around the best centres, with families merged and with the least floor under multipliers."""
        top, centres = self._tops[kind_of(self._kept.plan)], self._kept.plan.centres
        self.workload, self._floor, self._most_floor = workload, FLOOR, FLOOR
        self._table, self._paces, self._closest = None, Paces(), None
        start = spread(top, workload, self._even().scopes).floored()  # products may be far below
        self._search(start, centres, limits().worst_finer_steps)

    def _search(self, multipliers: Multipliers, centres: Centres | None, steps: int | None = None) -> None:
        """Search from some multipliers, around given centres or the best ones."""
        rate, last, stalled, most, lowest = FIRST_RATE, 0.0, 0, MOST_RATE, math.inf
        first, trial = self.best is None, None
        for step in range(steps or limits().worst_steps + limits().worst_last_steps):
            if step == limits().worst_steps:
                centres = self._kept.plan.centres
            goal = self.tolerance * max(width for first, width in limits().worst_gaps if step >= first)
            if self.gap <= goal:
                break
            final = step >= limits().worst_steps - 1
            try:
                trial = self.tried(multipliers, centres, math.inf if final else last, goal)
            except OutsideMeasuredSpaceError:  # queries of hardly any weight are lost in rounding errors
                if trial is None:
                    raise
                if self._floor < MOST_FLOOR and not final:
                    self._floor = min(FLOOR_GROWTH * self._floor, MOST_FLOOR)
                    multipliers = self._stepped(trial, rate)
                    continue
                self._keep(self._shared(trial, goal, trial.bound))
                break
            self._keep(trial)
            if self.gap > goal:
                self._share_closest(trial, goal)
            if self.gap <= goal:
                break
            if trial.shares is not None:
                if trial.largest > FAR * trial.bound:
                    self._floor = min(FLOOR_GROWTH * self._floor, self._most_floor)
                stalled = 0 if trial.largest < lowest * (1 - goal / 5) else stalled + 1
                lowest = min(trial.largest, lowest)
                if stalled >= limits().worst_patience:
                    if kind_of(trial.plan) == kind_of(self._kept.plan):
                        break
                    centres, stalled = self._kept.plan.centres, 0
                most = max(most / 2, LEAST_RATE) if stalled else most
            rate = min(most, rate * RATE_GROWTH) if trial.bound >= last else rate / 2
            last = max(trial.bound, last)
            with one_core():
                multipliers = self._stepped(trial, rate)
            if step == 0 and first and self._refined(trial):
                multipliers = self._even()

    @property
    def _kept(self) -> Trial:
        assert self.best is not None  # noqa: S101 - asked after the budget was shared
        return self.best

    def _even(self) -> Multipliers:
        return Multipliers.even(self.workload, Scopes.of(self.workload, own=self._own))

    def _refined(self, trial: Trial) -> bool:
        """Give queries that predicates are split beside multipliers of their own; return whether any changed.

        Where predicates are measured as they are, the others are like a workload without any.
        """
        if is_mixed(trial.plan):
            changed = self._own != self._differ
            self._own = self._differ
        else:
            workload = merged(self.workload, trial.table)
            changed = workload is not self.workload
            self.workload = workload
        if changed:
            self._table, self._paces = None, Paces()
        return changed

    def tried(self, multipliers: Multipliers, centres: Centres | None, last: float, goal: float) -> Trial:
        """Plan for some multipliers; share the budget anew unless the bound rose steeply from `last`."""
        plan = self.replan(multipliers.weighted(self.aims), centres, self._precision)
        if plan.gap > 0 and not plan.whole:
            wanted = self._precision * limits().worst_precision * self.tolerance / plan.gap
            self._precision = min(max(1.0, wanted), limits().worst_roughest)
        bound = plan.weighted_loss / (1 + plan.gap) ** 2
        own = replace(plan, workload=self.workload)
        kind = ApartTable if is_mixed(plan) else VarianceTable
        with one_core():
            table = kind(own, multipliers.scopes.of_group, self._table)
            largest = all_largest(table, table.variances)
        self._table = table
        rough = float((largest / self.of_entries(table) ** 2).max())
        trial = Trial(plan, table, multipliers, bound, largest, rough)
        return self._shared(trial, goal, bound) if bound < last * limits().worst_settled else trial

    def _shared(self, trial: Trial, goal: float, bound: float) -> Trial:
        """Return a trial whose budget is shared anew, until it is close to a bound."""
        enough = bound * (1 + 0.8 * goal) ** 2
        table, cost = trial.table, trial.plan.budget.privacy_cost
        with one_core():
            return replace(trial, shares=share(table, self.of_entries(table), cost, enough))

    def _share_closest(self, trial: Trial, goal: float) -> None:
        """Share the budget of the best trial so far anew, if that promises to close the gap."""
        closest, kind = self._closest, kind_of(trial.plan)
        if trial.shares is None and (closest is None or trial.rough < closest.rough):
            closest = trial
        if closest is not None and kind_of(closest.plan) == kind:
            bound = self.bounds[kind]
            gap = gap_of(closest.rough, bound)
            best = self.best
            if best is None or closest.bound > best.bound:
                least = math.inf
            else:
                least = CLOSER * gap_of(best.rough, bound)
            if gap < least and self._left * gap <= goal:
                shared = self._shared(closest, goal, bound)
                self._keep(shared)
                self._left = gap_of(shared.largest, bound) / max(goal, gap)
                closest = None
        self._closest = closest

    def of_entries(self, table: VarianceTable) -> Array:
        """Return the target of every entry of a table."""
        return np.array([self.aims[entry.members[0]] for entry in table.entries])

    def weights(self, multipliers: Multipliers, table: VarianceTable) -> Array:
        """Return the weight of every entry: the sum of its groups' multipliers, relative to target²."""
        own = multipliers.groups / self.aims**2
        return np.array([own[list(entry.members)].sum() for entry in table.entries])

    def _keep(self, trial: Trial) -> None:
        """Remember the best plan, and the best bound of each kind."""
        kind = kind_of(trial.plan)
        if trial.bound > self.bounds.get(kind, 0.0):
            self.bounds[kind], self._tops[kind] = trial.bound, trial.multipliers
        if trial.shares is not None and (self.best is None or trial.largest < self.best.largest):
            self.best = trial

    def _stepped(self, trial: Trial, rate: float) -> Multipliers:
        """Return the next multipliers: rows follow their expected variance, groups their largest one.

        A group whose expected variance is small may hold a query that is far too large, with a multiplier
        close to none: by the largest, such a group is not given up.
        """
        table, multipliers = trial.table, trial.multipliers
        by_group = np.empty(len(self.aims))
        for value, entry in zip(trial.before, table.entries, strict=True):
            by_group[list(entry.members)] = value
        by_column = multipliers.by_column(table)
        slopes = table.slopes(by_column, self.weights(multipliers, table), table.variances)
        self._paces.rate = rate
        group_rate = min(rate, GROUP_RATE)
        return multipliers.stepped(
            by_group / self.aims**2,
            table,
            slopes,
            self._paces,
            group_rate,
            floor=self._floor,
            group_floor=self._floor,
        )
