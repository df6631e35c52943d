"""Which numerical method was chosen for each block of a plan, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from querysmasher.planning.mechanisms import MECHANISMS
from querysmasher.planning.prediction import Measured
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import METHODS


@dataclass(frozen=True)
class BlockMethod:
    """How one distinct block was solved."""

    sizes: tuple[int, ...]
    """How many values each of its attributes has."""
    attribute_sets: int
    """How many attribute sets it is a part of."""
    measurements: int
    """How many numbers are measured for it."""
    method: str
    reason: str
    gap: float
    """How far above the optimum of the block its error can be, as a fraction."""

    @property
    def cells(self) -> int:
        """How many cells the block has."""
        return math.prod(self.sizes)

    def __str__(self) -> str:
        """Say it in one line."""
        sizes = " × ".join(f"{n:,}" for n in self.sizes)
        return f"{self.method} on {sizes} values, gap {self.gap:.1e}: {self.reason}"


def methods_of(solutions: Sequence[Solution], measured: Sequence[Measured]) -> tuple[BlockMethod, ...]:
    """Return the distinct blocks that are measured, the largest first."""
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
    """Say why a method is chosen."""
    if method in METHODS:
        return METHODS[method]
    return f"the mechanism {method} was asked for" if method in MECHANISMS else "it was asked for"
