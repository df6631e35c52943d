"""The family "sum": the sum of the numbers of an attribute, over the records that a query counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from querysmasher.arrays import ROUNDING, Array
from querysmasher.attributes import Attribute
from querysmasher.errors import Remedy, WorkloadError, as_given
from querysmasher.workload.joint import Rows

if TYPE_CHECKING:
    from querysmasher.workload.workload import Workload


def numbers(attribute: Attribute) -> Array:
    """Return the number of each value in order: itself, or the mid-point of its bin."""
    if attribute.edges is not None:
        low, high = attribute.ends
        if not np.isfinite([low[0], high[-1]]).all():
            raise WorkloadError(
                f"attribute: expected bins with an end, got {attribute.name!r}, which has an open-ended bin; "
                "state a public cap as its edge instead of inf, or ask for counts"
            )
        return (low + high) / 2
    if attribute.grid is not None:
        return attribute.grid
    listed = attribute.values[: attribute.listed]
    kinds = set(map(type, listed))
    numeric = all(issubclass(kind, int | float) and kind is not bool for kind in kinds)
    if attribute.natural_family != "prefix" or not numeric:
        what = f"{attribute.kind}" if numeric else f"{attribute.kind} with values that are not numbers"
        raise WorkloadError(
            f"attribute: expected a number, a binned attribute, or an ordinal one with numbers as values; "
            f"{attribute.name!r} is {what}",
            Remedy(f"ask release.table({attribute.name!r}) for its counts", "ask for its counts"),
        )
    values = np.array(listed, dtype=float)
    if not np.isfinite(values).all():
        raise WorkloadError(f"attribute: {attribute.name!r} has a value that is not finite")
    return values


def on_all(attribute: Attribute, listed: Array) -> Array:
    """Return one entry per value: those of the values in order, and 0 for the values beside them."""
    return np.append(listed, np.zeros(len(attribute.beside)))


def middle(attribute: Attribute) -> float:
    """Return the middle of the range of an attribute's numbers."""
    values = numbers(attribute)
    return float(values.max() + values.min()) / 2


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Rows):
    """The sum of the numbers of an attribute, each less a public number; a bin counts as its mid-point.

    Its weight is 1/r², where r is the largest absolute number that a record adds: it weighs as much as a
    count does, whatever the unit.
    """

    name: ClassVar[str] = "sum"
    counts: ClassVar[str] = "the sum of the numbers of the records that have one"

    @classmethod
    def on(cls, attribute: Attribute, around: float = 0.0) -> Sum:
        """Return the sum on an attribute, of its numbers less `around`."""
        is_number = isinstance(around, int | float | np.number) and not isinstance(around, bool)
        if not is_number or not np.isfinite(around):
            raise WorkloadError(f"around: expected a finite number, got {as_given(around)}")
        row = on_all(attribute, numbers(attribute) - float(around))
        reach = float(np.abs(row).max())
        if reach == 0:
            raise WorkloadError(
                f"around: expected another number than {around:g}, the only one of {attribute.name!r}"
            )
        said = attribute.name if attribute.edges is None else f"mid-points of {attribute.name}"
        if around:
            said = f"({said} {'-' if around > 0 else '+'} {abs(around):,.12g})"
        return cls((attribute.size,), row[None], np.array([1 / reach**2]), (f"sum of {said}",), "sum")

    @property
    def units(self) -> float:
        return 1.0

    @cached_property
    def is_even(self) -> bool:
        row = self.array[0]
        sums = row + row[::-1]
        return bool(np.ptp(sums) <= ROUNDING * np.abs(row).max() * len(row))


def units_of(workload: Workload) -> str:
    """Return words about an error over all queries: counts and sums differ in unit."""
    asked = any(isinstance(family, Sum) for group in workload for family in group.families)
    return ", counts and sums in their own units" if asked else ""
