"""What a solver returns for one block: a strategy and the certificate of how good it is."""

from __future__ import annotations

from dataclasses import dataclass

from querysmasher.planning.strategies import Strategy


@dataclass(frozen=True, eq=False)
class Solution:
    """A strategy of unit privacy cost, with bounds on the square root of the loss.

    `reached` is √(loss of this strategy); `bound` is a certified lower bound on √(loss) of every
    strategy for the same block. Both are computed in the same run, and neither is assumed.
    """

    strategy: Strategy
    reached: float
    bound: float
    method: str

    @property
    def gap(self) -> float:
        """How far above the optimum the strategy can be, as a fraction of its root mean square error."""
        return self.reached / self.bound - 1
