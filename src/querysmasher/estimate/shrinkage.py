"""Empirical-Bayes shrinkage of noisy deviations from a target, for many tables at a time.

A deviation y of a cell whose target is t is noise of variance s² plus the true deviation, for which we assume
the variance τ²·t^q: large cells deviate more. (τ², q) maximise the marginal likelihood of all deviations of a
table, over a grid; q = 0 is the rule of James and Stein. Cells enter through a histogram over log t, so that
the whole grid is a matrix product.

Under this normal prior the best estimate would multiply y by v / (v + s²), v = τ²t^q, whatever y is. Real
tables have heavier tails: a few cells deviate far more than others of their size, as when all people of one
region share a language. So v is itself uncertain: it is τ²t^q times a power of ten, most likely near 1, and
rarely of any size (`TIMES`). The posterior mean still multiplies y, by a factor that grows with |y|/s: small
deviations are shrunk as before, and those that noise cannot explain are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.fitting import centred, onto_margins

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


@dataclass(frozen=True, eq=False)
class Prior:
    """What is assumed of the deviations of each table, and how likely that makes them."""

    power: Array
    ratio: Array
    """The prior variance of the largest cell divided by the noise."""
    noise: Array
    """The variance of the noise."""
    evidence: Array
    """The logarithm of the marginal likelihood, up to a constant that is the same for all targets."""


def fit(deviations: Array, targets: Array, noise: Array) -> Prior:
    """Return the prior that makes the deviations of each table (leading axis) most likely.

    `noise` is the variance of the noise, one per table.
    """
    count = len(deviations)
    classes = _logarithms(targets).reshape(count, -1) * (BINS / DECADES)
    classes += BINS + 1
    subset = np.clip(classes, 0, BINS, out=classes).astype(np.int64)
    subset += (np.arange(count) * (BINS + 1))[:, None]
    flat, length = subset.ravel(), count * (BINS + 1)
    cells = np.bincount(flat, minlength=length).reshape(count, -1).astype(float)
    squares = deviations.reshape(count, -1) ** 2
    energy = np.bincount(flat, weights=squares.ravel(), minlength=length).reshape(count, -1)
    # a product per table: the rows of one would depend on how many there are, in the last bit
    relative = energy[:, None] / noise[:, None, None]
    values = -0.5 * (cells[:, None] @ _LOGARITHMS + relative @ _INVERSES)[:, 0]
    best = values.argmax(axis=1)
    return Prior(GRID[best, 0], GRID[best, 1], noise, values[np.arange(count), best])


def shrunk(deviations: Array, targets: Array, prior: Prior) -> Array:
    """Return the posterior means of the true deviations."""
    lead = (-1, *(1,) * (deviations.ndim - 1))
    with np.errstate(divide="ignore"):  # the logarithm of zero is below every number of the table
        signal = _logarithms(targets) * prior.power.reshape(lead)
        signal += np.log10(prior.ratio).reshape(lead)
        energy = np.log10(np.abs(deviations))
        energy *= 2
        energy -= np.log10(prior.noise).reshape(lead)
    table = _factors()
    rows, columns = (
        np.clip((logs - least) * (1 / STEP), 0, size - 1).astype(np.int64)
        for logs, least, size in zip((signal, energy), (LEAST_SIGNAL, LEAST_ENERGY), table.shape, strict=True)
    )
    rows *= table.shape[1]
    rows += columns
    return np.asarray(deviations * table.ravel()[rows])


def towards(
    targets: Array, noisy: Array, variances: Array, singles: Sequence[Array], lower: Array, steps: int
) -> Array:
    """Return tables shrunk towards targets, non-negative, with nearly the margins that `lower` consists of.

    `noisy` are their residuals, and `singles` the tables on each axis.
    """
    upper = centred(targets)
    deviations = noisy - upper
    prior = fit(deviations, targets, variances)
    changes = shrunk(deviations, targets, prior)
    for axis, single in enumerate(singles, start=1):  # no sums: they are taken off in proportion to singles
        shares = single / np.maximum(single.sum(axis=1, keepdims=True), 1e-300)
        spread = [len(single), *(-1 if a == axis else 1 for a in range(1, changes.ndim))]
        changes = changes - changes.sum(axis=axis, keepdims=True) * shares.reshape(spread)
    return onto_margins(lower + upper + changes, lower, steps)


def factor(signal: Array, energy: Array) -> Array:
    """Return by what the posterior mean multiplies y, from v/s² and y²/s², which broadcast."""
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
