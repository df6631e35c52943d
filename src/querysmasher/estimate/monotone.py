"""The nearest answers that counts can be: non-negative, and non-decreasing along prefixes.

Every step is a projection onto a convex set that contains the true answers, so that none increases the
distance to them. The last step only removes what the projections along several axes leave, which is tiny.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querysmasher.arrays import Array

SWEEPS = 5
"""Number of rounds through the axes, if there are several."""

SQUARES = 4_000_000
"""Maximum number of means of intervals computed at a time."""


def plausible(answers: Array, axes: Sequence[int]) -> Array:
    """Return answers that are non-negative and non-decreasing along some axes, near to the given ones."""
    for _ in range(SWEEPS if len(axes) > 1 else 1):
        for axis in axes:
            moved = np.moveaxis(answers, axis, -1)
            lines = np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])
            answers = np.moveaxis(_non_decreasing(lines).reshape(moved.shape), -1, axis)
    answers = np.maximum(answers, 0.0)
    for axis in axes if len(axes) > 1 else ():
        answers = np.maximum.accumulate(answers, axis=axis)
    return answers


def _non_decreasing(lines: Array) -> Array:
    """Return the nearest non-decreasing lines."""
    count, length = lines.shape
    if length * length > SQUARES or count < 8:
        from scipy.optimize import isotonic_regression  # noqa: PLC0415 - it would be most of a command's start

        return np.stack([isotonic_regression(line).x for line in lines]) if count else lines
    step = max(1, SQUARES // (length * length))
    return np.concatenate([_min_max(lines[i : i + step]) for i in range(0, count, step)])


def _min_max(lines: Array) -> Array:
    """Return max over a ≤ i of min over b ≥ i of the mean from a to b, for all lines at once."""
    length = lines.shape[1]
    sums = np.concatenate([np.zeros((len(lines), 1)), np.cumsum(lines, axis=1)], axis=1)
    first, last = np.arange(length)[:, None], np.arange(1, length + 1)[None]
    widths = np.where(last > first, last - first, 1)
    means = np.where(last > first, (sums[:, None, 1:] - sums[:, :-1, None]) / widths, np.inf)
    least = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]  # over b ≥ i
    least[:, ~(last > first)] = -np.inf
    return np.asarray(np.max(least, axis=1))
