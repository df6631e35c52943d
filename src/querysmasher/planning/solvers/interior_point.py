"""Primal–dual interior point for the weight design: quadratic convergence, also for sparse optima.

Maximise 2 tr M(λ)^½ − Σλ over λ ≥ 0. The gradient is v − 1 with v the leverages, so with slacks
z = 1 − v ≥ 0 the optimality conditions are λz = 0, and the Newton matrix is H + diag(z/λ), where in
the eigenbasis of M, with s² its eigenvalues and Y = QᵀR,

    H[i,j] = Σ_ab Y_ai Y_bi Y_aj Y_bj / (s_a s_b (s_a + s_b)).

As 1/(s_a + s_b) = ∫ exp(−t(s_a + s_b)) dt, a short quadrature in log t turns H into a sum of
entrywise squares of r-rank products, O(r·cells²) each, with no r²-sized array. H only steers the
steps: the certificate does not depend on the quadrature.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array, solve_cholesky
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Design, Progress


def interior_point(
    R: Array,
    start: Array,
    tolerance: float,
    progress: Progress | None = None,
) -> Array:
    """Return weights that sum to one whose design has a gap of at most `tolerance`, or the best found."""
    lam = np.maximum(start, 1e-3 * start.mean())
    design = Design.at(R, lam)
    lam = lam * (1.05 * design.leverages.max()) ** 2  # now v < 1: strictly inside
    design = Design.at(R, lam)
    z = np.maximum(1 - design.leverages, 1e-3)
    best, best_gap = lam, design.gap
    single = len(lam) > limits().double_cells
    for number in range(limits().interior_steps):
        v = design.leverages
        mu = float(lam @ z) / len(lam)
        H = hessian(design.roots, design.image, single=single)
        K = H.copy()
        K.flat[:: len(K) + 1] += z / lam
        try:
            factor = np.asarray(np.linalg.cholesky(K), dtype=float)
        except np.linalg.LinAlgError:
            if not single:
                break  # as exact as the arithmetic allows
            single = False
            continue
        dual = 1 - v - z
        # estimator, then corrector (Mehrotra)
        step = solve_cholesky(factor, v - 1)
        slack_step = H @ step + dual
        predicted = (lam + _length(lam, step) * step) @ (z + _length(z, slack_step) * slack_step)
        centring = (max(float(predicted), 0.0) / len(lam) / mu) ** 3
        centring = max(centring, 0.1) if number >= limits().interior_patience else centring
        target = (centring * mu - step * slack_step) / lam + v - 1
        step = solve_cholesky(factor, target)
        slack_step = H @ step + dual
        lam = lam + _length(lam, step) * step
        z = z + _length(z, slack_step) * slack_step
        design = Design.at(R, lam)
        if design.gap < best_gap:
            best, best_gap = lam, design.gap
        if progress is not None:
            progress(best_gap)
        if best_gap <= tolerance:
            break
    return best / best.sum()


def hessian(s: Array, Y: Array, spacing: float = 0.9, *, single: bool = False) -> Array:
    """Return H by quadrature; halving `spacing` squares its accuracy, `single` precision halves the time."""
    cells = Y.shape[1]
    kind = np.float32 if single else np.float64
    rows = Y.astype(kind)
    H = np.zeros((cells, cells), dtype=kind)
    for u in np.arange(np.log(1e-4 / (2 * s.max())), np.log(12 / (2 * s.min())), spacing):
        t = np.exp(u)
        weight = np.exp(-t * s) / s
        keep = weight > 1e-9 * weight.max()
        Z = np.sqrt(weight[keep]).astype(kind)[:, None] * rows[keep]
        product = Z.T @ Z  # a symmetric product takes half the work
        np.square(product, out=product)
        product *= float(spacing * t)
        H += product
    return H.astype(float)


def _length(x: Array, step: Array) -> float:
    """Return the largest fraction of `step`, at most 1, that stays within x > 0."""
    shrinking = step < 0
    if not shrinking.any():
        return 1.0
    return min(1.0, 0.995 * float(np.min(-x[shrinking] / step[shrinking])))
