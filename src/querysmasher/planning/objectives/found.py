"""What a search for the least mean error within targets finds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from querysmasher.planning.objectives.multipliers import Multipliers
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Found:
    """A plan that meets all targets, and a lower bound on the loss of every plan of its kind that does."""

    plan: Plan
    bound: float
    multipliers: Multipliers
    weight: float
    """The sum of the multipliers relative to the loss: large close to the least budget."""

    @property
    def gap(self) -> float:
        """How far the weighted RMSE may be above the least, as a fraction."""
        return gap_of(self.plan.weighted_loss, self.bound)

    def weighted(self) -> Workload:
        """Return the workload, with all weights that queries have and those that their targets add."""
        return weighted(self.multipliers)


def gap_of(loss: float, bound: float) -> float:
    """Return how far the root of a loss may be above the least, as a fraction."""
    return max(0.0, math.sqrt(loss / bound) - 1) if bound > 0 else math.inf


def weighted(multipliers: Multipliers) -> Workload:
    """Return the workload, with all weights that queries have and those that their targets add."""
    aims = (g.target.std if g.target is not None else 1.0 for g in multipliers.workload)
    return multipliers.added(np.fromiter(aims, float))
