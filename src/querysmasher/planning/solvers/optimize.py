"""Find the optimal weight design, by whichever method is fast for it."""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array, pivoted
from querysmasher.planning.grading import are_far_apart
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Design, Progress, evaluator
from querysmasher.planning.solvers.fixed_point import fixed_point
from querysmasher.planning.solvers.interior_point import interior_point


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
