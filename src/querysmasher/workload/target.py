"""A target: how accurate the answers to queries must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.errors import WorkloadError
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
            msg = f"within: expected a positive number from {SMALLEST:g} to {LARGEST:g}, got {self.amount!r}"
            raise WorkloadError(msg)
        if self.level is not None and (level is None or not 0 < level < 1):
            msg = f"level: expected a number between 0 and 1, got {self.level!r}"
            raise WorkloadError(msg)
        object.__setattr__(self, "amount", amount)
        object.__setattr__(self, "level", level)

    @cached_property
    def std(self) -> float:
        """The largest allowed standard error."""
        if self.level is None:
            return self.amount
        from scipy.special import ndtri  # noqa: PLC0415 - loads slowly, and only intervals need it

        return self.amount / float(ndtri(0.5 + self.level / 2))

    def __str__(self) -> str:
        """Return the target in words."""
        if self.level is None:
            return error(self.amount)
        return f"{error(self.amount)} at {100 * self.level:g}%"


def _number(given: object) -> float | None:
    """Return a finite number, or None for anything else."""
    if isinstance(given, bool | np.bool) or not isinstance(given, int | float | np.integer | np.floating):
        return None
    return float(given) if math.isfinite(given) else None
