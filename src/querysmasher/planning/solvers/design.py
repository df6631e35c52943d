"""The optimal strategy of some queries, as the design of one weight per cell.

For queries with Gram G = RᵀR (R: r × cells, independent rows) the best strategy of unit cost has loss L
with  √L = max over p ≥ 0, Σp = 1 of tr M(p)^½,  M(p) = R diag(p) Rᵀ.  Any p with M ≻ 0 gives a strategy
V = RᵀM^{-½}R and, with the leverages v = diag V, both bounds at once:

    tr(M^½)² ≤ L ≤ tr(M^½) · max_j v_j

so every iterate is certified, and at the optimum v_j = tr M^½ wherever p_j > 0.

One square root comes close already. With s the diagonal of G^½, p ∝ s² has tr(M^½)² ≥ Σs² (`bounds`). Where G
has full rank and no centre is to be kept, D G^½ D with D = diag(s^{-½}) is a strategy of unit sensitivity, so
that Σs² ≤ L ≤ Σ_ij √s_i G_ij √s_j (G^{-½})_ij; the search for centres uses it.

Two iterations find the optimum. The accelerated fixed point takes a few steps where the optimum is dense
(prefixes, ranges, marginals). Where it is sparse, a primal-dual interior point takes over, on the cells that
matter: maximise 2 tr M(λ)^½ − Σλ over λ ≥ 0. The gradient is v − 1, so with slacks z = 1 − v ≥ 0 the
optimality conditions are λz = 0, and the Newton matrix is H + diag(z/λ), where in the eigenbasis of M, with
s² its eigenvalues and Y = QᵀR,

    H[i,j] = Σ_ab Y_ai Y_bi Y_aj Y_bj / (s_a s_b (s_a + s_b)).

As 1/(s_a + s_b) = ∫ exp(−t(s_a + s_b)) dt, a short quadrature in log t turns H into a sum of entrywise
squares of r-rank products, O(r·cells²) each, with no r²-sized array. H only steers the steps: the certificate
does not depend on the quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, HALF, ROUNDING, Array, pivoted, solve_cholesky, square_root
from querysmasher.planning.grading import graded_decomposition, is_graded, lengths
from querysmasher.planning.limits import limits


@dataclass(frozen=True, eq=False)
class Iterate:
    """Weights of the cells, which need not sum to one, and the bounds that follow from them."""

    weights: Array
    leverages: Array
    trace_root: float
    """tr M^½ of these weights."""

    @property
    def value(self) -> float:
        """The trace root of the weights scaled to sum to one: a lower bound on √L."""
        return self.trace_root / math.sqrt(self.weights.sum())

    @property
    def upper(self) -> float:
        """An upper bound on √L: what the strategy reaches."""
        return math.sqrt(self.trace_root * self.leverages.max())

    @property
    def gap(self) -> float:
        """Upper bound on how far the RMSE of the strategy exceeds the optimum, as a fraction."""
        return self.upper / self.value - 1


@dataclass(frozen=True, eq=False)
class Design(Iterate):
    """An iterate, with the decomposition that determines its strategy."""

    roots: Array
    """The square roots s of the eigenvalues of M(p) = Q diag(s²) Qᵀ."""
    image: Array
    """Y = QᵀR."""

    @classmethod
    def of(cls, weights: Array, roots: Array, image: Array) -> Design:
        """Return the design with leverages from s and Y."""
        leverages = np.einsum("ij,ij,i->j", image, image, 1 / roots)
        return cls(weights, leverages, float(roots.sum()), roots, image)

    @classmethod
    def at(cls, R: Array, p: Array) -> Design:
        """Evaluate the design with weights p, which need not sum to one."""
        M = np.zeros((len(R), len(R)))
        for piece in _pieces(R.shape[1], len(R)):
            X = R[:, piece] * np.sqrt(p[piece])
            M += X @ X.T  # a symmetric product takes half the work
        eigenvalues, Q = np.linalg.eigh(M)
        if eigenvalues[0] < ROUNDING * eigenvalues[-1]:  # too few digits are left
            if not (graded := is_graded(R)):
                _refine(eigenvalues, Q, R * np.sqrt(p))
            if graded or eigenvalues[0] < ROUNDING**2 * eigenvalues[-1]:
                return cls.of(p, *graded_decomposition(R, p))
        return cls.of(p, np.sqrt(eigenvalues), Q.T @ R)

    @classmethod
    def of_gram(cls, gram: Array, rank: int, p: Array, root: Array | None = None) -> Design:
        """Evaluate the weights p, given G = RᵀR and its rank: one decomposition, and no matrix product.

        With P^½GP^½ = U diag(s²) Uᵀ the polar decomposition of RP^½ gives Y = diag(s) UᵀP^{-½}. Small s²,
        which lose their digits there, are those of RP^½ on the span of their vectors, if R is given.
        """
        r = np.sqrt(p)
        eigenvalues, U = np.linalg.eigh(gram * (r[:, None] * r))
        if root is not None and eigenvalues[-rank] < HALF * eigenvalues[-1]:
            _refine(eigenvalues, U, (root * r).T)
        squares = eigenvalues[-rank:]
        s = np.sqrt(np.maximum(squares, squares[-1] * 1e-30))
        return Design.of(p, s, s[:, None] * U[:, -rank:].T / r)

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
        touched = squares > ROUNDING**2 * squares.max(axis=1, keepdims=True)
        gains = np.ones(len(rows))
        for _ in range(50):
            room = 1 / np.maximum(gains @ squares, ROUNDING**2)
            step = np.maximum(np.min(np.where(touched, room, np.inf), axis=1), 1.0)
            gains *= step
            if step.max() < 1.01:
                break
        cost = float((gains @ squares).max())
        loss = self.leverages.max() * cost * float(np.sum(self.roots / gains))
        return rows * np.sqrt(gains / cost)[:, None], float(np.sqrt(loss))


@dataclass(frozen=True, eq=False)
class Levelled(Design):
    """A design of queries without centre, with Gram matrix G: the strategy's columns have length one.

    The strategy is DVD, D = diag(v^{-½}). Its excess over the optimum is the square of that of `Design`.
    """

    gram: Array

    @classmethod
    def of_gram(cls, gram: Array, rank: int, p: Array, root: Array | None = None) -> Levelled:
        plain = Design.of_gram(gram, rank, p, root)
        return cls(p, plain.leverages, plain.trace_root, plain.roots, plain.image, gram)

    @cached_property
    def inverse(self) -> Array:
        """D⁻¹V⁻¹D⁻¹."""
        half = self.image * (self.weights * np.sqrt(self.leverages)) / self.roots[:, None] ** 1.5
        return half.T @ half

    @cached_property
    def upper(self) -> float:
        """An upper bound on √L, unless G is singular: then that of the design."""
        if len(self.roots) < len(self.weights):
            return super().upper
        return math.sqrt(float(np.vdot(self.gram, self.inverse)))

    def strategy(self) -> Array:
        """Return the rows B = M^{-¼}RD, if G is regular."""
        return self.image / np.sqrt(self.roots[:, None] * self.leverages)


def _refine(eigenvalues: Array, vectors: Array, rows: Array) -> None:
    """Restore digits of the small eigenvalues of rows·rowsᵀ, from the rows on the span of their vectors."""
    low = int(np.searchsorted(eigenvalues, HALF * eigenvalues[-1]))
    projected = vectors[:, :low].T @ rows
    eigenvalues[:low], turn = np.linalg.eigh(projected @ projected.T)
    vectors[:, :low] = vectors[:, :low] @ turn


def _pieces(cells: int, rank: int) -> list[slice]:
    step = max(1, CHUNK // rank)
    return [slice(start, start + step) for start in range(0, cells, step)]


def _is_wide(R: Array) -> bool:
    """Return whether R has so few queries on so many cells that the time of matrix products counts."""
    return R.shape[1] > max(4 * len(R), limits().threaded_cells)


def evaluator(R: Array) -> Callable[[Array], Iterate]:
    """Return a function that evaluates designs of the rows R, with as little work as their shape allows.

    Few rows on many cells are multiplied in single precision. If there are nearly as many rows as cells, and
    many, a Gram matrix takes the place of products.
    """
    graded, (rank, cells) = is_graded(R), R.shape
    if graded or rank < 0.8 * cells or cells <= limits().light_cells:
        return _single_evaluator(R) if _is_wide(R) and not graded else partial(Design.at, R)
    gram = R.T @ R

    def at(p: Array) -> Iterate:
        design = Design.of_gram(gram, rank, p, R)
        if design.roots[0] < ROUNDING * design.roots[-1]:
            return Design.of(p, *graded_decomposition(R, p))
        is_lost = design.roots[0] < HALF * design.roots[-1]  # half the digits of its image
        return Iterate(p, design.leverages, design.trace_root) if is_lost else design

    return at


def _single_evaluator(R: Array) -> Callable[[Array], Iterate]:
    """Return a function that evaluates designs of few queries on many cells in single precision.

    Rows of unit length keep seven digits of every direction if they are orthogonal, however far apart the
    queries are in size. M(p) is decomposed in double precision. Rounding errors cost accuracy of the optimum,
    never of its certificate, which is that of `Design.at`.
    """
    scales = lengths(R)
    columns = np.empty(R.T.shape, dtype=np.float32)
    pieces = _pieces(R.shape[1], len(R))
    for piece in pieces:
        columns[piece] = (R[:, piece] / scales[:, None]).T

    def at(p: Array) -> Iterate:
        roots = np.sqrt(p).astype(np.float32)
        unit = np.zeros((len(scales), len(scales)))
        for piece in pieces:
            X = columns[piece] * roots[piece, None]
            unit += X.T @ X
        eigenvalues, Q = np.linalg.eigh(unit * np.outer(scales, scales))
        s = np.sqrt(np.maximum(eigenvalues, eigenvalues[-1] * 1e-24))
        triangle = np.asarray(np.linalg.qr((Q / np.sqrt(s)).T * scales, mode="r"), dtype=np.float32)
        images = (_upper_product(triangle, columns[piece].T) for piece in pieces)
        leverages = np.concatenate([np.einsum("ij,ij->j", Y, Y) for Y in images])
        return Iterate(p, leverages.astype(float), float(s.sum()))

    return at


def _upper_product(triangle: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """Multiply by an upper triangular matrix, quarter by quarter: little more than half the work."""
    half = len(triangle) // 2
    if half < 32:
        return np.asarray(triangle @ right)
    above = _upper_product(triangle[:half, :half], right[:half])
    above += triangle[:half, half:] @ right[half:]
    return np.concatenate([above, _upper_product(triangle[half:, half:], right[half:])])


NEAR = 3e-4
"""The gap at which the weights of pairs are good enough for a bound."""


class Differences:
    """The differences of all pairs of columns of R, as columns that are made when they are asked for.

    A design of their weights, in place of those of cells, is the best strategy if a record is replaced: M(p)
    is R times the Laplacian of the graph of pairs times Rᵀ, and v the squared distances of the columns of B.
    Of several measurements of the same cells, M(p) has the blocks on its diagonal only, and v adds up.
    """

    def __init__(
        self, R: Array, classes: NDArray[np.int64] | None = None, counts: Iterable[int] | None = None
    ) -> None:
        """Take rows of which no combination is constant, on any class of columns that pairs stay in.

        `counts` are the numbers of rows of each measurement, if there are several.
        """
        stops = list(accumulate([len(R)] if counts is None else counts))
        self.R, self.parts = R, [slice(*ends) for ends in pairwise([0, *stops])]
        self.first, self.second = np.triu_indices(R.shape[1], 1)
        if classes is not None:
            same = classes[self.first] == classes[self.second]
            self.first, self.second = self.first[same], self.second[same]
        self.shape = len(R), len(self.first)

    def __getitem__(self, index: tuple[slice, Any]) -> Array:
        """Return the columns at some indexes."""
        rows, at = index
        return self.R[rows, self.first[at]] - self.R[rows, self.second[at]]

    def at(self, p: Array) -> Design:
        """Evaluate the design with these weights of pairs, which need not sum to one."""
        laplacian = np.zeros((self.R.shape[1],) * 2)
        laplacian[self.first, self.second] = -p
        laplacian += laplacian.T
        laplacian.flat[:: len(laplacian) + 1] = -laplacian.sum(axis=0)
        M, roots, image = self.R @ laplacian @ self.R.T, np.empty(len(self.R)), np.empty_like(self.R)
        for part in self.parts:
            rows = self.R[part]
            eigenvalues, Q = np.linalg.eigh(M[part, part])
            if eigenvalues[0] < ROUNDING * eigenvalues[-1]:  # too few digits are left
                centred = rows - rows.mean(axis=1, keepdims=True)
                _refine(eigenvalues, Q, centred @ square_root(laplacian, ROUNDING).T)
            roots[part] = np.sqrt(np.maximum(eigenvalues, ROUNDING**2 * eigenvalues[-1]))
            image[part] = Q.T @ rows
        products = (image / roots[:, None]).T @ image
        squares = np.diagonal(products)
        distances = squares[self.first] + squares[self.second] - 2 * products[self.first, self.second]
        return Design(p, distances, float(roots.sum()), roots, image)


def solve_pairs(R: Array, tolerance: float, classes: NDArray[np.int64] | None = None) -> Design:
    """Return a design of weights of pairs with a gap of at most `tolerance`, or more for many pairs.

    With classes of columns, only pairs of the same class count.
    """
    columns = Differences(R, classes)
    design = fixed_point(columns.at, np.ones(columns.shape[1]), tolerance, 80, patience=20)
    many = columns.shape[1] > limits().light_cells  # for which the interior point takes seconds
    if design.gap > (4 * limits().whole_nearness if many else 1) * tolerance:
        closer = _on_active_cells(columns, columns.at, design, (2 if many else 1) * tolerance, True)
        design = closer if isinstance(closer, Design) else columns.at(closer.weights)
    return design


def value_of_pairs(roots: Sequence[Array], classes: NDArray[np.int64]) -> float:
    """Return a lower bound on the sum of √L of measurements whose costs add up for the same pair of columns.

    Only pairs of the same class count.
    """
    columns = Differences(np.concatenate(roots), classes, map(len, roots))
    design = fixed_point(columns.at, np.ones(columns.shape[1]), NEAR, 400, patience=40)
    return design.value * (1 - ROUNDING)


GROUPS = 32
"""Maximum number of groups of cells for which all pairs are weighed, where cells are many."""


def pairs_of_groups(gram: Array) -> Array:
    """Return the joint distribution of the groups of both cells of a pair that is best for means over groups.

    `gram` is the Gram matrix of the means of the queries.
    """
    centred = gram - gram.mean(axis=0)
    pairs = Differences(square_root(centred - centred.mean(axis=1, keepdims=True), ROUNDING))
    joint = np.zeros_like(gram)
    joint[pairs.first, pairs.second] = solve_pairs(pairs.R, 1e-2).weights
    joint = joint + joint.T + 1e-6 * joint.max()
    return np.asarray(joint / joint.sum())


def value_of_groups(R: Array, labels: NDArray[np.intp], joint: Array) -> float:
    """Return a lower bound on tr (R(D - C)Rᵀ)^½: groups drawn jointly, and cells evenly within a group."""
    ends, inside = joint.sum(axis=1), (labels[:, None] == np.arange(len(joint))).astype(float)
    weighted = R * (ends / inside.sum(axis=0))[labels]
    both = weighted @ inside
    values = np.linalg.eigvalsh(weighted @ R.T - both @ (joint / np.outer(ends, ends)) @ both.T)
    return float(np.sqrt(values[values > ROUNDING * values[-1]]).sum())


def solve_design(R: Array, start: Array, tolerance: float, *, enough: float = 0.0) -> Design:
    """Return a design whose gap is at most `tolerance`, or the best one found.

    Few queries on many cells continue with the fixed point, on the cells with the largest weights. The
    interior point follows if the gap is still too large. If its steps take long, a gap of `enough` is
    accepted, and few queries on many cells omit it. Very few queries start with the interior point on a few
    extreme cells: if columns lie on straight lines, as those of sums, only the ends have weight.
    """
    rank, cells = R.shape
    evaluate, wide, enough = evaluator(R), _is_wide(R), max(tolerance, enough)
    if cells > max(4, limits().light_cells) * rank:
        ends = np.zeros(cells)
        ends[pivoted(R)[1][:rank]] = 1 / rank
        design = _on_active_cells(R, evaluate, evaluate(ends), tolerance, True)
        if design.gap <= tolerance:
            return design if isinstance(design, Design) else Design.at(R, design.weights)
    start = _graded_start(R, start, tolerance) if is_graded(R) else start
    design = fixed_point(evaluate, start, tolerance, 6 if wide and cells > 30 * rank else 60)
    if wide and design.gap > tolerance:
        accepted = enough if cells * rank**2 > limits().interior_work else tolerance
        design = _on_active_cells(R, evaluate, design, accepted, False)
    weighed = np.count_nonzero(design.weights > 1e-4 * design.weights.max())
    heavy = rank * weighed**2 > limits().interior_work
    accepted = enough if heavy else 4 * tolerance if wide else tolerance
    if design.gap > accepted and not (wide and heavy):
        design = _on_active_cells(R, evaluate, design, tolerance, True)
    return design if isinstance(design, Design) else Design.at(R, design.weights)


def _graded_start(R: Array, start: Array, tolerance: float) -> Array:
    """Return weights near the best for rows far apart: those of the long rows, and a little for the short.

    Cells that the long rows do not distinguish divide their weight as suits the short rows. A cell also gets
    its best weight for the short rows alone, times the squared ratio of their value to that of the long ones;
    more, the less leverage the long rows leave free at the cell. The numbers were found by trial.
    """
    sizes = lengths(R)
    long = sizes > math.sqrt(ROUNDING) * sizes.max()
    columns, back = equal_columns(R[long])
    first = solve_design(R[long][:, columns], np.bincount(back, start).astype(float), tolerance / 2)
    rest = solve_design(R[~long], start, tolerance / 2)
    near, ratio = rest.weights + 0.01 * start / start.sum(), rest.value / first.value
    spared = np.maximum(1 - first.leverages / first.value, ROUNDING)
    spread = np.where(spared < 0.5, first.weights, 0.0) / np.bincount(back, near)
    more = np.minimum(2 * ratio**2 / spared**8, max(ratio, tolerance / 4))
    return (spread + more)[back] * near


def equal_columns(rows: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the index of the first of every distinct column, and which of these equals each column."""
    # Each row in its own scale if they are far apart: short rows, too, must distinguish cells.
    scale = np.abs(rows).max(axis=1 if is_graded(rows) else None, keepdims=True)
    scale = np.maximum(scale, np.finfo(float).tiny)
    rounded = np.round(rows / scale, 10) + 0.0
    _, first, back = np.unique(rounded, axis=1, return_index=True, return_inverse=True)
    return first, back


def _on_active_cells(
    R: Array | Differences,
    evaluate: Callable[[Array], Iterate],
    design: Iterate,
    tolerance: float,
    interior: bool,
) -> Iterate:
    """Improve the weights of a few cells per query, add cells that violate the optimality condition, repeat.

    The interior point takes fewer cells than the fixed point.
    """
    per_query = 3 if interior else 40
    rank, cells = R.shape
    active = pivots = np.arange(cells)
    if cells > max(limits().light_cells, per_query * rank):
        heaviest = np.argsort(design.weights)
        pool = heaviest[-10 * rank :]
        pivots = pool[pivoted(R[:, pool])[1][:rank]]  # so that M is regular
        active = np.union1d(heaviest[-per_query * rank :], pivots)
    best, worst, stalled = design, pivots, 0
    for _ in range(8):
        p = np.zeros(cells)
        near = design.weights * (design.leverages / design.value) ** 2
        near[worst] = np.maximum(near[worst], 4 * design.gap / len(active))
        rows, near = R[:, active], near[active]
        if interior:
            p[active] = interior_point(rows, near, tolerance / 4)
        else:
            p[active] = fixed_point(evaluator(rows), near, tolerance / 2, 30).weights
        before, design = design.gap, evaluate(p)
        stalled = stalled + 1 if design.gap > 0.95 * before else 0
        best = min(best, design, key=lambda d: d.gap)
        if best.gap <= tolerance or stalled == (1 if interior and len(active) == cells else 3):
            break
        violators = np.flatnonzero(design.leverages > design.value * (1 + tolerance / 2))
        worst = violators[np.argsort(design.leverages[violators])[-per_query * rank :]]
        support = np.flatnonzero(p > (1e-9 if interior else 1e-4) * p.max())
        active = np.union1d(np.union1d(support, worst), pivots)
    return best


Evaluated = TypeVar("Evaluated", bound=Iterate)


def fixed_point(
    evaluate: Callable[[Array], Evaluated], start: Array, tolerance: float, steps: int, patience: int = 6
) -> Evaluated:
    """Iterate p ← p · v² / Σ, extrapolated from past steps (Anderson), until the gap closes or stalls.

    It stalls if it is not halved in as many steps as `patience` says. For a diagonal problem one such step
    is exact. Extrapolation makes it fast for others, and the certificate makes it safe: the best iterate is
    kept.
    """
    design = best = evaluate(start / start.sum())
    points: list[Array] = []
    residuals: list[Array] = []
    gaps = [design.gap]
    for step in range(steps):
        if best.gap <= tolerance:
            break
        if step >= 2 * patience and min(gaps[-patience:]) > 0.5 * min(gaps[:-patience]):
            break  # too slow: the optimum is sparse
        x = np.log(np.maximum(design.weights, ROUNDING))
        residual = 2 * np.log(np.maximum(design.leverages / design.value, ROUNDING))
        points, residuals = [*points[-6:], x], [*residuals[-6:], residual]
        move = residual
        if len(points) > 1:
            move = residual - _extrapolation(points, residuals, design.weights)
        x = x + np.minimum(np.maximum(move, -3), 3)
        p = np.maximum(np.exp(x - x.max()), ROUNDING)
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


def interior_point(R: Array, start: Array, tolerance: float) -> Array:
    """Return weights that sum to one whose design has a gap of at most `tolerance`, or the best found."""
    many = len(start) > limits().light_cells

    def curvature(design: Design, rough: bool) -> Array:
        return hessian(design.roots, design.image, single=many and rough)

    return newton(partial(Design.at, R), curvature, start, tolerance)


def newton(
    evaluate: Callable[[Array], Evaluated],
    curvature: Callable[[Evaluated, bool], Array],
    start: Array,
    tolerance: float,
) -> Array:
    """Maximise 2 tr M(λ)^½ − Σλ; return the weights λ / Σλ when the gap is small, or the best found.

    `curvature` returns H at a design: quicker and less exactly, if its second argument is true.
    """
    lam = np.maximum(start, 1e-3 * start.mean())
    lam = lam * (1.05 * evaluate(lam).leverages.max()) ** 2  # now v < 1: strictly inside
    design = evaluate(lam)
    z = np.maximum(1 - design.leverages, 1e-3)
    best, best_gap, closest = lam, design.gap, 0
    rough = True
    for number in range(40):
        if number >= closest + 9:
            break  # rounding errors lead the way: it comes no closer
        v = design.leverages
        mu = float(lam @ z) / len(lam)
        H = curvature(design, rough)
        K = H.copy()
        K.flat[:: len(K) + 1] += z / lam
        try:
            factor = np.asarray(np.linalg.cholesky(K), dtype=float)
        except np.linalg.LinAlgError:
            if not rough:
                break  # as exact as the arithmetic allows
            rough = False
            continue
        dual = 1 - v - z
        # predictor, then corrector (Mehrotra)
        step = solve_cholesky(factor, v - 1)
        slack_step = H @ step + dual
        predicted = (lam + _length(lam, step) * step) @ (z + _length(z, slack_step) * slack_step)
        centring = (max(float(predicted), 0.0) / len(lam) / mu) ** 3
        if number >= 15:  # three times the usual number: weights are too close to zero to continue
            centring = max(centring, 0.1)
        target = (centring * mu - step * slack_step) / lam + v - 1
        step = solve_cholesky(factor, target)
        slack_step = H @ step + dual
        lam = lam + _length(lam, step) * step
        z = z + _length(z, slack_step) * slack_step
        design = evaluate(lam)
        if design.gap < best_gap:
            best, best_gap, closest = lam, design.gap, number
        if best_gap <= tolerance:
            break
    return best / best.sum()


def hessian(s: Array, Y: Array, spacing: float = 0.9, *, single: bool = False) -> Array:
    """Return H, exactly if queries are few, else by quadrature: halving `spacing` squares the error."""
    cells = Y.shape[1]
    if len(s) ** 2 * cells <= CHUNK:
        a, b = np.triu_indices(len(s))
        products = Y[a] * Y[b] * np.sqrt((2.0 - (a == b)) / (s[a] * s[b] * (s[a] + s[b])))[:, None]
        return products.T @ products
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
    return min(1.0, 0.995 * float(np.min(-x[shrinking] / step[shrinking], initial=math.inf)))
