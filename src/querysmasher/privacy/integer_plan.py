"""What is really measured, in whole numbers: the object the privacy proof speaks about.

For every attribute set A the measurement releases B·x_A + noise, where x_A is the marginal on A, B the
Kronecker product of integer strategies on disjoint axes of A, and the noise of each row an independent
integer with a stated variance. Nothing else about the table is released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import PrivacyError
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.filters import Filter
from querysmasher.schema import Schema

Integers = NDArray[np.int64]

Factor = Integers | Filter

WORD = 2**62
"""Entries, answers and draws of noise stay below this in size: a word holds the sum of two such numbers."""


@dataclass(frozen=True, eq=False)
class IntegerStrategy:
    """Rows of whole numbers for one block of axes: ⊗ of `factors`, each on some of its axes.

    A factor is a matrix over its axes' cells or, standing alone, a filter. The row k is answered with noise
    of variance multipliers[k] × (the attribute set's variance).
    """

    shape: tuple[int, ...]
    factors: tuple[tuple[tuple[int, ...], Factor], ...]
    multipliers: Integers | None = None

    def __post_init__(self) -> None:
        """Check that the factors cover the axes, and that no row goes without noise."""
        if sorted(a for axes, _ in self.factors for a in axes) != list(range(len(self.shape))):
            msg = "strategy: its factors do not cover every axis once"
            raise PrivacyError(msg)
        for axes, matrix in self.factors:
            if isinstance(matrix, Filter):
                in_order = axes == tuple(range(len(self.shape)))
                if not in_order or matrix.kernel.shape != self.shape or self.multipliers is not None:
                    msg = "strategy: a filter does not stand alone on all axes"
                    raise PrivacyError(msg)
                continue
            whole = _is_plain(matrix) and matrix.ndim == 2 and len(matrix) > 0
            if not whole or matrix.shape[1] != math.prod(self.shape[a] for a in axes):
                msg = "strategy: a factor is not a matrix of whole numbers over its axes' cells"
                raise PrivacyError(msg)
        for _, matrix in self.factors:
            entries = matrix.kernel if isinstance(matrix, Filter) else matrix
            if entries.min() <= -WORD or entries.max() >= WORD:  # |-2^63| is negative in a word
                msg = "strategy: a factor's whole numbers are too large"
                raise PrivacyError(msg)
        if self.multipliers is not None:
            whole = _is_plain(self.multipliers) and self.multipliers.shape == self.rows
            if not whole or not np.all(self.multipliers > 0):
                msg = "strategy: its noise multipliers are not positive whole numbers, one per row"
                raise PrivacyError(msg)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each factor has."""
        return tuple(f.rows if isinstance(f, Filter) else len(f) for _, f in self.factors)

    @property
    def bits(self) -> int:
        """The bits of the largest entry of the product of the factors, at most."""
        return sum(largest_entry(factor).bit_length() for _, factor in self.factors)


@dataclass(frozen=True, slots=True)
class IntegerMeasured:
    """An attribute set, the integer strategies measured on it, and the noise variance."""

    attributes: tuple[int, ...]
    blocks: tuple[tuple[tuple[int, ...], int], ...]
    """Axes of the attribute set, and the number of the strategy that stands on them."""
    variance: Fraction


@dataclass(frozen=True, eq=False)
class IntegerPlan:
    """All that is measured, for whom it must hold, and the most records it is exact for."""

    schema: Schema
    budget: Budget
    strategies: tuple[IntegerStrategy, ...]
    measured: tuple[IntegerMeasured, ...]
    max_records: int

    def __post_init__(self) -> None:
        """Check that the strategies stand on disjoint axes of their attribute sets, and fit them."""
        largest = [1 if s.multipliers is None else int(s.multipliers.max()) for s in self.strategies]
        sets = {m.attributes for m in self.measured}
        if len(sets) < len(self.measured):
            msg = "plan: an attribute set is measured twice"
            raise PrivacyError(msg)
        for m in self.measured:
            if m.attributes != tuple(sorted(set(m.attributes))) or not all(
                0 <= a < len(self.schema) for a in m.attributes
            ):
                msg = "plan: an attribute set is not given by increasing places in the schema"
                raise PrivacyError(msg)
            if sorted(a for axes, _ in m.blocks for a in axes) != list(range(len(m.attributes))):
                msg = "plan: strategies do not cover every attribute of a set once"
                raise PrivacyError(msg)
            for axes, number in m.blocks:
                sizes = tuple(self.schema.sizes[m.attributes[a]] for a in axes)
                if not 0 <= number < len(self.strategies) or self.strategies[number].shape != sizes:
                    msg = "plan: a strategy does not fit the attributes it stands on"
                    raise PrivacyError(msg)
            if math.prod(largest[number] for _, number in m.blocks) >= WORD:  # or less noise would be added
                msg = "plan: the noise multipliers of a set are too large for a word"
                raise PrivacyError(msg)

    def count(self, measured: IntegerMeasured) -> int:
        """Return how many numbers are released on a set."""
        return math.prod(rows for _, number in measured.blocks for rows in self.strategies[number].rows)

    def names(self, measured: IntegerMeasured) -> tuple[str, ...]:
        """Return the names of a set's attributes."""
        return tuple(self.schema.names[a] for a in measured.attributes)


def largest_entry(factor: Factor) -> int:
    """Return the size of a factor's largest entry."""
    return int(np.abs(factor.kernel if isinstance(factor, Filter) else factor).max())


def _is_plain(array: object) -> bool:
    """Tell whether this is an array of words: no subclass, whose sums and squares may mean something else."""
    return type(array) is np.ndarray and array.dtype == np.int64
