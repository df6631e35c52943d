"""Limits on the search for the best centres."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class CentreLimits:
    """Limits on the search for the best centres."""

    joint_cells: int = 400
    """Maximum number of cells of a block on several attributes that is solved; larger ones are estimated."""
    thin_cells: int = 12_000
    """The same for thin blocks."""
    heavy_cells: int = 1_000
    """Maximum number of cells of a block that is quick to evaluate; larger ones leave time for few steps."""
    tight_cells: int = 64
    """Maximum number of cells of a block that is solved tightly, which costs nothing at this size."""
    search_gap: float = 1e-5
    """Gap to which the search solves blocks. Its value, a maximum, is far more exact; derivatives are not."""
    tight_gap: float = 1e-8
    """The same for small blocks, and for a search that is stuck."""
    heavy_gap: float = 1e-4
    """The same for heavy blocks."""
    own_gap: float = 1e-3
    """Gap to which designs are solved that only determine a centre of more than `light_cells` values."""
    rough_gap: float = 1e-2
    """The same in the first round, while the weight of the total is a guess."""
    own_change: float = 3e-3
    """Maximum change of the weight of the total, as a fraction, in the last round of designs."""
    search_steps: int = 60
    """Maximum number of steps of the search."""
    heavy_steps: int = 10
    """The same where evaluations are heavy."""
    search_gain: float = 2e-6
    """The search ends when a step gains less than this fraction."""
    heavy_gain: float = 2e-5
    """The same where evaluations are heavy."""
    first_step: float = 0.3
    """Length of the first step, as a fraction of the uniform centre's length."""
    many_classes: int = 100
    """Maximum number of classes of attribute sets; beyond, different weights may share a centre."""
    partial_ways: tuple[float, ...] = (1.0, 0.4, 0.1)
    """Fractions of the way from uniform centres to try if the search only estimates: estimates overshoot."""
    fine_centre: int = 64
    """Maximum size of the integers to which centres are rounded; for more values, their number up to 256."""
    coarse_centre: int = 16
    """The same for attributes measured together with others, where rows need the bits."""
    own_rounds: int = 20
    """Maximum number of rounds of centres in closed form; where they do not settle, the search takes over."""
    own_steps: int = 40
    """Maximum number of steps of one design in them."""
    search_slope: float = 1e-9
    """The search also ends if no entry of the gradient is larger."""
    centre_multiples: int = 65
    """Number of multiples of weights that are tried when centres are rounded."""
    largest_centre: int = 256
    """Maximum size of the integers of any centre: exact measurement needs small ones."""
