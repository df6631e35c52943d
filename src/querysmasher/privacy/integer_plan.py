"""What is measured, in integers: the subject of the privacy proof.

For every attribute set A the measurement releases B·x_A + noise, where x_A is the marginal on A, B the
Kronecker product of integer strategies on disjoint axes of A, and the noise of each row an independent
integer with a stated variance. Whatever else is released about the table has its own cost (`Distances`
and `Dropped` in `accounting`), or is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.privacy.budget import KINDS, Budget
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.factors import WORD, Factor, Integers, is_factor
from querysmasher.privacy.factors.factor import words
from querysmasher.schema import Schema

MOST_AXES = 32
"""Maximum number of axes of a table of counts."""


@dataclass(frozen=True, eq=False)
class IntegerStrategy:
    """Rows of integers for one block of axes: ⊗ of `factors`, each on some of its axes.

    Row k is answered with noise of variance multipliers[k] × (the attribute set's variance).
    """

    shape: tuple[int, ...]
    factors: tuple[tuple[tuple[int, ...], Factor], ...]
    multipliers: Integers | None = None

    def __post_init__(self) -> None:
        """Check that the factors cover the axes, and that every row has noise."""
        _check_axes("strategy: its shape", self.shape)
        if not all(1 <= n < WORD for n in self.shape):
            raise PrivacyError("strategy: its shape is not made of positive integers")
        if type(self.factors) is not tuple or not all(type(f) is tuple and len(f) == 2 for f in self.factors):
            raise PrivacyError("strategy: its factors are not a tuple of pairs of axes and a factor")
        for axes, factor in self.factors:
            _check_axes("strategy: a factor's axes", axes)
            if not axes and self.shape:
                raise PrivacyError("strategy: a factor without axes is combined with others")
            if not all(0 <= a < len(self.shape) for a in axes):
                raise PrivacyError("strategy: its factors do not cover every axis once")
            if not is_factor(factor) or not factor.fits(tuple(self.shape[a] for a in axes)):
                msg = "strategy: a factor is not a known kind of integer matrix over the cells of its axes"
                raise PrivacyError(msg)
            in_order = axes == tuple(range(len(self.shape)))
            if factor.stands_alone and not (in_order and self.multipliers is None):
                raise PrivacyError(f"strategy: a {factor.kind} must be the only factor, on all axes")
        if sorted(a for axes, _ in self.factors for a in axes) != list(range(len(self.shape))):
            raise PrivacyError("strategy: its factors do not cover every axis once")
        if not self.shape and (len(self.factors) != 1 or self.multipliers is not None):
            msg = "strategy: without axes, expected one factor without multipliers: the number of records"
            raise PrivacyError(msg)
        if self.multipliers is not None:
            kept = words("strategy: its noise multipliers", self.multipliers)
            if kept.shape != self.rows or not np.all(kept > 0):
                raise PrivacyError("strategy: its noise multipliers are not positive integers, one per row")
            object.__setattr__(self, "multipliers", kept)

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of rows of each factor."""
        return tuple(factor.rows for _, factor in self.factors)

    @property
    def bits(self) -> int:
        """Upper bound on the bits of the largest entry of the product of the factors."""
        return sum(factor.largest.bit_length() for _, factor in self.factors)


@dataclass(frozen=True, slots=True)
class IntegerMeasured:
    """An attribute set, the integer strategies measured on it, and the noise variance.

    It is not the planner's `Measured`: the cost is accounted from exact numbers, and from no estimate.
    """

    attributes: tuple[int, ...]
    blocks: tuple[tuple[tuple[int, ...], int], ...]
    """Axes of the attribute set, each with the index of its strategy."""
    variance: Fraction


@dataclass(frozen=True, eq=False)
class IntegerPlan:
    """Everything that is measured, the budget, and the maximum number of records for which it is exact."""

    schema: Schema
    budget: Budget
    strategies: tuple[IntegerStrategy, ...]
    measured: tuple[IntegerMeasured, ...]
    max_records: int

    def __post_init__(self) -> None:
        """Check that the strategies have disjoint axes of their attribute sets, and fit them."""
        # Parts of other types than stated are refused: one with its own comparison or division may cost more.
        check_terms("plan", self.schema, self.budget, self.max_records, 62)
        for name, given, kind in (
            ("strategies", self.strategies, IntegerStrategy),
            ("measured", self.measured, IntegerMeasured),
        ):
            if type(given) is not tuple or not all(type(part) is kind for part in given):
                raise PrivacyError(f"plan: {name} is not a tuple of {kind.__name__}")
        largest = [1 if s.multipliers is None else int(s.multipliers.max()) for s in self.strategies]
        for m in self.measured:
            check_set("plan", self.schema, m.attributes)
            if type(m.variance) is not Fraction:
                raise PrivacyError("plan: a noise variance is not a Fraction")
            if type(m.blocks) is not tuple or not all(type(b) is tuple and len(b) == 2 for b in m.blocks):
                msg = "plan: blocks are not a tuple of pairs of axes and the number of a strategy"
                raise PrivacyError(msg)
            for axes, number in m.blocks:
                _check_axes("plan: a block's axes", axes)
                if type(number) is not int:
                    raise PrivacyError("plan: the number of a strategy is not an integer")
            if sorted(a for axes, _ in m.blocks for a in axes) != list(range(len(m.attributes))):
                raise PrivacyError("plan: strategies do not cover every attribute of a set once")
            if len(m.blocks) > max(1, len(m.attributes)) or (
                m.attributes and not all(a for a, _ in m.blocks)
            ):
                raise PrivacyError("plan: a strategy without attributes is combined with others")
            for axes, number in m.blocks:
                sizes = tuple(self.schema.sizes[m.attributes[a]] for a in axes)
                if not 0 <= number < len(self.strategies) or self.strategies[number].shape != sizes:
                    raise PrivacyError("plan: a strategy does not fit its attributes")
            # A product beyond 64 bits would make the noise too small.
            if math.prod(largest[number] for _, number in m.blocks) >= WORD:
                raise PrivacyError("plan: the noise multipliers of a set exceed 64 bits")

    def count(self, measured: IntegerMeasured) -> int:
        """Return the number of values released on a set."""
        return math.prod(rows for _, number in measured.blocks for rows in self.strategies[number].rows)

    def noise(self, measured: IntegerMeasured, distribution: Distribution) -> tuple[float, float]:
        """Return two numbers: the noise of row k has the variance first × multiplier[k] + second, in records.

        The second is the variance that rounding adds to every row; without multipliers, the first includes
        it. The number of records is measured as a multiple, by which its noise is divided here.
        """
        strategies = [self.strategies[number] for _, number in measured.blocks]
        multiplied = [s.multipliers for s in strategies if s.multipliers is not None]
        variance = float(measured.variance)
        extra = distribution.extra_variance(variance * math.prod(int(m.min()) for m in multiplied))
        if multiplied:
            return variance, extra
        multiples = (
            () if measured.attributes else [f.squared_column() for s in strategies for _, f in s.factors]
        )
        return (variance + extra) / math.prod(multiples), 0.0

    def names(self, measured: IntegerMeasured) -> tuple[str, ...]:
        """Return the names of a set's attributes."""
        return tuple(self.schema.names[a] for a in measured.attributes)


def check_terms(what: str, schema: Schema, budget: Budget, max_records: int, bits: int) -> None:
    """Refuse a schema, a budget or a number of records of another type, or that needs more bits."""
    if type(schema) is not Schema or type(budget) not in KINDS.values():
        raise PrivacyError(f"{what}: expected a schema and a budget of this library")
    if type(max_records) is not int or not 1 <= max_records < 2**bits:
        raise PrivacyError(f"max_records: expected an integer from 1 to 2^{bits} - 1, got {max_records!r}")


def check_set(what: str, schema: Schema, attributes: tuple[int, ...]) -> None:
    """Refuse an attribute set that does not list increasing indexes of attributes."""
    _check_axes(f"{what}: an attribute set", attributes)
    if attributes != tuple(sorted(set(attributes))) or not all(0 <= a < len(schema) for a in attributes):
        raise PrivacyError(f"{what}: an attribute set does not list increasing indexes of attributes")


def _check_axes(what: str, given: object) -> None:
    """Refuse what is not a tuple of plain integers, or has too many for the axes of an array."""
    if type(given) is not tuple or not all(type(a) is int for a in given):
        raise PrivacyError(f"{what}: expected a tuple of integers")
    if len(given) > MOST_AXES:
        raise PrivacyError(f"{what}: expected at most {MOST_AXES}, got {len(given)}")
