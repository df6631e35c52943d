"""Reliability of a figure: its coefficient of variation, a flag, and suppression if asked for.

Everything here is computed from noisy values, so it has no privacy cost.

Suppression is a choice with a price: among cells of the same true count, those whose noise is positive
have the smaller coefficient of variation and survive. Published small counts are then too large on
average, and a reader who adds them up gets a biased sum. Without suppression all figures are unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, as_given

THRESHOLDS = (0.1, 0.2, 0.3)
"""Default thresholds of the coefficient of variation."""

UNRELIABLE, SUPPRESSED = "unreliable", "suppressed"


def coefficients(values: Array, std: Array) -> Array:
    """Return the coefficients of variation: 0 if there is no error, infinite if there is only error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.asarray(std / np.abs(values))
    return np.where(std == 0, np.where(np.isnan(values), np.nan, 0.0), found)


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
            msg = f"thresholds: expected positive numbers such as (0.1, 0.2, 0.3), got {as_given(given)}"
            raise WorkloadError(msg)
        if any(a >= b for a, b in pairwise(given)):
            msg = f"thresholds: expected increasing numbers, got {given!r}"
            raise WorkloadError(msg)
        if self.suppress is not None and not _positive(self.suppress):
            msg = f"suppress: expected a positive number such as 0.3, or None, got {as_given(self.suppress)}"
            raise WorkloadError(msg)
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
        """Return which figures are suppressed; one whose coefficient is not known is, too."""
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
