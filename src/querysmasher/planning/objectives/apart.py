"""Variances under a plan that measures some groups as they are: each from its own measurement, or combined.

If every group is answered from its own measurement, variances are sums over measurements, and certificates
hold. Combined by generalised least squares, every variance is a minimum of such sums over all estimators.
With the estimators that are best now held fixed, they are sums again: equal to the true variances under this
noise, and above them under any other. So shares that lower these sums lower the true variances too.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.limits import limits
from querysmasher.planning.measured import Measured
from querysmasher.planning.objectives.entry import Entry
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.planned import Planned
from querysmasher.workload.groups import Group


def is_mixed(plan: Planned) -> bool:
    """Return whether some groups are measured as they are, and others are not, or elsewhere."""
    return len(plan.measured) > 1 and bool(plan.whole)


def can_combine(plan: Planned) -> bool:
    """Return whether the estimators of all queries can be written out."""
    ranks = [s.strategy.rank for s in plan.solutions]
    widest = max(int(np.prod([ranks[number] for _, number in m.blocks])) for m in plan.measured)
    rows = [group.rows for group in plan.workload]
    return (
        max(rows) * widest <= limits().apart_entries
        and sum(rows) * len(plan.measured) <= limits().apart_entries
    )


class ApartTable(VarianceTable):
    """The variances if every group is answered from its own measurement."""

    def _predictor(self, plan: Planned) -> Estimator:
        self._strategies = [solution.strategy for solution in plan.solutions]
        self._schema, self._unit = plan.workload.schema, plan.budget.unit
        self._whole = {place: index for index, m in enumerate(plan.measured) for place in m.whole}
        self._measured = plan.measured
        self._places = {id(m): index for index, m in enumerate(plan.measured)}
        split = [(m,) for m in plan.measured if not m.whole]
        public = self._unit.total_is_public
        return Estimator.of(self._schema, plan.centres, self._strategies, split, public_total=public)

    def _classify(self, plan: Planned, like: list[list[int]] | None) -> None:
        super()._classify(plan, like)
        numbers = {index: number for number, own in enumerate(self.sets) for index in own}
        self._numbered = numbers
        self.class_of = {m.attributes: numbers[i] for i, m in enumerate(plan.measured) if not m.whole}

    def _kind(self, index: int) -> Hashable:
        return (index, self._whole[index]) if index in self._whole else None

    def _entry(self, group: Group, members: list[int], scopes: tuple[int, ...]) -> Entry:
        if members[0] not in self._whole:
            return super()._entry(group, members, scopes)
        own = self._own(self._measured[self._whole[members[0]]], group)
        squares = {
            self._numbered[self._places[id(one)]]: (image**2).sum(axis=1) for one, image in own.images(group)
        }
        return self._written_out(group, members, scopes, squares)

    def _own(self, measured: Measured, group: Group) -> Estimator:
        """Return what predicts variances from one whole measurement, and the total if queries are centred."""
        centres, public = self.estimator.centres, self._unit.total_is_public
        alone = Estimator.of(self._schema, centres, self._strategies, [(measured,)], public_total=public)
        try:
            alone.check(group)
        except OutsideMeasuredSpaceError:
            total = [tuple(own) for place, own in self.estimator.measured.items() if not place]
            both = [*total, (measured,)]
            return Estimator.of(self._schema, centres, self._strategies, both, public_total=public)
        return alone


class CombinedTable(VarianceTable):
    """The variances with the estimators that are best under the plan's noise, for any noise."""

    def _predictor(self, plan: Planned) -> Estimator:
        self._index = {id(m): index for index, m in enumerate(plan.measured)}
        return plan.estimator

    def _kind(self, index: int) -> Hashable:
        return index

    def _classify(self, plan: Planned, like: list[list[int]] | None) -> None:  # noqa: ARG002 - one per set
        self.is_linear = True
        self.class_of = {}
        self.sets = [[index] for index in range(len(plan.measured))]
        self.variances = np.array([m.variance for m in plan.measured])
        self.counts = np.ones(len(plan.measured))
        unit = plan.budget.unit
        self.changes = np.array(
            [unit.squared_change(total=not m.attributes) for m in plan.measured], dtype=float
        )

    def _entry(self, group: Group, members: list[int], scopes: tuple[int, ...]) -> Entry:
        squares = {
            self._index[id(measured)]: (image**2).sum(axis=1)
            for measured, image in self.estimator.images(group)
        }
        return self._written_out(group, members, scopes, squares)
