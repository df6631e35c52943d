"""The interface of strategies on one attribute of very many values, which are not split around a centre.

Such a strategy B measures the attribute as it is, with its total. V = BᵀB is invertible, so every query
about the attribute can be answered, with variance q V⁻¹ qᵀ at σ² = 1. Around its own centre w = V⁻¹1 /
1ᵀV⁻¹1 it splits exactly: V = c·11ᵀ + V_A with V_A w = 0 and c = 1 / 1ᵀV⁻¹1. So it also measures the total,
with variance 1/c, and independently what is left: the variance of q is (q·w)²/c plus that of its residual
around w.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.planning.strategies.strategy import AxisRows, Strategy
from querysmasher.workload.family import Family


class UnsplitStrategy(Strategy):
    """A strategy on one attribute that measures it as it is."""

    unsplit = True

    @property
    @abstractmethod
    def inverse_ones(self) -> Array:
        """V⁻¹1: the covariance of every value's count with the total."""

    @property
    def total_variance(self) -> float:
        """The variance of the total, 1ᵀV⁻¹1."""
        return float(self.inverse_ones.sum())

    @abstractmethod
    def query_variances(self, family: Family) -> Array:
        """Return q V⁻¹ qᵀ for every query of a family on the attribute."""

    @abstractmethod
    def loss(self, family: Family, *, weighted: bool = True) -> float:
        """Return the sum over the family's queries of (weight ×) variance, without listing all queries."""

    def parts(self, groups: Integers) -> Integers | None:  # noqa: ARG002
        """Return the part of every value, the coarsest that `pruned` accepts within groups; None if none."""
        return None

    def pruned(self, parts: Integers) -> UnsplitStrategy | None:  # noqa: ARG002
        """Return a strategy over parts of the values that knows as much about them; None if there is none."""
        return None

    def total_covariances(self, family: Family) -> Array:
        """Return q V⁻¹ 1 for every query of a family: its covariance with the total."""
        return family.answers(self.inverse_ones)

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        ((_, rows),) = factors
        return np.einsum("ij,ij->i", rows, self.covary(rows))

    def contains(self, factors: Sequence[AxisRows]) -> bool:  # noqa: ARG002
        return True

    def stands_on(self, centres: Sequence[Centre]) -> bool:  # noqa: ARG002
        return False


def is_unsplit(strategy: Strategy) -> TypeGuard[UnsplitStrategy]:
    """Return whether a strategy says that it measures its attribute as it is."""
    return strategy.unsplit
