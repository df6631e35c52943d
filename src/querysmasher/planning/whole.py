"""The variance of any query under a plan that measures one set of queries as they are, not split."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.cells import height
from querysmasher.planning.limits import limits
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.split import PlacedFamily
from querysmasher.planning.strategies import AxisRows, Strategy
from querysmasher.workload.groups import Group


class QueryByQuery(Predictor):
    """Predicts the variance of every query, and takes the largest and the sum from these."""

    is_split = False

    def largest(self, group: Group) -> float:
        """Return the largest variance of the group's queries."""
        return float(self.variances(group).max())

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries."""
        return float(self.variances(group).sum())


class WholePredictor(QueryByQuery):
    """Predicts variances from one whole measurement: its rows span what can be answered."""

    kind = "whole"

    @property
    def attributes(self) -> tuple[int, ...]:
        """The attributes that are measured."""
        (attributes,) = self.measured
        return attributes

    @property
    def strategy(self) -> Strategy:
        """The strategy that is measured."""
        ((_, number),) = self.measured[self.attributes][0].blocks
        return self.strategies[number]

    def prepare(self, groups: Iterable[Group]) -> None:
        """Compute variances of several groups together: each reads all that is measured otherwise."""
        new = {
            _key(group): group
            for group in groups
            if group.rows <= limits().kept_queries and _is_written_out(group)
        }
        new = {key: group for key, group in new.items() if key not in self._known and self._covers(group)}
        every = self.strategy.variances_if_contained(self._axis_rows(group) for group in new.values())
        self._known |= {key: own for key, own in zip(new, every, strict=True) if own is not None}

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside the span of what is measured."""
        self._factors(group)

    def variances(self, group: Group) -> Array:
        """Return the variance of every query of the group, with an axis per family."""
        noise = math.fsum(m.variance for m in self.measured[self.attributes])
        known = self._known.get(_key(group))
        own = self.strategy.variances(self._factors(group)) if known is None else known
        return noise * own.reshape(group.shape)

    def images(
        self,
        group: Group,
        only: Collection[tuple[int, ...]] | None = None,  # noqa: ARG002 - there is only one
    ) -> Iterator[tuple[Measured, Array]]:
        """Return q B† for every query of the group, as rows."""
        blocks = self.measured[self.attributes][0].blocks
        image = self._image(self._factors(group), blocks, group).reshape(group.rows, -1)
        for measured in self.measured[self.attributes]:
            yield measured, image

    def _factors(self, group: Group) -> list[AxisRows]:
        """Return the group's families on the axes of the measured set, if it can be answered."""
        if not self._covers(group):
            self._refuse(group)
        factors = self._axis_rows(group)
        if _key(group) in self._known:
            return factors
        spanning = [
            (axes, np.eye(family.cells)) if height(family) < family.rows else (axes, rows)
            for (axes, rows), family in zip(factors, group.families, strict=False)
        ]
        if not self.strategy.contains(spanning + factors[len(spanning) :]):
            self._refuse(group)
        return factors

    def _covers(self, group: Group) -> bool:
        return set(self.schema.positions(group.attributes)) <= set(self.attributes)

    def _axis_rows(self, group: Group) -> list[AxisRows]:
        """Return the group's families on the axes of the measured set, and ones on the others."""
        axis_of = {attribute: axis for axis, attribute in enumerate(self.attributes)}
        factors: list[AxisRows] = []
        for names, family in group.parts():
            places = self.schema.positions(names)
            rows = PlacedFamily.on(places, family).tensor(weighted=False).reshape(family.rows, -1)
            factors.append((tuple(axis_of[p] for p in sorted(places)), np.ascontiguousarray(rows)))
        rest = sorted(set(axis_of.values()) - {a for axes, _ in factors for a in axes})
        if rest:
            cells = math.prod(self.strategy.shape[a] for a in rest)
            factors.append((tuple(rest), np.ones((1, cells))))
        return factors

    def _refuse(self, group: Group) -> None:
        msg = (
            f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan measures other "
            "queries, from which they do not follow. Add these queries to the planned workload"
        )
        raise OutsideMeasuredSpaceError(msg)


def _key(group: Group) -> Hashable:
    return group.attributes, tuple(family.key for family in group.families)


def _is_written_out(group: Group) -> bool:
    """Return whether all families have as many rows as queries."""
    return all(height(family) == family.rows for family in group.families)
