"""A measurement of large attributes, not split, times the residual strategy of a set of others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.large.gram import LineGram
from querysmasher.planning.measured import Measured
from querysmasher.planning.strategies import UnsplitStrategy
from querysmasher.workload.family import Family

Places = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LargeBlock:
    """A measurement on a set of other attributes and some large ones."""

    places: Places
    """Its large attributes."""
    strategies: Mapping[int, UnsplitStrategy]
    noises: tuple[Measured, ...]
    """The independent noises, on all its attributes."""
    small: tuple[Measured, ...]
    """The same on the other attributes only."""

    @cached_property
    def total_variance(self) -> float:
        """The variance of the total at σ² = 1."""
        return math.prod(s.total_variance for s in self.strategies.values())

    @property
    def precision(self) -> float:
        """The precision of the total on one cell of the other attributes, up to a factor."""
        return 1 / (self.noises[0].variance * self.total_variance)

    def variances(self, families: Mapping[int, Family]) -> Array:
        """Return q V⁻¹qᵀ, with an axis per asked attribute."""
        result = np.ones(())
        for attribute, strategy in self.strategies.items():
            own = (
                strategy.query_variances(families[attribute])
                if attribute in families
                else strategy.total_variance
            )
            result = np.multiply.outer(result, own)
        return result

    def covariances(self, families: Mapping[int, Family]) -> Array:
        """Return q V⁻¹1, with an axis per asked attribute."""
        result = np.ones(())
        for attribute, strategy in self.strategies.items():
            if attribute in families:
                result = np.multiply.outer(result, strategy.total_covariances(families[attribute]))
            else:
                result = result * strategy.total_variance
        return result

    def sums(self, families: Mapping[int, Family]) -> tuple[float, float]:
        """Return Σ q V⁻¹qᵀ and Σ (q V⁻¹1)², without listing queries."""
        every = square = 1.0
        for attribute, strategy in self.strategies.items():
            if attribute in families:
                family = families[attribute]
                every *= strategy.loss(family, weighted=False)
                square *= gram_square(strategy, family)
            else:
                every *= strategy.total_variance
                square *= strategy.total_variance**2
        return every, square


def gram_square(strategy: UnsplitStrategy, family: Family) -> float:
    """Return Σ (q V⁻¹1)² over the queries of a family, all of weight one, without listing them."""
    ones = strategy.inverse_ones
    return float(LineGram.of(ones.size, [(family.original, 1.0)]).times(ones[None])[0] @ ones)
