"""What a plan reaches, and how much less any plan of its kind could reach."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Certificate:
    """A value that a plan reaches, and a lower bound on that of every plan of its kind; both are squares.

    It is made once, where the bound is known.
    """

    value: float
    """The weighted loss ("mean"), the largest variance relative to its target² ("worst"), or the privacy cost
    that meets all targets ("least")."""
    bound: float
    of: str = "mean"

    @property
    def gap(self) -> float:
        """Upper bound on how far the root of the value exceeds the least, as a fraction."""
        return max(0.0, math.sqrt(self.value / self.bound) - 1) if self.bound > 0 else math.inf

    def times(self, factor: float) -> Certificate:
        """Return the certificate of a multiple of the weights, on which only a loss depends."""
        return Certificate(self.value * factor, self.bound * factor, self.of) if self.of == "mean" else self
