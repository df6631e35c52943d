"""The numerical method chosen for each block of a plan, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from querysmasher.planning.mechanisms import MECHANISMS
from querysmasher.planning.solution import Measured, Solution
from querysmasher.planning.solvers import METHODS


@dataclass(frozen=True)
class BlockMethod:
    """The method that solved one distinct block."""

    sizes: tuple[int, ...]
    """Number of values of each of its attributes."""
    attribute_sets: int
    """Number of attribute sets that it belongs to."""
    measurements: int
    """Number of measurements for it."""
    method: str
    reason: str
    gap: float
    """Upper bound on how far its RMSE exceeds the optimum of the block, as a fraction."""

    @property
    def cells(self) -> int:
        """Number of cells of the block."""
        return math.prod(self.sizes)

    def __str__(self) -> str:
        """Return one line of text."""
        sizes = " × ".join(f"{n:,}" for n in self.sizes)
        return f"{self.method} on {sizes} values, gap {self.gap:.1e}: {self.reason}"


def methods_of(solutions: Sequence[Solution], measured: Sequence[Measured]) -> tuple[BlockMethod, ...]:
    """Return the distinct measured blocks, largest first."""
    used = Counter(number for m in measured for _, number in m.blocks)
    found = [
        BlockMethod(
            s.strategy.shape,
            used[number],
            s.strategy.rank,
            s.method,
            reason(s.method),
            s.gap if s.bound else 0.0,
        )
        for number, s in enumerate(solutions)
        if used[number]
    ]
    return tuple(sorted(found, key=lambda block: (-block.cells, block.sizes)))


def reason(method: str) -> str:
    """Return why a method is chosen."""
    if method in METHODS:
        return METHODS[method]
    return f"the mechanism {method} was asked for" if method in MECHANISMS else "it was asked for"
