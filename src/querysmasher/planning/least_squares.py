"""Generalised least squares of whole and residual answers; `combination` has the notation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array


@dataclass(frozen=True, eq=False)
class Weights:
    """How much the whole answers count: with c and u of a query, a = u·P + c·H·Hᵀ."""

    covariance: Array
    """K."""
    inverse: Array
    """Of R_u's Gram matrix, on its range."""
    root: Array
    """H, with H Hᵀ = Nᵀ (N K Nᵀ)⁻¹ N."""

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
