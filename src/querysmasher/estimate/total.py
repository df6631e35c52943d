"""The number of records, where it was measured roughly: what single attributes add to its noisy value.

The noisy count of a value is its residual plus the total divided by the number of values, so that a total too
small makes counts negative, and one too large makes all of them positive. How likely the residuals are,
given a total, follows from the same distributions of counts that estimate single attributes (`singles`). The
noises are independent, so that likelihoods multiply, and the estimate is the mean of the posterior over the
non-negative numbers. A plan of least error measures the total worst of all, and this more than halves its
error on real tables; a total that is known well is left alone, because counts follow no assumed distribution
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from querysmasher.estimate.evidence import Noisy
from querysmasher.estimate.singles import gamma_evidence

ROUGH = 0.03
"""Relative standard error above which single attributes have something to say."""

POINTS, REACH = 17, 4.0
"""Number of totals that are tried, and how many standard errors from the noisy one."""

LARGEST_ATTRIBUTE = 2_000
"""Maximum number of values of an attribute that is looked at."""


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
        if one.variance > 0 and size <= LARGEST_ATTRIBUTE:
            own = math.sqrt(one.variance)
            logs += gamma_evidence(one.values + totals[:, None] / size, own, totals / size)
    weights = np.exp(logs - logs.max())
    return float(totals @ weights / weights.sum())
