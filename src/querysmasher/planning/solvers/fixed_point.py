"""The accelerated fixed point of a weight design: a few steps where the optimum is dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.solvers.design import Progress

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
