"""Integer rows that span exactly what a family leaves on an attribute set.

A family with few queries spans only a subspace of a residual space. A strategy that is rounded to integers
stays in that subspace only if it is an integer combination of such rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, Array, pivoted, triangle_of
from querysmasher.planning.centre import Centre
from querysmasher.planning.grading import FAR, lengths
from querysmasher.planning.limits import limits
from querysmasher.workload.family import Family

Integers = NDArray[np.int64]

LARGEST = 2**40
"""Maximum size of an entry of a row for exact measurement."""

MOST_DENOMINATOR = 5_040
"""Maximum common denominator of fractions."""

EXACT = 1e-14
"""Numbers closer to an integer than this fraction of themselves differ from it by rounding error."""

SURELY_DEPENDENT, SURELY_INDEPENDENT = 1e-6, 1e-4
"""A Gram matrix decides on pivots below the first or above the second fraction of the largest."""

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
        if all(_are_multiples(matrix[part], denominator) for part in _parts(matrix)):
            return _multiples(matrix, denominator)
    result = np.zeros(matrix.shape, dtype=np.int64)
    for row, whole_row in zip(matrix, result, strict=True):
        sizes = np.unique(np.abs(row[row != 0]))
        if sizes.size:
            multiple = _whole_multiple(sizes)
            if multiple is None:
                return None
            whole_row[:] = np.round(row * multiple)
    return result


def _are_multiples(matrix: Array, denominator: int) -> bool:
    """Return whether all entries are multiples of 1/denominator, and none of its rows would round to zero."""
    scaled = matrix * denominator
    whole = np.round(scaled)
    close = np.allclose(whole, scaled, rtol=0, atol=1e-12 * denominator)
    return close and np.array_equal(whole.any(axis=1), matrix.any(axis=1))


def _multiples(matrix: Array, denominator: int) -> Integers | None:
    result = np.empty(matrix.shape, dtype=np.int64)
    for part in _parts(matrix):
        whole = np.round(matrix[part] * denominator)
        if np.abs(whole).max() > LARGEST:
            return None
        result[part] = whole
    return result


def _parts(rows: Array | Integers) -> Iterator[slice]:
    """Iterate over slices of few rows."""
    step = max(1, CHUNK // max(1, rows.shape[1]))
    return (slice(start, start + step) for start in range(0, len(rows), step))


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
    divisors = np.gcd.reduce(rows, axis=1)
    if divisors.min(initial=1) < 1 or divisors.max(initial=1) > 1:
        rows = rows[divisors > 0]
        rows //= divisors[divisors > 0, None]
    wide = rows.size > limits().lattice_entries
    if wide:  # sorting wide rows takes longer than all that follows
        first = {
            hashlib.sha256(row.tobytes()).digest(): place for place, row in reversed(list(enumerate(rows)))
        }
        rows = rows if len(first) == len(rows) else rows[sorted(first.values())]
    else:
        rows = np.unique(rows, axis=0)
    if not len(rows):
        return rows
    own = np.concatenate([lengths(rows[part].astype(float)) for part in _parts(rows)])
    scales = own if own.max() > FAR * own.min() else np.ones(len(rows))
    kept = np.sort(_pivots(rows, scales, wide=wide))
    return rows if len(kept) == len(rows) else np.ascontiguousarray(rows[kept])


def _pivots(rows: Integers, scales: Array, *, wide: bool) -> NDArray[np.intp]:
    """Return the places of independent rows, divided by their scales, that span the others.

    Pivots of wide rows are those of their Gram matrix, or else of its root, which is found by pieces.
    """
    columns: Array
    if wide:
        import scipy.linalg  # noqa: PLC0415 - loading it takes longer than a small plan

        step = max(8 * len(rows), CHUNK // len(rows))
        starts = range(0, rows.shape[1], step)
        gram = np.zeros((len(rows), len(rows)))
        for i in starts:
            piece = rows[:, i : i + step] / scales[:, None]
            gram += piece @ piece.T
        squares, places, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=SURELY_DEPENDENT**2 * gram.max())
        own = np.diagonal(squares)[:rank]
        if own.min() > SURELY_INDEPENDENT * own.max():
            return np.asarray(places[:rank] - 1)
        columns = triangle_of((rows[:, i : i + step].T / scales for i in starts), len(rows))
    else:
        columns = rows.T / scales
    sizes, pivots = pivoted(columns)
    return pivots[: int(np.sum(sizes > RANK * sizes[0]))]
