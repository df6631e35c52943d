"""Strategies on one attribute that bring a centre of their own: lines and trees, of up to a million values.

Such a strategy is known by an invertible V over the values. Around its own centre w = V⁻¹1/τ, τ = 1ᵀV⁻¹1, it
splits exactly, V = 11ᵀ/τ + V_A with V_A w = 0, and only V_A is measured: rows B − (Bw)1ᵀ with BᵀB = V. A
query q leaves (q·w) on the set without the attribute, and its variance here is

    q V⁻¹ qᵀ − τ(q·w)².

In integers the rows are B − g1ᵀ for any integers g close to Bw. With ĝ = V⁻¹Bᵀg and γ = 1ᵀĝ the centre is
then w' = ĝ + (1 − γ)w: the rows B − g1ᵀ split exactly around w', and what they say of the rest has the same
variance as before, whatever g is. (They say a little about the total too, which is not used.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Self, TypeGuard

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.planning.lines.gram import square_sum
from querysmasher.planning.strategies.strategy import AxisRows, Strategy
from querysmasher.workload.family import Family


class AxisStrategy(Strategy):
    """A strategy on one attribute, around a centre of its own."""

    own_centre = True

    moved: Array | None
    """The centre w' of rows in integers; None if it is w."""

    @property
    def rank(self) -> int:
        return self.shape[0] - 1

    # --- what is known of V ---

    @abstractmethod
    def covary_whole(self, rows: Array) -> Array:
        """Return rows times V⁻¹."""

    @abstractmethod
    def transform_whole(self, rows: Array) -> Array:
        """Return rows times B†, with BᵀB = V."""

    @abstractmethod
    def whole_variances(self, family: Family) -> Array:
        """Return q V⁻¹ qᵀ for every query of a family on the attribute."""

    @abstractmethod
    def whole_loss(self, family: Family, *, weighted: bool = True) -> float:
        """Return the sum over the family's queries of (weight ×) q V⁻¹ qᵀ, without listing all queries."""

    @cached_property
    def inverse_ones(self) -> Array:
        """V⁻¹1."""
        return self.covary_whole(np.ones(self.shape))

    @property
    def total_variance(self) -> float:
        """τ = 1ᵀV⁻¹1."""
        return float(self.inverse_ones.sum())

    @property
    def balance(self) -> Array:
        """w, around which V splits."""
        return np.asarray(self.inverse_ones / self.total_variance)

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """Return the strategy with V multiplied by a factor."""

    # --- what is measured around the centre ---

    @property
    def centre(self) -> Array:
        """The centre around which queries are split."""
        return self.balance if self.moved is None else self.moved

    def query_variances(self, family: Family) -> Array:
        """Return the variances of what the queries of a family leave on the attribute."""
        shares = family.original.answers(self.balance)
        return np.maximum(self.whole_variances(family) - self.total_variance * shares**2, 0.0)

    def loss(self, family: Family, *, weighted: bool = True) -> float:
        """Return the sum of (weight ×) these variances, without listing all queries."""
        total = self.total_variance * square_sum(family, self.balance, weighted=weighted)
        return max(self.whole_loss(family, weighted=weighted) - total, 0.0)

    def _balanced(self, rows: Array) -> Array:
        return np.asarray(rows - (rows @ self.balance)[..., None])

    def transform(self, rows: Array) -> Array:
        return self.transform_whole(self._balanced(rows))

    def covary(self, rows: Array) -> Array:
        return self.covary_whole(self._balanced(rows))

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        ((_, rows),) = factors
        own = self._balanced(rows)
        return np.einsum("ij,ij->i", own, self.covary_whole(own))

    def contains(self, factors: Sequence[AxisRows]) -> bool:  # noqa: ARG002
        return True

    def stands_on(self, centres: Sequence[Centre]) -> bool:  # noqa: ARG002
        return True

    def parts(self, groups: Integers) -> Integers | None:  # noqa: ARG002
        """Return the part of every value, the coarsest that `pruned` accepts within groups; None if none."""
        return None

    def pruned(self, parts: Integers) -> AxisStrategy | None:  # noqa: ARG002
        """Return a strategy over parts of the values that knows as much about them; None if there is none."""
        return None


def has_own_centre(strategy: Strategy) -> TypeGuard[AxisStrategy]:
    """Return whether a strategy says that it brings its own centre."""
    return strategy.own_centre
