"""Limits on the bits of strategies in integers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class StrategyLimits:
    """Limits on the bits of strategies in integers."""

    most_bits: int = 14
    """Maximum number of bits per block; more would bring no visible gain."""
    least_bits: int = 4
    """Minimum number of bits per block; with fewer, rounding would be coarse."""
    ordinary_ratio: float = 32.0
    """Maximum ratio of row lengths at which rounding all rows alike loses next to nothing."""
    good_loss: float = 1.005
    """Factor by which rounding multiplies a variance above which more bits are tried."""
    most_loss: float = 4.0
    """The same above which a plan is refused."""
    few_bits: int = 8
    """With fewer bits per block, the remaining bits go to one block after the other."""
    scaled_bits: int = 8
    """With fewer bits, on few cells, the scale at which rows are rounded matters."""
    scaled_cells: int = 40
    """Maximum number of these cells."""
    repaired_step: int = 2**12
    """Maximum entry of a centre for which sums are repaired unit by unit; beyond, rows are projected."""
    diagonal_bits: int = 10
    """Minimum number of bits of a filter's diagonal: with fewer, it takes some bits of other strategies."""
    filter_bits: int = 9
    """The same of the filter itself."""
