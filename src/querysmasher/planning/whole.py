"""The variance of any query under a plan that measures one set of queries as they are, not split."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.cells import height
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.split import PlacedFamily
from querysmasher.planning.strategies import AxisRows, Strategy
from querysmasher.workload.groups import Group


class WholePredictor(Predictor):
    """Predicts variances from one whole measurement: its rows span what can be answered."""

    whole = True

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

    def check(self, group: Group) -> None:
        """Refuse a group that has queries outside the span of what is measured."""
        self._factors(group)

    def variances(self, group: Group) -> Array:
        """Return the variance of every query of the group, with an axis per family."""
        noise = math.fsum(m.variance for m in self.measured[self.attributes])
        return noise * self.strategy.variances(self._factors(group)).reshape(group.shape)

    def largest(self, group: Group) -> float:
        """Return the largest variance of the group's queries."""
        return float(self.variances(group).max())

    def total(self, group: Group) -> float:
        """Return the sum of the variances of the group's queries."""
        return float(self.variances(group).sum())

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
        """Return the group's families on the axes of the measured set, and ones on the others."""
        axis_of = {attribute: axis for axis, attribute in enumerate(self.attributes)}
        factors: list[AxisRows] = []
        spanning: list[AxisRows] = []
        for names, family in group.parts():
            places = self.schema.positions(names)
            if not set(places) <= set(axis_of):
                self._refuse(group)
            rows = PlacedFamily.on(places, family).tensor(weighted=False).reshape(family.rows, -1)
            axes = tuple(axis_of[p] for p in sorted(places))
            factors.append((axes, np.ascontiguousarray(rows)))
            spanning.append((axes, np.eye(family.cells)) if height(family) < family.rows else factors[-1])
        rest = sorted(set(axis_of.values()) - {a for axes, _ in factors for a in axes})
        if rest:
            cells = math.prod(self.strategy.shape[a] for a in rest)
            factors.append((tuple(rest), np.ones((1, cells))))
            spanning.append(factors[-1])
        if not self.strategy.contains(spanning):
            self._refuse(group)
        return factors

    def _refuse(self, group: Group) -> None:
        msg = (
            f"the queries on ({', '.join(group.attributes)}) cannot be answered: the plan measures other "
            "queries, from which they do not follow. Add these queries to the planned workload"
        )
        raise OutsideMeasuredSpaceError(msg)
