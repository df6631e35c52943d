"""Workloads that say the same with fewer groups or families: for multipliers of all queries.

A query q with target t and weight w is as far from its target as (s/t)·q is from s, and w·Var(q) is
w·(t/s)²·Var((s/t)·q). So queries on the same attributes with different targets are rows of one family with
the target s. A family has a multiplier for every row, and one Gram matrix however many rows it has.

Families of one group, merged into one, have a multiplier for every query: that closes gaps which products of
multipliers leave, at the price of the product structure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes
from querysmasher.planning.plan import Plan
from querysmasher.workload.family import Family
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group, Target, Workload

FAR_APART = 100.0
"""Maximum ratio of targets of queries that are joined: rows of one family stay comparable."""


@dataclass(frozen=True, eq=False)
class Joined:
    """A workload with groups joined, and the groups that each of its groups stands for."""

    original: Workload
    workload: Workload
    members: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workload: Workload) -> Joined:
        """Join the groups that consist of rows on the same attributes."""
        alike: defaultdict[Hashable, list[list[int]]] = defaultdict(list)
        for index, group in enumerate(workload):
            bins = alike[_key(group, index)]
            rows = sum(workload.groups[other].rows for other in bins[-1]) if bins else 0
            if bins and rows + group.rows <= limits().merged_rows:
                bins[-1].append(index)
            else:
                bins.append([index])
        members = tuple(sorted(tuple(indices) for bins in alike.values() for indices in bins))
        groups = tuple(_joined([workload.groups[index] for index in indices]) for indices in members)
        return cls(workload, Workload(workload.schema, groups), members)

    def restored(self, plan: Plan) -> Plan:
        """Return a plan of the joined workload as one of the original workload."""
        measured = tuple(
            replace(m, whole=tuple(sorted(index for joined in m.whole for index in self.members[joined])))
            for m in plan.measured
        )
        return replace(plan, workload=self.original, measured=measured)


def _key(group: Group, index: int) -> Hashable:
    """Return what groups have in common that can be joined; a group of another kind only equals itself."""
    if len(group.families) != 1 or not group.families[0].is_written_out:
        return index
    aim = None if group.target is None else round(np.log(group.target.std) / np.log(FAR_APART))
    return group.attributes, aim


def _joined(groups: list[Group]) -> Group:
    """Return the rows of all groups as one group."""
    if len(groups) == 1:
        return groups[0]
    first = groups[0]
    scales = [
        1.0 if g.target is None or first.target is None else first.target.std / g.target.std for g in groups
    ]
    rows = np.concatenate([scale * g.families[0].matrix() for g, scale in zip(groups, scales, strict=True)])
    weights = np.concatenate([g.query_weights() / scale**2 for g, scale in zip(groups, scales, strict=True)])
    target = None if first.target is None else Target(first.target.std)
    return Group(first.attributes, (Rows(first.families[0].shape, rows, weights),), 1.0, target)


def merged(workload: Workload, *, aimed: bool = False) -> Workload:
    """Return the workload with small families merged that need multipliers, if that is little work.

    With `aimed`, only those of groups with targets.
    """
    scopes = Scopes.of(workload)
    groups = tuple(
        group if aimed and group.target is None else _merged(group, numbers, scopes)
        for group, numbers in zip(workload, scopes.of_group, strict=True)
    )
    differ = {n: g for g, old, n in zip(groups, workload, scopes.of_group, strict=True) if g != old}
    work = sum(max(family.cells for family in g.families) ** 3 for g in differ.values())
    return Workload(workload.schema, groups) if differ and work <= limits().merged_work else workload


def _merged(group: Group, numbers: Sequence[int], scopes: Scopes) -> Group:
    """Return a group with its families merged that need multipliers, if they are small."""
    parts = list(group.parts())
    free = [part for part, s in zip(parts, numbers, strict=True) if not scopes.scopes[s].fixed]
    rows, cells = (prod(getattr(family, name) for _, family in free) for name in ("rows", "cells"))
    if len(free) < 2 or cells > limits().merged_values or rows * cells > limits().merged_numbers:
        return group
    matrix, weights = np.ones((1, 1)), np.ones(1)
    for _, family in free:
        matrix = np.asarray(np.kron(matrix, family.matrix()), dtype=float)
        own_weights = np.ones(family.rows) if family.weights is None else family.weights
        weights = np.multiply.outer(weights, own_weights).ravel()
    together = Rows(tuple(n for _, family in free for n in family.shape), matrix, weights)
    rest = [part for part in parts if part not in free]
    families: list[Family] = [together, *(family for _, family in rest)]
    names = tuple(name for attributes, _ in (*free, *rest) for name in attributes)
    return replace(group, attributes=names, families=tuple(families))


def spread(known: Multipliers, even: Multipliers) -> Multipliers:
    """Return multipliers as those of a workload that merges some families, or also has other groups."""
    every = len(known.groups) == len(even.groups)
    indices = [i for i, group in enumerate(even.workload) if every or group.target is not None]
    groups, rows = np.zeros(len(even.groups)), list(even.rows)
    groups[indices] = known.groups
    for index, group, numbers in zip(indices, known.workload, known.scopes.of_group, strict=True):
        by_names = {names: known.rows[s] for (names, _), s in zip(group.parts(), numbers, strict=True)}
        parts = even.workload.groups[index].parts()
        for (names, family), s in zip(parts, even.scopes.of_group[index], strict=True):
            u = _product(by_names, names)
            if len(u) == family.rows and not even.scopes.scopes[s].fixed:
                rows[s] = u
    return replace(even, groups=groups, rows=tuple(rows))


def _product(known: dict[tuple[str, ...], Array], names: tuple[str, ...]) -> Array:
    """Return the products of the values of families that together have these attributes, in order."""
    product: Array = np.ones(1)
    while names and (first := next((n for n in known if n and names[: len(n)] == n), None)):
        product, names = np.multiply.outer(product, known[first]).ravel(), names[len(first) :]
    return product if not names else np.empty(0)
