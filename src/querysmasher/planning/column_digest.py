"""Columns of matrices distinguished by digests: two 64-bit sums of one pseudo-random word per row and entry.

Different columns share both sums with probability 2⁻¹²⁸.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.lattice import Integers

Words = NDArray[np.uint64]

MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
"""Those of the generator SplitMix64, which turns any two words into unrelated ones."""


def new_keys(generator: np.random.Generator, count: int) -> Words:
    """Draw two words per row."""
    return np.asarray(generator.bit_generator.random_raw(2 * count), dtype=np.uint64).reshape(2, count)


def column_digest(rows: Array | Integers, keys: Words) -> Words:
    """Return two sums per column, of one pseudo-random word for every row and entry."""
    return _mixed(as_words(rows) + keys[:, :, None]).sum(axis=1, dtype=np.uint64)


def as_words(rows: Array | Integers) -> Words:
    """Return the bits of every entry: different ones for different numbers, the same for 0.0 and -0.0."""
    return np.ascontiguousarray(rows + rows.dtype.type(0)).view(np.uint64)


def _mixed(words: Words) -> Words:
    """Return the finaliser of SplitMix64, in place: a bijection without structure."""
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        words ^= words >> shift
        words *= multiplier
    words ^= words >> SHIFTS[-1]
    return words


def numbered(digest: Words) -> tuple[Integers, Integers]:
    """Number different columns by first appearance; return all columns' numbers, and the first of each.

    `digest` holds a few words per column.
    """
    order = np.lexsort(digest)  # stable, so that the first of equals comes first
    ahead = digest[:, order]
    new = np.append(True, (ahead[:, 1:] != ahead[:, :-1]).any(axis=0))
    firsts = order[new]
    ranks = np.empty(len(firsts), dtype=np.int64)
    ranks[np.argsort(firsts)] = np.arange(len(firsts))
    labels = np.empty(len(order), dtype=np.int64)
    labels[order] = ranks[np.cumsum(new) - 1]
    return labels, np.sort(firsts)
