"""Attribute sets in batches of tables of one shape, so that arrays do the work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import Place

CELLS = 1_000_000
"""Maximum number of cells of a batch, unless a single table has more."""


def batches(places: Sequence[Place], sizes: Sequence[int]) -> Iterator[list[Place]]:
    """Iterate over lists of sets with the same sizes in the same order."""
    by_shape: dict[tuple[int, ...], list[Place]] = {}
    for place in places:
        by_shape.setdefault(tuple(sizes[a] for a in place), []).append(place)
    for shape, own in by_shape.items():
        step = max(1, CELLS // max(1, math.prod(shape)))
        yield from (own[start : start + step] for start in range(0, len(own), step))


def arranged(values: Array, positions: Place) -> Array:
    """Return a table over increasing attributes with its axes in another order."""
    ordered = sorted(positions)
    return values.transpose([ordered.index(p) for p in positions])
