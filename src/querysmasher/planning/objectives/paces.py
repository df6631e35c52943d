"""How far multipliers of rows move: by a power of their ratios that earlier steps suggest.

With θ the logarithms of a scope's multipliers and g those of its variances relative to their mean, the next
step is θ + r·g. If g falls linearly, as −s/r along a change s of θ, then ⟨−s, y⟩/⟨y, y⟩ for the change y of g
estimates r: it is cautious, as the rows that react most count most.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.objectives.multipliers import Scope

RANGE_HASTE, CIRCULAR_HASTE = 1.2, 3.0
"""Factors of the rate for ranges: few of them attain the largest variance, and the others fade."""

MOST = 8.0
"""Maximum of the power that is estimated."""


class Paces:
    """The powers of all scopes, step by step."""

    def __init__(self) -> None:
        """Start without any earlier step."""
        self.rate = 1.0
        """The least power."""
        self._last: dict[int, tuple[Array, Array, Array]] = {}

    def __call__(self, number: int, scope: Scope, u: Array, logs: Array) -> float:
        """Return the power for a scope with the multipliers u, given the logarithms of its ratios."""
        ranges = scope.family.has_lengths and not scope.family.looks_alike
        haste = CIRCULAR_HASTE if scope.by_length else RANGE_HASTE if ranges else 1.0
        pace, theta = self.rate * haste, np.log(u)
        if number in self._last:
            before, own, weights = self._last[number]
            change, weights = logs - own, np.sqrt(u * weights)
            square = float(weights @ change**2)
            if square > 0:
                pace = max(pace, min(-float(weights @ (change * (theta - before))) / square, MOST))
        self._last[number] = theta, logs, u
        return pace
