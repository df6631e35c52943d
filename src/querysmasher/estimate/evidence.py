"""What a release says about a table: noisy residuals of attribute sets, and structural zeros.

The residual of a set B is what is left of its marginal after the means along every axis are taken off; the
marginal on A is the sum over B ⊆ A of residual B divided by the number of cells of A∖B. A noisy residual is
unbiased, with noise that is equally strong in every direction of the residual space. The residual of the
empty set is the total.

With uniform centres, and all directions of a residual space measured, a release stores them. Otherwise they
follow from its consistent marginals. Their noise is then not equally strong in all
directions; we take its mean, which follows from the expected squared errors of marginals: these are Σ_{B⊆A}
e_B / n_{A∖B}, with e_B that of residual B and n_{A∖B} the number of cells of the other attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.conditions import conditions
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.estimate.fitting import centred
from querysmasher.planning.estimator.estimator import subsets
from querysmasher.planning.strategies.line import is_line
from querysmasher.release.release import Release
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group

AttributeSet = tuple[int, ...]
"""Increasing indexes of attributes."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Noisy:
    """A noisy residual."""

    attributes: AttributeSet
    values: Array
    """One number per cell, which sum to zero along every axis."""
    variance: float
    """The variance of the noise in every direction of the residual space: zero if the residual is public."""


class Evidence:
    """What was measured: the noisy residual of any set of attributes, and the distances of pairs."""

    def __init__(
        self,
        schema: Schema,
        measured: Callable[[AttributeSet], Noisy | None],
        distances: Mapping[AttributeSet, float] | None = None,
        public: Mapping[AttributeSet, Array] | None = None,
    ) -> None:
        """Take a function that returns the noisy residual of a set, or None unless all of it is measured.

        `distances` are noisy distances of pairs from independence, in records. `public` are exact tables of
        counts, with all their margins.
        """
        self.schema, self.public = schema, public or {}
        self.distances = distances or {}
        self._measured = measured
        self._kept = cache(measured)

    def noisy(self, attributes: AttributeSet) -> Noisy | None:
        """Return the noisy residual of a set, or None if it is not measured in all directions."""
        is_small = len(attributes) <= 2  # pairs and single attributes are read again and again
        return self._kept(attributes) if is_small else self._measured(attributes)

    def replaced(self, values: Callable[[Noisy], Array]) -> Evidence:
        """Return evidence in which measured residuals have other values."""

        def noisy(subset: AttributeSet) -> Noisy | None:
            known = self.noisy(subset)
            return None if known is None else replace(known, values=values(known))

        return Evidence(self.schema, noisy, self.distances, self.public)

    @classmethod
    def of_release(cls, release: Release) -> Evidence:
        """Return what a release measured."""
        compared = None if release.exploration is None else release.exploration.independence
        distances: dict[AttributeSet, float] = {}
        if compared is not None:
            pairs = (distance.attributes for distance in compared.distances.queries)
            distances = dict(zip(pairs, compared.records.tolist(), strict=True))
        exact = release.public_on(release.schema)
        sets = {part for known in exact.tables for part in subsets(sorted(known))}
        public = {part: table for part in sets if (table := exact.on(part)) is not None}
        return cls(release.schema, _residuals(release), distances, public)


def _residuals(release: Release) -> Callable[[AttributeSet], Noisy | None]:
    """Return a function that computes the noisy residuals of a release."""
    schema, (estimator, reconstruction) = release.schema, release.unfitted
    sizes = schema.sizes
    outside: set[AttributeSet] = set()

    @cache
    def trace(number: int) -> float:
        strategy = estimator.strategies[number]
        if is_line(strategy):  # perhaps of very many values
            return strategy.loss(Identity(strategy.shape))
        centring = [((axis,), np.eye(n) - 1 / n) for axis, n in enumerate(strategy.shape)]
        return float(strategy.variances(centring).sum())

    def stored_error(attributes: AttributeSet) -> float:
        """Return the expected squared error of a residual that the release stores."""
        return math.fsum(
            m.variance * math.prod(trace(number) for _, number in m.blocks)
            for m in estimator.measured.get(attributes, ())  # what is public has no error
        )

    @cache
    def error(attributes: AttributeSet) -> float:
        """Return the expected squared error of the residual of a marginal."""
        below = math.fsum(
            error(part) / math.prod(sizes[a] for a in attributes if a not in part)
            for part in subsets(attributes)
            if part != attributes
        )
        families = tuple(Identity((sizes[a],)) for a in attributes)
        return estimator.total(Group(tuple(schema.names[a] for a in attributes), families)) - below

    def noisy(attributes: AttributeSet) -> Noisy | None:
        if not attributes and release.public_total is not None:
            return Noisy((), np.array(float(release.public_total)), 0.0)
        directions = math.prod(sizes[a] - 1 for a in attributes)
        if not directions or attributes in outside:
            return None
        if estimator.is_split:
            if not reconstruction.is_whole(attributes):
                return None
            uniform = all(release.centres[a].is_uniform for a in attributes)
            residual = reconstruction.residual(attributes) if uniform else None
            if residual is not None:
                shaped = residual.reshape([sizes[a] for a in attributes])
                return Noisy(attributes, shaped, stored_error(attributes) / directions)
        try:
            marginal = reconstruction.marginal(attributes)
        except OutsideMeasuredSpaceError:
            outside.add(attributes)
            return None
        return Noisy(attributes, centred(marginal[None])[0], max(error(attributes), 0.0) / directions)

    return noisy


class Zeros:
    """The possible cells of every table of a schema: no record can be in the others, by public knowledge."""

    def __init__(self, schema: Schema) -> None:
        """Read the predicates of the schema."""
        self._sizes = schema.sizes
        self._stated = [conditions(schema, predicate) for predicate in schema.impossible_where]
        self.possible: Callable[[AttributeSet], Mask | None] = cache(self._possible)
        """Returns which cells of the table on increasing attributes are possible, or None if all are."""

    def _possible(self, attributes: AttributeSet) -> Mask | None:
        """A cell is impossible if every record in it satisfies all conditions of one of the predicates."""
        impossible = np.zeros([self._sizes[a] for a in attributes], dtype=bool)
        for masks in self._stated:
            cells = np.ones_like(impossible)
            for on, mask in masks:
                kept = mask.all(axis=tuple(axis for axis, a in enumerate(on) if a not in attributes))
                cells &= kept.reshape([self._sizes[a] if a in on else 1 for a in attributes])
            impossible |= cells
        return ~impossible if impossible.any() else None

    def mask(self, attributes: AttributeSet) -> Array:
        """Return ones in possible cells and zeros in others."""
        possible = self.possible(attributes)
        return np.ones([self._sizes[a] for a in attributes]) if possible is None else possible.astype(float)

    def allowed(self, records: NDArray[np.int64]) -> Mask:
        """Return which records, given by the index of the value of each attribute, are possible."""
        impossible = [
            np.logical_and.reduce([mask[tuple(records[:, a] for a in on)] for on, mask in masks])
            for masks in self._stated
        ]
        return ~np.logical_or.reduce(impossible) if impossible else np.ones(len(records), dtype=bool)

    def values(self, records: NDArray[np.int64], attribute: int) -> Mask | None:
        """Return which values of an attribute (columns) are possible beside the others of each record.

        The records are possible. None means that all values are.
        """
        impossible: Mask | None = None
        for masks in self._stated:
            if all(attribute not in on for on, _ in masks):
                continue
            if impossible is None:
                impossible = np.zeros((len(records), self._sizes[attribute]), dtype=bool)
            within = np.ones_like(impossible)
            for on, mask in masks:
                given = tuple(records[:, a] for a in on if a != attribute)
                if attribute in on:
                    within &= np.moveaxis(mask, on.index(attribute), -1)[given]
                else:
                    within &= mask[given][:, None]
            impossible |= within
        return None if impossible is None else ~impossible
