"""How far to trust a figure: the reach of its interval, its coefficient of variation, flags and suppression.

Everything here is computed from noisy values, so it has no privacy cost.

A pointwise interval at level 1 - α reaches z(1 - α/2) standard errors. n intervals hold together with
probability at least 1 - α if each has level (1 - α)^(1/n): for jointly normal errors this is Šidák's
inequality, whatever their correlation. If the correlation is known and n is small, the exact reach is the
quantile of max |Z_i|, here found by simulation with a fixed seed (the level is met within about 0.2
percentage points, or 0.3 beyond a hundred figures), and never beyond Šidák's.

Suppression is a choice with a price: among cells of the same true count, those whose noise is positive
have the smaller coefficient of variation and survive. Published small counts are then too large on
average, and a reader who adds them up gets a biased sum. Without suppression all figures are unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, as_given, as_ratio

MAX_JOINT = 500
"""Maximum number of figures whose joint distribution is simulated; Šidák's inequality serves beyond."""

DRAWS, FEWER_DRAWS = 50_000, 20_000
"""Number of simulated draws of max |Z_i|, for up to a hundred figures and for more."""

THRESHOLDS = (0.1, 0.2, 0.3)
"""Default thresholds of the coefficient of variation."""

UNRELIABLE, SUPPRESSED = "unreliable", "suppressed"


def checked_level(level: object) -> float:
    """Return a level; refuse what is not a number between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise WorkloadError(
            f"level: expected a number between 0 and 1, got {as_given(level)}{as_ratio(level)}"
        )
    return float(level)


def pointwise(level: float) -> float:
    """Return the reach of one interval."""
    from scipy.special import ndtri  # noqa: PLC0415 - loads slowly, and only intervals need it

    return float(ndtri(0.5 + checked_level(level) / 2))


def sidak(level: float, count: int) -> float:
    """Return a reach with which `count` intervals hold together, whatever the correlation."""
    return pointwise(checked_level(level) ** (1 / max(count, 1)))


def together(level: float, count: int, covariance: Array | None = None) -> float:
    """Return a reach with which all intervals hold together.

    `covariance` is that of the figures, up to the scale of each; without it, Šidák's inequality is used.
    """
    safe = sidak(level, count)
    if covariance is None or count > MAX_JOINT:
        return safe
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    known = scale > 1e-9 * scale.max(initial=0.0)
    if not known.any():
        return pointwise(level)
    correlation = covariance[np.ix_(known, known)] / np.outer(scale[known], scale[known])
    values, vectors = np.linalg.eigh(correlation)
    kept = values > 1e-10 * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    drawn = root @ _normal(root.shape[1])
    largest = np.abs(drawn, out=drawn).max(axis=0)
    return float(np.clip(np.quantile(largest, level, method="higher"), pointwise(level), safe))


@lru_cache(maxsize=4)
def _normal(size: int) -> Array:
    """Return standard normal draws, always the same, one per column."""
    draws = DRAWS if size <= 100 else FEWER_DRAWS
    return np.ascontiguousarray(np.random.default_rng(20_240_229).standard_normal((draws, size)).T)


def coefficients(values: Array, std: Array) -> Array:
    """Return the coefficients of variation: 0 if there is no error, infinite if there is only error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(std / np.abs(values))
    return np.where(std == 0, np.where(np.isnan(values), np.nan, 0.0), ratio)


@dataclass(frozen=True)
class Rules:
    """Thresholds of the coefficient of variation, and the one above which a figure is suppressed, if any."""

    thresholds: Sequence[float] = THRESHOLDS
    suppress: float | None = None

    def __post_init__(self) -> None:
        """Check that thresholds increase and are positive."""
        given = self.thresholds
        is_list = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        if not is_list or not all(map(_positive, given)):
            raise WorkloadError(
                f"thresholds: expected positive numbers such as (0.1, 0.2, 0.3), got {as_given(given)}"
            )
        if any(a >= b for a, b in pairwise(given)):
            raise WorkloadError(f"thresholds: expected increasing numbers, got {given!r}")
        if self.suppress is not None and not _positive(self.suppress):
            raise WorkloadError(
                f"suppress: expected a positive number such as 0.3, or None, got {as_given(self.suppress)}"
            )
        object.__setattr__(self, "thresholds", tuple(map(float, given)))
        object.__setattr__(self, "suppress", None if self.suppress is None else float(self.suppress))

    @property
    def words(self) -> tuple[str, ...]:
        """The flags in order of increasing coefficient of variation.

        >>> Rules().words
        ('<=10%', '<=20%', '<=30%', '>30%')
        """
        shown = [f"{100 * t:.6g}%" for t in self.thresholds]
        return (*(f"<={t}" for t in shown), f">{shown[-1]}") if shown else ("",)

    def hidden(self, cv: Array) -> NDArray[np.bool_]:
        """Return which figures are suppressed, including those whose coefficient is not known."""
        if self.suppress is None:
            return np.zeros(cv.shape, dtype=bool)
        return ~(cv <= self.suppress)

    def flags(self, cv: Array, reliable: NDArray[np.bool_] | None = None) -> NDArray[np.str_]:
        """Return the flag of each figure."""
        level = np.searchsorted(np.array(self.thresholds), np.where(np.isnan(cv), np.inf, cv), side="left")
        width = max(map(len, (*self.words, UNRELIABLE, SUPPRESSED)))
        flags = np.array(self.words, dtype=f"<U{width}")[level]
        if reliable is not None:
            flags = np.where(reliable, flags, UNRELIABLE)
        return np.where(self.hidden(cv), SUPPRESSED, flags)


def _positive(value: object) -> bool:
    is_number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    return is_number and 0 < float(value) < float("inf")  # type: ignore[arg-type]
