"""Ratios of two noisy numbers: means, shares, percentages.

With N and D jointly normal, R = N / D has the standard error √w / |D| of the delta method, w = Var(N - R D).
The interval is Fieller's: all r for which N - r D is within z standard errors of zero. It has exact
coverage however noisy the denominator is. Writing r = R + δ, its ends solve

    δ² (D² - z² v) + 2 δ z² u - z² w = 0,    v = Var D,  u = Cov(N, D) - R v.

If D is within z standard errors of zero, no bounded set has that coverage, and the interval is the whole
line. So the interval covers at least as often as stated, and within a percentage point of it if the true
denominator is five standard errors or more from zero. A figure whose denominator is within two standard
errors of zero is marked as unreliable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.statistics.figures import Column, Figures
from querysmasher.statistics.linear import Linear

TOO_CLOSE = 2.0
"""A denominator within so many standard errors of zero makes a ratio unreliable."""

ROUNDING = 1e-12
"""Variances below this share of their terms are rounding errors."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Numerators N and denominators D with their variances and covariances, for ratios scale × N / D."""

    numerator: Array
    denominator: Array
    numerator_variance: Array
    denominator_variance: Array
    covariance: Array
    scale: float = 1.0

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether each denominator is more than two standard errors away from zero."""
        far = np.abs(self.denominator) > TOO_CLOSE * np.sqrt(self.denominator_variance)
        return np.asarray(far & (self.denominator != 0))

    @property
    def ratio(self) -> Array:
        """N / D before scaling; NaN where D is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.denominator == 0, np.nan, self.numerator / self.denominator)

    @property
    def residual_variance(self) -> Array:
        """Var(N - R D)."""
        R = self.ratio
        squares = self.numerator_variance + R**2 * self.denominator_variance
        w = squares - 2 * R * self.covariance
        return np.where(w > ROUNDING * squares, w, 0.0) + np.where(np.isnan(R), np.nan, 0.0)

    @property
    def std(self) -> Array:
        """Standard errors by the delta method."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.scale * np.sqrt(self.residual_variance) / np.abs(self.denominator)

    def interval(self, reach: float) -> tuple[Array, Array]:
        """Return the ends of Fieller's intervals, relative to the value."""
        squared = reach**2
        R, w = self.ratio, self.residual_variance
        u = self.covariance - R * self.denominator_variance
        u = np.where(
            np.abs(u) > ROUNDING * (np.abs(self.covariance) + np.abs(R) * self.denominator_variance), u, 0.0
        )
        a = self.denominator**2 - squared * self.denominator_variance
        bounded = (a > 0) & np.isfinite(R)
        safe = np.where(bounded, a, 1.0)
        root = reach * np.sqrt(np.where(bounded, squared * u**2 + safe * w, 0.0))
        below = np.where(bounded, (-squared * u - root) / safe, -np.inf)
        above = np.where(bounded, (-squared * u + root) / safe, np.inf)
        return self.scale * below, self.scale * above


@dataclass(frozen=True, eq=False, repr=False)
class Ratios(Figures):
    """Ratios, possibly scaled and shifted: value = shift + scale × N / D."""

    parts: Parts = field(kw_only=True)

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether the denominator is more than two standard errors away from zero."""
        return self.parts.reliable

    def _interval(self, reach: float) -> tuple[Array, Array]:
        below, above = self.parts.interval(reach)
        low = np.where(np.isinf(below), below, self.values + below)
        return low, np.where(np.isinf(above), above, self.values + above)


def ratios_of(
    title: str,
    columns: tuple[Column, ...],
    parts: Parts,
    errors: Callable[[], tuple[Linear, Linear]],
    *,
    shift: float = 0.0,
    note: str = "",
) -> Ratios:
    """Return shift + scale × N / D; `errors` returns those of all N, and of all D."""

    def linear() -> Linear:
        N, D = errors()
        R, below = parts.ratio.ravel(), parts.denominator.ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            return N.plus(D, parts.scale / below, -parts.scale * R / below)

    values = shift + parts.scale * parts.ratio
    return Ratios(title, columns, values, parts.std, note, linear=linear, parts=parts)
