"""Parts of a plan: solutions of blocks, what is measured on an attribute set, the certificate, the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from querysmasher.formatting import percentage
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

    @property
    def gap(self) -> float:
        """Upper bound on how far the RMSE of the strategy exceeds the optimum, as a fraction."""
        return self.reached / self.bound - 1


Blocks = tuple[tuple[tuple[int, ...], int], ...]
"""Pairs of axes of an attribute set and the index of their solution."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An attribute set, the strategies measured on it, and their noise."""

    attributes: tuple[int, ...]
    blocks: Blocks
    variance: float
    """σ²: the variance of the noise on the answers to the strategies' rows."""
    root_loss: float
    """√L at unit cost."""
    whole: tuple[int, ...] = ()
    """Indexes of the workload's groups that are measured whole here, not split."""
    price: float = 1.0
    """price/σ² is the part of the privacy cost that is attributed to it: the parts of a plan add up."""


LEAST = "least"
"""The objective of a plan that meets its targets at the least cost."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A value that a plan reaches, and a lower bound on that of every plan of its kind; both are squares.

    It is made once, where the bound is known. If some groups are measured whole beside others, both refer to
    plans that answer every group from its own measurement: this plan combines answers, and is no worse.
    """

    value: float
    """The weighted loss ("mean"), the largest variance relative to its target² ("worst"), or the privacy cost
    that meets all targets ("least")."""
    bound: float
    of: str = "mean"

    @property
    def gap(self) -> float:
        """Upper bound on how far the root of the value exceeds the least possible, as a fraction."""
        return max(0.0, math.sqrt(self.value / self.bound) - 1) if self.bound > 0 else math.inf


@dataclass(frozen=True)
class Limit:
    """A lower bound on the weighted RMSE of every matrix mechanism, and how far a plan is above it.

    `rmse` and `excess` are None if the limit was not computed; `reason` then says why.
    """

    rmse: float | None
    excess: float | None
    reason: str = ""

    def __str__(self) -> str:
        """Return the limit in words."""
        if self.rmse is None or self.excess is None:
            return f"limit not computed: {self.reason}"
        return (
            f"no matrix mechanism has a weighted RMSE below {self.rmse:.4g}: the plan is at most "
            f"{percentage(self.excess)} above the best possible"
        )
