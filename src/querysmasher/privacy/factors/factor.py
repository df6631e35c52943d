"""What every factor of an integer strategy can be asked, however it is stored.

A factor is a matrix B of integers over the cells of some axes. Accounting asks it for the lengths of its
columns and measuring for B·x, both exact: the privacy proof rests on these answers. What comes after the
noise (Bᵀz, B†z) is ordinary floating point. A contract test holds every kind to the matrix it stands for.
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
"""Entries, answers and draws of noise stay below this in size: a word holds the sum of two such numbers."""


class Factor(ABC):
    """A matrix of integers over the cells of some axes; the arrays it is made of cannot be changed."""

    kind: ClassVar[str]
    """The name under which files store it."""

    stands_alone: ClassVar[bool] = False
    """Whether it must be its strategy's only factor, on all axes in order, without noise multipliers."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many numbers are asked for."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many cells they are asked of."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The size of the largest entry, exactly, or an upper bound on it."""

    @abstractmethod
    def squared_column(self) -> int:
        """Return the largest squared length of a column, exactly: max_j Σ_k B[k,j]²."""

    @abstractmethod
    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        """Return B·x exactly, for tables in columns whose entries' sizes sum to at most `bound` each.

        The caller sees to it that `bound` × `largest` is below `WORD`.
        """

    @abstractmethod
    def transposed(self, answers: Array) -> Array:
        """Return Bᵀz for answers in columns."""

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """Return plain data, with arrays in it, from which `from_data` rebuilds the factor."""

    @classmethod
    @abstractmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a factor from what `to_data` returned, which may come from a foreign file."""

    def fits(self, sizes: tuple[int, ...]) -> bool:
        """Tell whether the factor can stand on axes of these sizes."""
        return math.prod(sizes) == self.cells

    def written_out(self) -> Array:
        """Return the matrix itself."""
        return np.ascontiguousarray(self.transposed(np.eye(self.rows)).T)

    def weighted_squares(self, weights: Array) -> Array:
        """Return Σ_k weights[k,…]·B[k,j]², with the cells j as the last axis, for entries below 2²⁶.

        Squares are exact. Sums and products of non-negative doubles are each wrong by a relative 2⁻⁵².
        """
        return np.tensordot(weights, self.written_out() ** 2, axes=(0, 0))

    @property
    def rank(self) -> int:
        """How many independent numbers are asked for, if rounding has left independent what was."""
        return self.rows

    @property
    def spectrum(self) -> NDArray[np.complex128] | None:
        """The Fourier transform of the first column where all others are shifts of it, else None."""
        return None

    @cached_property
    def _inverse(self) -> Array:
        return pseudo_inverse(self.written_out())

    def undone(self, answers: Array) -> Array:
        """Return B†z for answers z along the first axis; the cells come last."""
        return np.tensordot(answers, self._inverse, axes=(0, 1))


def words(what: str, given: object, dimensions: int | None = None) -> Integers:
    """Return a copy, which cannot be changed, of an array of words that is not empty.

    No subclass of an array will do, whose sums and squares may mean something else, and no entry of 2⁶² or
    more: |-2⁶³| is negative in a word.
    """
    array: NDArray[Any] = given if type(given) is np.ndarray else np.empty(0)
    if array.dtype != np.int64 or not array.size or dimensions not in (None, array.ndim):
        msg = f"{what}: not an array of whole numbers of 64 bits, or an empty one, or one of other dimensions"
        raise PrivacyError(msg)
    if array.min() <= -WORD or array.max() >= WORD:
        msg = f"{what}: its whole numbers are too large"
        raise PrivacyError(msg)
    copy: Integers = array.copy(order="K")
    copy.flags.writeable = False
    return copy


def largest_of(entries: Integers) -> int:
    """Return the size of the largest entry."""
    return max(int(entries.max()), -int(entries.min()))
