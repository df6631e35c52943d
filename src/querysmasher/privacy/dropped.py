"""How many records were left out, measured with noise: what is asked, and its exact cost.

Records are left out where at most k of each person are counted (`persons`), and where those with a value
outside the schema are dropped.

Without persons, the number D of dropped records is measured. Adding or removing at most r records changes D
by at most r, so noise of variance σ² costs at most r²/σ².

With persons, one person may have any number of records, so no bound holds for how D changes. Instead, persons
are counted by how many of their records are left out. Let l(p) be the number of records with the name p that
are not counted, for either reason: a value outside the schema, or k others that are counted. A person with
l(p) = 0 is in no bin, and every other in one of `BINS` bins, which end at k, 3k, 7k, … If no values are
outside the schema, these are persons with more than k and up to 2k records, up to 4k, up to 8k, … The last
bin has no end.

Formal guarantee. Let T and T' differ by all records of one person, however many. l(q) depends on the records
of q alone, so it is the same in T and T' for everyone else, and the numbers of persons in the bins differ by
at most 1, in one bin: their squared change is at most 1, whatever k is. Independent noise of variance σ² on
each bin costs at most 1/σ². The noise is independent of all other noise, so this cost is added to that of
what is measured of the counted records, for the same T and T' (`accounting`, `phases`).

A record without a name belongs to nobody. One person may be behind any number of them, so no noise could hide
how many there are: they are dropped, and never measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from querysmasher.errors import BudgetError, PrivacyError
from querysmasher.privacy.unit import Unit

SHARE = 0.01
"""Share of the budget that measures how many records were left out."""

BINS = 7
"""Number of bins of persons; the last one has no end."""

LARGEST_VARIANCE = 2**100
"""Maximum variance of noise that can be drawn."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What is measured: a number of records or, with `persons`, one number of persons per bin."""

    unit: Unit
    persons: bool
    variance: Fraction
    """The variance of the noise on each number."""

    def __post_init__(self) -> None:
        """Check the types; refuse neighbours that publish the number of counted records."""
        if (type(self.unit), type(self.persons), type(self.variance)) != (Unit, bool, Fraction):
            msg = "dropped: expected a unit of privacy, a truth value and a variance as a Fraction"
            raise PrivacyError(msg)
        if self.unit.total_is_public:
            raise PrivacyError("dropped: with replace_one neighbours no records are left out")
        if not 1 <= self.variance <= LARGEST_VARIANCE:
            raise PrivacyError("dropped: expected a noise variance from 1 to 2^100")

    @classmethod
    def at_cost(cls, unit: Unit, persons: bool, cost: float) -> Dropped:
        """Return what is measured at most at a privacy cost; refuse a cost that is too small."""
        change = _squared_change(unit, persons)
        if not cost > 0 or change / Fraction(cost) > LARGEST_VARIANCE:
            msg = "report_dropped: expected False, because 1% of the budget is too small to measure anything"
            raise BudgetError(msg)
        return cls(unit, persons, Fraction(max(1, math.ceil(change / Fraction(cost)))))

    @property
    def cost(self) -> Fraction:
        """The exact privacy cost.

        Formal guarantee: for any two tables that differ as the unit of privacy says (with `persons`, by all
        records of one person), the sum over the numbers of (change)²/(noise variance) is at most this.
        """
        return _squared_change(self.unit, self.persons) / self.variance

    @property
    def size(self) -> int:
        """How many numbers are measured."""
        return BINS if self.persons else 1


def ends(most: int) -> tuple[int, ...]:
    """Return the largest number of records left out of one person in each bin but the last.

    >>> ends(10)
    (10, 30, 70, 150, 310, 630)
    """
    return tuple((2**i - 1) * most for i in range(1, BINS))


def rest(allowed: float, dropped: Dropped | None) -> float:
    """Return the privacy cost that is left for everything else, rounded down."""
    return allowed if dropped is None else rounded_down(Fraction(allowed) - dropped.cost)


def rounded_down(exact: Fraction) -> float:
    """Return the largest float that is not above a positive fraction."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, 0.0)


def _squared_change(unit: Unit, persons: bool) -> Fraction:
    """Return how far neighbours differ in what is measured, squared: see above."""
    return Fraction(1 if persons else unit.records_per_person**2)
