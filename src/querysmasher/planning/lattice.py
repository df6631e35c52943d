"""Integer rows that span exactly what a family leaves on an attribute set.

A family with few queries spans only a subspace of a residual space. A strategy that is rounded to integers
stays in that subspace only if it is an integer combination of such rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, triangle_of
from querysmasher.planning.centre import Centre
from querysmasher.planning.grading import are_far_apart, lengths
from querysmasher.workload.families import Family

Integers = NDArray[np.int64]

LARGEST = 2**40
"""Maximum size of an entry of a row for exact measurement."""

MOST_DENOMINATOR = 5_040
"""Maximum common denominator of fractions."""

EXACT = 1e-14
"""Numbers closer to an integer than this fraction of themselves differ from it by rounding error."""

WIDE = 5_000_000
"""Rows with more entries in all are decomposed by pieces."""

RANK = 1e-9
"""Pivots below this fraction of the largest are rounding error."""


def project(rows: Integers, shape: Sequence[int], centres: Sequence[Integers]) -> Integers:
    """Multiply integer rows by K·C = K·I − k1ᵀ along every axis, into integer rows of the residual space."""
    tensor = rows.reshape(-1, *shape)
    for axis, k in enumerate(centres, start=1):
        tensor = int(k.sum()) * tensor - np.expand_dims(np.tensordot(tensor, k, axes=(axis, 0)), axis)
    return tensor.reshape(len(rows), -1)


def lattice_rows(
    family: Family, order: Sequence[int], kept: Sequence[int], centres: Sequence[Centre]
) -> Integers | None:
    """Return independent integer rows spanning what `family`, its axes taken in `order`, leaves on `kept`.

    Return None if they span the whole residual space, so that any rounding stays inside, or if the queries or
    the centres are not ratios of integers.
    """
    whole = integer_rows(family.matrix())
    exact = [centre.integers for centre in centres]
    if whole is None or any(k is None for k in exact):
        return None
    ratios = [k for k in exact if k is not None]
    tensor = whole.reshape(-1, *family.shape).transpose(0, *(1 + a for a in order))
    room = float(np.abs(whole).max()) * math.prod(int(k.sum()) for k in ratios)
    if room > LARGEST:
        return None
    for axis in reversed(range(len(ratios))):
        if axis not in kept:
            tensor = np.tensordot(tensor, ratios[axis], axes=(axis + 1, 0))
    rows = project(tensor.reshape(len(tensor), -1), tensor.shape[1:], [ratios[a] for a in kept])
    rows = independent(rows)
    return None if len(rows) == math.prod(n - 1 for n in tensor.shape[1:]) else rows


def integer_rows(matrix: Array) -> Integers | None:
    """Return integer multiples of the rows, or None if a row has no small one."""
    for denominator in (1, 2, 10, 16, 100, 1000, 1024):
        whole = np.round(matrix * denominator)
        close = np.allclose(whole, matrix * denominator, rtol=0, atol=1e-12 * denominator)
        if close and np.array_equal(whole.any(axis=1), matrix.any(axis=1)):
            return whole.astype(np.int64) if np.abs(whole).max() <= LARGEST else None
    result = np.zeros(matrix.shape, dtype=np.int64)
    for row, whole_row in zip(matrix, result, strict=True):
        sizes = np.unique(np.abs(row[row != 0]))
        if sizes.size:
            multiple = _whole_multiple(sizes)
            if multiple is None:
                return None
            whole_row[:] = np.round(row * multiple)
    return result


def _whole_multiple(sizes: Array) -> float | None:
    """Return a factor that makes positive numbers integers, up to their rounding error, or None."""
    tried = np.arange(1, MOST_DENOMINATOR + 1)
    for unit in (1.0, float(sizes[0])):
        left = tried
        for size in sizes / unit:
            products = left * size
            left = left[np.abs(products - np.round(products)) <= EXACT * products]
        if left.size and left[0] * sizes[-1] / unit <= LARGEST:
            return float(left[0] / unit)
    return None


def independent(rows: Integers) -> Integers:
    """Return a maximal independent subset of the rows, each divided by its greatest common divisor."""
    import scipy.linalg  # noqa: PLC0415 - loading it takes longer than a small plan

    divisors = np.gcd.reduce(rows, axis=1)
    rows = rows[divisors > 0] // divisors[divisors > 0, None]
    if rows.size > WIDE:  # sorting wide rows takes longer than all that follows
        rows = rows[list({row.tobytes(): place for place, row in enumerate(rows)}.values())]
    else:
        rows = np.unique(rows, axis=0)
    if not len(rows):
        return rows
    columns = rows.T.astype(float)
    if are_far_apart(columns.T):
        columns /= lengths(columns.T)
    if rows.size > WIDE:  # pivots are those of the triangle, which is found faster and in less memory
        step = 8 * len(rows)
        columns = triangle_of((columns[i : i + step] for i in range(0, len(columns), step)), len(rows))
    triangle, pivots = scipy.linalg.qr(columns, mode="r", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(triangle))
    return np.ascontiguousarray(rows[np.sort(pivots[: int(np.sum(sizes > RANK * sizes[0]))])])
