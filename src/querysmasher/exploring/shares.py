"""How an exploration shares its budget: public rules, and the prior of a table given its noisy distance.

The constants were chosen on tables of several kinds, real and made up. The error changes little around them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.residual_plan import Place

TOTAL = 0.02
"""Share of the budget for the number of records."""

ROUGH, AGAIN = 0.01, 0.15
"""If the number of records has a larger relative error, it gets this part of the next phase again."""

PAIR_SCORES, TRIPLE_SCORES = 0.04, 0.02
"""Maximum shares of the budget for the distances of pairs and triples from what is known before them."""

SHARP, FINE = 0.0005, 0.1
"""Distances need not have a smaller standard error than this fraction of the records, nor than this fraction
of the noise of the tables that are asked for."""

VISIBLE = 0.02
"""Triples are looked at only if the noise on their distances is below this fraction of the records."""

CLEAR = 0.001
"""Their distances are clear if the noise is below this fraction of the records."""

BELOW = 0.5
"""How much the errors of single attributes count beside those of pairs, and those of both beside those of
triples: errors of parts partly cancel in a table."""

CLASSES, DECADES = 24, 8
"""Cells are classed by their expected counts, from 10^-8 of the largest to the largest."""

MEAN = math.sqrt(2 / math.pi)
"""The expected absolute value of a standard normal number."""


def first_share(total: float, cost: float, sizes: Sequence[int]) -> float:
    """Return the share of the budget for a first look at single attributes.

    The more records there are for each value, relative to the noise, the smaller it is. More follows if it
    pays.
    """
    signal = max(total, 1.0) * math.sqrt(cost) / sum(sizes)
    return 0.7 * min(max(0.7 - 0.3 * math.log10(signal / 1.4), 0.15), 0.9)


def score_share(most: float, distances: int, total: float, cells: Sequence[int], cost: float) -> float:
    """Return the share of the budget for distances: `most`, or less if they were sharper than anybody needs.

    `cells` are the numbers of cells of the tables asked for, and `cost` is the budget, in units of the
    squared change of a record. If all of it were spent on these tables alone, evenly, the sum of the absolute
    errors of a table with n cells would be √(2/π) n √(tables/cost).
    """
    noise = MEAN * math.fsum(cells) / math.sqrt(len(cells) * cost)
    enough = min(SHARP * max(total, 1.0), FINE * noise)
    return min(most, distances / (enough**2 * cost))


def later_share(noise: float, total: float) -> float:
    """Return the share of what is left for pairs that waits until the distances of triples are known.

    It is zero if these would drown in noise.
    """
    if noise > VISIBLE * total:
        return 0.0
    return 0.7 if noise < CLEAR * total else 0.5


def by_size(sizes: Mapping[Place, int], cost: float) -> dict[Place, float]:
    """Return a share of a privacy cost for each attribute: as the root of its number of values."""
    roots = {place: math.sqrt(size) for place, size in sizes.items()}
    return {place: cost * root / sum(roots.values()) for place, root in roots.items()}


@dataclass(frozen=True, eq=False)
class Profile:
    """The cells of a table in classes of similar expected counts."""

    counts: Array
    """The number of cells in each class."""
    roots: Array
    """The mean root of their expected counts."""

    @classmethod
    def of(cls, table: Array) -> Profile:
        """Class the cells of a table of expected counts."""
        cells = np.maximum(table.ravel(), 0.0)
        largest = float(cells.max(initial=0.0))
        if not largest:
            return cls(np.zeros(CLASSES), np.zeros(CLASSES))
        levels = (np.log10(np.maximum(cells / largest, 1e-300)) + DECADES) * (CLASSES / DECADES)
        place = np.clip(levels, 0, CLASSES - 1).astype(np.int64)
        counts = np.bincount(place, minlength=CLASSES).astype(float)
        sums = np.bincount(place, weights=np.sqrt(cells), minlength=CLASSES)
        return cls(counts, sums / np.maximum(counts, 1.0))

    def prior(self, distance: float) -> Array:
        """Return prior variances in proportion to expected counts, with this expected distance in total."""
        scale = MEAN * float(self.counts @ self.roots)
        return (max(distance, 0.0) / scale * self.roots) ** 2 if scale > 0 else np.zeros(CLASSES)

    def noise(self, variance: float) -> Array:
        """Return the variances that noise leaves after negative counts are removed: less in small cells."""
        std = math.sqrt(variance)
        return np.minimum(variance, std * np.maximum(self.roots**2, 0.1 * std))


def expected(variances: Array, counts: Array) -> Array:
    """Return the expected distances of tables whose classes of cells have these variances."""
    return MEAN * (counts * np.sqrt(variances)).sum(axis=-1)
