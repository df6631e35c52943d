"""The span of wide rows, without an orthonormal basis of it, which would be as large as the rows.

The rows are divided by their lengths, and R, the triangle of their QR decomposition, is found by pieces of
columns, in little memory: as the Cholesky root of their Gram matrix, or where that would lose digits by QR
decompositions, as accurate as the decomposition of all at once. Combinations of the rows nearest
to other vectors v solve RᵀR y = B v. Where R is ill-conditioned, one correction from the residual makes them
as accurate as an orthonormal basis would (Björck, Stability analysis of the method of seminormal equations
for linear least squares problems, 1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, solve_cholesky, wide_triangle
from querysmasher.planning.strategies.strategy import DEPENDENT

CHUNK = 2_000_000
"""Maximum number of entries of an intermediate array, unless rows are long."""


@dataclass(frozen=True, eq=False)
class Span:
    """The span of rows over columns, each of which counts `roots`² times."""

    rows: NDArray[np.float64] | NDArray[np.int64]
    roots: Array

    @cached_property
    def lengths(self) -> Array:
        """The lengths of the rows."""
        squares = np.zeros(len(self.rows))
        for piece in self._pieces():
            squares += (piece**2).sum(axis=1)
        return np.sqrt(squares)

    @cached_property
    def _triangle(self) -> Array:
        return self._decomposed[0]

    @cached_property
    def _is_tame(self) -> bool:
        return self._decomposed[1]

    @cached_property
    def _decomposed(self) -> tuple[Array, bool]:
        """The triangle, and whether it is well-conditioned."""
        return wide_triangle(
            lambda: (piece / self.lengths[:, None] for piece in self._pieces()), len(self.rows)
        )

    def _pieces(self) -> Iterator[Array]:
        """Iterate over pieces of the columns."""
        return (self.rows[:, piece] * self.roots[piece] for piece in self._slices())

    def _slices(self) -> Iterator[slice]:
        """Iterate over slices of columns, several times as many as rows: each may be decomposed with R."""
        step = max(8 * len(self.rows), CHUNK // len(self.rows))
        return (slice(start, start + step) for start in range(0, self.rows.shape[1], step))

    def is_independent(self) -> bool:
        """Return whether the rows are linearly independent, as far as floating point can tell."""
        if len(self.rows) > self.rows.shape[1] or not np.all(self.lengths > 0):
            return False
        return bool(np.abs(np.diagonal(self._triangle)).min() > DEPENDENT)

    def coefficients(self, vectors: Array) -> Array:
        """Return the combinations of the rows that are nearest to vectors, both times `roots`.

        The rows must be independent. These are also the vectors times the rows' pseudo-inverse.
        """
        return self._combinations(lambda piece: vectors[:, piece], len(vectors))

    def combinations(self, rows: Array) -> Array:
        """Return the combinations of the span's rows that are nearest to others, before either is scaled."""
        return self._combinations(lambda piece: rows[:, piece] * self.roots[piece], len(rows))

    def _combinations(self, vectors: Callable[[slice], Array], count: int) -> Array:
        found = np.zeros((count, len(self.rows)))
        for again in (False,) if self._is_tame else (False, True):
            right = np.zeros_like(found)
            for piece in self._slices():
                own, roots = self.rows[:, piece], self.roots[piece]
                rest = vectors(piece)
                if again:
                    rest = rest - (found @ own) * roots
                right += (rest * roots) @ own.T
            found += solve_cholesky(self._triangle.T, (right / self.lengths).T).T / self.lengths
        return found

    def outside(self, vectors: Array, found: Array) -> Array:
        """Return what combinations of the rows leave of vectors."""
        return vectors - (found @ self.rows) * self.roots

    def transposed_coefficients(self, images: Array) -> Array:
        """Return images times the transpose of the rows' pseudo-inverse: the rows must be independent."""
        own = solve_cholesky(self._triangle.T, (images / self.lengths).T).T / self.lengths
        return np.asarray((own @ self.rows) * self.roots, dtype=float)

    def orthonormal(self) -> Array:
        """Return orthonormal rows with the same span, as large as the rows."""
        scaled = self.rows * self.roots / self.lengths[:, None]
        return np.asarray(np.linalg.solve(self._triangle.T, scaled), dtype=float)
