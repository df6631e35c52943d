"""What residual measurements know of queries that they do not measure completely."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.measured import Measured
from querysmasher.planning.prediction import Predictor
from querysmasher.planning.strategies import AxisRows
from querysmasher.planning.tied import Share
from querysmasher.workload.groups import Group


class KnownPredictor(Predictor):
    """Predicts the known part of queries, and says how much of them is unknown."""

    def knows(self, group: Group) -> bool:
        """Return whether everything is measured of the group's queries."""
        return all(
            self._is_full(attributes) if attributes in self.measured else not attributes and self.public_total
            for attributes, _ in self.all_shares(group, summed=False)
        )

    def shares(self, group: Group, *, summed: bool = False) -> Iterator[tuple[Measured, list[Share]]]:
        """Iterate over the measured attribute sets on which the group leaves something."""
        for attributes, shares in self.all_shares(group, summed):
            for measured in self.measured.get(attributes, ()):
                yield measured, shares

    def _image(
        self,
        factors: Sequence[AxisRows],
        blocks: Sequence[tuple[tuple[int, ...], int]],
        group: Group,
        *,
        strict: bool = False,
    ) -> Array:
        return super()._image(factors, blocks, group, strict=strict)

    def known_variances(self, group: Group) -> Array:
        """Return the variances of what is measured of the group's queries: the rest counts as zero."""
        result = np.zeros(group.shape)
        for attributes, shares in self.all_shares(group, summed=False):
            for measured in self.measured.get(attributes, ()):
                result += self.variances_on(measured, shares, group, strict=False)
        return result

    def unknown_squares(self, group: Group) -> tuple[Array, Array]:
        """Return the squared lengths of what is not measured of the group's queries, and of all of them."""
        unknown, every = np.zeros(group.shape), np.zeros(group.shape)
        for attributes, shares in self.all_shares(group, summed=False):
            length = np.ones((1,) * len(shares))
            for place, share in enumerate(shares):
                spread = [-1 if i == place else 1 for i in range(len(shares))]
                length = length * (share.rows**2).sum(axis=1).reshape(spread)
            every += length
            if attributes in self.measured:
                if not self._is_full(attributes):
                    (projector,) = self.projector.measured[attributes]
                    unknown += length - self.projector.variances_on(projector, shares, group, strict=False)
            elif attributes or not self.public_total:
                unknown += length
        return np.maximum(unknown, 0.0), every

    def covary(self, attributes: tuple[int, ...], rows: Array) -> Array:
        """Return q C for tensors q over a measured set's cells, with C the covariance of its residual."""
        total = np.zeros(rows.shape)
        for measured in self.measured[attributes]:
            own = rows
            for axes, number in measured.blocks:
                at, last = [1 + a for a in axes], range(rows.ndim - len(axes), rows.ndim)
                own = np.moveaxis(self.strategies[number].covary(np.moveaxis(own, at, last)), last, at)
            total += measured.variance * own
        return total

    def outside(self, attributes: tuple[int, ...], rows: Array) -> Array | None:
        """Return what is left of tensors outside a measured set's strategies; None if these span all."""
        return None if self._is_full(attributes) else rows - self.projector.covary(attributes, rows)

    def _is_full(self, attributes: tuple[int, ...]) -> bool:
        """Return whether a measured set's strategies span its whole residual space."""
        ranks = [self.strategies[number].rank for _, number in self.measured[attributes][0].blocks]
        return math.prod(ranks) == math.prod(self.schema.sizes[a] - 1 for a in attributes)

    @cached_property
    def projector(self) -> KnownPredictor:
        """The same sets measured by orthonormal rows, with noise of variance 1."""
        return KnownPredictor(
            self.schema,
            self.centres,
            [strategy.orthonormal() for strategy in self.strategies],
            {attributes: (replace(own[0], variance=1.0),) for attributes, own in self.measured.items()},
            self.public_total,
        )
