"""Empirical-Bayes shrinkage of noisy deviations from a target, for many tables at a time.

A deviation y of a cell whose target is t is noise of variance s² plus the true deviation, for which we assume
the variance τ²·t^q: large cells deviate more. (τ², q) maximise the marginal likelihood of all deviations of a
table, over a grid; q = 0 is the rule of James and Stein. The best linear estimate then multiplies y by τ²t^q
/ (τ²t^q + s²). Cells enter through a histogram over log t, so that the whole grid is a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array

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


@dataclass(frozen=True, eq=False)
class Prior:
    """What is assumed of the deviations of each table, and how likely that makes them."""

    power: Array
    ratio: Array
    """The prior variance of the largest cell divided by the noise."""
    evidence: Array
    """The logarithm of the marginal likelihood, up to a constant that is the same for all targets."""


def fit(deviations: Array, targets: Array, noise: Array) -> Prior:
    """Return the prior that makes the deviations of each table (leading axis) most likely.

    `noise` is the variance of the noise, one per table.
    """
    count = len(deviations)
    relative = _relative(targets).reshape(count, -1)
    classes = np.log10(np.maximum(relative, 1e-300))
    classes *= BINS / DECADES
    classes += BINS + 1
    place = np.clip(classes, 0, BINS).astype(np.int64)
    place += (np.arange(count) * (BINS + 1))[:, None]
    flat, length = place.ravel(), count * (BINS + 1)
    cells = np.bincount(flat, minlength=length).reshape(count, -1).astype(float)
    squares = deviations.reshape(count, -1) ** 2
    energy = np.bincount(flat, weights=squares.ravel(), minlength=length).reshape(count, -1)
    values = -0.5 * (cells @ _LOGARITHMS + energy / noise[:, None] @ _INVERSES)
    best = values.argmax(axis=1)
    return Prior(GRID[best, 0], GRID[best, 1], values[np.arange(count), best])


def shrunk(deviations: Array, targets: Array, prior: Prior) -> Array:
    """Return the best linear estimates of the true deviations under a prior."""
    lead = (-1, *(1,) * (deviations.ndim - 1))
    variance = prior.ratio.reshape(lead) * _relative(targets) ** prior.power.reshape(lead)
    return deviations * (variance / (1.0 + variance))


def _relative(targets: Array) -> Array:
    """Return the targets divided by the largest of each table."""
    largest = targets.reshape(len(targets), -1).max(axis=1)
    return targets / np.maximum(largest, 1e-300).reshape(-1, *(1,) * (targets.ndim - 1))
