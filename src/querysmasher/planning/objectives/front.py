"""Where a sum of products is largest: on rows that no other row dominates, and there for every row."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import TIE, Array, in_order

CHUNK = 2_000_000
"""Maximum number of sums computed at once."""


def front(table: Array, slack: float = TIE, most: float = math.inf) -> NDArray[np.intp]:
    """Return indices of rows of which one attains the maximum of every sum with nonnegative coefficients.

    The table has nonnegative entries. A row is left out if another is larger, or smaller by less than the
    fraction `slack`, in every column; only the `most` rows with the largest sums are compared with all. Of
    equal rows the first is kept. Indices increase.
    """
    left = in_order(-table.sum(axis=1))
    scale = table.max(axis=0)
    entries = table[left] / np.where(scale > 0, scale, 1.0)
    found: list[np.intp] = []
    while left.size and len(found) < most:
        found.append(left[0])
        beyond = (entries > entries[0] * (1 + slack) + TIE**2).any(axis=1)
        left, entries = left[beyond], entries[beyond]
    return np.sort(np.array([*found, *left]))


def peaks(tables: list[Array], coefficients: Array) -> tuple[Array, list[NDArray[np.intp]]]:
    """Return the largest sum Σ_t c_t Π_i table_i[row_i, t] with every row of every table, and all its rows.

    The result has one value per row of a table, with the index of a row in each table. The largest of all is
    among them.
    """
    sizes = [len(table) for table in tables]
    long = [axis for axis, size in enumerate(sizes) if size > 1]
    if len(long) <= 1:
        products = coefficients
        for table in tables:
            products = products * table
        values = products.sum(axis=-1).reshape(-1)
        every, none = np.arange(len(values)), np.zeros(len(values), dtype=np.intp)
        return values, [every if axis in long else none for axis in range(len(sizes))]
    rest = np.ones((1, len(coefficients)))
    for table in tables[1:]:
        rest = (rest[:, None] * table).reshape(-1, len(coefficients))
    first = tables[0] * coefficients
    best = {axis: np.full(sizes[axis], -1.0) for axis in long}
    where = {axis: np.zeros(sizes[axis], dtype=np.intp) for axis in long}
    step = max(1, CHUNK // len(rest))
    for start in range(0, sizes[0], step):
        tensor = (first[start : start + step] @ rest.T).reshape(-1, *sizes[1:])
        for axis in long:
            found, at = _largest_along(tensor, axis)
            part = slice(start, start + len(found)) if axis == 0 else slice(None)
            larger = found > best[axis][part]
            best[axis][part] = np.where(larger, found, best[axis][part])
            where[axis][part] = np.where(larger, at + start * len(rest), where[axis][part])
    places = np.concatenate(list(where.values()))
    return np.concatenate(list(best.values())), list(np.unravel_index(places, sizes))


def peak(tables: list[Array], coefficients: Array) -> tuple[float, tuple[int, ...]]:
    """Return the largest sum Σ_t c_t Π_i table_i[row_i, t], and the index of its row in each table.

    Of sums equal within the fraction `TIE`, the first counts.
    """
    if not tables:
        return float(coefficients.sum()), ()
    sizes = [len(table) for table in tables]
    rest = np.ones((1, len(coefficients)))
    for table in tables[1:]:
        rest = (rest[:, None] * table).reshape(-1, len(coefficients))
    first = tables[0] * coefficients
    best, reached, place = -1.0, -1.0, 0
    step = max(1, CHUNK // len(rest))
    for start in range(0, sizes[0], step):
        values = first[start : start + step] @ rest.T
        best = max(best, float(values.max()))
        if reached < best * (1 - TIE):
            near = int((values >= best * (1 - TIE)).argmax())
            reached, place = float(values.flat[near]), start * len(rest) + near
    return best, tuple(map(int, np.unravel_index(place, sizes)))


def _largest_along(tensor: Array, axis: int) -> tuple[Array, NDArray[np.intp]]:
    """Return the largest entry for every index of an axis, and its index in the flat tensor."""
    if axis == 0:
        flat = tensor.reshape(len(tensor), -1)
        top = flat.argmax(axis=1)
        own = np.arange(len(flat))
        return flat[own, top], own * flat.shape[1] + top
    before, size = math.prod(tensor.shape[:axis]), tensor.shape[axis]
    folded = tensor.reshape(before, size, -1)
    inner = folded.argmax(axis=2)
    values = np.take_along_axis(folded, inner[:, :, None], axis=2)[:, :, 0]
    outer = values.argmax(axis=0)
    own = np.arange(size)
    return values[outer, own], (outer * size + own) * folded.shape[2] + inner[outer, own]
