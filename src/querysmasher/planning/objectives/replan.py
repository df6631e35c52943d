"""Plan a workload with any weights under one budget: the oracle that every objective asks.

The mean error is one plan. The other objectives change the weights of queries, and plan again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.planning.allocation import plan_around_best, plan_at
from querysmasher.planning.candidates import Cluster, Unsplit, beside, best_candidate, merged_groups, without
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.certificates import closely_bounded
from querysmasher.planning.checks import nothing_in
from querysmasher.planning.integer import refusal
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import Options
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload

Wholes = list[tuple[tuple[int, ...], Array | None]]
"""The groups that are measured whole together, and what is subtracted from their queries."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """A plan, and a lower bound on what it minimises, for every plan of its kind."""

    plan: Plan
    bound: float


P = TypeVar("P", bound=Bounded | None)


@dataclass(eq=False)
class Replan:
    """Plans with any weights; the first plan decides which groups are measured whole.

    In later plans, every group is answered from its own measurement: their certificates hold for that.
    """

    options: Options
    budget: Budget
    max_records: int
    insufficient: str = "refuse"
    """What to do if the budget does not suffice for the targets."""
    whole: Wholes | None = None

    def __call__(self, workload: Workload, centres: Centres | None = None, precision: float = 1.0) -> Plan:
        """Plan around given centres or the best ones, to a fraction `precision` of the tolerance."""
        if self.whole is None:
            plan = self.first(workload, centred=False)
            if centres is None:
                return plan
        tolerance = self.options.tolerance * precision
        unsplit = [
            Cluster.of(groups, merged, self.budget.unit, alpha).solved(tolerance, progress=False)
            for groups, alpha in self.whole or ()
            if (merged := merged_groups(workload, groups, self.budget.unit, math.inf)) is not None
        ]
        split = self._split(self._rest(workload, unsplit), centres, tolerance, alone=not unsplit)
        plan = beside(split, unsplit, workload, self.budget, self.options)
        return replace(plan, tolerance=self.options.tolerance)

    def certified(self, plan: Plan, close: float | None = None) -> Plan:
        """Return a plan with its closest certificate, unless its gap is at most `close` already."""
        return closely_bounded(plan, self.options.lines, limits().coupled_gap if close is None else close)

    def _rest(self, workload: Workload, unsplit: Sequence[Unsplit]) -> Workload | None:
        """Return the groups to split: None if there are none, or all follow from what is public."""
        rest, unit = without(workload, unsplit), self.budget.unit
        known = unsplit and rest is not None and unit.total_is_public and nothing_in(rest, unit)
        return None if known else rest

    def first(self, workload: Workload, *, centred: bool = True) -> Plan:
        """Plan with the best choice of groups that are measured whole.

        If `centred`, these may use the total measured by the other groups, and answers combine both. Later
        plans do neither.
        """
        planned = partial(self._beside_whole, workload)
        plan, clusters = best_candidate(workload, self.budget, self.options, planned, centred=centred)
        self.whole = [(cluster.groups, cluster.alpha) for cluster in clusters]
        return plan

    def _beside_whole(self, workload: Workload, unsplit: Sequence[Unsplit]) -> Plan | PlanError:
        """Plan with some groups whole; return a plan that can be measured, or why there is none."""
        rest, tolerance = self._rest(workload, unsplit), self.options.tolerance
        if unsplit and rest is not None and (nothing := nothing_in(rest, self.budget.unit)):
            return nothing

        def around(centres: Centres | None) -> Bounded:
            split = self._split(rest, centres, tolerance, alone=not unsplit)
            if split is not None and unsplit:
                positive = tuple(centre.positive() for centre in split.centres)
                if positive != split.centres:  # inner products of whole rows are means over centres
                    split = self._split(rest, positive, tolerance, alone=False)
            plan = beside(split, unsplit, workload, self.budget, self.options)
            return Bounded(plan, plan.certificate.bound)

        best = self.outcome(around)
        return best if isinstance(best, PlanError) else best.plan

    def _split(
        self, rest: Workload | None, centres: Centres | None, tolerance: float, *, alone: bool
    ) -> Plan | None:
        """Plan the rest with all groups split, around given centres or the best ones."""
        if rest is None:
            return None
        options = replace(self.options, tolerance=tolerance, alone=alone)
        if centres is None:
            return plan_around_best(rest, self.budget, options)
        return plan_at(centres, rest, self.budget, options)

    def measurable(self, make: Callable[[Centres | None], P]) -> P:
        """Return a plan around the best centres, or around uniform ones if it cannot be measured there."""
        best = self.outcome(make)
        if isinstance(best, PlanError):
            raise best
        return best

    def outcome(self, make: Callable[[Centres | None], P], centres: Centres | None = None) -> P | PlanError:
        """Return a plan that can be measured, around the best centres or uniform ones, or why none can."""
        best = make(centres)
        if best is None or (refused := refusal(best.plan, self.max_records)) is None:
            return best
        even = uniform(best.plan.workload.schema)  # whose rows are smaller integers
        if centres is not None or best.plan.centres == even:
            return refused
        return self.outcome(make, even)
