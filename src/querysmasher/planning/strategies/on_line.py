"""What strategies on an attribute whose values stand on a line have in common, however they are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.unsplit import UnsplitStrategy
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.family import Family
from querysmasher.workload.line import Places


class OnLine(ABC):
    """The variances of prefixes, values and ranges of one attribute."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of values."""

    @abstractmethod
    def covary(self, rows: Array) -> Array:
        """Return rows times V⁻¹."""

    @property
    @abstractmethod
    def prefixes(self) -> Array:
        """The variance of every prefix."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """The variance of every value's count."""

    @abstractmethod
    def between_prefixes(self, low: Places, high: Places) -> Array:
        """Return the covariances of pairs of prefixes."""

    @abstractmethod
    def all_ranges(self) -> float:
        """Return the sum of the variances of all ranges."""

    @abstractmethod
    def all_circular(self) -> float:
        """Return the sum of the variances of all circular ranges."""

    @cached_property
    def of_total(self) -> Array:
        """V⁻¹1: the covariance of every value's count with the total."""
        return self.covary(np.ones(self.size))

    def of_rows(self, rows: Array) -> Array:
        """Return the variances of any queries, given as rows."""
        return np.einsum("ij,ij->i", rows, self.covary(rows))

    def of_spans(self, first: Places, last: Places) -> Array:
        """Return the variances of sums of consecutive values."""
        around = first > last  # the complement of what lies between: its variance needs two cuts as well
        before, until = first - 1, last
        prefixes = np.append(self.prefixes, 0.0)  # index −1: nothing
        low, high = np.minimum(before, until), np.maximum(before, until)
        shared = np.zeros(first.shape)
        single = first == last
        inner = (low >= 0) & ~single
        shared[inner] = self.between_prefixes(low[inner], high[inner])
        result = np.where(single, self.values[first], prefixes[low] + prefixes[high] - 2 * shared)
        if around.any():  # 1 − (high prefix − low prefix)
            own = around
            covariance = np.append(np.cumsum(self.of_total), 0.0)
            result[own] += covariance[self.size - 1] - 2 * (covariance[high[own]] - covariance[low[own]])
        return np.asarray(result)


class LineStrategy(UnsplitStrategy):
    """A strategy on one attribute that knows the variances of prefixes and ranges."""

    @property
    @abstractmethod
    def of_line(self) -> OnLine:
        """The variances of queries."""

    @property
    def spread(self) -> float:
        return 1.0

    @cached_property
    def _rounded(self) -> dict[int, IntegerStrategy]:
        """What `rounded` returned, by bits: planning and measuring ask for the same."""
        return {}

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        if bits not in self._rounded:
            self._rounded[bits] = self._round(bits)
        return self._rounded[bits]

    @abstractmethod
    def _round(self, bits: int) -> IntegerStrategy:
        """Return the strategy in integers of about as many bits."""

    def covary(self, rows: Array) -> Array:
        return self.of_line.covary(rows)

    @property
    def inverse_ones(self) -> Array:
        return self.of_line.of_total

    @property
    def prefix_variances(self) -> Array:
        """The variance of every prefix."""
        return self.of_line.prefixes

    @property
    def value_variances(self) -> Array:
        """The variance of every value's count."""
        return self.of_line.values

    def query_variances(self, family: Family) -> Array:
        if family.rows > limits().variances // 8:
            msg = (
                f"workload: {family.rows:,} variances ({family} of {self.rank:,} values) do not fit in "
                "memory; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        return family.original.variances_on(self.of_line)

    def loss(self, family: Family, *, weighted: bool = True) -> float:
        weights = family.weights if weighted else None
        if weights is None:
            return family.original.loss_on(self.of_line)
        return float(weights @ self.query_variances(family.original))
