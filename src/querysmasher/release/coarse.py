"""A release seen at a level of a hierarchy: an attribute whose values are groups of the original values.

If the attribute is large, nodes of its tree take the place of its values. What is measured at a node and
below says as much about the count of the node as one measurement does. So statistics about states need the
strategies of a few states only, not those of all tracts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Ordinal
from querysmasher.errors import WorkloadError
from querysmasher.planning.centre import Centre
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.lattice import Integers
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import AxisStrategy, has_own_centre
from querysmasher.release.answers import Answers
from querysmasher.release.reconstruction import answered, covariance
from querysmasher.schema import Schema
from querysmasher.statistics.contrasts import Statistical
from querysmasher.statistics.figures import Marginal
from querysmasher.workload.builders import as_workload, queries
from querysmasher.workload.hierarchy import Coarsening
from querysmasher.workload.workload import Group, Workload

if TYPE_CHECKING:
    from querysmasher.release.release import Release


def _prune(estimator: Estimator, coarsening: Coarsening) -> tuple[Estimator, Coarsening, Integers]:
    """Return the estimator over nodes of a large attribute's tree, their groups, and each value's node."""
    schema = coarsening.original
    axis = schema.position(coarsening.attribute)
    on_attribute, noises = estimator.residual.line_strategies(axis), estimator.measured.values()
    parts = _common_parts(on_attribute, coarsening.groups)
    size = int(parts.max()) + 1
    if not on_attribute or size == len(parts):
        return estimator, coarsening, np.arange(len(parts))
    known = estimator.strategies
    on_axis = {n for m in itertools.chain(*noises) for axes, n in m.blocks if m.attributes[axes[0]] == axis}
    pruned = [s.pruned(parts) if n in on_axis and has_own_centre(s) else s for n, s in enumerate(known)]

    def over_parts(m: Measured) -> Measured:
        moved = ((axes, n + len(known) if m.attributes[axes[0]] == axis else n) for axes, n in m.blocks)
        return replace(m, blocks=tuple(moved))

    measured = [tuple(map(over_parts, same_set)) for same_set in noises]
    coarse = Ordinal(coarsening.attribute, range(size))
    inner = Schema([coarse if a.name == coarsening.attribute else a for a in schema])
    centres = tuple(Centre.uniform(size) if i == axis else c for i, c in enumerate(estimator.centres))
    over_nodes = Estimator.of(
        inner, centres, [*known, *pruned], measured, public_total=estimator.public_total
    )
    groups = np.empty(size, dtype=np.int64)
    groups[parts] = coarsening.groups
    return over_nodes, replace(coarsening, original=inner, groups=groups), parts


def _common_parts(strategies: Iterable[AxisStrategy], groups: Integers) -> Integers:
    """Return the fewest nodes, in all strategies, of which groups of values consist."""
    parts, before = groups, 0
    while int(parts.max()) + 1 > before:
        before = int(parts.max()) + 1
        for strategy in strategies:
            parts = strategy.parts(parts)
    _, firsts = np.unique(parts, return_index=True)
    numbers = np.empty(firsts.size, dtype=np.int64)
    numbers[np.argsort(firsts)] = np.arange(firsts.size)
    return numbers[parts]  # by first appearance, as groups are


@dataclass(frozen=True, eq=False, repr=False)
class CoarseRelease(Statistical):
    """Answers and statistics of a release at one level: `table("state", "sex")`, `mean("age", by="state")`.

    Everything follows from the release, at no further privacy cost, and agrees with its other answers.
    """

    release: Release
    coarsening: Coarsening

    @property
    def workload(self) -> Workload:  # type: ignore[override]
        """The groups of the level, one query each."""
        return queries(self.coarsening.schema, {self.coarsening.name: "identity"})

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Answer a workload on the coarser schema (by default all groups), a predicate or several."""
        given = self.workload if workload is None else as_workload(self.coarsening.schema, workload)
        estimator, coarsening, parts = self._pruned
        axis, counts = estimator.schema.position(coarsening.attribute), np.bincount(parts)
        order, starts = np.argsort(parts, kind="stable"), np.cumsum(counts) - counts

        def answer_group(group: Group) -> tuple[Array, Array]:
            std = np.sqrt(estimator.variances(group))
            attributes = estimator.schema.positions(group.attributes)
            table = self.release.reconstruction.marginal(attributes, complete=False)
            if axis in attributes and len(counts) < len(parts):
                along = attributes.index(axis)
                table = np.add.reduceat(np.take(table, order, axis=along), starts, axis=along)
            return answered(group, table, std, self.release.public_total), std

        fine = coarsening.fine(given)
        answers = Answers.of(fine, answer_group)
        return Answers(given, answers.values, answers.std)

    @cached_property
    def _pruned(self) -> tuple[Estimator, Coarsening, Integers]:
        return _prune(self.release.estimator, self.coarsening)

    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return the covariances of answers on the coarser schema; see `Release.covariance`."""
        estimator, coarsening, _ = self._pruned
        return covariance(estimator, *(coarsening.fine(w) for w in (workload, other) if w is not None))

    def marginal(self, *attributes: str) -> Marginal:
        """Return the marginal on the attributes, one of which may be the level; see `Release.marginal`."""
        if not attributes:
            raise WorkloadError("attributes: expected at least one attribute")
        schema = self.coarsening.schema
        values = self.answer(queries(schema, dict.fromkeys(attributes, "identity"))).values
        shaped = values.reshape(schema.shape(attributes))
        return Marginal.of(shaped, lambda: self.table(*attributes, totals=False).figures)

    def __repr__(self) -> str:
        """Name the level."""
        return f"Release at the level {self.coarsening.name!r}, over {self.coarsening.schema}"
