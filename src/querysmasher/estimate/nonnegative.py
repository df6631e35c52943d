"""Projections onto non-negative tables with given margins, for many tables of one shape at a time.

Arrays have a leading axis that runs over tables. With C the centring along every axis, the margins of
a table determine its *lower part* L = x − Cx. The Euclidean projection of x onto the tables with given
margins is L + Cx. Dykstra's algorithm alternates it with the projection onto non-negative tables, and
converges to the projection onto the intersection, if there is one. With m the table before negative cells are
removed and y = max(m, 0) after, and m − y as correction, its step is m ← L + Cy + (m − y) = m + L − (y − Cy).
With M_a the mean along axis a, I − C = I − Π(I − M_a) = Σ_a Π_{b<a}(I − M_b) M_a: the step needs the means of
y along each axis only, and all else happens in tables that have an axis less.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.completion import quotient, summed

STEPS = 30
"""Number of steps of Dykstra's algorithm; what is left is repaired exactly."""

EXACT = 1e-13
"""Means that are wrong by less than this fraction of the largest cell are right."""


def onto_simplex(values: Array, total: float) -> Array:
    """Return the nearest points x ≥ 0 with sum `total` ≥ 0, one per row."""
    ordered = -np.sort(-values, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - total) / np.arange(1, values.shape[-1] + 1)
    kept = np.maximum((ordered > excess).sum(axis=-1, keepdims=True), 1)
    level = np.take_along_axis(excess, kept - 1, axis=-1)
    return np.maximum(values - level, 0.0)


def centred(tables: Array) -> Array:
    """Return C x: what is left after the means along every axis but the first are taken off."""
    result = np.array(tables, dtype=float)
    for axis in range(1, result.ndim):
        result -= mean(result, axis)
    return result


def mean(tables: Array, axis: int) -> Array:
    """Return the means along an axis, which stays with length 1."""
    return summed(tables, (axis,)) / tables.shape[axis]


def onto_margins(tables: Array, lower: Array, steps: int = STEPS) -> Array:
    """Return non-negative tables near to the given ones, with nearly the margins that `lower` consists of."""
    moved = centred(tables)
    moved += lower
    axes = range(1, tables.ndim)
    wanted = [mean(lower, axis) for axis in axes]
    rest = tuple(axes)
    nearly = EXACT * np.abs(moved).max(axis=rest, initial=0.0, keepdims=True)
    for _ in range(steps - 1):
        current = np.maximum(moved, 0.0)
        wrong = [own - mean(current, axis) for axis, own in zip(axes, wanted, strict=True)]
        moving = np.zeros(nearly.shape, dtype=bool)
        for own in wrong:
            moving |= np.abs(own).max(axis=rest, initial=0.0, keepdims=True) > nearly
        if not moving.any():
            break
        for axis, own in zip(axes, wrong, strict=True):
            step = own * moving  # each table stops by itself, whichever others there are
            for earlier in range(1, axis):
                step = step - mean(step, earlier)
            moved += step
    return np.maximum(moved, 0.0, out=moved)


def with_margins(tables: Array, rows: Array, columns: Array) -> Array:
    """Return non-negative pairs near to the given ones with exactly these margins, which have equal sums.

    Rows and columns that are too heavy are scaled down, and the deficits are filled up by their product. This
    moves at most twice what the margins were wrong by.
    """
    tables = tables * np.minimum(1.0, quotient(rows, tables.sum(axis=2)))[:, :, None]
    tables *= np.minimum(1.0, quotient(columns, tables.sum(axis=1)))[:, None, :]
    left = np.maximum(rows - tables.sum(axis=2), 0.0)
    below = np.maximum(columns - tables.sum(axis=1), 0.0)
    missing = left.sum(axis=1)
    tables += left[:, :, None] * quotient(below, missing[:, None])[:, None, :]
    return tables
