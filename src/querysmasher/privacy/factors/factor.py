"""The interface of every factor of an integer strategy, however it is stored.

A factor is a matrix B of integers over the cells of some axes. Accounting uses the lengths of its columns
and measuring uses B·x, both exact: the privacy proof rests on them. What follows the
noise (Bᵀz, B†z) is ordinary floating point. A contract test compares every kind with the matrix it
represents.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers, pseudo_inverse
from querysmasher.errors import PrivacyError

Integers = NDArray[np.int64]

WORD = 2**62
"""Bound on the size of entries, answers and draws of noise: the sum of two fits into 64 bits."""


class Factor(ABC):
    """A matrix of integers over the cells of some axes; its arrays are read-only."""

    kind: ClassVar[str]
    """The name under which files store it."""

    stands_alone: ClassVar[bool] = False
    """Whether it must be the only factor of its strategy, on all axes in order, without noise multipliers."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of cells."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest absolute value of an entry, exactly, or an upper bound on it."""

    @abstractmethod
    def squared_column(self) -> int:
        """Return the largest squared length of a column, exactly: max_j Σ_k B[k,j]²."""

    @abstractmethod
    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        """Return B·x exactly, for tables in columns whose absolute values sum to at most `bound` each.

        The caller ensures that `bound` × `largest` is below `WORD`.
        """

    @abstractmethod
    def transposed(self, answers: Array) -> Array:
        """Return Bᵀz for answers in columns."""

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """Return plain data with arrays, from which `from_data` rebuilds the factor."""

    @classmethod
    @abstractmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a factor from what `to_data` returned, which may come from a foreign file."""

    def fits(self, sizes: tuple[int, ...]) -> bool:
        """Return whether the factor fits axes of these sizes."""
        return math.prod(sizes) == self.cells

    def written_out(self) -> Array:
        """Return the matrix itself."""
        return np.ascontiguousarray(self.transposed(np.eye(self.rows)).T)

    @property
    def classes(self) -> tuple[tuple[Integers, ...], Integers] | None:
        """The maps and the labels of its `Partition` if it merges cells, else None."""
        return None

    def distinct_columns(self) -> Array:
        """Return the matrix, each column once where the factor merges cells; the rows are as independent."""
        return self.written_out()

    def weighted_squares(self, weights: Array) -> Array:
        """Return Σ_k weights[k,…]·B[k,j]², with the cells j as the last axis, for entries below 2²⁶.

        Squares are exact. Sums and products of non-negative doubles each have a relative error of 2⁻⁵².
        """
        return np.tensordot(weights, self.written_out() ** 2, axes=(0, 0))

    @property
    def rank(self) -> int:
        """Rank, provided that rounding preserved the independence of rows."""
        return self.rows

    @property
    def spectrum(self) -> NDArray[np.complex128] | None:
        """The Fourier transform of the first column if all others are shifts of it, else None."""
        return None

    @cached_property
    def _inverse(self) -> Array:
        return pseudo_inverse(self.written_out())

    def undone(self, answers: Array) -> Array:
        """Return B†z for answers z along the first axis; the cells come last."""
        return np.tensordot(answers, self._inverse, axes=(0, 1))


def words(what: str, given: object, dimensions: int | None = None) -> Integers:
    """Return a read-only copy of a non-empty array of 64-bit integers.

    Refuse subclasses of an array, whose sums and squares may differ, and entries of 2⁶² or more: |-2⁶³| is
    negative in 64 bits.
    """
    array: NDArray[Any] = given if type(given) is np.ndarray else np.empty(0)
    if array.dtype != np.int64 or not array.size or dimensions not in (None, array.ndim):
        msg = f"{what}: expected a non-empty array of 64-bit integers with the right number of dimensions"
        raise PrivacyError(msg)
    if array.min() <= -WORD or array.max() >= WORD:
        msg = f"{what}: its integers are too large"
        raise PrivacyError(msg)
    copy: Integers = array.copy(order="K")
    copy.flags.writeable = False
    return copy


def largest_of(entries: Integers) -> int:
    """Return the largest absolute value of an entry."""
    return max(int(entries.max()), -int(entries.min()))
