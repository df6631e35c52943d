"""Generalised least squares of whole and residual answers; `combination` has the notation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array

UNKNOWN = 1e-11
"""With rows scaled to length one, smaller eigenvalues of R_u R_uᵀ are rounding errors."""

OUTSIDE = 1e-6
"""A query further than this fraction of its length from what is measured is outside it."""


def eliminated(gram: Array, squares: Array) -> tuple[Array, Array]:
    """Return the inverse of R_u's Gram matrix on its range, and the rows N that span its null space."""
    lengths = np.where(squares > 0, np.sqrt(squares), 1.0)  # zero: exactly known, all of it
    values, vectors = np.linalg.eigh(gram / np.multiply.outer(lengths, lengths))
    sure = values > UNKNOWN
    scaled = vectors / lengths[:, None]
    return (scaled[:, sure] / values[sure]) @ scaled[:, sure].T, scaled[:, ~sure].T


def is_outside(a: Array, unknown: Array, gram: Array, left: Array, length: Array) -> bool:
    """Return whether combinations a of rows leave something of queries with these u and squared lengths.

    `left` are those of the unknown parts, `length` those of the queries themselves.
    """
    outside = left - 2 * np.einsum("...r,...r->...", a, unknown)
    outside = outside + np.einsum("...r,rs,...s->...", a, gram, a, optimize=True)
    return bool(np.any(outside > OUTSIDE**2 * length))


@dataclass(frozen=True, eq=False)
class Weights:
    """How much the whole answers count: with c and u of a query, a = u·P + c·H·Hᵀ."""

    covariance: Array
    """K."""
    inverse: Array
    """Of R_u's Gram matrix, on its range."""
    root: Array
    """H, with H Hᵀ = Nᵀ (N K Nᵀ)⁻¹ N."""

    @classmethod
    def of(cls, inverse: Array, null: Array, covariance: Array) -> Weights:
        """Return the best weights, given what `eliminated` returns, and K."""
        triangle = np.linalg.cholesky(null @ covariance @ null.T)
        return cls(covariance, inverse, np.linalg.solve(triangle, null).T)

    def coefficients(self, known: Array, unknown: Array | None) -> Array:
        """Return a for queries with these c and u."""
        if unknown is None:
            return (known @ self.root) @ self.root.T
        first = unknown @ self.inverse
        return first + ((known - first @ self.covariance) @ self.root) @ self.root.T

    def change(self, known: Array, unknown: Array | None) -> Array:
        """Return by how much the variances differ from those of what is known alone."""
        change, rest = np.zeros(known.shape[:-1]), known
        if unknown is not None:
            first = unknown @ self.inverse
            image = first @ self.covariance
            change = np.einsum("...r,...r->...", first, image - 2 * known)
            rest = known - image
        rooted = rest @ self.root
        return change - np.einsum("...r,...r->...", rooted, rooted)

    def corrections(self, differences: Array) -> tuple[Array, Array]:
        """Return weights of the known and the unknown parts of all rows, in what corrects residuals.

        `differences` are those of the whole answers and what the residual answers say of the same rows.
        """
        own = self.root @ (self.root.T @ differences)
        return own, self.inverse @ (differences - self.covariance @ own)
