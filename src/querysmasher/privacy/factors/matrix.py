"""Matrices, entry by entry.

Products are exact. The tables are integers whose absolute values sum, in each column, to at most a known
bound, so every entry of a product, and every partial sum on the way, is at most bound × max|entries|.
Below 2^53 products of doubles are therefore exact in any order of summation, with any BLAS that multiplies by
plain sums, as all in common use do; a matrix that would lead beyond is cut into digits, and their products
are combined as integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.privacy.factors.factor import Factor, Integers, largest_of, words

EXACT = 2**53
"""Doubles represent every integer below this in absolute value."""

NEAR = 1e-6
"""Columns whose squared lengths differ by less than this fraction may change places in floating point."""


@dataclass(frozen=True, eq=False)
class Matrix(Factor):
    """Any rows of integers over the cells of its axes."""

    kind = "matrix"

    entries: Integers

    def __post_init__(self) -> None:
        """Check that the entries are 64-bit integers, and keep a read-only copy."""
        object.__setattr__(self, "entries", words("strategy: the matrix of a factor", self.entries, 2))

    @property
    def rows(self) -> int:
        return len(self.entries)

    @property
    def cells(self) -> int:
        return self.entries.shape[1]

    @cached_property
    def largest(self) -> int:  # cached, as every attribute set needs it
        return largest_of(self.entries)

    def squared_column(self) -> int:
        if self.largest**2 * self.rows >= 2**62:
            # Sums of squares of doubles have relative errors below (rows + 3)·2⁻⁵³ < NEAR / 4. So a column
            # that is shorter by NEAR in floating point is shorter; the others are squared exactly.
            lengths = np.einsum("kj,kj->j", *[self.entries.astype(float)] * 2)
            longest = lengths >= (1 - NEAR) * lengths.max()
            return max(sum(int(b) ** 2 for b in column) for column in self.entries.T[longest])
        return int((self.entries**2).sum(axis=0).max())

    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        if bound * self.largest < EXACT:
            return np.matmul(self.entries.astype(np.float64), tables.astype(np.float64))
        digit = EXACT.bit_length() - 1 - bound.bit_length()
        if digit < 2:
            return np.matmul(self.entries, tables.astype(np.int64))  # slow, and exact below 2^63
        columns = tables.astype(np.float64)
        result = np.zeros((self.rows, tables.shape[1]), dtype=np.int64)
        matrix, shift = self.entries, 0
        while True:
            last = int(np.abs(matrix).max()) < 2**digit
            low = matrix if last else matrix & (2**digit - 1)
            result += np.matmul(low.astype(np.float64), columns).astype(np.int64) << shift
            if last:
                return result
            matrix, shift = (matrix - low) >> digit, shift + digit

    def transposed(self, answers: Array) -> Array:
        return np.matmul(self.entries.T.astype(float), answers)

    def written_out(self) -> Array:
        return self.entries.astype(float)

    def to_data(self) -> dict[str, Any]:
        return {"entries": self.entries}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["entries"])
