"""A target: how accurate the answers to queries must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.errors import Remedy, WorkloadError, as_given, as_share
from querysmasher.formatting import error

SMALLEST, LARGEST = 1e-12, 1e30
"""Bounds on a target: the squares of all ratios between targets and counts stay finite."""


@dataclass(frozen=True)
class Target:
    """The largest allowed standard error or, with a `level`, the largest half-width of an interval."""

    amount: float
    level: float | None = None

    def __post_init__(self) -> None:
        """Refuse amounts that are not positive numbers, and levels outside (0, 1)."""
        amount, level = _number(self.amount), None if self.level is None else _number(self.level)
        if amount is None or not SMALLEST <= amount <= LARGEST:
            allowed = f"a positive number from {SMALLEST:g} to {LARGEST:g}"
            msg = f"within: expected {allowed}, the largest standard error, got {as_given(self.amount)}"
            raise WorkloadError(msg, Remedy("write within(50)", "write target = 50"))
        if self.level is not None and (level is None or not 0 < level < 1):
            msg = (
                f"level: expected a number between 0 and 1, got {as_given(self.level)}{as_share(self.level)}"
            )
            raise WorkloadError(msg)
        object.__setattr__(self, "amount", amount)
        object.__setattr__(self, "level", level)
        if level is not None and not SMALLEST * _reach(level) <= amount <= LARGEST * _reach(level):
            raise WorkloadError(
                f"within: expected a half-width that allows a standard error from {SMALLEST:g} to "
                f"{LARGEST:g}, got {amount:g} at level {level:g}"
            )

    @cached_property
    def std(self) -> float:
        """The largest allowed standard error."""
        return self.amount if self.level is None else self.amount / _reach(self.level)

    def __str__(self) -> str:
        """Return the target in words."""
        if self.level is None:
            return error(self.amount)
        return f"{error(self.amount)} at {100 * self.level:g}%"


def _reach(level: float) -> float:
    """Return how many standard errors an interval reaches to either side: the quantile of a normal error."""
    from scipy.special import erfinv, ndtri  # noqa: PLC0415 - load slowly, and only intervals need them

    return float(math.sqrt(2) * erfinv(level) if level < 0.5 else -ndtri((1 - level) / 2))


def _number(given: object) -> float | None:
    """Return a finite number, or None for anything else."""
    if isinstance(given, bool | np.bool) or not isinstance(given, int | float | np.integer | np.floating):
        return None
    try:
        value = float(given)
    except OverflowError:  # an integer
        return None
    return value if math.isfinite(value) else None
