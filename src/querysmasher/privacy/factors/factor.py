"""The interface of every factor of an integer strategy, however it is stored.

A factor is a matrix B of integers over the cells of some axes. Accounting uses the lengths of its columns
and measuring uses B·x, both exact: the privacy proof rests on them. Bᵀz, for what follows the noise, is
ordinary floating point. A contract test compares every kind with the matrix it represents.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.privacy.pairs import MOST_WORK, Products

Integers = NDArray[np.int64]

WORD = 2**62
"""Bound on the size of entries, answers and draws of noise: the sum of two fits into 64 bits."""

NEAR = 1e-6
"""Floating point may misorder columns whose squared lengths differ by less than this fraction."""


class Stored:
    """An operator that files hold as plain data, with arrays: a planned strategy or an integer factor."""

    kind: ClassVar[str]
    """The name under which files store it."""

    stored: ClassVar[Mapping[str, Callable[[Any], Any]]]
    """The fields that files hold, each with the function that reads it: a file may be foreign."""

    def to_data(self) -> dict[str, Any]:
        """Return plain data, from which `from_data` rebuilds the operator."""
        return {name: _plain(getattr(self, name)) for name in self.stored}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild an operator from what `to_data` returned."""
        return cls(**{name: read(data[name]) for name, read in cls.stored.items()})


class Factor(Stored, ABC):
    """A matrix of integers over the cells of some axes; its arrays are read-only."""

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

    def column_products(self) -> Products:
        """Return the products of the columns, relative to the longest, or bounds on them (`pairs`)."""
        if self.rows * self.cells**2 > MOST_WORK:
            return Products.bounded(-1.0)
        return Products.of(self.written_out(), float(self.squared_column()))

    @property
    def few_rows(self) -> Integers | None:
        """The rows, if there is one, or few beside the cells, and they are stored; else None."""
        return None

    @abstractmethod
    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        """Return B·x exactly, for tables in columns whose absolute values sum to at most `bound` each.

        The caller ensures that `bound` × `largest` is below `WORD`.
        """

    @abstractmethod
    def transposed(self, answers: Array) -> Array:
        """Return Bᵀz for answers in columns."""

    def _keep(self, **dimensions: int | None) -> None:
        """Check that fields hold 64-bit integers over so many dimensions, and keep read-only copies."""
        for name, axes in dimensions.items():
            kept = words(f"strategy: {name} of a {self.kind} factor", getattr(self, name), axes)
            object.__setattr__(self, name, kept)

    def fits(self, sizes: tuple[int, ...]) -> bool:
        """Return whether the factor fits axes of these sizes."""
        return math.prod(sizes) == self.cells

    def written_out(self) -> Array:
        """Return the matrix itself."""
        return np.ascontiguousarray(self.transposed(np.eye(self.rows)).T)

    def weighted_squares(self, weights: Array) -> Array:
        """Return Σ_k weights[k,…]·B[k,j]², with the cells j as the last axis, for entries below 2²⁶.

        Squares are exact. Sums and products of non-negative doubles each have a relative error of 2⁻⁵².
        """
        return np.tensordot(weights, self.written_out() ** 2, axes=(0, 0))


def _plain(value: Any) -> Any:
    """Return a field as files hold it."""
    if isinstance(value, Stored):
        return {"kind": value.kind, **value.to_data()}
    return list(value) if type(value) is tuple else value


def given(value: Any) -> Any:
    """Return a field as a file holds it: factors check their fields themselves."""
    return value


def require(holds: object, message: str) -> None:
    """Raise an error with this message unless a condition holds."""
    if not holds:
        raise PrivacyError(message)


def words(what: str, given: object, dimensions: int | None = None) -> Integers:
    """Return a read-only copy of a non-empty array of 64-bit integers.

    Refuse subclasses of an array, whose sums and squares may differ, and entries of 2⁶² or more: |-2⁶³| is
    negative in 64 bits.
    """
    array: NDArray[Any] = given if type(given) is np.ndarray else np.empty(0)
    fits = array.dtype == np.int64 and array.size and dimensions in (None, array.ndim)
    require(fits, f"{what}: expected a non-empty array of 64-bit integers of the right dimension")
    require(array.min() > -WORD and array.max() < WORD, f"{what}: its integers are too large")
    copy: Integers = array.copy(order="K")
    copy.flags.writeable = False
    return copy


def largest_of(entries: Integers) -> int:
    """Return the largest absolute value of an entry."""
    return max(int(entries.max()), -int(entries.min()))


def exact_sum(entries: Integers) -> int:
    """Return the sum of entries of up to 2⁶² in absolute value: sums of 32-bit halves fit into 64 bits."""
    require(entries.size < 2**30, "strategy: its integers are too many to add up")
    return (int((entries >> 32).sum()) << 32) + int((entries & (2**32 - 1)).sum())


def sum_of_squares(entries: Integers) -> int:
    """Return the sum of the squares of entries of up to 2⁶² in absolute value, exactly."""
    high, low = entries >> 31, entries & (2**31 - 1)  # products of these are of up to 2⁶²
    return (exact_sum(high**2) << 62) + (exact_sum(high * low) << 32) + exact_sum(low**2)
