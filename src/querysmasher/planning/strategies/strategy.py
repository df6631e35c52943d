"""The interface of a strategy for one block of a subworkload, however it is stored.

A strategy stands for rows B with V = BᵀB and max_j V[j,j] = 1: measuring Bx with noise of variance σ²
costs 1/σ² of privacy budget and answers a query q in the span of B with variance σ² · q V† qᵀ.
Reconstruction goes through the pseudo-inverse, so that variance is the squared length of q B†. Rounded to
integers, it becomes factors (`privacy.factors`) of the same structure, which become a strategy again to
predict errors and to estimate from noisy answers. A contract test compares every kind with its rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PrivacyError
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.privacy.factors.factor import Factor, Stored
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.privacy.pairs import MOST_CELLS, Products

AxisRows = tuple[tuple[int, ...], Array]
"""Increasing axes of the block, and query rows over their cells; several are factors of product queries."""

CLOSE = 1e-6
"""Maximum relative error of planned numbers, and of a query in the span of a strategy."""

DEPENDENT = 1e-14
"""Rows closer than this fraction of their length to the span of others are in it."""

LARGEST = 1e60
"""Maximum of a weight or an amplitude; the minimum, unless it is zero, is the reciprocal."""


_products: WeakKeyDictionary[Strategy, Products] = WeakKeyDictionary()


class Strategy(Stored, ABC):
    """A strategy for one block; do not change its arrays."""

    whole: ClassVar[bool] = False
    """Whether it measures queries that are not split, and so lies in no residual space."""

    shape: tuple[int, ...]
    """The sizes of the block's axes."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of measurements."""

    @property
    @abstractmethod
    def leverage(self) -> float:
        """The squared sensitivity max_j V[j,j]: one, in plans."""

    @abstractmethod
    def written_out(self) -> Array:
        """Return the rows B themselves, which takes memory: for the smallest blocks and for tests."""

    @abstractmethod
    def transform(self, rows: Array) -> Array:
        """Return q B† for tensors q over the block: its squared length is the variance of q at σ² = 1."""

    @abstractmethod
    def covary(self, rows: Array) -> Array:
        """Return q V† for tensors q over the block: its covariances with all queries at σ² = 1."""

    @abstractmethod
    def orthonormal(self) -> Strategy:
        """Return orthonormal rows with the same span: `covary` then projects onto it."""

    @abstractmethod
    def variances(self, factors: Sequence[AxisRows]) -> Array:
        """Return the variance of every product of one row per factor, as an array with an axis per factor."""

    @abstractmethod
    def contains(self, factors: Sequence[AxisRows]) -> bool:
        """Return whether all products of the factors' rows lie in the span of the strategy."""

    def column_products(self) -> Products:
        """Return the products of the columns, relative to the longest, or bounds on them; cached."""
        if self not in _products:
            _products[self] = self._column_products()
        return _products[self]

    def _column_products(self) -> Products:
        if math.prod(self.shape) > MOST_CELLS:
            return Products.bounded(-1.0)
        return Products.of(self.written_out())

    # --- integers ---

    def obstacle(self) -> str | None:
        """Return why no integer rows span what the strategy spans, if so."""
        return None

    @abstractmethod
    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        """Return integer rows close to a multiple of the strategy's, at most about 2^bits in size.

        They stay inside the residual space around `centres`, and span what the strategy spans, or more.
        """

    def _in_integers(self, factor: Factor) -> IntegerStrategy:
        """Return rows in integers that are one factor on all axes."""
        return IntegerStrategy(self.shape, ((tuple(range(len(self.shape))), factor),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:  # noqa: ARG002
        """Return the maximum factor by which rounding multiplies the variance of a planned row.

        It is infinite if rows become dependent: answers to lost queries would be arbitrary. It is large if
        rows differ much in length: short ones correct the rounding errors of long ones by noisy answers.
        """
        return 1.0  # if all rows have nearly the same size

    @classmethod
    @abstractmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        """Convert integer rows of this kind to a strategy. The noise is relative to the set's variance."""

    def undone(self, rounded: IntegerStrategy, answers: Array) -> Array:
        """Return B†z, cells last, for answers z to the integer rows of this strategy along the first axis."""
        ((_, factor),) = rounded.factors
        images = factor.transposed(answers.reshape(len(answers), -1)).T
        return self.covary(images.reshape(-1, *self.shape)).reshape(*answers.shape[1:], -1)

    # --- files ---

    def is_sound(self) -> bool:
        """Return whether the arrays are consistent and the rows independent: files may hold anything."""
        try:
            return self._is_sound()
        except PrivacyError:  # no factor can have these arrays
            return False

    @abstractmethod
    def _is_sound(self) -> bool: ...

    @abstractmethod
    def stands_on(self, centres: Sequence[Centre]) -> bool:
        """Return whether the strategy lies inside the residual space around these centres."""


def is_negligible(outside: Array, lengths: Array) -> bool:
    """Return whether squared lengths outside a span are rounding error, relative to the whole lengths."""
    allowed = np.maximum(CLOSE**2 * lengths, 1e-24 * lengths.max(initial=0.0))
    return bool(np.all(outside <= allowed))


def is_inside(inside: Array, lengths: Array, cells: int) -> bool:
    """Return whether squared lengths in a span are those of queries, up to rounding errors."""
    return is_negligible(lengths * (1 - np.finfo(float).eps * cells) - inside, lengths)


def squared_lengths(factors: Sequence[AxisRows]) -> Array:
    """Return the squared length of every product of one row per factor."""
    lengths = (np.einsum("ij,ij->i", rows, rows) for _, rows in factors)
    return reduce(np.multiply.outer, lengths, np.ones(()))


def is_residual(rows: Array, centres: Sequence[Centre]) -> bool:
    """Return whether rows, as tensors over the axes after the first, vanish at the centre of each axis."""
    for axis, centre in enumerate(centres, start=1):
        image = np.tensordot(rows, centre.weights, axes=(axis, 0))
        size = np.tensordot(np.abs(rows), np.abs(centre.weights), axes=(axis, 0))
        if np.any(np.abs(image) > CLOSE * size.max(initial=0.0)):
            return False
    return True
