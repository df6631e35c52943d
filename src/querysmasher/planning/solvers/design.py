"""The optimal strategy of a small block, as the design of one weight per cell.

For queries with Gram G = RᵀR (R: r × cells, independent rows) the best strategy of unit cost has loss L
with  √L = max over p ≥ 0, Σp = 1 of tr M(p)^½,  M(p) = R diag(p) Rᵀ.  Any p with M ≻ 0 gives a strategy
V = RᵀM^{-½}R and, with the leverages v = diag V, both bounds at once:

    tr(M^½)² ≤ L ≤ tr(M^½) · max_j v_j

so every iterate is certified, and at the optimum v_j = tr M^½ wherever p_j > 0.

One square root comes close already. At equal weights V is proportional to G^½, with diagonal s, and the next
weights p ∝ s² have tr(M^½)² ≥ Σs². For the sum of the singular values of X = RP^½ is at least tr(UᵀX) for
every U with orthonormal columns or rows, and for the polar factor U of R = UG^½ this is Σ_j s_j √p_j = ‖s‖.
Where G has full rank and no centre is to be kept, D G^½ D with D = diag(s^{-½}) is a strategy of unit
sensitivity besides, so that Σs² ≤ L ≤ Σ_ij √s_i G_ij √s_j (G^{-½})_ij; the search for centres uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.grading import graded_decomposition, is_graded
from querysmasher.planning.limits import limits

FAINT = 1e-24
"""Squared entries below this fraction of their row's largest are rounding error."""

Progress = Callable[[float], None]
"""Receives the gap after every step."""


ROUGH = 1e-4
"""Roots of weights or of eigenvalues below this fraction of the largest lose digits in a Gram matrix."""


@dataclass(frozen=True, eq=False)
class Design:
    """Weights p of the cells, and what follows from them."""

    weights: Array
    roots: Array
    """The square roots s of the eigenvalues of M(p) = Q diag(s²) Qᵀ."""
    image: Array
    """Y = QᵀR."""
    leverages: Array

    @classmethod
    def at(cls, R: Array, p: Array, graded: bool | None = None) -> Design:
        """Evaluate the design with weights p, which need not sum to one; `graded`: whether R is, if known."""
        if is_graded(R) if graded is None else graded:
            s, Y = graded_decomposition(R, p)
            return cls(p, s, Y, np.einsum("ij,ij,i->j", Y, Y, 1 / s))
        X = R * np.sqrt(p)
        eigenvalues, Q = np.linalg.eigh(X @ X.T)  # a symmetric product takes half the work
        s = np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * 1e-30))
        Y = Q.T @ R
        return cls(p, s, Y, np.einsum("ij,ij,i->j", Y, Y, 1 / s))

    @classmethod
    def of_gram(cls, gram: Array, rank: int, p: Array) -> Design:
        """Evaluate the same design from G = RᵀR of known rank: one decomposition, and no matrix product.

        With P^½GP^½ = U diag(s²) Uᵀ the polar decomposition of RP^½ gives Y = diag(s) UᵀP^{-½}.
        """
        r = np.sqrt(p)
        eigenvalues, U = np.linalg.eigh(gram * (r[:, None] * r))
        squares = eigenvalues[-rank:]
        s = np.sqrt(np.maximum(squares, squares[-1] * 1e-30))
        Y = s[:, None] * U[:, -rank:].T / r
        return cls(p, s, Y, np.einsum("ij,ij,i->j", Y, Y, 1 / s))

    @cached_property
    def value(self) -> float:
        """The trace root tr M^½ of the weights scaled to sum to one: a lower bound on √L."""
        return float(self.roots.sum() / np.sqrt(self.weights.sum()))

    @cached_property
    def upper(self) -> float:
        """An upper bound on √L: what the strategy reaches."""
        return float(np.sqrt(self.roots.sum() * self.leverages.max()))

    @cached_property
    def gap(self) -> float:
        """Upper bound on how far the RMSE of the strategy exceeds the optimum, as a fraction."""
        return self.upper / self.value - 1

    def strategy(self) -> Array:
        """Return the rows B = M^{-¼}R, scaled to unit sensitivity."""
        scale = np.sqrt(self.roots * self.leverages.max())
        return self.image / scale[:, None]

    def filled_strategy(self) -> tuple[Array, float]:
        """Return rows that use up the unit sensitivity that `strategy` leaves, and the √L they reach.

        If scales are far apart, the small ones hardly affect the certificate, and cells that only these ask
        about get little weight. If a cell has the leverage v, all rows that touch it may grow by 1/v, so
        every row grows by the minimum over its cells: no query's variance grows, and some fall.
        """
        rows = self.strategy()
        squares = rows**2
        touched = squares > FAINT * squares.max(axis=1, keepdims=True)
        gains = np.ones(len(rows))
        for _ in range(limits().filling_steps):
            room = 1 / np.maximum(gains @ squares, FAINT)
            step = np.maximum(np.min(np.where(touched, room, np.inf), axis=1), 1.0)
            gains *= step
            if step.max() < 1.01:
                break
        cost = float((gains @ squares).max())
        loss = self.leverages.max() * cost * float(np.sum(self.roots / gains))
        return rows * np.sqrt(gains / cost)[:, None], float(np.sqrt(loss))


def evaluator(R: Array) -> Callable[[Array], Design]:
    """Return what evaluates designs of the rows R, by whichever decomposition is quicker."""
    rank, cells = R.shape
    graded = is_graded(R)
    if rank < limits().nearly_full * cells or graded:
        return partial(Design.at, R, graded=graded)
    gram = R.T @ R

    def at(p: Array) -> Design:
        if p.min() > ROUGH**2 * p.max():
            design = Design.of_gram(gram, rank, p)
            if design.roots[0] > ROUGH * design.roots[-1]:
                return design
        return Design.at(R, p, graded=False)

    return at
