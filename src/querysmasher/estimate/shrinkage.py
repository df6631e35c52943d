"""Posterior means: of deviations from a target, of single attributes, and of the number of records.

**Deviations**, for many tables at a time. A deviation y of a cell whose target is t is noise of variance s²
plus the true deviation, for which we assume the variance τ²·t^q: large cells deviate more. (τ², q) maximise
the marginal likelihood of all deviations of a table, over a grid; q = 0 is the rule of James and Stein. Cells
enter through a histogram over log t, so that the whole grid is a matrix product.

Under this normal prior the best estimate would multiply y by v / (v + s²), v = τ²t^q, whatever y is. Real
tables have heavier tails: a few cells deviate far more than others of their size, as when all people of one
region share a language. So v is itself uncertain: it is τ²t^q times a power of ten, most likely near 1, and
rarely of any size (`TIMES`). The posterior mean still multiplies y, by a factor that grows with |y|/s: small
deviations are shrunk as before, and those that noise cannot explain are kept.

**Single attributes.** Noisy counts are unbiased with normal noise. The estimate is the mean of two posterior
means, each good where the other is not. What differs is the assumed distribution of the true counts:

- the one that makes the noisy counts most likely, found by a few steps of EM over a grid: it knows nothing in
  advance, leaves large counts alone, and follows the noise if there are few values;
- gamma distributions with the right mean, from very skew to nearly even, weighted by how likely each makes
  the noisy counts: they know how counts usually look, and need few values to say which of these it is.

Each is moved to the nearest non-negative table with the right sum. Their mean is better than either on most
tables we tried, and than the nearest table to the noisy counts.

**The number of records**, where it was measured roughly, follows from single attributes. The noisy count of a
value is its residual plus the total divided by the number of values, so that a total too small makes counts
negative, and one too large makes all of them positive. How likely the residuals are, given a total, follows
from the same distributions of counts that estimate single attributes. The noises are independent, so that
likelihoods multiply, and the estimate is the mean of the posterior over the non-negative numbers. A plan of
least error measures the total worst of all, and this more than halves its error on real tables; a total that
is known well is left alone, because counts follow no assumed distribution exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import Noisy
from querysmasher.estimate.fitting import centred, onto_margins, onto_simplex

DECADES, BINS = 8, 40
"""Targets from 10^-8 of the largest to the largest form so many classes; one more is for zero."""

POWERS = (0.0, 0.5, 1.0, 1.25, 1.5, 2.0)
"""The exponents q."""

RATIOS = (0.0, *(10.0 ** (e / 4) for e in range(-16, 41)))
"""The prior variance of the largest cell divided by the noise."""

GRID = np.array([(q, ratio) for q in POWERS for ratio in RATIOS])
_MIDDLES = np.concatenate([[0.0], 10.0 ** ((np.arange(BINS) + 0.5) / BINS * DECADES - DECADES)])
_VARIANCES = 1.0 + GRID[:, 1:] * np.where(GRID[:, :1] > 0, _MIDDLES ** np.maximum(GRID[:, :1], 0.5), 1.0)
_LOGARITHMS, _INVERSES = np.log(_VARIANCES).T, (1.0 / _VARIANCES).T

SPREAD, RARELY = 0.5, 0.01
"""Standard deviation of the power of ten by which a variance differs from τ²t^q, and the probability that it
is any power of `TIMES`."""

TIMES = np.arange(-3.0, 5.5, 0.5)
"""Powers of ten by which a variance may differ."""

STEP, LEAST_SIGNAL, MOST_SIGNAL, LEAST_ENERGY, MOST_ENERGY = 0.05, -8.0, 12.0, -2.0, 6.0
"""Factors are tabulated by the logarithms of v/s² and of y²/s², in steps, from the least to the most."""


def fit(deviations: Array, targets: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Return the prior that makes the deviations of each table (leading axis) most likely.

    `noise` is the variance of the noise, one per table. The prior is the exponent q, and the variance of the
    largest cell divided by the noise; the logarithm of its marginal likelihood comes third, up to a constant
    that is the same for all targets.
    """
    count = len(deviations)
    classes = _logarithms(targets).reshape(count, -1) * (BINS / DECADES)
    classes += BINS + 1
    numbers = np.clip(classes, 0, BINS, out=classes).astype(np.int64)
    numbers += (np.arange(count) * (BINS + 1))[:, None]
    flat, length = numbers.ravel(), count * (BINS + 1)
    cells = np.bincount(flat, minlength=length).reshape(count, -1).astype(float)
    squares = deviations.reshape(count, -1) ** 2
    energy = np.bincount(flat, weights=squares.ravel(), minlength=length).reshape(count, -1)
    # a product per table: the rows of one would depend on how many there are, in the last bit
    relative = energy[:, None] / noise[:, None, None]
    values = -0.5 * (cells[:, None] @ _LOGARITHMS + relative @ _INVERSES)[:, 0]
    best = values.argmax(axis=1)
    return GRID[best, 0], GRID[best, 1], values[np.arange(count), best]


def shrunk(deviations: Array, targets: Array, noise: Array) -> Array:
    """Return the posterior means of the true deviations, under the likeliest prior."""
    power, ratio, _ = fit(deviations, targets, noise)
    lead = (-1, *(1,) * (deviations.ndim - 1))
    with np.errstate(divide="ignore"):  # the logarithm of zero is below every number of the table
        signal = _logarithms(targets) * power.reshape(lead)
        signal += np.log10(ratio).reshape(lead)
        energy = np.log10(np.abs(deviations))
        energy *= 2
        energy -= np.log10(noise).reshape(lead)
    table = _factors()
    rows, columns = (
        np.clip((logs - least) * (1 / STEP), 0, size - 1).astype(np.int64)
        for logs, least, size in zip((signal, energy), (LEAST_SIGNAL, LEAST_ENERGY), table.shape, strict=True)
    )
    rows *= table.shape[1]
    rows += columns
    return np.asarray(deviations * table.ravel()[rows])


def towards(targets: Array, noisy: Array, variances: Array, singles: Sequence[Array]) -> Array:
    """Return tables shrunk towards targets, non-negative, with nearly the margins of these.

    `noisy` are their residuals, and `singles` the tables on each axis.
    """
    upper = centred(targets)
    deviations = noisy - upper
    changes = shrunk(deviations, targets, variances)
    for axis, single in enumerate(singles, start=1):  # no sums: they are taken off in proportion to singles
        fractions = single / np.maximum(single.sum(axis=1, keepdims=True), 1e-300)
        spread = [len(single), *(-1 if a == axis else 1 for a in range(1, changes.ndim))]
        changes = changes - changes.sum(axis=axis, keepdims=True) * fractions.reshape(spread)
    return onto_margins(targets + changes, targets - upper)


def factor(signal: Array, energy: Array) -> Array:
    """Return the factor by which the posterior mean multiplies y, given v/s² and y²/s², which broadcast."""
    weights = np.exp(-0.5 * (TIMES / SPREAD) ** 2)
    weights = (1 - RARELY) * weights / weights.sum() + RARELY / len(TIMES)
    variances = 1.0 + np.asarray(signal)[..., None] * 10.0**TIMES
    logs = np.log(weights) - 0.5 * np.log(variances) - 0.5 * np.asarray(energy)[..., None] / variances
    likely = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray((likely * (1 - 1 / variances)).sum(axis=-1) / likely.sum(axis=-1))


@cache
def _factors() -> Array:
    """Return factors by logarithms of v/s² and of y²/s²; the first row is for v = 0."""
    signals = np.arange(LEAST_SIGNAL, MOST_SIGNAL + STEP / 2, STEP)
    energies = np.arange(LEAST_ENERGY, MOST_ENERGY + STEP / 2, STEP)
    table = factor(10.0 ** (signals[:, None] + STEP / 2), 10.0 ** (energies + STEP / 2))
    table[0] = 0.0
    table.flags.writeable = False
    return table


def _logarithms(targets: Array) -> Array:
    """Return logarithms of the targets divided by the largest of each table."""
    largest = targets.reshape(len(targets), -1).max(axis=1)
    relative = targets / np.maximum(largest, 1e-300).reshape(-1, *(1,) * (targets.ndim - 1))
    return np.asarray(np.log10(np.maximum(relative, 1e-300, out=relative), out=relative))


STEPS = 20
"""Number of steps of EM: more would fit the noise."""

MOST_VALUES = 2_000
"""Maximum number of values for which distributions of counts are fitted."""

NOTHING = 1e-9
"""Totals below this many standard errors are next to nothing."""

SHAPES = np.geomspace(0.03, 30, 13)
"""The shapes of gamma distributions: the larger the shape, the smaller the largest counts."""

NEAR, MOST_POINTS = np.arange(-4.0, 4.5, 0.5), 4_000
"""Offsets of grid points from each noisy count, in standard errors; and the maximum number of points."""


def single(noisy: Array, variance: float, total: float) -> Array:
    """Return non-negative counts with a given sum, from unbiased ones with independent noise."""
    std = math.sqrt(variance)
    if not 2 < len(noisy) <= MOST_VALUES or not std or total <= NOTHING * std:
        return onto_simplex(noisy, total)
    means = likeliest_mean(noisy, std), gamma_mean(noisy, std, total / len(noisy))
    return np.asarray(sum(onto_simplex(counts, total) for counts in means) / len(means))


def likeliest_mean(noisy: Array, std: float) -> Array:
    """Return the mean of each count given its noisy value, under the likeliest distribution of counts."""
    largest = max(float(noisy.max()), 1.1 * std)
    grid = np.unique(
        np.concatenate([np.linspace(0, 3 * std, 13), np.geomspace(std, largest, 25), np.maximum(noisy, 0)])
    )
    likelihood = _likelihood(noisy, grid, std)
    weights = np.full(len(grid), 1 / len(grid))
    for _ in range(STEPS):
        joint = likelihood * weights
        weights = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    joint = likelihood * weights
    return np.asarray(joint @ grid / joint.sum(axis=1))


def gamma_mean(noisy: Array, std: float, mean: float) -> Array:
    """Return the mean of each count given its noisy value, if counts have gamma distributions of some mean.

    Shapes are weighted by how likely they make the noisy counts.
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
"""Relative standard error of the total above which single attributes improve it."""

POINTS, REACH = 17, 4.0
"""Number of totals that are tried, and their largest distance from the noisy one, in standard errors."""


def is_rough(noisy: Noisy) -> bool:
    """Return whether a noisy total is positive, with a relative error so large that it can be improved."""
    value = float(noisy.values)
    return value > 0 and math.sqrt(noisy.variance) > ROUGH * value


def posterior_total(noisy: Noisy, singles: Iterable[Noisy]) -> float:
    """Return the mean of the number of records, given its noisy value and residuals of single attributes."""
    value, std = float(noisy.values), math.sqrt(noisy.variance)
    totals = np.linspace(max(value - REACH * std, 0.02 * std), value + REACH * std, POINTS)
    logs = -0.5 * ((totals - value) / std) ** 2
    for single in singles:
        size = single.values.size
        if single.variance > 0 and size <= MOST_VALUES:
            noisy_counts = single.values + totals[:, None] / size
            logs += gamma_evidence(noisy_counts, math.sqrt(single.variance), totals / size)
    weights = np.exp(logs - logs.max())
    return float(totals @ weights / weights.sum())
