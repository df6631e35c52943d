"""What is known of a table: noisy residuals of attribute sets, from any number of measurements.

The residual of a set B is what is left of its marginal after the means along every axis are taken off; the
marginal on A is the sum over B ⊆ A of residual B divided by the number of cells of A∖B. A noisy residual is
unbiased, with noise that is equally strong in every direction of the residual space. The residual of the
empty set is the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import SchemaError
from querysmasher.schema import Schema

Place = tuple[int, ...]
"""Increasing indexes of attributes."""


@dataclass(frozen=True, eq=False)
class Noisy:
    """A noisy residual."""

    attributes: Place
    values: Array
    """One number per cell, which sum to zero along every axis."""
    variance: float
    """The variance of the noise in every direction of the residual space: zero if the residual is public."""

    def __post_init__(self) -> None:
        """Refuse what is not a residual with noise."""
        if self.attributes != tuple(sorted(set(self.attributes))):
            msg = f"attributes: expected increasing indexes, got {self.attributes!r}"
            raise SchemaError(msg)
        if self.values.ndim != len(self.attributes) or not np.isfinite(self.values).all():
            msg = "values: expected finite numbers, with an axis per attribute"
            raise SchemaError(msg)
        if not 0 <= self.variance < math.inf:
            msg = f"variance: expected a number of at least zero, got {self.variance!r}"
            raise SchemaError(msg)


class Source(Protocol):
    """Anything that measured residuals."""

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured."""
        ...

    def distance(self, attributes: Place) -> float | None:
        """Return the noisy distance of a pair from independence, in records; None if it is not known."""
        ...


@dataclass(frozen=True, eq=False)
class Residuals:
    """Noisy residuals in memory."""

    by_set: Mapping[Place, Noisy]

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured."""
        return self.by_set.get(attributes)

    def distance(self, attributes: Place) -> float | None:  # noqa: ARG002 - of no pair
        """Return None."""
        return None


@dataclass(frozen=True, eq=False)
class Evidence:
    """All sources together. Their noises are independent, so that the best residual is a weighted mean."""

    schema: Schema
    sources: tuple[Source, ...]
    _known: dict[Place, Noisy | None] = field(default_factory=dict, repr=False)
    """The residuals of sets of at most two attributes, which are asked for again and again."""

    @classmethod
    def of(cls, schema: Schema, measured: Iterable[Noisy]) -> Evidence:
        """Return what noisy residuals say; there may be several of one set, and none of others."""
        by_set: dict[Place, list[Noisy]] = {}
        for one in measured:
            if one.values.shape != tuple(schema.sizes[a] for a in one.attributes):
                msg = f"values: the shape {one.values.shape} is not that of the attributes {one.attributes}"
                raise SchemaError(msg)
            by_set.setdefault(one.attributes, []).append(one)
        return cls(schema, (Residuals({place: combined(own) for place, own in by_set.items()}),))

    def __add__(self, other: Evidence) -> Evidence:
        """Return what both say."""
        if other.schema != self.schema:
            msg = f"schema: expected {self.schema}, got {other.schema}"
            raise SchemaError(msg)
        return Evidence(self.schema, self.sources + other.sources)

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the best noisy residual of a set, or None if no source measured it."""
        if attributes in self._known:
            return self._known[attributes]
        found = [source.noisy(attributes) for source in self.sources]
        known = [one for one in found if one is not None]
        best = combined(known) if known else None
        if len(attributes) <= 2:
            self._known[attributes] = best
        return best

    def distance(self, attributes: Place) -> float | None:
        """Return the noisy distance of a pair from independence, in records; None if it is not known."""
        found = (source.distance(attributes) for source in self.sources)
        return next((one for one in found if one is not None), None)


def combined(several: Sequence[Noisy]) -> Noisy:
    """Return the mean of independent noisy residuals of one set, weighted by their precisions."""
    exact = [one for one in several if one.variance == 0]
    if exact or len(several) == 1:
        return (exact or several)[0]
    precision = math.fsum(1 / one.variance for one in several)
    values = sum(one.values / one.variance for one in several) / precision
    return Noisy(several[0].attributes, np.asarray(values, dtype=float), 1 / precision)
