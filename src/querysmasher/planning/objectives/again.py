"""Plan the same queries again, with other weights: which groups are split is decided once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Protocol

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.planning.candidates import Cluster, Planned, Unsplit, beside, merged_groups, without
from querysmasher.planning.centre import Centres
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload


class Replan(Protocol):
    """Plans a workload with other weights, around the best centres or around given ones.

    The precision is a fraction of the tolerance of planning.
    """

    def __call__(
        self, workload: Workload, centres: Centres | None = None, precision: float = 1.0, /
    ) -> Plan: ...


class Fresh(Protocol):
    """Starts planning with other weights: the next plan decides anew which groups are split."""

    def __call__(self) -> Again: ...


class Split(Protocol):
    """Plans a workload of which all groups are split, around the best centres or around given ones."""

    def __call__(self, asked: Workload, centres: Centres | None, tolerance: float, /) -> Plan: ...


@dataclass(eq=False)
class Again:
    """Plans with other weights; the first call decides which groups are measured as they are, not split.

    Later plans answer every group from its own measurement: that is what their certificates are about.
    """

    arranged: Callable[[Workload, Planned], Plan]
    planned: Callable[[Workload, Sequence[Unsplit]], Plan | PlanError]
    split: Split
    budget: Budget
    tolerance: float
    fixed: Centres | None = None
    """The only centres to use, if any."""
    _unsplit: list[tuple[tuple[int, ...], Array | None]] | None = field(default=None, init=False)
    """The groups that are measured together, and what is subtracted from their queries."""

    def around(self, centres: Centres) -> Again:
        """Return what plans around these centres only, with the same groups split."""
        own = copy(self)
        own.fixed = centres
        return own

    def __call__(self, workload: Workload, centres: Centres | None = None, precision: float = 1.0, /) -> Plan:
        """Plan around the best centres, or around given ones; `precision` is a fraction of the tolerance."""
        if self._unsplit is None:
            return self._first(workload)
        tolerance = self.tolerance * precision
        if not self._unsplit:
            plan = self.split(workload, self.fixed or centres, tolerance)
            return replace(plan, tolerance=self.tolerance)
        unsplit = [
            Cluster(places, merged, alpha).solved(tolerance, progress=False)
            for places, alpha in self._unsplit
            if (merged := merged_groups(workload, places, math.inf)) is not None
        ]
        rest = without(workload, unsplit)
        split = None if rest is None else self.split(rest, self.fixed or centres, tolerance)
        return beside(split, unsplit, workload, self.budget, self.tolerance, combined=False)

    def _first(self, workload: Workload) -> Plan:
        made: dict[int, tuple[Plan | PlanError, list[tuple[tuple[int, ...], Array | None]]]] = {}

        def planned(unsplit: Sequence[Unsplit]) -> Plan | PlanError:
            plan = self.planned(workload, unsplit)
            made[id(plan)] = plan, [(own.places, own.alpha) for own in unsplit]
            return plan

        best = self.arranged(workload, planned)
        self._unsplit = made[id(best)][1]
        return best if self.fixed is None else self(workload)


def kind_of(plan: Plan) -> Hashable:
    """Return what the certificate of a plan depends on: its centres, and what is measured unsplit."""
    whole = [any(plan.solutions[n].strategy.whole for _, n in m.blocks) for m in plan.measured]
    if all(whole) and len(whole) == 1:
        return "whole"
    return plan.centres, tuple(m.attributes for m, own in zip(plan.measured, whole, strict=True) if own)
