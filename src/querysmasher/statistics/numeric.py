"""The numbers that the values of an attribute stand for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, Ordinal
from querysmasher.errors import WorkloadError

ASSUMED = (
    "Intervals cover the noise, not this assumption: "
    "the figure of the records themselves can lie outside them."
)
MIDPOINTS = f"Bins count as their mid-points. {ASSUMED}"
INTERPOLATED = f"Records are taken as spread evenly within each bin. {ASSUMED}"


def numbers(attribute: Attribute) -> Array:
    """Return the number of each value: itself, or the mid-point of its bin."""
    if attribute.edges is not None:
        edges = np.array(attribute.edges, dtype=float)
        return (edges[:-1] + edges[1:]) / 2
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in attribute.values)
    if not isinstance(attribute, Ordinal) or not numeric:
        what = f"{attribute.kind}" if numeric else f"{attribute.kind} with values that are not numbers"
        msg = (
            f"attribute: expected a binned attribute, or an ordinal one with numbers as values; "
            f"{attribute.name!r} is {what}; ask release.table({attribute.name!r}) for its counts"
        )
        raise WorkloadError(msg)
    found = np.array(attribute.values, dtype=float)
    if not np.isfinite(found).all():
        msg = f"attribute: {attribute.name!r} has a value that is not finite"
        raise WorkloadError(msg)
    return found


def with_unit(attribute: Attribute) -> str:
    """Return the name of an attribute and, if it is stated, the unit of its numbers."""
    return attribute.name if attribute.unit is None else f"{attribute.name} ({attribute.unit})"


def increasing_numbers(attribute: Attribute) -> Array:
    """Return the number of each value; refuse an attribute whose order is not that of its numbers."""
    found = numbers(attribute)
    if any(a >= b for a, b in pairwise(found)):
        msg = f"attribute: the values of {attribute.name!r} do not increase, so it has no quantiles"
        raise WorkloadError(msg)
    return found
