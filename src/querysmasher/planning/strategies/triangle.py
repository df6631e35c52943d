"""Triangles: strategies for attributes of many values whose queries differ wildly in weight.

B is lower triangular, and blocks far from its diagonal have low rank (`privacy.factors.halves`). So it can
follow the weight of every single query, where a filter cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.fields import floats, integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.on_line import LineStrategy
from querysmasher.planning.strategies.strategy import LARGEST
from querysmasher.planning.strategies.triangle_variances import TriangleVariances
from querysmasher.privacy.factors import Halves, Triangle
from querysmasher.privacy.factors.triangle import MOST_RANK, MOST_WIDTH
from querysmasher.privacy.integer_plan import IntegerStrategy

EVEN = 1.25
"""Maximum factor by which the squared diagonal changes to keep the lengths of columns."""


@dataclass(frozen=True, eq=False)
class TriangleStrategy(LineStrategy):
    """A lower triangular matrix, with low rank far from the diagonal."""

    kind = "triangle"

    near: Array
    """For every value, its row of a small block on the diagonal."""
    far: Array
    """For every value, its rows of Y or Z, from small blocks to large ones."""
    ranks: tuple[int, ...]
    """The rank of the blocks of every size."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.near),)

    @property
    def rank(self) -> int:
        return len(self.near)

    @cached_property
    def halves(self) -> Halves:
        """B itself."""
        return Halves.of(self.near, self.far, self.ranks)

    @cached_property
    def of_line(self) -> TriangleVariances:
        return TriangleVariances(self.halves.inverse(), self.rank)

    def transform(self, rows: Array) -> Array:
        return self.of_line.transformed(rows)

    def orthonormal(self) -> TriangleStrategy:
        place = np.arange(self.rank)
        near = np.zeros_like(self.near)
        near[place, place % near.shape[1]] = 1.0
        return TriangleStrategy(near, self.far[:, :0], (0,) * len(self.ranks))

    def written_out(self) -> Array:
        return np.asarray(self.halves.times(np.eye(self.halves.size))[: self.rank, : self.rank])

    # --- integers ---

    def _round(self, bits: int) -> IntegerStrategy:
        """Round to multiples of 2^-b: Y to few bits, and Z, of which errors add up along columns, to more.

        The diagonal makes up for rounding errors in the lengths of columns.
        """
        own = max(bits, min(bits + 4, limits().triangle_bits))
        left = 2.0 ** (
            limits().triangle_left if own >= limits().triangle_enough else limits().triangle_left - 1
        )
        scale = 2.0 ** min(own + 2 + self.rank.bit_length() // 2, limits().triangle_most)
        far = []
        for link in self.halves.far:
            most = np.abs(link[:, 1]).max(axis=1, keepdims=True)
            unit = left / np.where(most > 0, most, 1.0)
            both = np.stack([link[:, 0] * (scale / unit), link[:, 1] * unit], axis=1)
            far.append(np.rint(both).reshape(self.halves.size, -1)[: self.rank])
        every = np.concatenate(far, axis=1) if far else np.zeros((self.rank, 0))
        near = np.rint(scale * self.near)
        place = np.arange(self.rank)
        corner = place, place % near.shape[1]
        squared = near[corner] ** 2
        near[corner] = 0.0
        rest = scale**2 * self.squares - TriangleStrategy(near, every, self.ranks).squares
        near[corner] = np.sqrt(np.clip(rest, squared / EVEN, squared * EVEN))
        near[corner] = np.maximum(1.0, np.floor(near[corner]))
        made = Triangle(near.astype(np.int64), every.astype(np.int64), np.array(self.ranks, dtype=np.int64))
        return IntegerStrategy(self.shape, (((0,), made),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:  # noqa: ARG002
        return 1.0  # all columns have nearly the same size

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        found = strategy.factors[0][1].triangle  # only a triangle has one, and it is the only factor
        if found is None:
            return None
        near, far, ranks = found
        return cls(near.astype(float), far.astype(float), tuple(ranks.tolist()))

    @property
    def squares(self) -> Array:
        """The squared lengths of all columns."""
        result = np.square(self.halves.near).sum(axis=1).ravel()
        for link in self.halves.far:
            pairs, _, half, _ = link.shape
            z, y = link[:, 0], link[:, 1]
            result.reshape(pairs, 2, half)[:, 0] += ((z @ (y.transpose(0, 2, 1) @ y)) * z).sum(axis=2)
        return np.asarray(result[: self.rank])

    @cached_property
    def leverage(self) -> float:
        return float(self.squares.max())

    def is_sound(self) -> bool:
        size, width = self.near.shape
        if not size or not 0 < width <= MOST_WIDTH or len(self.ranks) > 30:
            return False
        if not (width << len(self.ranks)) // 2 < size <= width << len(self.ranks):
            return False
        if not all(0 <= rank <= MOST_RANK for rank in self.ranks) or self.far.shape != (
            size,
            sum(self.ranks),
        ):
            return False
        if max(np.abs(self.near).max(), np.abs(self.far).max(initial=0.0)) > LARGEST:
            return False
        place = np.arange(size) % width
        above = self.near[place[:, None] < np.arange(width)]
        return not above.any() and bool(self.near[np.arange(size), place].min() > 0)

    def to_data(self) -> dict[str, Any]:
        return {"near": self.near, "far": self.far, "ranks": np.array(self.ranks, dtype=np.int64)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        ranks = integers(data["ranks"], 1)
        return cls(floats(data["near"], 2), floats(data["far"], 2), tuple(ranks.tolist()))
