"""Integer rows that span exactly what a family leaves on an attribute set.

A family with few queries spans only a subspace of a residual space. A strategy that is rounded to integers
stays in that subspace only if it is an integer combination of such rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, ROUNDING, TAME, Array, pivoted, triangle_of
from querysmasher.planning.centre import Centre
from querysmasher.workload.family import Family

Integers = NDArray[np.int64]

LARGEST = 2**40
"""Maximum size of an entry of a row for exact measurement."""

MOST_DENOMINATOR = 5_040
"""Maximum common denominator of fractions."""

RANK = 1e-10
"""Pivots, singular values and weights below this fraction of the largest are rounding error."""


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
    ratios = [k for centre in centres if (k := centre.integers) is not None]
    if whole is None or len(ratios) < len(centres):
        return None
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


def common_lattice(lattices: Sequence[Integers | None], rank: int) -> Integers | None:
    """Return independent rows of all lattices, or None if one is unknown, or if their rank is not `rank`."""
    known = [lattice for lattice in lattices if lattice is not None]
    if len(known) < len(lattices):
        return None
    rows = independent(known[0] if len(known) == 1 else np.concatenate(known))
    return rows if len(rows) == rank else None


def integer_rows(matrix: Array) -> Integers | None:
    """Return integer multiples of the rows, or None if a row has no small one."""
    result = np.empty(matrix.shape, dtype=np.int64)
    for row, whole_row in zip(matrix, result, strict=True):
        multiple = _whole_multiple(np.abs(row[row != 0]))
        if multiple is None:
            return None
        whole_row[:] = np.rint(row * multiple)
    return result


def _whole_multiple(sizes: Array) -> float | None:
    """Return a factor that makes positive numbers integers, up to their rounding error, or None."""
    if np.array_equal(sizes, np.rint(sizes)):
        return 1.0 if sizes.max(initial=0.0) <= LARGEST else None
    sizes = np.unique(sizes)
    for unit in (1.0, float(sizes[0])):
        ratios = sizes / unit
        left = np.arange(1, MOST_DENOMINATOR + 1)
        while left.size and len(wrong := np.flatnonzero(~_are_whole(left[0] * ratios))):
            left = left[_are_whole(left * ratios[wrong[0]])]
        if left.size and left[0] * ratios[-1] <= LARGEST:
            return float(left[0] / unit)
    return None


def _are_whole(products: Array) -> NDArray[np.bool_]:
    return np.abs(products - np.rint(products)) <= ROUNDING * products


def independent(rows: Integers) -> Integers:
    """Return a maximal independent subset of the rows, shortest first, each divided by its common divisor."""
    divisors = np.gcd.reduce(rows, axis=1)
    if divisors.min(initial=1) < 1 or divisors.max(initial=1) > 1:
        rows = rows[divisors > 0]
        rows //= divisors[divisors > 0, None]
    first = {hashlib.sha256(row.tobytes()).digest(): i for i, row in reversed(list(enumerate(rows)))}
    rows = rows if len(first) == len(rows) else rows[sorted(first.values())]
    if not len(rows):
        return rows
    row_lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=float))
    scales = row_lengths if row_lengths.max() > TAME * row_lengths.min() else np.ones(len(rows))
    step = max(8 * len(rows), CHUNK // len(rows))
    pieces = (rows[:, i : i + step].T / scales for i in range(0, rows.shape[1], step))
    sizes, pivots = pivoted(triangle_of(pieces, len(rows)))  # the same pivots as of all rows at once
    kept = np.sort(pivots[: int(np.sum(sizes > RANK * sizes[0]))])
    return rows[kept[np.argsort(row_lengths[kept], kind="stable")]]
