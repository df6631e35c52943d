"""How an exploration shares its budget: public rules, and the prior of a table given its noisy distance.

The constants were chosen on tables of several kinds, real and made up. The error changes little around them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.estimating import Place

TOTAL = 0.02
"""Share of the budget for the number of records."""

ROUGH, AGAIN = 0.01, 0.15
"""If the number of records has a larger relative error, it gets this part of the next phase again."""

PAIR_SCORES, TRIPLE_SCORES = 0.04, 0.02
"""Shares of the budget for the distances of pairs and triples from what is known before them."""

DENSE, DENSEST = 0.006, 0.003
"""Where unbiased tables have this ‖error‖₁/N, exploring starts to spend as the plan of least error does, and
does nothing else any more."""

FLOOR = 0.25
"""A pair or triple without visible signal may still be this many standard errors from what is expected."""

VISIBLE = 0.02
"""Triples are looked at only if the noise on their distances is below this fraction of the records."""

CLEAR = 0.001
"""Their distances are clear if the noise is below this fraction of the records."""

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


def dense_share(expected: float) -> float:
    """Return the share of the budget to be spent as the plan of least error spends it.

    `expected` is the mean of ‖error‖₁/N over the unbiased tables of that plan. If it is tiny, all parts of
    all tables are worth measuring, and distances have nothing to say.
    """
    return min(max(math.log(DENSE / max(expected, 1e-300)) / math.log(DENSE / DENSEST), 0.0), 1.0)


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
