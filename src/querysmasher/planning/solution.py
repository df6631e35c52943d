"""The result of a solver for one block: a strategy, and a certificate of its quality."""

from __future__ import annotations

from dataclasses import dataclass, replace

from querysmasher.planning.strategies import Strategy


@dataclass(frozen=True, eq=False)
class Solution:
    """A strategy of unit privacy cost, with bounds on the square root of the loss.

    `reached` is √(loss of this strategy); `bound` is a certified lower bound on √(loss) of every
    strategy for the same block. Both are computed in the same run; neither is assumed.
    """

    strategy: Strategy
    reached: float
    bound: float
    method: str

    def times(self, factor: float) -> Solution:
        """Return the same strategy for a multiple of its queries."""
        return replace(self, reached=self.reached * factor, bound=self.bound * factor)

    @property
    def gap(self) -> float:
        """Upper bound on how far the RMSE of the strategy exceeds the optimum, as a fraction."""
        return self.reached / self.bound - 1
