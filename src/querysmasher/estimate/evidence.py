"""What is known of a table: noisy residuals of attribute sets, and structural zeros.

The residual of a set B is what is left of its marginal after the means along every axis are taken off; the
marginal on A is the sum over B ⊆ A of residual B divided by the number of cells of A∖B. A noisy residual is
unbiased, with noise that is equally strong in every direction of the residual space. The residual of the
empty set is the total.

With uniform centres, and all directions of a residual space measured, they are what a release stores.
Otherwise they are taken from its consistent marginals. Their noise is then not equally strong in all
directions; we take its mean, which follows from the expected squared errors of marginals: these are Σ_{B⊆A}
e_B / n_{A∖B}, with e_B that of residual B and n_{A∖B} the number of cells of the other attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.conditions import conditions
from querysmasher.errors import OutsideMeasuredSpaceError
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


class Evidence:
    """What was measured: the noisy residual of any set of attributes, and the distances of pairs."""

    def __init__(
        self,
        schema: Schema,
        measured: Callable[[Place], Noisy | None],
        distances: Mapping[Place, float] | None = None,
    ) -> None:
        """Take what returns the noisy residual of a set, or None if it is not measured in all directions.

        `distances` are noisy distances of pairs from independence, in records.
        """
        self.schema = schema
        self.distances = distances or {}
        self._measured = measured
        self._known: dict[Place, Noisy | None] = {}

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured in all directions."""
        if len(attributes) > 2:  # pairs and single attributes are asked for again and again
            return self._measured(attributes)
        if attributes not in self._known:
            self._known[attributes] = self._measured(attributes)
        return self._known[attributes]

    @classmethod
    def of_release(cls, release: Release) -> Evidence:
        """Return what a release measured."""
        compared = None if release.exploration is None else release.exploration.independence
        distances: dict[Place, float] = {}
        if compared is not None:
            pairs = (one.attributes for one in compared.distances.queries)
            distances = dict(zip(pairs, compared.records.tolist(), strict=True))
        return cls(release.plan.schema, ReleasedResiduals(release).noisy, distances)


class ReleasedResiduals:
    """The noisy residuals of a release."""

    def __init__(self, release: Release) -> None:
        """Take the release."""
        self._release = release
        self._sizes = release.plan.schema.sizes
        self._traces: dict[int, float] = {}
        self._errors: dict[Place, float] = {}
        self._outside: set[Place] = set()

    def noisy(self, attributes: Place) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured in all directions."""
        release, reconstruction = self._release, self._release.reconstruction
        if not attributes and release.public_total is not None:
            return Noisy((), np.array(float(release.public_total)), 0.0)
        directions = math.prod(self._sizes[a] - 1 for a in attributes)
        if not directions or attributes in self._outside:
            return None
        if release.estimator.is_split:
            if not reconstruction.is_whole(attributes):
                return None
            uniform = all(release.centres[a].is_uniform for a in attributes)
            residual = reconstruction.residual(attributes) if uniform else None
            if residual is not None:
                shaped = residual.reshape([self._sizes[a] for a in attributes])
                return Noisy(attributes, shaped, self._stored_error(attributes) / directions)
        try:
            marginal = reconstruction.marginal(attributes)
        except OutsideMeasuredSpaceError:
            self._outside.add(attributes)
            return None
        return Noisy(attributes, centred(marginal[None])[0], max(self._error(attributes), 0.0) / directions)

    def _stored_error(self, attributes: Place) -> float:
        """Return the expected squared error of a residual that is stored as it is."""
        estimator = self._release.estimator
        for number in {number for m in estimator.measured[attributes] for _, number in m.blocks}:
            if number not in self._traces:
                strategy = estimator.strategies[number]
                centring = [((axis,), np.eye(n) - 1 / n) for axis, n in enumerate(strategy.shape)]
                self._traces[number] = float(strategy.variances(centring).sum())
        return math.fsum(
            m.variance * math.prod(self._traces[number] for _, number in m.blocks)
            for m in estimator.measured[attributes]
        )

    def _error(self, attributes: Place) -> float:
        """Return the expected squared error of the residual of a marginal."""
        if attributes not in self._errors:
            schema = self._release.plan.schema
            families = tuple(Identity.of(self._sizes[a]) for a in attributes)
            below = math.fsum(
                self._error(some) / math.prod(self._sizes[a] for a in attributes if a not in some)
                for some in subsets(attributes)
                if some != attributes
            )
            group = Group(tuple(schema.names[a] for a in attributes), families)
            self._errors[attributes] = self._release.estimator.total(group) - below
        return self._errors[attributes]


Mask = NDArray[np.bool_]


class Zeros:
    """The possible cells of every table of a schema: no record can be in the others, by public knowledge."""

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
