"""The optimal strategy of a small block, as the design of one weight per cell.

For queries with Gram G = RᵀR (R: r × cells, independent rows) the best strategy of unit cost has loss L
with  √L = max over p ≥ 0, Σp = 1 of tr M(p)^½,  M(p) = R diag(p) Rᵀ.  Any p with M ≻ 0 gives a strategy
V = RᵀM^{-½}R and, with the leverages v = diag V, both bounds at once:

    tr(M^½)² ≤ L ≤ tr(M^½) · max_j v_j

so every iterate is certified, and at the optimum v_j = tr M^½ wherever p_j > 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from querysmasher.arrays import Array

Progress = Callable[[float], None]
"""Is told the gap after every step."""


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
    def at(cls, R: Array, p: Array) -> Design:
        """Evaluate the design with weights p, which need not sum to one."""
        eigenvalues, Q = scipy.linalg.eigh((R * p) @ R.T, driver="evd", check_finite=False)
        s = np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * 1e-30))
        Y = Q.T @ R
        return cls(p, s, Y, np.einsum("ij,ij,i->j", Y, Y, 1 / s))

    @property
    def value(self) -> float:
        """The trace root tr M^½ of the weights scaled to sum to one: a lower bound of √L."""
        return float(self.roots.sum() / np.sqrt(self.weights.sum()))

    @property
    def upper(self) -> float:
        """An upper bound of √L: what the strategy reaches."""
        return float(np.sqrt(self.roots.sum() * self.leverages.max()))

    @property
    def gap(self) -> float:
        """How far above the optimum the strategy can be, as a fraction of its root mean square error."""
        return self.upper / self.value - 1

    def strategy(self) -> Array:
        """Return the rows B = M^{-¼}R, scaled to unit sensitivity."""
        scale = np.sqrt(self.roots * self.leverages.max())
        return self.image / scale[:, None]
