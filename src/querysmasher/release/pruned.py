"""A release with nodes of a tree in place of the values of its large attribute.

What is measured at a node and below says as much about the count of the node as one measurement does. So
statistics about states need the strategies of a few states only, not those of all tracts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Ordinal
from querysmasher.planning.centre import Centre
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.lattice import Integers
from querysmasher.planning.solution import Measured
from querysmasher.planning.strategies import AxisStrategy, Strategy, has_own_centre
from querysmasher.release.reconstruction import Reconstruction, answered
from querysmasher.schema import Schema
from querysmasher.workload.hierarchy import Coarsening
from querysmasher.workload.workload import Group, Workload


@dataclass(frozen=True, eq=False)
class Pruned:
    """Nodes in place of the values of one attribute: schema, estimator and marginals."""

    schema: Schema
    estimator: Estimator
    reconstruction: Reconstruction
    place: int
    """Index of the attribute."""
    parts: Integers
    """The node of every value."""
    _tables: dict[tuple[int, ...], Array] = field(default_factory=dict)

    def answer_group(self, group: Group) -> tuple[Array, Array]:
        """Return values and standard errors of one group, with an axis per family."""
        std = np.sqrt(self.estimator.variances(group))
        table = self._marginal(self.schema.positions(group.attributes))
        return answered(group, table, std, self.reconstruction.public_total), std

    def _marginal(self, attributes: tuple[int, ...]) -> Array:
        """Return a marginal; those of the large attribute are kept."""
        if self.place not in attributes:
            return self.reconstruction.marginal(attributes, complete=False)
        if attributes not in self._tables:
            table = np.moveaxis(
                self.reconstruction.marginal(attributes, complete=False), attributes.index(self.place), 0
            )
            order = np.argsort(self.parts, kind="stable")
            counts = np.bincount(self.parts)
            sums = np.add.reduceat(table[order], np.cumsum(counts) - counts, axis=0)
            self._tables[attributes] = np.moveaxis(sums, 0, attributes.index(self.place))
        return self._tables[attributes]

    def answer(self, workload: Workload) -> tuple[Array, Array]:
        """Return values and standard errors, in the workload's order."""
        found = [self.answer_group(group) for group in workload]
        values, std = (np.concatenate([own[i].ravel() for own in found]) for i in (0, 1))
        return values, std


def prune(
    estimator: Estimator, reconstruction: Reconstruction, coarsening: Coarsening
) -> tuple[Pruned, Coarsening] | None:
    """Return the release over nodes of a large attribute's tree, and the same groups of these; else None."""
    schema = coarsening.original
    place = schema.position(coarsening.attribute)
    own = estimator.residual.line_strategies(place)
    parts = _common_parts(own, coarsening.groups)
    size = int(parts.max()) + 1
    if not own or size == len(parts):
        return None
    strategies: list[Strategy] = list(estimator.strategies)
    numbers: dict[int, int] = {}
    measured: list[tuple[Measured, ...]] = []
    for attributes, noises in estimator.measured.items():
        changed = []
        for noise in noises:
            blocks = []
            for axes, number in noise.blocks:
                if attributes[axes[0]] == place and number not in numbers:
                    numbers[number] = len(strategies)
                    strategies.append(_pruned(estimator.strategies[number], parts))
                blocks.append((axes, numbers[number] if attributes[axes[0]] == place else number))
            changed.append(replace(noise, blocks=tuple(blocks)))
        measured.append(tuple(changed))
    coarse = Ordinal(coarsening.attribute, range(size))
    inner = Schema([coarse if a.name == coarsening.attribute else a for a in schema])
    centres = tuple(Centre.uniform(size) if i == place else c for i, c in enumerate(estimator.centres))
    found = Estimator.of(inner, centres, strategies, measured, public_total=estimator.public_total)
    groups = np.empty(size, dtype=np.int64)
    groups[parts] = coarsening.groups
    return Pruned(inner, found, reconstruction, place, parts), replace(
        coarsening, original=inner, groups=groups
    )


def _pruned(strategy: Strategy, parts: Integers) -> Strategy:
    assert has_own_centre(strategy)  # noqa: S101 - as all strategies on this attribute
    return strategy.pruned(parts)


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
