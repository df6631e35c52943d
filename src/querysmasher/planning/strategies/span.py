"""The span of rows, and the cells on which they stand.

The rows are divided by their lengths, and R, the triangle of their QR decomposition, is found by pieces of
columns, in little memory: as the Cholesky root of their Gram matrix, or where that would lose digits by QR
decompositions, as accurate as the decomposition of all at once. Combinations of the rows nearest to other
vectors v solve RᵀR y = B v. Where R is ill-conditioned, one correction from the residual makes them as
accurate as an orthonormal basis would (Björck, Stability analysis of the method of seminormal equations for
linear least squares problems, 1987).

Many cells may share a column (`Partition`). Queries are summed over coarse cells, combinations of classes of
values, then over columns. All sums are inner products with unit vectors, so that lengths and variances are
those over the cells themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, solve_cholesky, solve_upper, wide_triangle
from querysmasher.planning.strategies.strategy import AxisRows
from querysmasher.privacy.factors import Partition

CHUNK = 10_000_000
"""Maximum number of entries of an intermediate array, unless rows are long, and of a pseudo-inverse."""

DEPENDENT = 1e-14
"""Rows closer than this fraction of their length to the span of others are in it."""


@dataclass(frozen=True, eq=False)
class Span:
    """The span of rows over columns, each of which counts `roots`² times."""

    rows: NDArray[np.float64] | NDArray[np.int64]
    roots: Array

    @classmethod
    def of(cls, rows: NDArray[np.float64] | NDArray[np.int64]) -> Span:
        """Return the span of rows over columns that count once."""
        return cls(rows, np.ones(rows.shape[1]))

    @cached_property
    def lengths(self) -> Array:
        """The lengths of the rows."""
        squares = np.zeros(len(self.rows))
        with np.errstate(over="ignore"):  # infinite lengths are refused
            for piece in self._slices():
                squares += ((self.rows[:, piece] * self.roots[piece]) ** 2).sum(axis=1)
        return np.sqrt(squares)

    @cached_property
    def _decomposed(self) -> tuple[Array, bool]:
        """The triangle, and whether it is well-conditioned."""
        scales = self.lengths[:, None]
        return wide_triangle(
            lambda: (self.rows[:, piece] * self.roots[piece] / scales for piece in self._slices()),
            len(self.rows),
        )

    def _slices(self) -> Iterator[slice]:
        """Iterate over slices of columns, several times as many as rows: each may be decomposed with R."""
        step = max(8 * len(self.rows), CHUNK // len(self.rows))
        return (slice(start, start + step) for start in range(0, self.rows.shape[1], step))

    def is_independent(self) -> bool:
        """Return whether the rows are linearly independent, as far as floating point can tell."""
        if len(self.rows) > self.rows.shape[1] or not np.all(self.lengths > 0):
            return False
        return bool(np.abs(np.diagonal(self._decomposed[0])).min() > DEPENDENT)

    def _solved(self, right: Array) -> Array:
        """Return right·(BBᵀ)⁻¹, up to rounding errors."""
        return solve_cholesky(self._decomposed[0].T, (right / self.lengths).T).T / self.lengths

    @property
    def _is_small(self) -> bool:
        """Whether the pseudo-inverse, as large as the rows, is written out."""
        return self.rows.size <= CHUNK

    def coefficients(self, vectors: Array) -> Array:
        """Return the combinations of the rows that are nearest to vectors, both times `roots`.

        The rows must be independent. These are also the vectors times the rows' pseudo-inverse.
        """
        if self._is_small:
            return vectors @ self.inverse
        found = np.zeros((len(vectors), len(self.rows)))
        for again in (False,) if self._decomposed[1] else (False, True):
            right = np.zeros_like(found)
            for piece in self._slices():
                own = self.rows[:, piece] * self.roots[piece]
                rest = vectors[:, piece]
                right += (rest - found @ own if again else rest) @ own.T
            found += self._solved(right)
        return found

    def combined(self, coefficients: Array) -> Array:
        """Return combinations of the rows, times `roots`."""
        return np.asarray((coefficients @ self.rows) * self.roots, dtype=float)

    def projected(self, vectors: Array) -> Array:
        """Return the vectors nearest to others in the span, both times `roots`."""
        if self._is_small:
            return (vectors @ self.basis) @ self.basis.T
        return self.combined(self.coefficients(vectors))

    def transposed_coefficients(self, images: Array) -> Array:
        """Return images times the transpose of the rows' pseudo-inverse: the rows must be independent."""
        if self._is_small:
            return images @ self.inverse.T
        found = self._solved(images)
        if not self._decomposed[1]:
            left = np.zeros_like(images)
            for piece in self._slices():
                own = self.rows[:, piece] * self.roots[piece]
                left += (found @ own) @ own.T
            found += self._solved(images - left)
        return self.combined(found)

    @cached_property
    def _factored(self) -> tuple[Array, Array]:
        """An orthonormal basis of the span (columns × rows), as large as the rows, and the triangle."""
        scaled = self.rows * self.roots / self.lengths[:, None]
        triangle, tame = self._decomposed
        if not tame:
            basis, triangle = np.linalg.qr(scaled.T)
            return basis, triangle
        return solve_upper(triangle.T[::-1, ::-1], scaled[::-1])[::-1].T, triangle

    @property
    def basis(self) -> Array:
        """An orthonormal basis of the span (columns × rows)."""
        return self._factored[0]

    @cached_property
    def inverse(self) -> Array:
        """The pseudo-inverse (columns × rows)."""
        basis, triangle = self._factored
        return np.ascontiguousarray(solve_upper(triangle, basis.T).T / self.lengths)


@dataclass(frozen=True, eq=False)
class CoarseCells:
    """The coarse cells and the columns of a partition."""

    partition: Partition

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of classes of every attribute."""
        return self.partition.labels.shape

    @property
    def size(self) -> int:
        """Number of coarse cells."""
        return self.partition.labels.size

    @cached_property
    def root_sizes(self) -> Array:
        """The roots of the numbers of cells of the columns."""
        return np.sqrt(self.partition.sizes)

    @cached_property
    def _shares(self) -> Array:
        """What a coarse cell adds to its column, both as unit vectors: √(its cells / the column's cells)."""
        return np.sqrt(self.partition.coarse_sizes) / self.root_sizes[self.partition.labels.ravel()]

    @cached_property
    def _class_roots(self) -> list[Array]:
        """The roots of the numbers of values of the classes, by axis."""
        return [np.sqrt(sizes.astype(float)) for sizes in self.partition.class_sizes]

    def of_values(self, rows: Array, axes: Sequence[int]) -> Array:
        """Return rows over the values of some axes on their classes, with an axis for each."""
        tensor = rows.reshape(-1, *(self.partition.shape[a] for a in axes))
        for place, axis in enumerate(axes, start=1):
            sums = self.partition.class_sums(tensor, place, axis)
            tensor = sums / _along(self._class_roots[axis], place, tensor.ndim)
        return tensor

    def on_columns(self, coarse: Array) -> Array:
        """Return rows over the coarse cells on the columns."""
        return self.partition.column_sums(coarse * self._shares, 1)

    def to_coarse(self, columns: Array) -> Array:
        """Return the combination of unit vectors of the columns: the transpose of `on_columns`."""
        return self._shares * np.take(columns, self.partition.labels.ravel(), axis=1)

    def products(self, factors: Sequence[AxisRows]) -> Iterator[tuple[slice, Array]]:
        """Iterate over slices of all products of one row per factor, on the coarse cells."""
        coarse = []
        for axes, rows in factors:  # with an axis of length one for every other
            sizes = (n if axis in axes else 1 for axis, n in enumerate(self.shape))
            coarse.append(self.of_values(rows, axes).reshape(len(rows), *sizes))
        counts = [len(rows) for rows in coarse]
        total, step = math.prod(counts), max(1, CHUNK // self.size)
        for start in range(0, total, step):
            numbers = np.arange(start, min(start + step, total))
            product = np.ones((numbers.size, *[1] * len(self.shape)))
            for rows, chosen in zip(coarse, np.unravel_index(numbers, counts) if counts else (), strict=True):
                product = product * rows[chosen]
            whole = np.broadcast_to(product, (numbers.size, *self.shape))
            yield slice(start, start + numbers.size), whole.reshape(numbers.size, -1)


def _along(values: Array, place: int, axes: int) -> Array:
    return values.reshape([-1 if i == place else 1 for i in range(axes)])
