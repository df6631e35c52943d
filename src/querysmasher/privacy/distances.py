"""Distances between marginals and given integers, measured with noise: what is asked, and its exact cost.

For an attribute set A, a positive integer a (the multiple) and integers t over the cells of A, the distance
is S = Σ_c |a·m_c - t_c|, where m is the marginal on A. S/a is then the distance of the marginal from t/a, in
records. The targets t are arbitrary, as long as they are chosen without the table, or after results that
carry noise already.

Sensitivity. Adding or removing one record changes one a·m_c by a, hence S by at most a (the triangle
inequality), and by exactly a if t_c is a multiple of a: |a·m_c - t_c| then moves from one multiple of a to
the next. Replacing one record changes two cells, hence S by at most 2a. Changing r records at once multiplies
both bounds by r. So S changes by at most a·√squared_change of the unit of privacy, whatever t is, and with
noise of variance σ² it costs at most a²·squared_change/σ². The costs of several distances add up: with the
same noise, the vector of K distances has L2 sensitivity at most a·√(K·squared_change).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import GRAIN
from querysmasher.privacy.budget import KINDS, Budget
from querysmasher.schema import Schema

LARGEST = 2**61
"""Maximum of the sum of all targets of a set, and of multiple × records: a distance then fits 62 bits."""


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of the marginal on some attributes from integers, in units of 1/multiple of a record."""

    attributes: tuple[int, ...]
    multiple: int
    variance: Fraction
    """The variance of the noise on the integer distance."""


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances that are measured together, their budget, and the maximum number of records."""

    schema: Schema
    budget: Budget
    asked: tuple[Distance, ...]
    max_records: int

    def __post_init__(self) -> None:
        """Refuse parts of other types than stated, and distances that might not fit a word."""
        if type(self.schema) is not Schema or type(self.budget) not in KINDS.values():
            raise PrivacyError("distances: expected a schema and a budget of this library")
        if type(self.max_records) is not int or not 1 <= self.max_records < LARGEST:
            msg = f"max_records: expected an integer from 1 to 2^61 - 1, got {self.max_records!r}"
            raise PrivacyError(msg)
        if type(self.asked) is not tuple or not all(type(one) is Distance for one in self.asked):
            raise PrivacyError("distances: expected a tuple of Distance")
        for one in self.asked:
            self._check(one)

    def _check(self, one: Distance) -> None:
        is_tuple = type(one.attributes) is tuple and all(type(a) is int for a in one.attributes)
        if not is_tuple or not one.attributes or one.attributes != tuple(sorted(set(one.attributes))):
            msg = "distances: an attribute set does not list increasing indexes of attributes, at least one"
            raise PrivacyError(msg)
        if not 0 <= one.attributes[0] <= one.attributes[-1] < len(self.schema):
            raise PrivacyError("distances: an attribute set has indexes of no attributes")
        if type(one.multiple) is not int or not 1 <= one.multiple * self.max_records < LARGEST:
            msg = "distances: a multiple is not a positive integer, or too large for this many records"
            raise PrivacyError(msg)
        if type(one.variance) is not Fraction or one.variance <= 0:
            msg = "distances: a noise variance is not a positive Fraction; zero noise is never allowed"
            raise PrivacyError(msg)

    def names(self, one: Distance) -> tuple[str, ...]:
        """Return the names of a set's attributes."""
        return tuple(self.schema.names[a] for a in one.attributes)


def distances_cost(distances: Distances) -> Fraction:
    """Return the total privacy cost of measuring distances, rounded up.

    Formal guarantee: for any two tables that differ as the budget's neighbours say, and any targets, the sum
    over all distances of (change)²/(noise variance) is at most the returned number.
    """
    change = distances.budget.unit.squared_change()
    alike = Counter((one.multiple, one.variance) for one in distances.asked)
    total = sum(
        count * math.ceil(Fraction(change * multiple**2) / variance * GRAIN)
        for (multiple, variance), count in alike.items()
    )
    return Fraction(total, GRAIN)
