"""Triangles: lower triangular integer matrices whose blocks far from the diagonal have low rank.

A block YZᵀ far from the diagonal is a product of integers (`halves`), so every entry of B is an integer.
Column j consists of its entries in a small block, written out, and of Yz_j for every block that it crosses,
where z_j is row j of Z: these have disjoint rows. So its squared length is the sum of those entries squared
and of all z_jᵀ(YᵀY)z_j: integers, at any number of values.

Answers are sums of products y·(Zᵀx) of 64-bit integers, which are exact modulo 2⁶⁴ whatever happens on the
way. No entry of B is larger than `largest`: an entry of YZᵀ is at most Σ max|Y|·max|Z| over the rank. So with
‖x‖₁ at most `bound`, no answer is larger than bound × largest, which the caller keeps below 2⁶²: answers are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Factor, Integers, largest_of, words
from querysmasher.privacy.factors.halves import Halves

LARGEST = 2**31
"""Bound on the size of all integers."""

LONGEST = 2.0**61
"""Bound on all sums on the way to a squared length: they fit into 64 bits, with room for rounding errors."""

MOST_RANK, MOST_WIDTH = 64, 64
"""Maximum rank of a block far from the diagonal, and size of a block on it."""


@dataclass(frozen=True, eq=False)
class Triangle(Factor):
    """Lower triangular rows, with low rank far from the diagonal."""

    kind = "triangle"
    stands_alone = True
    unsplit = True

    near: Integers
    """For every value, its row of a small block on the diagonal."""
    far: Integers
    """For every value, its rows of Y or Z, from small blocks to large ones."""
    ranks: Integers
    """The rank of the blocks of every size."""
    _halves: Halves = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the integers, and keep read-only copies."""
        near = words("strategy: the blocks of a triangle", self.near, 2)
        size, width = near.shape
        ranks = np.zeros(0, dtype=np.int64)
        if type(self.ranks) is not np.ndarray or self.ranks.size or self.ranks.dtype != np.int64:
            ranks = words("strategy: the ranks of a triangle", self.ranks, 1)
        most = width << min(len(ranks), 30)
        if len(ranks) > 30 or width > MOST_WIDTH or not most // 2 < size <= most:
            msg = "strategy: a triangle has another number of values than its blocks"
            raise PrivacyError(msg)
        if ranks.size and not 0 <= ranks.min() <= ranks.max() <= MOST_RANK:
            msg = f"strategy: expected blocks of a rank of at most {MOST_RANK} in a triangle"
            raise PrivacyError(msg)
        far = np.zeros((size, 0), dtype=np.int64)
        if type(self.far) is not np.ndarray or self.far.size or self.far.dtype != np.int64:
            far = words("strategy: the far blocks of a triangle", self.far, 2)
        if self.far.shape != far.shape or far.shape != (size, ranks.sum()):
            msg = "strategy: the far blocks of a triangle do not fit its values and ranks"
            raise PrivacyError(msg)
        place = np.arange(size) % width
        if near[np.arange(size), place].min() < 1 or near[place[:, None] < np.arange(width)].any():
            msg = "strategy: expected a triangle with a positive diagonal, and nothing above it"
            raise PrivacyError(msg)
        if largest_of(near) >= LARGEST or (far.size and largest_of(far) >= LARGEST):
            msg = "strategy: the integers of a triangle are too large"
            raise PrivacyError(msg)
        for name, value in (("near", near), ("far", far), ("ranks", ranks)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_halves", Halves.of(near, far, ranks.tolist()))

    @property
    def rows(self) -> int:
        return int(self.near.shape[0])

    @property
    def cells(self) -> int:
        return int(self.near.shape[0])

    @cached_property
    def largest(self) -> int:
        most = largest_of(self.near)
        for link in self._halves.far:
            if link.size:
                z, y = np.abs(link).max(axis=2).transpose(1, 0, 2).astype(float)
                most = max(most, math.ceil(float((z * y).sum(axis=1).max()) * (1 + 2.0**-40)))
        return most

    @cached_property
    def squares(self) -> Integers:
        """The squared lengths of all columns, exactly."""
        halves = self._halves
        bound = halves.width * float(largest_of(halves.near)) ** 2
        if bound >= LONGEST:
            msg = "strategy: the integers of a triangle are too large"
            raise PrivacyError(msg)
        result = np.square(halves.near).sum(axis=1).ravel()
        for link in halves.far:
            pairs, _, half, rank = link.shape
            if not rank:
                continue
            z, y = link[:, 0], link[:, 1]
            bound += half * float(largest_of(y)) ** 2
            if bound < LONGEST:
                gram = y.transpose(0, 2, 1) @ y
                most = np.abs(z).max(axis=1).astype(float)
                bound += float(np.einsum("pa,pab,pb->p", most, np.abs(gram).astype(float), most).max())
            if bound >= LONGEST:
                msg = "strategy: the integers of a triangle are too large"
                raise PrivacyError(msg)
            result.reshape(pairs, 2, half)[:, 0] += ((z @ gram) * z).sum(axis=2)
        return result[: self.cells]

    def squared_column(self) -> int:
        return int(self.squares.max())

    def exact_answers(self, tables: Numbers, bound: int) -> Integers:  # noqa: ARG002 - the caller keeps to it
        x = self._halves.padded(np.asarray(tables).astype(np.int64))
        return np.ascontiguousarray(self._halves.times(x)[: self.rows])

    def transposed(self, answers: Array) -> Array:
        return np.asarray(self._halves.transposed_times(self._halves.padded(answers))[: self.cells])

    @cached_property
    def inverse(self) -> Halves:
        """B⁻¹."""
        return self._halves.inverse()

    @property
    def triangle(self) -> tuple[Integers, Integers, Integers]:
        return self.near, self.far, self.ranks

    def undone(self, answers: Array) -> Array:
        flat = self._halves.padded(answers.reshape(self.rows, -1).astype(float))
        return self.inverse.times(flat)[: self.cells].T.reshape(*answers.shape[1:], self.cells)

    def to_data(self) -> dict[str, Any]:
        return {"near": self.near, "far": self.far, "ranks": self.ranks}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["near"], data["far"], data["ranks"])
