"""Limits on the search for the best centres."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class CentreLimits:
    """Limits on the search for the best centres."""

    search_gap: float = 1e-5
    """Gap to which the search solves blocks. Its value, a maximum, is far more exact; derivatives are not."""
    own_gap: float = 1e-3
    """Gap to which designs are solved that only determine a centre of more than `light_cells` values."""
    many_classes: int = 100
    """Maximum number of classes of attribute sets; beyond, different weights may share a centre."""
    fine_centre: int = 64
    """Maximum size of the integers to which centres are rounded; for more values, their number up to 256."""
    coarse_centre: int = 16
    """The same for attributes measured together with others, where rows need the bits."""
    own_steps: int = 40
    """Maximum number of steps of one design in them."""
    centre_multiples: int = 65
    """Number of multiples of weights that are tried when centres are rounded."""
    largest_centre: int = 256
    """Maximum size of the integers of any centre: exact measurement needs small ones."""
