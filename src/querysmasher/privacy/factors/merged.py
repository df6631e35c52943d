"""Matrices with many equal columns, each stored once.

A cell's column is that of its coarse cell, which is found through the classes of its values (`partition`).
The matrix over all cells is never written out.

Accounting is exact: every stored column occurs, as every class and every column of a partition is used, and
no other occurs, so the longest column over the cells is the longest one stored. Answers are exact: the counts
of the cells of one column are added up first, in 64-bit integers, in which no partial sum exceeds the bound
on the table; the sums' absolute values sum to at most the same bound, under which the product with the stored
columns is exact (`matrix`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, Numbers, pseudo_inverse, solve_cholesky, wide_triangle
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Factor, Integers
from querysmasher.privacy.factors.matrix import Matrix
from querysmasher.privacy.factors.partition import Partition

CHUNK = 2_000_000
"""Maximum number of entries of an intermediate array, unless rows are long."""

DEPENDENT = 1e-10
"""A row closer to the span of others than this fraction of its length may depend on them."""


@dataclass(frozen=True, eq=False)
class Merged(Factor):
    """Rows of integers over cells of which many share a column: column matrix[:, labels[maps…]] at a cell."""

    kind = "merged"

    maps: tuple[Integers, ...]
    """The class of every value, by axis."""
    labels: Integers
    """The column of every coarse cell, a combination of classes."""
    matrix: Integers
    """Every distinct column once (rows × columns)."""
    _partition: Partition = field(init=False, repr=False)
    _columns: Matrix = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the labels are those of the columns; keep read-only copies."""
        partition, columns = Partition(self.maps, self.labels), Matrix(self.matrix)
        if columns.cells != partition.columns:
            msg = "strategy: expected as many columns in a merged matrix as its labels name"
            raise PrivacyError(msg)
        for name, value in (
            ("maps", partition.maps),
            ("labels", partition.labels),
            ("matrix", columns.entries),
            ("_partition", partition),
            ("_columns", columns),
        ):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        return self._columns.rows

    @property
    def cells(self) -> int:
        return self._partition.cells

    @property
    def largest(self) -> int:
        return self._columns.largest

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return self._partition.shape == sizes

    def squared_column(self) -> int:
        return self._columns.squared_column()

    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        return self._columns.exact_answers(self._partition.sums(tables.astype(np.int64)), bound)

    def transposed(self, answers: Array) -> Array:
        return self._columns.transposed(answers)[self._partition.of_cells()]

    def written_out(self) -> Array:
        return self._columns.written_out()[:, self._partition.of_cells()]

    @property
    def classes(self) -> tuple[tuple[Integers, ...], Integers]:
        return self.maps, self.labels

    def distinct_columns(self) -> Array:
        return self._columns.written_out()

    def weighted_squares(self, weights: Array) -> Array:
        squares = self._columns.weighted_squares(weights)
        return squares[..., self._partition.of_cells()]

    @cached_property
    def _inverse(self) -> Array:
        """B† before its rows are repeated (columns × rows).

        With D the sizes of the columns and U = E·D^(-½), where E tells which cell has which column, the
        columns of U are orthonormal, so with X = M·D^½ we have B = X·Uᵀ and B† = U·X†.
        """
        root = np.sqrt(self._partition.sizes)
        return pseudo_inverse(self.distinct_columns() * root) / root[:, None]

    def undone(self, answers: Array) -> Array:
        """Return B†z; for wide independent rows without B†, which would be as large as they are.

        The values of the columns are then D^(-½)Xᵀ(XXᵀ)⁻¹z = Mᵀ(XXᵀ)⁻¹z, and what they leave of the answers
        corrects them once.
        """
        found = self._triangle if self.matrix.size > CHUNK else None
        if found is None:
            return super().undone(answers)[..., self._partition.of_cells()]
        triangle, lengths = found
        given = rest = answers.reshape(self.rows, -1)
        values = np.zeros((self._columns.cells, given.shape[1]))
        for _ in range(2):
            solved = solve_cholesky(triangle.T, rest / lengths) / lengths
            rest = given.copy()
            for piece in self._pieces():
                own = self.matrix[:, piece].astype(float)
                values[piece] += own.T @ solved
                rest -= (own * self._partition.sizes[piece]) @ values[piece]
        return values[self._partition.of_cells()].T.reshape(*answers.shape[1:], self.cells)

    @cached_property
    def _triangle(self) -> tuple[Array, Array] | None:
        """The triangle of X with rows of unit length, and their lengths, if they are independent."""
        root = np.sqrt(self._partition.sizes)
        squares = np.zeros((self.rows, 1))
        for piece in self._pieces():
            squares += ((self.matrix[:, piece] * root[piece]) ** 2).sum(axis=1, keepdims=True)
        if not squares.all():
            return None
        lengths = np.sqrt(squares)
        triangle, _ = wide_triangle(
            lambda: (self.matrix[:, piece] * root[piece] / lengths for piece in self._pieces()), self.rows
        )
        independent = len(triangle) == self.rows and np.abs(np.diagonal(triangle)).min() > DEPENDENT
        return (triangle, lengths) if independent else None

    def _pieces(self) -> list[slice]:
        """Return slices of columns, several times as many as rows."""
        step = max(8 * self.rows, CHUNK // self.rows)
        return [slice(start, start + step) for start in range(0, self._columns.cells, step)]

    def to_data(self) -> dict[str, Any]:
        return {"maps": list(self.maps), "labels": self.labels, "matrix": self.matrix}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        maps = data["maps"]
        if type(maps) is not list:
            msg = "strategy: expected a list of maps in a merged matrix"
            raise PrivacyError(msg)
        return cls(tuple(maps), data["labels"], data["matrix"])
