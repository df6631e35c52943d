"""The span of rows, for combinations of them and pseudo-inverses.

The rows are divided by their lengths, and R, the triangle of their QR decomposition, is found by pieces of
columns, in little memory: as the Cholesky root of their Gram matrix, or where that would lose digits by QR
decompositions, as accurate as the decomposition of all at once. Combinations of the rows nearest to other
vectors v solve RᵀR y = B v. Where R is ill-conditioned, one correction from the residual makes them as
accurate as an orthonormal basis would (Björck, Stability analysis of the method of seminormal equations for
linear least squares problems, 1987).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, Array, solve_cholesky, solve_upper, wide_triangle

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

    def inside(self, vectors: Array) -> Array:
        """Return rows as long as the vectors in the span that are nearest to others, both times `roots`."""
        if self._is_small:
            return vectors @ self.basis
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
