"""Projections onto non-negative tables with given margins, for many tables of one shape at a time.

Arrays have a leading axis that runs over tables. With C the centring along every axis, the margins of
a table determine its *lower part* L = x − Cx. The Euclidean projection of x onto the tables with given
margins is L + Cx. Dykstra's algorithm alternates it with the projection onto non-negative tables, and
converges to the projection onto the intersection, if there is one.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.completion import quotient

STEPS = 30
"""Number of steps of Dykstra's algorithm; what is left is repaired exactly."""


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
        result -= np.add.reduce(result, axis=axis, keepdims=True) / result.shape[axis]
    return result


def onto_margins(tables: Array, lower: Array, steps: int = STEPS) -> Array:
    """Return non-negative tables near to the given ones, with nearly the margins that `lower` consists of."""
    correction = np.zeros_like(tables)
    current = tables
    for _ in range(steps):
        moved = centred(current)
        moved += lower
        moved += correction
        current = np.maximum(moved, 0.0)
        correction = np.subtract(moved, current, out=moved)
    return current


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
