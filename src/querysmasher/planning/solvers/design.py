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

The accelerated fixed point of a weight design: a few steps where the optimum is dense.

Primal–dual interior point for the weight design: quadratic convergence, also for sparse optima.

Maximise 2 tr M(λ)^½ − Σλ over λ ≥ 0. The gradient is v − 1 with v the leverages, so with slacks
z = 1 − v ≥ 0 the optimality conditions are λz = 0, and the Newton matrix is H + diag(z/λ), where in
the eigenbasis of M, with s² its eigenvalues and Y = QᵀR,

    H[i,j] = Σ_ab Y_ai Y_bi Y_aj Y_bj / (s_a s_b (s_a + s_b)).

As 1/(s_a + s_b) = ∫ exp(−t(s_a + s_b)) dt, a short quadrature in log t turns H into a sum of
entrywise squares of r-rank products, O(r·cells²) each, with no r²-sized array. H only steers the
steps: the certificate does not depend on the quadrature.

Find the optimal weight design, by whichever method is fast for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, TypeVar

import numpy as np

from querysmasher.arrays import Array, pivoted, solve_cholesky
from querysmasher.planning.grading import are_far_apart, graded_decomposition, is_graded
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


DEPTH = 6
"""Number of past steps from which the fixed-point iteration extrapolates."""

LEAST = 1e-14
"""Minimum of weights and leverages, which gives a logarithm to cells that no query counts."""


class Evaluated(Protocol):
    """What the fixed-point iteration needs of an iterate."""

    @property
    def weights(self) -> Array: ...
    @property
    def leverages(self) -> Array: ...
    @property
    def value(self) -> float: ...
    @property
    def gap(self) -> float: ...


E = TypeVar("E", bound=Evaluated)


def fixed_point(
    evaluate: Callable[[Array], E],
    start: Array,
    tolerance: float,
    steps: int,
    progress: Progress | None = None,
) -> E:
    """Iterate p ← p · v² / Σ, extrapolated from past steps (Anderson), until the gap closes or stalls.

    For a diagonal problem one such step is exact. Extrapolation makes it fast for others, and the
    certificate makes it safe: the best iterate is kept.
    """
    design = best = evaluate(start / start.sum())
    points: list[Array] = []
    residuals: list[Array] = []
    gaps = [design.gap]
    for step in range(steps):
        if progress is not None:
            progress(best.gap)
        if best.gap <= tolerance:
            break
        if step >= 12 and min(gaps[-6:]) > 0.5 * min(gaps[:-6]):
            break  # too slow: the optimum is sparse
        x = np.log(np.maximum(design.weights, LEAST))
        residual = 2 * np.log(np.maximum(design.leverages / design.value, LEAST))
        points, residuals = [*points[-DEPTH:], x], [*residuals[-DEPTH:], residual]
        move = residual
        if len(points) > 1:
            move = residual - _extrapolation(points, residuals, design.weights)
        x = x + np.minimum(np.maximum(move, -3), 3)
        p = np.maximum(np.exp(x - x.max()), LEAST)
        design = evaluate(p / p.sum())
        gaps.append(design.gap)
        best = min(best, design, key=lambda d: d.gap)
    return best


def _extrapolation(points: list[Array], residuals: list[Array], measure: Array) -> Array:
    """Return the part of the step that past steps already explain (weighted least squares)."""
    x, r = np.array(points), np.array(residuals)
    steps, changes = x[1:] - x[:-1], r[1:] - r[:-1]
    weighted = measure * changes
    normal = weighted @ changes.T
    normal.flat[:: len(normal) + 1] *= 1 + 1e-10
    mix = np.linalg.lstsq(normal, weighted @ residuals[-1], rcond=1e-14)[0]
    return np.asarray(mix @ (steps + changes))


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


def solve_design(
    R: Array, start: Array, tolerance: float, progress: Progress | None = None, *, enough: float = 0.0
) -> Design:
    """Return a design whose gap is at most `tolerance`, or the best one found.

    The accelerated fixed point reaches dense optima (prefixes, ranges, marginals) in a few steps. If it
    stalls, as it does for sparse optima, the interior-point method takes over, unless its steps take long and
    a gap of at most `enough` is reached.
    """
    cells, rank = R.shape[1], len(R)
    thin = cells > limits().light_cells and cells > 6 * rank
    takes_all = (cells <= limits().interior_cells and not thin) or cells <= 3 * rank
    if not takes_all and np.count_nonzero(start > start.mean() / 20) <= cells / 4:
        return _active_set(R, Design.at(R, start), tolerance, progress)  # from a sparse optimum nearby
    steps = 40 if cells <= 4 * rank else 60
    design = fixed_point(evaluator(R), start, tolerance, steps, progress)
    heavy = rank * min(cells, 3 * rank) ** 2 > limits().interior_work
    if design.gap <= (max(tolerance, enough) if heavy else tolerance):
        return design
    if takes_all:
        weights = interior_point(R, design.weights, tolerance, progress)
        best = min(design, Design.at(R, weights), key=lambda d: d.gap)
        return _plain_steps(R, best, tolerance) if are_far_apart(R) else best
    return _active_set(R, design, tolerance, progress)


def _plain_steps(R: Array, design: Design, tolerance: float) -> Design:
    """Iterate p ← p·v² / Σ without acceleration: many steps, but no scale is too small."""
    best = design
    for _ in range(limits().plain_steps):
        if best.gap <= tolerance:
            break
        p = np.maximum(design.weights * (design.leverages / design.value) ** 2, np.finfo(float).tiny)
        design = Design.at(R, p / p.sum())
        best = min(best, design, key=lambda d: d.gap)
    return best


def _active_set(R: Array, design: Design, tolerance: float, progress: Progress | None) -> Design:
    """Solve on the cells that matter, add those that violate the optimality condition, repeat."""
    rank, cells = R.shape
    _, pivots = pivoted(R)
    heavy = np.argsort(design.weights)[-3 * rank :]
    active = np.union1d(heavy, pivots[:rank])
    best = design
    for _ in range(8):
        start = np.maximum(design.weights[active], 1e-3 / cells)
        found = interior_point(R[:, active], start, tolerance / 4, progress)
        p = np.zeros(cells)
        p[active] = found
        design = Design.at(R, p)
        best = min(best, design, key=lambda d: d.gap)
        if best.gap <= tolerance:
            break
        support = active[found > 1e-9 * found.max()]
        violators = np.flatnonzero(design.leverages > design.value * (1 + tolerance / 2))
        worst = violators[np.argsort(design.leverages[violators])[-2 * rank :]]
        active = np.union1d(np.union1d(support, worst), pivots[:rank])
    return best
