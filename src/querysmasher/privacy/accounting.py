"""The exact privacy cost of an integer plan, computed from its matrices alone.

Adding or removing a record changes x_A by one unit vector, hence B·x_A by one column of B. With
independent Gaussian noise of variance σ²·m_k on row k the cost of the set is max_j Σ_k B[k,j]²/(σ²·m_k),
which for a Kronecker product is the product of its blocks' maxima; the costs of independent measurements
add up. Replacing a record changes x_A by a difference of two unit vectors: the cost is a maximum over pairs
of cells (`pairs`). Where counts are public, the two cells agree on their attributes (`unit`), so that what is
measured on these alone does not change. Changing r records costs at most r² as much. The planner is not
consulted.

Besides integer plans there are two more kinds of measurement, each with its own cost: `Distances` and
`Dropped`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from querysmasher.errors import BudgetError, PrivacyError
from querysmasher.privacy.budget import Budget, rounded
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.integer_plan import IntegerPlan, IntegerStrategy, check_set, check_terms
from querysmasher.privacy.pairs import MOST_CELLS, Pairs, Parts, Products
from querysmasher.privacy.unit import Unit
from querysmasher.schema import Schema

GRAIN = 2**160
"""Costs are rounded up to multiples of 1/GRAIN, so that sums of many fractions stay short."""


def squared_sensitivity(strategy: IntegerStrategy) -> Fraction:
    """Return max_j Σ_k B[k,j]² / multiplier[k]; with multipliers, a tight upper bound.

    Without multipliers this is exact: the columns of a Kronecker product are products of its factors'
    columns, so their largest squared length is the product of the factors' largest; a filter's columns are
    all of one length. With multipliers, it is a sum of products of non-negative doubles: each square,
    product, quotient and sum has a relative error of at most 2⁻⁵², fewer than 2²⁰ of them contribute to any
    entry, and the result is increased by a relative 2⁻³⁰: an upper bound.
    """
    factors = [factor for _, factor in strategy.factors]
    if strategy.multipliers is None:
        return Fraction(math.prod(factor.squared_column() for factor in factors))
    if sum(strategy.rows) >= 2**20 or any(factor.largest >= 2**26 for factor in factors):
        raise PrivacyError("strategy: its factors are too large to bound its sensitivity")
    total = 1.0 / strategy.multipliers
    with np.errstate(over="ignore"):
        for factor in factors:  # contracts the first axis and appends the factor's cells
            total = factor.weighted_squares(total)
    if not np.isfinite(total).all():
        raise PrivacyError("strategy: its factors are too large to bound its sensitivity")
    return Fraction(float(total.max())) * (1 + Fraction(1, 2**30))


def privacy_cost(plan: IntegerPlan) -> Fraction:
    """Return the total privacy cost of a plan, rounded up.

    Formal guarantee: for any two tables that differ as the budget's neighbours say, the sum over all
    released numbers of (change)²/(noise variance) is at most the returned number.
    """
    squares, unit = [squared_sensitivity(s) for s in plan.strategies], plan.budget.unit
    if any(m.variance <= 0 for m in plan.measured):
        raise PrivacyError("plan: a measurement has no noise")
    costs = [
        math.prod((squares[number] for _, number in m.blocks), start=1 / m.variance) for m in plan.measured
    ]
    if unit.total_is_public:  # the number of records is the same
        total = _largest_of_pairs(plan, costs)
    else:
        total = Fraction(sum(math.ceil(cost * unit.change() * GRAIN) for cost in costs), GRAIN)
    return total


def _largest_of_pairs(plan: IntegerPlan, costs: Sequence[Fraction]) -> Fraction:
    """Return an upper bound on the cost of replacing records; `costs` are those of the longest columns.

    Replacing r records, one after the other, moves the answers by at most r times the largest distance: each
    is replaced by one with the same public values, so all tables on the way agree on the exact counts, too.
    """
    known = plan.budget.unit.known(plan.schema)
    products = [column_products(strategy) for strategy in plan.strategies]
    kept = [
        (m, cost) for m, cost in zip(plan.measured, costs, strict=True) if not known.unprotected(m.attributes)
    ]
    if not kept:
        return Fraction(0)
    measured = [
        tuple(
            (tuple(m.attributes[axes[a]] for a in inner), part)
            for axes, number in m.blocks
            for inner, part in products[number]
        )
        for m, _ in kept
    ]
    weights = np.nextafter([float(cost) for _, cost in kept], math.inf)
    if not np.isfinite(weights).all():
        raise PrivacyError("plan: a measurement has too little noise")
    value, _ = Pairs(plan.schema.sizes, measured, weights, known.agreed, known.groups).largest(weights)
    return Fraction(value) * plan.budget.unit.records_per_person**2


def column_products(strategy: IntegerStrategy) -> Parts:
    """Return the products of the columns of a strategy's factors, relative to the longest of each.

    If rows have multipliers, the strategy is no product: those of all its cells, if they are few.
    """
    if strategy.multipliers is None:
        return tuple((axes, factor.column_products()) for axes, factor in strategy.factors)
    axes, every = tuple(range(len(strategy.shape))), math.prod(strategy.shape)
    if every > MOST_CELLS:
        return ((axes, Products.bounded(-1.0)),)
    rows = np.sqrt(1.0 / strategy.multipliers)
    count = len(strategy.factors)
    operands: list[Any] = [rows, list(range(count))]
    for number, (on, factor) in enumerate(strategy.factors):
        matrix = factor.written_out().reshape(factor.rows, *(strategy.shape[a] for a in on))
        operands += [matrix, [number, *(count + a for a in on)]]
    tensor = np.einsum(*operands, [*range(count), *(count + a for a in axes)])
    return ((axes, Products.of(tensor.reshape(-1, every), float(squared_sensitivity(strategy)))),)


def check_budget(plan: IntegerPlan, noise: Distribution) -> None:
    """Refuse a plan whose exact cost exceeds its budget."""
    check_cost("plan: its measurements cost", privacy_cost(plan), plan.budget, noise)


def check_cost(what: str, cost: Fraction, budget: Budget, noise: Distribution) -> None:
    """Refuse an exact cost that exceeds what a budget allows with this noise."""
    allowed = Fraction(noise.allowed_cost(budget))
    if cost > allowed:
        raise PrivacyError(
            f"{what} {float(cost):.6g}, more than the {float(allowed):.6g} that the budget allows with "
            f"{noise.name} noise; nothing was measured"
        )


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
    """Distances that are measured together, their budget, and the maximum number of records.

    For an attribute set A, a positive integer a (the multiple) and integers t over the cells of A, the
    distance is S = Σ_c |a·m_c - t_c|, where m is the marginal on A. S/a is then the distance of the marginal
    from t/a, in records. The targets t are arbitrary, as long as they are chosen without the table, or after
    results that carry noise already.

    Sensitivity. Adding or removing one record changes one a·m_c by a, hence S by at most a (the triangle
    inequality), and by exactly a if t_c is a multiple of a: |a·m_c - t_c| then moves from one multiple of a
    to the next. Replacing one record changes two cells, hence S by at most 2a. Changing r records at once
    multiplies both bounds by r. So S changes by at most a·√change of the unit of privacy, whatever t
    is, and with noise of variance σ² it costs at most a²·change/σ². The costs of several distances
    add up: with the same noise, the vector of K distances has L2 sensitivity at most a·√(K·change).
    """

    schema: Schema
    budget: Budget
    queries: tuple[Distance, ...]
    max_records: int

    def __post_init__(self) -> None:
        """Refuse parts of other types than stated, and distances that might not fit a word."""
        check_terms("distances", self.schema, self.budget, self.max_records, 61)
        if type(self.queries) is not tuple or not all(type(query) is Distance for query in self.queries):
            raise PrivacyError("distances: expected a tuple of Distance")
        for query in self.queries:
            check_set("distances", self.schema, query.attributes)
            if not query.attributes:
                raise PrivacyError("distances: an attribute set has no attributes")
            if type(query.multiple) is not int or not 1 <= query.multiple * self.max_records < LARGEST:
                msg = "distances: a multiple is not a positive integer, or too large for this many records"
                raise PrivacyError(msg)
            if type(query.variance) is not Fraction or query.variance <= 0:
                msg = "distances: a noise variance is not a positive Fraction; zero noise is never allowed"
                raise PrivacyError(msg)

    def names(self, query: Distance) -> tuple[str, ...]:
        """Return the names of a set's attributes."""
        return tuple(self.schema.names[a] for a in query.attributes)


def distances_cost(distances: Distances) -> Fraction:
    """Return the total privacy cost of measuring distances, rounded up.

    Formal guarantee: for any two tables that differ as the budget's neighbours say, and any targets, the sum
    over all distances of (change)²/(noise variance) is at most the returned number.
    """
    change = distances.budget.unit.change()
    alike = Counter((query.multiple, query.variance) for query in distances.queries)
    total = sum(
        count * math.ceil(Fraction(change * multiple**2) / variance * GRAIN)
        for (multiple, variance), count in alike.items()
    )
    return Fraction(total, GRAIN)


SHARE = 0.01
"""Share of the budget that measures how many records were left out."""

BINS = 7
"""Number of bins of persons; the last one has no end."""

LARGEST_VARIANCE = 2**100
"""Maximum variance of noise that can be drawn."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many records were left out: a number of records or, with `persons`, one number of persons per bin.

    Records are left out where at most k of each person are counted (`bound`), and where those with a value
    outside the schema are dropped.

    Without persons, the number D of dropped records is measured. Adding or removing at most r records changes
    D by at most r, so noise of variance σ² costs at most r²/σ².

    With persons, one person may have any number of records, so no bound holds for how D changes. Instead,
    persons are counted by how many of their records are left out. Let l(p) be the number of records with the
    name p that are not counted, for either reason: a value outside the schema, or k others that are counted.
    A person with l(p) = 0 is in no bin, and every other in one of `BINS` bins, which end at k, 3k, 7k, … If
    no values are outside the schema, these are persons with more than k and up to 2k records, up to 4k, up to
    8k, … The last bin has no end.

    Formal guarantee. Let T and T' differ by all records of one person, however many. l(q) depends on the
    records of q alone, so it is the same in T and T' for everyone else, and the numbers of persons in the
    bins differ by at most 1, in one bin: their squared change is at most 1, whatever k is. Independent noise
    of variance σ² on each bin costs at most 1/σ². The noise is independent of all other noise, so this cost
    is added to that of what is measured of the counted records, for the same T and T' (`accounting`,
    `phases`).

    A record without a name belongs to nobody. One person may be behind any number of them, so no noise could
    hide how many there are: they are dropped, and never measured.
    """

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
        """Return the measurement with the least noise that costs at most `cost`; refuse too small a cost."""
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
    return allowed if dropped is None else rounded(Fraction(allowed) - dropped.cost, up=False)


def _squared_change(unit: Unit, persons: bool) -> Fraction:
    """Return the largest squared change of the measured numbers between neighbours: see `Dropped`."""
    return Fraction(1 if persons else unit.records_per_person**2)
