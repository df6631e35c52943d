"""What every strategy for one block of a subworkload can be asked, however it is stored.

A strategy stands for rows B with V = BᵀB and max_j V[j,j] = 1: measuring Bx with noise of variance σ²
costs 1/σ² of privacy budget and answers a query q in the span of B with variance σ² · q V† qᵀ.
Reconstruction goes through the pseudo-inverse, so that variance is the squared length of q B†.
A contract test holds every kind to the rows it stands for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.privacy.integer_plan import IntegerStrategy

AxisRows = tuple[tuple[int, ...], Array]
"""Axes of the block, increasing, and query rows over their cells; several multiply to product queries."""

OUTSIDE = 1e-6
"""A query further than this fraction of its length from the span of a strategy is outside it."""

CLOSE = 1e-6
"""How far planned numbers may be from what they should be, relative to their size."""

FAINTEST, LARGEST = 1e-60, 1e60
"""No weight or amplitude is smaller, unless it is zero, and none is larger."""

DEPENDENT = 1e-14
"""Rows closer than this fraction of their length to the span of others are in it."""


class Strategy(ABC):
    """A strategy for one block; its arrays must not be changed."""

    kind: ClassVar[str]
    """The name under which files store it."""

    shape: tuple[int, ...]
    """The sizes of the block's axes."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """How many numbers are measured."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """How far apart in size the rows are, or the noise of rows of one size."""

    @abstractmethod
    def written_out(self) -> Array:
        """Return the rows B themselves, which takes memory: for the smallest blocks, and for tests."""

    @abstractmethod
    def transform(self, rows: Array) -> Array:
        """Return q B† for tensors q over the block: its squared length is the variance of q at σ² = 1."""

    @abstractmethod
    def variances(self, factors: Sequence[AxisRows]) -> Array:
        """Return the variance of every product of one row per factor, as an array with an axis per factor."""

    @abstractmethod
    def contains(self, factors: Sequence[AxisRows]) -> bool:
        """Tell whether all products of the factors' rows lie in the span of the strategy."""

    @abstractmethod
    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        """Return integer rows close to a multiple of the strategy's, at most about 2^bits in size.

        They stay inside the residual space around `centres`, and span what the strategy spans, or more.
        """

    @abstractmethod
    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        """Return by how much rounding multiplies the variance of a planned row, at most.

        The rounding error of a long row is made up for by the short ones, at their noise: with rows that are
        far apart it takes more bits for that not to matter.
        """

    @classmethod
    @abstractmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        """Return integer rows as a strategy of this kind, for predicting variances, or None if they are not.

        The noise is relative to the set's variance.
        """

    @property
    @abstractmethod
    def leverage(self) -> float:
        """The squared sensitivity max_j V[j,j]: one, in plans."""

    @abstractmethod
    def is_sound(self) -> bool:
        """Tell whether the arrays belong together and the rows are independent: files may hold anything."""

    @abstractmethod
    def stands_on(self, centres: Sequence[Centre]) -> bool:
        """Tell whether the strategy lies inside the residual space around these centres."""

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """Return plain data, with arrays in it, from which `from_data` rebuilds the strategy."""

    @classmethod
    @abstractmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a strategy from what `to_data` returned, which may come from a foreign file."""


def is_negligible(outside: Array, lengths: Array) -> bool:
    """Tell whether squared lengths outside a span are rounding error, next to the whole lengths."""
    allowed = np.maximum(OUTSIDE**2 * lengths, 1e-24 * lengths.max(initial=0.0))
    return bool(np.all(outside <= allowed))


def squared_lengths(factors: Sequence[AxisRows]) -> Array:
    """Return the squared length of every product of one row per factor."""
    result = np.ones(())
    for _, rows in factors:
        result = np.multiply.outer(result, np.einsum("ij,ij->i", rows, rows))
    return result


def is_residual(rows: Array, centres: Sequence[Centre]) -> bool:
    """Tell whether rows, as tensors over the axes after the first, vanish at the centre of each axis."""
    for axis, centre in enumerate(centres, start=1):
        image = np.tensordot(rows, centre.weights, axes=(axis, 0))
        size = np.tensordot(np.abs(rows), np.abs(centre.weights), axes=(axis, 0))
        if np.any(np.abs(image) > CLOSE * size.max(initial=0.0)):
            return False
    return True


def are_rows(matrix: Array) -> bool:
    """Tell whether the rows are linearly independent, as far as floating point can tell."""
    lengths = np.sqrt((matrix**2).sum(axis=1))
    if len(matrix) > matrix.shape[1] or not np.all(lengths > 0):
        return False
    triangle = np.linalg.qr((matrix / lengths[:, None]).T, mode="r")
    return bool(np.abs(np.diagonal(triangle)).min() > DEPENDENT)
