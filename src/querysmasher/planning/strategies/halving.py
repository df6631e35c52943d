"""Sums below the diagonal of a filter's matrix: y_i = Σ_{j<i} K_ij·x_j, in O(n log² n).

The part t(i−j) is one convolution. The part t(i+j+shift) is cut in halves: the rows of the right half of a
block see all of its left half, which is a convolution again; all blocks of one size are done together.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.privacy.factors import Reflection
from querysmasher.privacy.factors.reflection import smooth_length

SMALL = 16
"""Blocks of fewer values than this are summed directly."""

CHUNK = 2_000_000
"""Number of entries that are transformed at a time."""


def sums_below(reflection: Reflection, kernel: Array, x: Array) -> Array:
    """Return Σ_{j<i} K_ij·x_j for the filter with these free lags, for rows x of values."""
    rows = np.atleast_2d(x)
    lags = reflection.lags(kernel)
    result = np.stack([_causal(lags, row) for row in rows])
    if reflection.sign:
        beyond = [_mirrored_below(lags[reflection.shift :], row) for row in rows]
        result = result + reflection.sign * np.stack(beyond)
    return result.reshape(x.shape)


def _causal(lags: Array, x: Array) -> Array:
    """Return Σ_{j<i} t(i−j)·x_j."""
    n = x.size
    length = smooth_length(2 * n - 1)
    own = np.zeros(length)
    own[1:n] = lags[1:n]
    return np.fft.irfft(np.fft.rfft(own) * np.fft.rfft(x, length), length)[:n]


def _mirrored_below(lags: Array, x: Array) -> Array:
    """Return Σ_{j<i} lags[i+j]·x_j."""
    n = x.size
    levels = max(0, (n // SMALL).bit_length())
    block = -(-n // (1 << levels))
    size = block << levels
    padded, result = np.zeros(size), np.zeros(size)
    padded[:n] = x
    own = np.zeros(2 * size + 1)
    own[: min(lags.size, own.size)] = lags[: own.size]
    _add_small(own, padded, result, block)
    while block < size:
        _add_halves(own, padded, result, block)
        block *= 2
    return result[:n]


def _add_small(lags: Array, x: Array, result: Array, block: int) -> None:
    """Add what the values of each block add to later ones of the same block."""
    starts = np.arange(0, x.size, block)
    for a in range(1, block):
        for b in range(a):
            result[starts + a] += lags[2 * starts + a + b] * x[starts + b]


def _add_halves(lags: Array, x: Array, result: Array, half: int) -> None:
    """Add what the left half of each block of 2 × `half` values adds to its right half."""
    starts = np.arange(0, x.size, 2 * half)
    length = smooth_length(2 * half)
    window = np.arange(2 * half - 1)
    step = max(1, CHUNK // length)
    for first in range(0, starts.size, step):
        some = starts[first : first + step]
        seen = lags[(2 * some + half)[:, None] + window]
        left = x[some[:, None] + np.arange(half)[::-1]]  # reversed: a correlation is a convolution
        product = np.fft.irfft(np.fft.rfft(seen, length) * np.fft.rfft(left, length), length)
        result[some[:, None] + half + np.arange(half)] += product[:, half - 1 : 2 * half - 1]
