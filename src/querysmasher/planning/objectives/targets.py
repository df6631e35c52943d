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
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.objectives.again import Replan, kind_of
from querysmasher.planning.objectives.apart import ApartTable, is_mixed
from querysmasher.planning.objectives.capping import capped
from querysmasher.planning.objectives.combining import combined
from querysmasher.planning.objectives.finish import class_losses, with_noise
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes
from querysmasher.planning.objectives.sharing import largest_ratio
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload

STEPS, LAST = 18, 6
"""Maximum number of plans, and the number of last ones after which the budget is shared anew in any case."""

SEARCHED = (3, 7, 11, 14)
"""The steps after which centres are searched anew while no plan meets all targets."""

RATE = 2.0
"""The power of the ratio of variance to target² by which multipliers grow."""

HASTE = 3.0
"""The power of the largest ratio by which all grow in addition: a tight budget needs large multipliers."""

CLOSE_HASTE, MOST_HASTE = 0.5, 0.7
"""The same close to the least budget, where errors hardly respond to multipliers, and its maximum effect."""

FIRST_SHARE = 0.1
"""The sum of the first multipliers, relative to the loss."""

MET = 1 + 5e-7
"""A target is met if no variance exceeds its square by more than this factor."""

EAGER = 1.004
"""The budget is shared anew once the bound changes by less than this factor."""


@dataclass(frozen=True, eq=False)
class Found:
    """A plan that meets all targets, and a lower bound on the loss of every plan of its kind that does."""

    plan: Plan
    bound: float

    @property
    def gap(self) -> float:
        """How far the weighted RMSE may be above the least, as a fraction."""
        return max(0.0, math.sqrt(self.plan.weighted_loss / self.bound) - 1) if self.bound > 0 else math.inf


class CappedSearch:
    """The search for the multipliers of targets."""

    def __init__(self, workload: Workload, replan: Replan, tolerance: float) -> None:
        """Take a workload of which some groups have targets."""
        self.workload = workload
        self.replan = replan
        self.goal = 3 * tolerance
        self.aims = np.array([math.inf if g.target is None else g.target.std for g in workload])
        self.scopes = Scopes.of(workload, own=True, single=True)
        self.best: Plan | None = None
        self.bounds: dict[object, float] = {}
        self._table: VarianceTable | None = None
        self._haste = 0.0
        self._weight = 0.0
        """An estimate of the sum of all multipliers relative to the loss."""

    def run(self, first: Plan, share: float = FIRST_SHARE) -> Found | None:
        """Return the best plan that meets all targets, starting from the plan that ignores them.

        `share` is the sum of the first multipliers, relative to the loss.
        """
        aimed = np.isfinite(self.aims)
        self._haste = CLOSE_HASTE * math.sqrt(share / FIRST_SHARE) if share > FIRST_SHARE else 0.0
        start = np.where(aimed, share * first.weighted_loss / aimed.sum(), 0.0)
        multipliers = replace(Multipliers.even(self.workload, self.scopes), groups=start)
        centres: Centres | None = first.centres
        even = uniform(self.workload.schema)
        self.bounds[kind_of(first)] = first.weighted_loss / (1 + first.gap) ** 2
        last, moved = 0.0, first.centres == even
        for step in range(STEPS):
            plan = self.replan(self._weighted(multipliers), centres)
            bound = plan.weighted_loss / (1 + plan.gap) ** 2 - float(multipliers.groups.sum())
            self.bounds[kind_of(plan)] = max(bound, self.bounds.get(kind_of(plan), 0.0))
            own = replace(plan, workload=self.workload)
            kind = ApartTable if is_mixed(plan) else VarianceTable
            table = self._table = kind(own, self.scopes.of_group, self._table)
            settled = 0 < bound < last * EAGER
            last, centres = max(bound, last), plan.centres
            if step >= STEPS - LAST or settled:
                losses = class_losses(self.workload, table, self.scopes)
                self._weight = float(multipliers.groups.sum()) / float(losses @ table.variances)
                found = self._shared(plan, table)
                if found is not None and found.gap <= self.goal:
                    if moved:
                        break
                    last, centres, moved = math.inf, None, True  # the best ones for these multipliers
            if step in SEARCHED and self.best is None and first.centres != even:
                centres = None  # a tight budget needs others
            multipliers = self._stepped(multipliers, table)
        best = self._found()
        return self._combined(best) if best is not None and is_mixed(best.plan) else best

    def _found(self) -> Found | None:
        return None if self.best is None else Found(self.best, self.bounds[kind_of(self.best)])

    def _combined(self, found: Found) -> Found:
        """Share the budget for combined answers, where some groups are measured as they are."""
        cost = found.plan.budget.privacy_cost

        def value(table: VarianceTable, x: Array) -> float:
            if largest_ratio(table, self._targets(table), x) > MET:
                return math.inf
            return float(class_losses(self.workload, table, self.scopes) @ x)

        def share(table: VarianceTable, losses: Array) -> Array | None:
            return capped(table, losses, self._targets(table), cost, self._weight)

        return replace(found, plan=combined(found.plan, self.workload, self.scopes, value, share))

    def _weighted(self, multipliers: Multipliers) -> Workload:
        """Return the workload, with all weights that queries have and those that their targets add."""
        return multipliers.added(np.where(np.isfinite(self.aims), self.aims, 1.0))

    def _shared(self, plan: Plan, table: VarianceTable) -> Found | None:
        """Return the plan with the budget shared anew, if it meets all targets; keep the best that does."""
        losses = class_losses(self.workload, table, self.scopes)
        with one_core():
            x = capped(table, losses, self._targets(table), plan.budget.privacy_cost, self._weight)
        if x is None or largest_ratio(table, self._targets(table), x) > MET:
            return None
        found = with_noise(plan, self.workload, table, self.scopes, x)
        if self.best is None or found.weighted_loss < self.best.weighted_loss:
            self.best = found
        return Found(found, self.bounds[kind_of(found)])

    def _targets(self, table: VarianceTable) -> Array:
        return np.array([self.aims[entry.members[0]] for entry in table.entries])

    def _stepped(self, multipliers: Multipliers, table: VarianceTable) -> Multipliers:
        by_group = np.ones(len(self.aims))
        weights = np.zeros(len(table.entries))
        for number, entry in enumerate(table.entries):
            aim = self.aims[entry.members[0]]
            if math.isfinite(aim):
                value = table.largest(number, table.variances, rough=True)[0] / aim**2
                by_group[list(entry.members)] = value
                weights[number] = multipliers.groups[list(entry.members)].sum() / aim**2
        slopes = table.slopes(multipliers.by_column(table), weights, table.variances)
        rows = multipliers.stepped(by_group, table, slopes, RATE, 0.0).rows
        most = math.log(by_group[np.isfinite(self.aims)].max())
        haste = float(np.clip(self._haste * most, -MOST_HASTE, MOST_HASTE)) if self._haste else 0.0
        steps = RATE * np.log(np.maximum(by_group, 1e-300)) + (haste or HASTE * max(0.0, most))
        steps = np.clip(steps, -2.0, 2.0)
        return replace(multipliers, groups=multipliers.groups * np.exp(steps), rows=rows)
