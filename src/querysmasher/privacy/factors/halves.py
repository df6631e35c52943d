"""Lower triangular matrices, cut in halves again and again: blocks far from the diagonal have low rank.

    B = [ B₁   0  ]
        [ YZᵀ  B₂ ]       with B₁ and B₂ of the same kind, down to small blocks that are written out.

Products take O(n log n) operations. So does the inverse, which is of the same kind, with the same ranks:
the block YZᵀ becomes −(B₂⁻¹Y)(B₁⁻ᵀZ)ᵀ. The numbers may be integers, of which products are exact as long as
they fit into 64 bits, or floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Entries = NDArray[Any]
"""Integers or floating-point numbers."""


@dataclass(frozen=True, eq=False)
class Halves:
    """Such a matrix over a number of values that is a power of two times the size of a small block."""

    near: Entries
    """The small blocks on the diagonal: block, row, column."""
    far: tuple[Entries, ...]
    """For each size of halves, from small to large: pair, half, value, rank. The first half of a pair holds
    Z, the second Y."""

    @classmethod
    def of(cls, near: Entries, far: Entries, ranks: Sequence[int]) -> Halves:
        """Return the matrix given a row of small blocks, and of all Y or Z, for every value."""
        size, width = near.shape
        blocks = 1 << len(ranks)
        padded = np.zeros((blocks * width, width), dtype=near.dtype)
        padded[:size] = near
        beyond = np.arange(size, len(padded))
        padded[beyond, beyond % width] = 1  # values that do not exist hinder no inverse
        links, start = [], 0
        for level, rank in enumerate(ranks):
            own = np.zeros((len(padded), rank), dtype=far.dtype)
            own[:size] = far[:, start : start + rank]
            links.append(own.reshape(blocks >> (level + 1), 2, width << level, rank))
            start += rank
        return cls(padded.reshape(blocks, width, width), tuple(links))

    @property
    def width(self) -> int:
        """The size of a small block."""
        return int(self.near.shape[1])

    @property
    def size(self) -> int:
        """Number of values, with those that do not exist."""
        return int(self.near.shape[0]) * self.width

    def padded(self, columns: Entries) -> Entries:
        """Return columns with zeros for values that do not exist."""
        result = np.zeros((self.size, columns.shape[1]), dtype=columns.dtype)
        result[: len(columns)] = columns
        return result

    def times(self, columns: Entries) -> Entries:
        """Return B times columns over all values."""
        count = columns.shape[1]
        result: Entries = (self.near @ columns.reshape(-1, self.width, count)).reshape(-1, count)
        for link in self.far:
            pairs, _, half, rank = link.shape
            if rank:
                given = columns.reshape(pairs, 2, half, count)[:, 0]
                result.reshape(pairs, 2, half, count)[:, 1] += link[:, 1] @ (_turned(link[:, 0]) @ given)
        return result

    def transposed_times(self, columns: Entries) -> Entries:
        """Return Bᵀ times columns over all values."""
        count = columns.shape[1]
        result: Entries = (_turned(self.near) @ columns.reshape(-1, self.width, count)).reshape(-1, count)
        for link in self.far:
            pairs, _, half, rank = link.shape
            if rank:
                given = columns.reshape(pairs, 2, half, count)[:, 1]
                result.reshape(pairs, 2, half, count)[:, 0] += link[:, 0] @ (_turned(link[:, 1]) @ given)
        return result

    def half(self, level: int, which: int) -> Halves:
        """Return the matrices of the first or second halves of all pairs of one size, one after another."""
        pairs = len(self.near) >> (level + 1)
        near = self.near.reshape(pairs, 2, 1 << level, self.width, self.width)[:, which]
        far = []
        for place, link in enumerate(self.far[:level]):
            count = 1 << (level - place - 1)
            own = link.reshape(pairs, 2, count, *link.shape[1:])[:, which]
            far.append(own.reshape(pairs * count, *link.shape[1:]))
        return Halves(near.reshape(pairs << level, self.width, self.width), tuple(far))

    def inverse(self) -> Halves:
        """Return the inverse, in floating point."""
        found = Halves(np.linalg.inv(self.near.astype(float)), ())
        for level, link in enumerate(self.far):
            pairs, _, half, rank = link.shape
            given = link.astype(float)
            if rank:
                y = found.half(level, 1).times(given[:, 1].reshape(-1, rank))
                z = found.half(level, 0).transposed_times(given[:, 0].reshape(-1, rank))
                given = np.stack([z.reshape(pairs, half, rank), -y.reshape(pairs, half, rank)], axis=1)
            found = Halves(found.near, (*found.far, given))
        return found


def _turned(blocks: Entries) -> Entries:
    return blocks.transpose(0, 2, 1)
