"""Tables on one attribute: the mean of two posterior means, each good where the other is not.

Noisy counts are unbiased with normal noise. What differs is the assumed distribution of the true counts:

- the one that makes the noisy counts most likely, found by a few steps of EM over a grid: it knows nothing in
  advance, leaves large counts alone, and follows the noise if there are few values;
- gamma distributions with the right mean, from very skew to nearly even, weighted by how likely each makes
  the noisy counts: they know how counts usually look, and need few values to say which of these it is.

Each is moved to the nearest non-negative table with the right sum. Their mean is better than either on most
tables we tried, and than the nearest table to the noisy counts.

Single attributes also say what the number of records is, where it was measured roughly. The noisy count of a
value is its residual plus the total divided by the number of values, so that a total too small makes counts
negative, and one too large makes all of them positive. How likely the residuals are, given a total, follows
from the same distributions of counts that estimate single attributes. The noises are independent, so that
likelihoods multiply, and the estimate is the mean of the posterior over the non-negative numbers. A plan of
least error measures the total worst of all, and this more than halves its error on real tables; a total that
is known well is left alone, because counts follow no assumed distribution exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import Noisy
from querysmasher.estimate.fitting import onto_simplex

STEPS = 20
"""Number of steps of EM: more of them follow the noise."""

MOST_VALUES = 2_000
"""Maximum number of values for which distributions of counts are fitted."""

NOTHING = 1e-9
"""Totals below this many standard errors are next to nothing."""

SHAPES = np.geomspace(0.03, 30, 13)
"""The shapes of gamma distributions: the share of the largest counts falls with them."""

NEAR, MOST_POINTS = np.arange(-4.0, 4.5, 0.5), 4_000
"""Where the grid is fine: so many standard errors from each noisy count, if these are not too many."""


def single(noisy: Array, variance: float, total: float) -> Array:
    """Return non-negative counts with a given sum, from unbiased ones with independent noise."""
    std = math.sqrt(variance)
    if not 2 < len(noisy) <= MOST_VALUES or not std or total <= NOTHING * std:
        return onto_simplex(noisy, total)
    found = [likeliest_mean(noisy, std), gamma_mean(noisy, std, total / len(noisy))]
    return np.asarray(sum(onto_simplex(own, total) for own in found) / len(found))


def likeliest_mean(noisy: Array, std: float) -> Array:
    """Return the mean of each count given its noisy value, under the likeliest distribution of counts."""
    largest = max(float(noisy.max()), 1.1 * std)
    grid = np.unique(
        np.concatenate([np.linspace(0, 3 * std, 13), np.geomspace(std, largest, 25), np.maximum(noisy, 0)])
    )
    likelihood = _likelihood(noisy, grid, std)
    weights = np.full(len(grid), 1 / len(grid))
    for _ in range(STEPS):
        shares = likelihood * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    shares = likelihood * weights
    return np.asarray(shares @ grid / shares.sum(axis=1))


def gamma_mean(noisy: Array, std: float, mean: float) -> Array:
    """Return the mean of each count given its noisy value, if counts have gamma distributions of some mean.

    Every shape weighs as much as it makes the noisy counts likely.
    """
    near = (noisy[:, None] + NEAR * std if noisy.size * NEAR.size <= MOST_POINTS else noisy).ravel()
    far = np.geomspace(0.01 * std, max(float(noisy.max()) + 4 * std, 10 * mean), 80)  # dense near zero
    grid = np.unique(np.concatenate([[0.0], far, np.where(near > 0.001 * std, near, 0.0)]))
    weights = _gamma_weights(grid, np.array(mean))
    likelihood = _likelihood(noisy, grid, std)
    marginal = np.maximum(likelihood @ weights.T, 1e-300)  # by value, and shape
    logarithms = np.log(marginal).sum(axis=0)
    plausible = np.exp(logarithms - logarithms.max())
    means = (likelihood * grid) @ weights.T / marginal
    return np.asarray(means @ (plausible / plausible.sum()))


def gamma_evidence(noisy: Array, std: float, means: Array) -> Array:
    """Return the log-likelihood of noisy counts (last axis), if counts have gamma distributions of some mean.

    The leading axis runs over the means.
    """
    largest = noisy.max(axis=-1) + 4 * std
    near = np.linspace(0, largest, 51, axis=-1)[:, 1:]
    far = np.geomspace(np.full(len(means), 0.01 * std), np.maximum(largest, 10 * means), 50, axis=-1)
    grid = np.sort(np.concatenate([np.zeros((len(means), 1)), far, near], axis=-1), axis=-1)
    logs = -0.5 * ((noisy[..., None] - grid[:, None]) / std) ** 2
    highest = logs.max(axis=-1)
    marginal = np.exp(logs - highest[..., None]) @ _gamma_weights(grid, means).swapaxes(-1, -2)
    logarithms = np.log(np.maximum(marginal, 1e-300)).sum(axis=-2)
    best = logarithms.max(axis=-1)
    return np.asarray(best + np.log(np.exp(logarithms - best[:, None]).mean(axis=-1)) + highest.sum(axis=-1))


def _gamma_weights(grids: Array, means: Array) -> Array:
    """Return the probability of each point of grids from zero on (last axis), by shape (the axis before)."""
    borders = np.concatenate([(grids[..., 1:] + grids[..., :-1]) / 2, grids[..., -1:]], axis=-1)
    scale = 1 / np.asarray(means)[..., None]
    scaled = (np.maximum(grids[..., 1:], 1e-300) * scale)[..., None, :]
    widths = np.maximum(np.diff(borders) * scale, 1e-300)[..., None, :]
    shapes = SHAPES[:, None]
    logs = (shapes - 1) * np.log(scaled) - shapes * scaled + np.log(widths)
    first = shapes * np.log(borders[..., None, :1] * scale[..., None]) - np.log(shapes)  # there may be a pole
    logs = np.concatenate([first, logs], axis=-1)
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _likelihood(noisy: Array, grid: Array, std: float) -> Array:
    """Return how likely every noisy count is at every point of the grid, up to a factor by count."""
    logs = -0.5 * ((noisy[:, None] - grid) / std) ** 2
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


ROUGH = 0.03
"""Relative standard error above which single attributes have something to say."""

POINTS, REACH = 17, 4.0
"""Number of totals that are tried, and how many standard errors from the noisy one."""


def is_rough(noisy: Noisy) -> bool:
    """Return whether a noisy total is worth another look: positive, but with a large relative error."""
    value = float(noisy.values)
    return value > 0 and math.sqrt(noisy.variance) > ROUGH * value


def posterior_total(noisy: Noisy, singles: Iterable[Noisy]) -> float:
    """Return the mean of the number of records, given its noisy value and residuals of single attributes."""
    value, std = float(noisy.values), math.sqrt(noisy.variance)
    totals = np.linspace(max(value - REACH * std, 0.02 * std), value + REACH * std, POINTS)
    logs = -0.5 * ((totals - value) / std) ** 2
    for one in singles:
        size = one.values.size
        if one.variance > 0 and size <= MOST_VALUES:
            own = math.sqrt(one.variance)
            logs += gamma_evidence(one.values + totals[:, None] / size, own, totals / size)
    weights = np.exp(logs - logs.max())
    return float(totals @ weights / weights.sum())
