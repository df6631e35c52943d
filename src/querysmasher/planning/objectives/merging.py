"""Families that a strategy ties, merged into one: then every query has a multiplier of its own.

Where queries that tie attributes are asked beside products, the attribute set is one block anyway, and its
strategy may serve some products badly. Multipliers that are products cannot single these out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.multipliers import Scopes
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.rows import Rows
from querysmasher.workload.workload import Workload


def merged(workload: Workload, table: VarianceTable) -> Workload:
    """Return the workload with small families merged that are one block; the order of queries may change.

    Of families that are tied in pairs only, products are left.
    """
    groups = list(workload.groups)
    for entry in table.entries:
        clusters = [
            own
            for cluster in entry.clusters
            for own in ([cluster] if cluster in entry.ties else [(place,) for place in cluster])
        ]
        for member in entry.members:
            groups[member] = _merged(groups[member], clusters, limits().joined_cells)
    return workload if groups == list(workload.groups) else Workload(workload.schema, tuple(groups))


def merged_aimed(workload: Workload) -> Workload:
    """Return the workload with small families of a group that has a target merged, if they need multipliers.

    Weights and multipliers of such a group add up to no product, so that nothing is lost.
    """
    scopes = Scopes.of(workload, own=True)
    groups = tuple(
        group if group.target is None else _merged_free(group, own, scopes, limits().loose_cells)
        for group, own in zip(workload, scopes.of_group, strict=True)
    )
    return Workload(workload.schema, groups)


def merged_few(workload: Workload, *, public_total: bool) -> Workload:
    """Return the workload with small families of groups that need multipliers merged, if these are few.

    They may be larger if the total is public. Multipliers are then far from products: queries that count
    nearly all values of one attribute are about the others alone.
    """
    scopes = Scopes.of(workload, own=True)
    most = limits().joined_cells if public_total else limits().loose_cells
    groups = tuple(
        _merged_free(group, own, scopes, most) for group, own in zip(workload, scopes.of_group, strict=True)
    )
    changed = [(own, g) for g, old, own in zip(groups, workload, scopes.of_group, strict=True) if g != old]
    if public_total:
        differ = [max(g.families, key=lambda family: family.cells) for g in dict(changed).values()]
        work = sum(family.cells**3 for family in differ)
        entries = sum(family.cells * family.rows for family in differ)
        few = work <= limits().loose_work and entries <= limits().joined_entries
    else:
        few = sum(g.rows for _, g in changed) <= limits().loose_rows
    return Workload(workload.schema, groups) if changed and few else workload


def _merged_free(group: Group, own: Sequence[int], scopes: Scopes, most_cells: int) -> Group:
    """Return a group with its families merged that need multipliers, if they are small."""
    free = tuple(place for place, s in enumerate(own) if not scopes.scopes[s].fixed)
    if len(free) < 2:
        return group
    clusters = sorted([free, *((place,) for place in range(len(own)) if place not in free)])
    return _merged(group, clusters, most_cells)


def _merged(group: Group, clusters: Sequence[tuple[int, ...]], most_cells: int) -> Group:
    parts = list(group.parts())
    attributes: list[str] = []
    families: list[Family] = []
    for cluster in clusters:
        own = [parts[place] for place in cluster]
        together = _product([family for _, family in own], most_cells)
        families += [family for _, family in own] if together is None else [together]
        attributes += [name for names, _ in own for name in names]
    return replace(group, attributes=tuple(attributes), families=tuple(families))


def _product(families: list[Family], most_cells: int) -> Family | None:
    """Return all products of queries as one family, or None if that is large or there is nothing to merge."""
    rows, cells = (int(np.prod([getattr(f, name) for f in families])) for name in ("rows", "cells"))
    if sum(f.rows > 1 for f in families) < 2 or cells > most_cells or rows * cells > limits().joined_entries:
        return None
    matrix, weights = np.ones((1, 1)), np.ones(1)
    for f in families:
        matrix = np.asarray(np.kron(matrix, f.matrix()), dtype=float)
        own = np.ones(f.rows) if f.weights is None else f.weights
        weights = np.asarray(np.kron(weights, own), dtype=float)
    return Rows(tuple(n for f in families for n in f.shape), matrix, weights)
