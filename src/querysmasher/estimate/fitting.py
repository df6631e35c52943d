"""Tables with given margins, for many of one shape at a time: of maximum entropy, or the nearest.

Iterative proportional fitting scales a table to one margin after the other. It converges to the table of
maximum entropy among those with these margins, if there is one and the first table is a product of functions
of the margins: here, that of independent attributes. Margins that do not fit together exactly, as noisy ones
may, are met nearly; the last one exactly.

Arrays have a leading axis that runs over tables. With C the centring along every axis, the margins of a table
determine its *lower part* L = x − Cx. The Euclidean projection of x onto the tables with given
margins is L + Cx. Dykstra's algorithm alternates it with the projection onto non-negative tables, and
converges to the projection onto the intersection, if there is one. With m the table before negative cells are
removed and y = max(m, 0) after, and m − y as correction, its step is m ← L + Cy + (m − y) = m + L − (y − Cy).
With M_a the mean along axis a, I − C = I − Π(I − M_a) = Σ_a Π_{b<a}(I − M_b) M_a: the step needs the means of
y along each axis only, and all else happens in tables that have an axis less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from querysmasher.arrays import Array

SWEEPS = 10
"""Number of rounds through all margins."""

NEARLY = 1e-9
"""Fraction of the records that a table may lack."""

Axes = tuple[int, ...]
"""Axes of a table, without the leading one, which runs over tables."""


def fitted(tables: Array, margins: Mapping[Axes, Array], sweeps: int = SWEEPS) -> Array:
    """Return tables scaled to the margins, in place; cells that are zero stay zero."""
    axes, sizes = range(tables.ndim - 1), tables.shape[1:]
    steps = [
        (tuple(a + 1 for a in axes if a not in kept), _spread(margin, kept, sizes))
        for kept, margin in margins.items()
    ]
    for _ in range(sweeps):
        for dropped, margin in steps:
            tables *= quotient(margin, tables.sum(axis=dropped, keepdims=True))
    return tables


def _spread(margins: Array, kept: Axes, sizes: Sequence[int]) -> Array:
    """Return margins on some axes of tables with an axis of length 1 for each of the others."""
    return margins.reshape(len(margins), *(n if axis in kept else 1 for axis, n in enumerate(sizes)))


def start(singles: Sequence[Array], pairs: Mapping[Axes, Array]) -> Array:
    """Return tables to start from: the product of all pairs, with repeated singles divided out.

    Without pairs, attributes are independent.
    """
    sizes = [single.shape[1] for single in singles]
    result = np.ones((len(singles[0]), *sizes))
    for kept, margin in pairs.items():
        result *= _spread(margin, kept, sizes)
    for axis, single in enumerate(singles):
        times = sum(axis in kept for kept in pairs) - 1
        fractions = single / np.maximum(single.sum(axis=1, keepdims=True), 1e-300)
        power = fractions if times < 0 else quotient(np.ones_like(single), fractions**times)
        result *= _spread(power, (axis,), sizes)
    return result


def filled(tables: Array, singles: Sequence[Array], masks: Array) -> Array:
    """Fill tables up to the sum of their singles, in place.

    Margins that contradict each other leave no cell for some records: these are spread over the cells of
    `masks` as if attributes were independent.
    """
    spread = tuple(range(1, tables.ndim))
    totals = singles[0].sum(axis=1)
    missing = totals - tables.sum(axis=spread)
    lost = missing > NEARLY * totals
    if lost.any():
        even = start([single[lost] for single in singles], {}) * (masks[lost] if masks.ndim else masks)
        scale = quotient(missing[lost], even.sum(axis=spread))
        tables[lost] += even * scale.reshape(-1, *[1] * len(spread))
    return tables


def quotient(upper: Array, lower: Array) -> Array:
    """Return a quotient, and zero where the divisor is not positive."""
    there = lower > 0
    if there.all():
        return upper / lower
    return np.divide(upper, lower, out=np.zeros(np.broadcast(upper, lower).shape), where=there)


STEPS = 15
"""Number of steps of Dykstra's algorithm; what is left is repaired exactly."""

EXACT = 1e-13
"""Means count as right if their error is below this fraction of the largest cell."""


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
        result -= result.mean(axis, keepdims=True)
    return result


def onto_margins(tables: Array, lower: Array, steps: int = STEPS) -> Array:
    """Return non-negative tables near the given ones, with nearly the margins of the lower part `lower`."""
    moved = centred(tables)
    moved += lower
    axes = range(1, tables.ndim)
    wanted = [lower.mean(axis, keepdims=True) for axis in axes]
    rest = tuple(axes)
    nearly = EXACT * np.abs(moved).max(axis=rest, initial=0.0, keepdims=True)
    for _ in range(steps - 1):
        current = np.maximum(moved, 0.0)
        wrong = [means - current.mean(axis, keepdims=True) for axis, means in zip(axes, wanted, strict=True)]
        worst = [np.abs(means).max(axis=rest, initial=0.0, keepdims=True) for means in wrong]
        moving = np.logical_or.reduce([error > nearly for error in worst])
        if not moving.any():
            break
        for axis, means in zip(axes, wrong, strict=True):
            step = means * moving  # each table stops by itself, whichever others there are
            for earlier in range(1, axis):
                step = step - step.mean(earlier, keepdims=True)
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


CELLS = 1_000_000
"""Maximum number of cells of a batch, unless a single table has more."""


def batches(sets: Sequence[Axes], sizes: Sequence[int]) -> Iterator[list[Axes]]:
    """Iterate over lists of sets with the same sizes in the same order."""
    by_shape: dict[tuple[int, ...], list[Axes]] = {}
    for subset in sets:
        by_shape.setdefault(tuple(sizes[a] for a in subset), []).append(subset)
    for shape, alike in by_shape.items():
        step = max(1, CELLS // max(1, math.prod(shape)))
        yield from (alike[start : start + step] for start in range(0, len(alike), step))


def arranged(values: Array, positions: Axes) -> Array:
    """Return a table over increasing attributes with its axes in another order."""
    ordered = sorted(positions)
    return values.transpose([ordered.index(p) for p in positions])
