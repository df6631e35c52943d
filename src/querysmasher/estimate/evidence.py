"""What is known of a table: noisy residuals of attribute sets, from any number of measurements.

The residual of a set B is what is left of its marginal after the means along every axis are taken off; the
marginal on A is the sum over B ⊆ A of residual B divided by the number of cells of A∖B. A noisy residual is
unbiased, with noise that is equally strong in every direction of the residual space. The residual of the
empty set is the total.

The noisy residuals of a release, whatever it measured.

With uniform centres, and all directions of a residual space measured, they are what the release stores.
Otherwise they are taken from its consistent marginals. Their noise is then not equally strong in all
directions; we take its mean, which follows from the expected squared errors of marginals: these are Σ_{B⊆A}
e_B / n_{A∖B}, with e_B that of residual B and n_{A∖B} the number of cells of the other attributes.

Structural zeros: cells of tables that no record can be in, by public knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.conditions import conditions
from querysmasher.errors import OutsideMeasuredSpaceError, SchemaError
from querysmasher.estimate.fitting import centred
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.release.release import Release
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group

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


class ReleasedResiduals:
    """A source of noisy residuals: a release."""

    def __init__(self, release: Release) -> None:
        """Take the release."""
        self.release = release
        self._schema = release.plan.schema
        self._traces: dict[int, float] = {}
        self._errors: dict[Place, float] = {}
        self._outside: set[Place] = set()
        self._even = [centre.is_uniform for centre in release.centres]

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured in all directions."""
        if not attributes and self.release.public_total is not None:
            return Noisy((), np.array(float(self.release.public_total)), 0.0)
        directions = math.prod(self._schema.sizes[a] - 1 for a in attributes)
        if not directions:
            return None
        residual = self.release.reconstruction.residual(attributes) if self._is_stored(attributes) else None
        if residual is not None:
            shaped = residual.reshape([self._schema.sizes[a] for a in attributes])
            return Noisy(attributes, shaped, self._stored_error(attributes) / directions)
        marginal = self._marginal(attributes)
        if marginal is None:
            return None
        return Noisy(attributes, centred(marginal[None])[0], max(self._error(attributes), 0.0) / directions)

    def distance(self, attributes: Place) -> float | None:
        """Return the noisy distance of a pair from independence, in records; None if it is not known."""
        return self._distances.get(attributes)

    @cached_property
    def _distances(self) -> dict[Place, float]:
        explored = self.release.exploration
        found = None if explored is None else explored.independence
        if found is None:
            return {}
        places = [one.attributes for one in found.distances.asked]
        return dict(zip(places, found.records.tolist(), strict=True))

    def _is_stored(self, attributes: Place) -> bool:
        """Return whether the release stores the whole residual around uniform centres."""
        even = all(self._even[a] for a in attributes)
        return even and self.release.estimator.is_split and self.release.reconstruction.is_whole(attributes)

    def _stored_error(self, attributes: Place) -> float:
        """Return the expected squared error of a stored residual."""
        return math.fsum(
            m.variance * math.prod(self._trace(number) for _, number in m.blocks)
            for m in self.release.estimator.measured[attributes]
        )

    def _trace(self, number: int) -> float:
        """Return the expected squared error that a strategy leaves at unit variance."""
        if number not in self._traces:
            strategy = self.release.estimator.strategies[number]
            centring = [((axis,), np.eye(n) - 1 / n) for axis, n in enumerate(strategy.shape)]
            self._traces[number] = float(strategy.variances(centring).sum())
        return self._traces[number]

    def _marginal(self, attributes: Place) -> Array | None:
        """Return the unbiased marginal, or None if there is none."""
        reconstruction = self.release.reconstruction
        if self.release.estimator.is_split and not reconstruction.is_whole(attributes):
            return None  # at once: most sets were not measured
        if attributes in self._outside:
            return None
        try:
            return reconstruction.marginal(attributes)
        except OutsideMeasuredSpaceError:
            self._outside.add(attributes)
            return None

    def _error(self, attributes: Place) -> float:
        """Return the expected squared error of the residual of a marginal."""
        if attributes not in self._errors:
            sizes = self._schema.sizes
            names = tuple(self._schema.names[a] for a in attributes)
            group = Group(names, tuple(Identity.of(sizes[a]) for a in attributes))
            below = math.fsum(
                self._error(some) / math.prod(sizes[a] for a in attributes if a not in some)
                for some in subsets(attributes)
                if some != attributes
            )
            self._errors[attributes] = self.release.estimator.total(group) - below
        return self._errors[attributes]


Mask = NDArray[np.bool_]


class Zeros:
    """The possible cells of every table of a schema."""

    def __init__(self, schema: Schema) -> None:
        """Read the predicates of the schema."""
        self._sizes = schema.sizes
        self._stated = [conditions(schema, predicate) for predicate in schema.impossible_where]
        self._known: dict[Place, Mask | None] = {}

    def possible(self, place: Place) -> Mask | None:
        """Return which cells of the table on increasing attributes are possible, or None if all are.

        A cell is impossible if every record in it satisfies one of the predicates.
        """
        if place not in self._known:
            found = [one for masks in self._stated if (one := self._impossible(masks, place)) is not None]
            self._known[place] = ~reduce(np.logical_or, found) if found else None
        return self._known[place]

    def _impossible(self, masks: list[tuple[Place, Mask]], place: Place) -> Mask | None:
        """Return the cells of which all records satisfy conditions on disjoint attributes."""
        result = np.ones([self._sizes[a] for a in place], dtype=bool)
        for on, mask in masks:
            dropped = tuple(axis for axis, a in enumerate(on) if a not in place)
            kept = mask.all(axis=dropped)
            result &= kept.reshape([self._sizes[a] if a in on else 1 for a in place])
        return result if result.any() else None

    def allowed(self, columns: NDArray[np.int64]) -> Mask:
        """Return which records, given by the index of the value of each attribute, are possible."""
        result = np.ones(len(columns), dtype=bool)
        for masks in self._stated:
            hit = np.ones(len(columns), dtype=bool)
            for on, mask in masks:
                hit &= mask[tuple(columns[:, a] for a in on)]
            result &= ~hit
        return result
