"""Lower bounds on the loss of queries about one attribute of very many values, by recurrences.

The inverse T of the Gram matrix G₀ of weighted prefixes is the Laplacian of a path: conductance 1/ω_j
between values j and j+1, and 1/ω_{n−1} from the last value to the ground. Single values add a diagonal μ.
All ranges and all circular ranges are prefixes too, up to a matrix QJQᵀ of rank three: with ℓ_j = n − j,

    ranges    (min+1)(n−max) = (n+1)·(n−max) − ℓ_i ℓ_j
    circular  d² − nd + n(n+1)/2 = 2n·(n−max) + (i² + ni) + (j² + nj) − 2ij + n(n+1)/2 − 2n²,   d = |i − j|

For any distribution p, with P = diag(p) and H = P^½GP^½, no strategy has a loss below (tr H^½)². With
E = μ + t²P⁻¹ (diagonal) and R = (T + E⁻¹)⁻¹, of a tridiagonal matrix, and G = G₀ + μ:

    tr H^½ = (2/π) ∫ tr H(H + t²)⁻¹ dt = (2/π) ∫ Σ_j [μ_j/E_j + (t²/p_j) R_jj/E_j²] dt,

positive terms only. The diagonal of R follows from the pivots in both directions. The terms of rank three
add (2/π) ∫ t²P^{-½}YCYᵀP^{-½} dt to the root, with Y = (G₀ + E)⁻¹Q = E⁻¹R(TQ) and C = (I + JQᵀY)⁻¹J. The
trapezoidal rule in log t converges exponentially. p ← p·v with v_j = (H^½)_jj/p_j increases the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.workload.family import Places

STEP = 0.6
"""Step in log t: the error of the trapezoidal rule is of the order exp(−π²/STEP), below 1e-7."""

REACH = 15.0
"""How far log t goes beyond the range of the eigenvalues."""

SURE = 1 - 2e-6
"""Bounds are multiplied by this, more than all errors of quadrature and rounding."""

EASY = 1e-10
"""Smallest weight of a prefix, relative to the largest, that recurrences take."""


@dataclass(frozen=True, eq=False)
class Path:
    """The Gram matrix of weighted prefixes, plus a diagonal, plus QJQᵀ."""

    prefixes: Array
    values: Array | None = None
    rows: Array | None = None
    """Qᵀ."""
    middle: Array | None = None
    """J."""
    added: float = 0.0
    """The sum of what was added to the weights of prefixes so that none is too small."""
    ends: Places | None = None
    """The last value of every one, if some of them are several values merged."""

    @property
    def surplus(self) -> float:
        """What weights that were added contribute at most to a bound.

        tr (A + B)^½ ≤ tr A^½ + tr B^½, and at any p the latter is at most the root of the least loss of these
        prefixes alone: all prefixes can be answered with variances of at most (1 + log(n)/π)².
        """
        return float(np.sqrt(self.added) * (1 + np.log(self.size) / np.pi))

    @property
    def size(self) -> int:
        """Number of values."""
        return self.prefixes.size

    def shared(self, p: Array) -> Array:
        """Return the weights of merged values, given those of all."""
        if self.ends is None or self.size == p.size:
            return p
        return np.asarray(np.add.reduceat(p, np.append(0, self.ends[:-1] + 1)))

    def span(self, p: Array) -> tuple[float, float]:
        """Return the range of log t that matters."""
        most = float(
            (self.prefixes.max() * 2) * self.size**2 + (0 if self.values is None else self.values.max())
        )
        least = float((self.prefixes * p).min()) / 8
        return 0.5 * np.log(least) - REACH, 0.5 * np.log(most) + REACH - 0.5 * np.log(self.size)

    def _matrix(self, inverse: Array) -> tuple[Array, Array]:
        """Return the diagonal of T + E⁻¹, and what lies beside it."""
        conductance = 1 / self.prefixes
        diagonal = conductance + inverse
        diagonal[1:] += conductance[:-1]
        return diagonal, -conductance[:-1]

    def _inverse(self, p: Array, t: float) -> Array:
        """Return E⁻¹."""
        own = p / t**2
        return own if self.values is None else np.asarray(own / (1 + self.values * own))

    def nodes(self, p: Array, step: float = STEP, reach: float = REACH) -> Array:
        """Return the nodes t of the quadrature."""
        low, high = self.span(p)
        return np.asarray(np.exp(np.arange(low + REACH - reach, high - REACH + reach, step)))

    def resolvent(self, p: Array, t: float) -> tuple[Array, Array, Array]:
        """Return E⁻¹, the diagonal of R, and R[j,j+1]/R[j+1,j+1], which is the same for all later columns."""
        from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

        inverse = self._inverse(p, t)
        own, beside = self._matrix(inverse)
        ahead = own if self.size == 1 else lapack.dpttrf(own, beside)[0]
        back = own if self.size == 1 else lapack.dpttrf(own[::-1], beside[::-1])[0][::-1]
        return inverse, 1 / (ahead + back - own), -beside / ahead[:-1]

    def root_diagonal(self, p: Array, step: float = STEP, reach: float = REACH) -> Array:
        """Return the diagonal of H^½, of which the sum is a bound."""
        result = np.zeros(self.size)
        for t in self.nodes(p, step, reach).tolist():
            inverse, r, _ = self.resolvent(p, t)
            result += t**3 * inverse**2 * r / p
            if self.values is not None:
                result += t * self.values * inverse
            if self.rows is not None:
                rows, middle = self.low_rank(p, t)
                result += t**3 * np.einsum("aj,ab,bj->j", rows, middle, rows) / p
        return np.asarray(result * (step * 2 / np.pi))

    def low_rank(self, p: Array, t: float) -> tuple[Array, Array]:
        """Return Yᵀ and C: QJQᵀ changes −(G₀ + E)⁻¹ by YCYᵀ."""
        assert self.rows is not None and self.middle is not None  # noqa: S101, PT018 - callers check
        rows = self._solved(p, t, self.rows)
        inside = np.eye(len(rows)) + self.middle @ (rows @ self.rows.T)
        return rows, np.asarray(np.linalg.solve(inside, self.middle))

    def _solved(self, p: Array, t: float, rows: Array) -> Array:
        """Return (G₀ + E)⁻¹ times columns, as rows: E⁻¹R(T rowsᵀ)."""
        from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

        flow = rows.copy()
        flow[:, :-1] -= rows[:, 1:]
        flow /= self.prefixes
        image = flow.copy()
        image[:, 1:] -= flow[:, :-1]
        inverse = self._inverse(p, t)
        own, beside = self._matrix(inverse)
        if self.size == 1:
            return np.asarray(inverse * image / own)
        solved = lapack.dpttrs(*lapack.dpttrf(own, beside)[:2], image.T)[0].T
        return np.asarray(inverse * solved)


def best_weights(path: Path, start: Array, steps: int) -> tuple[Array, float]:
    """Return a distribution p, and tr H^½ at it: a lower bound on √loss."""
    p = start / start.sum()
    best = p, 0.0
    for _ in range(steps):
        root = path.root_diagonal(p)
        bound = float(root.sum()) * SURE - path.surplus
        if bound > best[1]:
            best = p, bound
        p = p * (root / p) ** 1.5
        p /= p.sum()
    return best
