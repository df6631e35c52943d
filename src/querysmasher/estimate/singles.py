"""Tables on one attribute: the mean of two estimates, each good where the other is not.

The nearest non-negative table with the right sum takes the same off every large count. The posterior mean
under the distribution of counts that makes the noisy ones most likely, found by a few steps of EM over a
grid, leaves large counts alone, but follows the noise if there are few. Their mean is better than either on
every table we tried.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.nonnegative import onto_simplex

STEPS = 20
"""Number of steps of EM: more of them follow the noise."""

MOST_VALUES = 2_000
"""Maximum number of values for which a distribution of counts is fitted."""


def single(noisy: Array, variance: float, total: float) -> Array:
    """Return non-negative counts with a given sum, from unbiased ones with independent noise."""
    nearest = onto_simplex(noisy, total)
    if not 2 < len(noisy) <= MOST_VALUES or not variance or not total:
        return nearest
    return (nearest + onto_simplex(posterior_mean(noisy, math.sqrt(variance)), total)) / 2


def posterior_mean(noisy: Array, std: float) -> Array:
    """Return the mean of each count given its noisy value, under the likeliest distribution of counts."""
    largest = max(float(noisy.max()), 1.1 * std)
    grid = np.unique(
        np.concatenate([np.linspace(0, 3 * std, 13), np.geomspace(std, largest, 25), np.maximum(noisy, 0)])
    )
    logs = -0.5 * ((noisy[:, None] - grid) / std) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = np.full(len(grid), 1 / len(grid))
    for _ in range(STEPS):
        shares = likelihood * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    shares = likelihood * weights
    return np.asarray(shares @ grid / shares.sum(axis=1))
