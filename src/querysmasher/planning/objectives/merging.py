"""Families that a strategy ties, merged into one: then every query has a multiplier of its own.

Where queries that tie attributes are asked beside products, the attribute set is one block anyway, and its
strategy may serve some products badly. Multipliers that are products cannot single these out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.objectives.multipliers import Scopes
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.rows import Rows
from querysmasher.workload.workload import Workload

MOST_CELLS = 1_200
"""Maximum number of cells of a merged family."""

FEW_CELLS = 400
"""The same where no strategy ties the families: then merging costs product structure."""

MOST_ENTRIES = 4_000_000
"""Maximum number of entries of its queries, written out."""


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
            groups[member] = _merged(groups[member], clusters, MOST_CELLS)
    return workload if groups == list(workload.groups) else Workload(workload.schema, tuple(groups))


def merged_aimed(workload: Workload) -> Workload:
    """Return the workload with small families of a group that has a target merged, if they need multipliers.

    Weights and multipliers of such a group add up to no product, so that nothing is lost.
    """
    scopes = Scopes.of(workload, own=True)
    groups = []
    for group, own in zip(workload, scopes.of_group, strict=True):
        free = tuple(place for place, s in enumerate(own) if not scopes.scopes[s].fixed)
        if group.target is None or len(free) < 2:
            groups.append(group)
            continue
        clusters = sorted([free, *((place,) for place in range(len(own)) if place not in free)])
        groups.append(_merged(group, clusters, FEW_CELLS))
    return Workload(workload.schema, tuple(groups))


def spread_rows(group: Group, rows: Sequence[Array], other: Group) -> list[Array | None]:
    """Return products of the values of a group's rows, family by family of another that merges some of them.

    None stands for a family that merges others, or in another order.
    """
    own = {names: values for (names, _), values in zip(group.parts(), rows, strict=True)}
    result: list[Array | None] = []
    for names, family in other.parts():
        product: Array = np.ones(1)
        left = names
        while left and (first := next((n for n in own if n and left[: len(n)] == n), None)):
            product, left = np.multiply.outer(product, own[first]).ravel(), left[len(first) :]
        result.append(product if not left and len(product) == family.rows else None)
    return result


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
    if sum(f.rows > 1 for f in families) < 2 or cells > most_cells or rows * cells > MOST_ENTRIES:
        return None
    matrix, weights = np.ones((1, 1)), np.ones(1)
    for f in families:
        matrix = np.asarray(np.kron(matrix, f.matrix()), dtype=float)
        own = np.ones(f.rows) if f.weights is None else f.weights
        weights = np.asarray(np.kron(weights, own), dtype=float)
    return Rows(tuple(n for f in families for n in f.shape), matrix, weights)
