"""Tables of maximum entropy with given margins, for many tables of one shape at a time.

Iterative proportional fitting scales a table to one margin after the other. It converges to the table of
maximum entropy among those with these margins if there is one and the first table is a product of functions
of the margins. Margins that do not fit together exactly, as noisy ones may, are met nearly; the last one
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from querysmasher.arrays import Array

SWEEPS = 8
"""Number of rounds through all margins."""

Axes = tuple[int, ...]
"""Axes of a table, without the leading one, which runs over tables."""


def fitted(tables: Array, margins: Mapping[Axes, Array], sweeps: int = SWEEPS) -> Array:
    """Return tables scaled to the margins, in place; cells that are zero stay zero."""
    axes = range(tables.ndim - 1)
    spread = [
        (
            tuple(a + 1 for a in axes if a not in kept),
            margin.reshape(len(tables), *(tables.shape[a + 1] if a in kept else 1 for a in axes)),
        )
        for kept, margin in margins.items()
    ]
    for _ in range(sweeps):
        for dropped, margin in spread:
            tables *= quotient(margin, np.add.reduce(tables, axis=dropped, keepdims=True))
    return tables


def start(singles: Sequence[Array], pairs: Mapping[Axes, Array]) -> Array:
    """Return the product of all pairs, divided by the singles as often as these occur too many times.

    With two attributes that depend on a third only through one, this is the table itself; in general it is
    near.
    """
    count, sizes = len(singles[0]), [own.shape[1] for own in singles]
    axes = range(len(sizes))
    result = np.ones((count, *sizes))
    for kept, margin in pairs.items():
        result *= margin.reshape(count, *(sizes[a] if a in kept else 1 for a in axes))
    for axis, own in enumerate(singles):
        times = sum(axis in kept for kept in pairs) - 1
        spread = [count, *(sizes[a] if a == axis else 1 for a in axes)]
        scale = own / np.maximum(own.sum(axis=1, keepdims=True), 1e-300)
        power = scale if times < 0 else quotient(np.ones_like(own), scale**times)
        result *= power.reshape(spread)
    return result


def lower_part(singles: Sequence[Array], pairs: Mapping[Axes, Array]) -> Array:
    """Return what tables on three attributes consist of but for their residuals, from their pairs."""
    count, sizes = len(singles[0]), [own.shape[1] for own in singles]
    result = np.zeros((count, *sizes))
    margins: dict[Axes, Array] = {**pairs, **{(axis,): own for axis, own in enumerate(singles)}}
    margins[()] = singles[0].sum(axis=1)
    for kept, margin in margins.items():
        spread = [sizes[a] if a in kept else 1 for a in range(3)]
        others = math.prod(sizes[a] for a in range(3) if a not in kept)
        result += margin.reshape(count, *spread) * ((-1) ** len(kept) / others)
    return result


def quotient(upper: Array, lower: Array) -> Array:
    """Return a quotient, and zero where nothing is to be divided."""
    there = lower > 0
    if there.all():
        return upper / lower
    return np.divide(upper, lower, out=np.zeros(np.broadcast(upper, lower).shape), where=there)
