"""Lower bounds on the loss of queries that are split, or measured as they are in clusters.

On every attribute set the parts of all queries are rows over its cells, or over classes of cells that are
alike, with a bound by one square root (`solvers.bounds`). The root losses of all sets add up, and so do those
of clusters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.lattice import Integers
from querysmasher.planning.solvers.bounds import independent_root, least_root
from querysmasher.planning.split import Kept, PlacedFamily, split_rows
from querysmasher.schema import Schema
from querysmasher.workload.workload import Group

Place = tuple[int, ...]
"""An attribute set: increasing indexes in the schema."""

# --- queries that are split ---


@dataclass(frozen=True, eq=False)
class SplitRows:
    """What a group of queries leaves on an attribute set."""

    rows: Array
    """Weighted rows, with an axis over classes of values per attribute."""
    classes: Sequence[Integers]
    """The class of every value, by attribute."""


def split_groups(
    centres: Centres, schema: Schema, groups: Sequence[Group], maps: Sequence[Mapping[int, Integers]]
) -> list[dict[Place, SplitRows]]:
    """Return what each group leaves on every set, given classes of its values.

    What groups that ask the same of other attributes leave are the same objects: queries of one kind on many
    sets are split once.
    """
    known: dict[Hashable, dict[Place, SplitRows]] = {}
    found = []
    for group, classes in zip(groups, maps, strict=True):
        attributes = sorted(classes)
        families = [(*map(attributes.index, schema.positions(n)), family.key) for n, family in group.parts()]
        values = [(centres[a].weights.tobytes(), classes[a].tobytes()) for a in attributes]
        key = group.weight, tuple(families), tuple(values)
        if key not in known:
            known[key] = dict(_split(group, schema, classes, [centres[a] for a in attributes]))
        found.append({tuple(attributes[i] for i in kept): rows for kept, rows in known[key].items()})
    return found


def _split(
    group: Group, schema: Schema, classes: Mapping[int, Integers], centres: Sequence[Centre]
) -> Iterator[tuple[Kept, SplitRows]]:
    """Iterate over what a group leaves on sets of its attributes, given their centres."""
    order: list[int] = []
    rows = np.ones(1)
    for names, family in group.parts():
        positions = schema.positions(names)
        tensor = PlacedFamily.on(positions, family).tensor(weighted=True)
        for axis, a in enumerate(sorted(positions), start=1):
            tensor = np.take(tensor, np.unique(classes[a], return_index=True)[1], axis=axis)
        outer = np.multiply.outer(rows, tensor)  # earlier queries and their axes, then these
        outer = np.moveaxis(outer, 1 + len(order), 1)
        rows = outer.reshape(-1, *outer.shape[2:])
        order += sorted(positions)
    rows = np.sqrt(group.weight) * rows.transpose(0, *(1 + order.index(a) for a in sorted(order)))
    maps = [classes[a] for a in sorted(order)]
    coarse = [
        Centre(np.bincount(one, weights=centre.weights).astype(float))
        for one, centre in zip(maps, centres, strict=True)
    ]
    for kept, left in split_rows(rows, coarse).items():
        sizes = (len(coarse[axis]) for axis in kept)
        yield kept, SplitRows(left.reshape(len(rows), *sizes), [maps[axis] for axis in kept])


def split_roots(groups: Iterable[Mapping[Place, SplitRows]]) -> dict[Place, float]:
    """Return lower bounds of the root loss at unit cost on every set, given what groups leave there."""
    together: dict[Place, list[SplitRows]] = {}
    for group in groups:
        for place, rows in group.items():
            together.setdefault(place, []).append(rows)
    root = cache(_root_of_all)
    return {place: root(*rows) for place, rows in together.items()}


def _root_of_all(*parts: SplitRows) -> float:
    """Return the bound for all rows on a set."""
    common = []
    for maps in zip(*(part.classes for part in parts), strict=True):
        joint = np.unique(np.stack(maps), axis=1, return_inverse=True)[1].ravel()
        common.append(np.unique(joint, return_index=True)[1])
    every = []
    for part in parts:
        rows = part.rows
        for axis, (classes, firsts) in enumerate(zip(part.classes, common, strict=True), start=1):
            rows = rows.take(classes[firsts], axis=axis)
        every.append(rows.reshape(len(rows), -1))
    return least_root(independent_root(np.concatenate(every)))


# --- clusters of queries that are measured as they are ---


def least_clustered(
    maps: Sequence[Mapping[int, Integers]],
    clusters: Iterable[Sequence[int]],
    groups: Sequence[Mapping[Place, SplitRows]],
) -> float:
    """Return a lower bound of the sum of the clusters' root losses at unit cost, before any is merged.

    `groups` are what groups leave around uniform centres. Cells weigh alike, and what is left in other spaces
    than that of the total does not depend on the multiples of the total that are subtracted from queries. If
    groups of a cluster share a space, the one with the most attributes keeps it: then they have nothing in
    common, and their nuclear norms add up.
    """
    known: dict[tuple[SplitRows, ...], float] = {}
    found = 0.0
    for cluster in clusters:
        taken: set[Place] = {()}
        for number in sorted(cluster, key=lambda number: -len(maps[number])):
            left = {place: rows for place, rows in groups[number].items() if place not in taken}
            key = tuple(left.values())
            if key not in known:
                known[key] = _nuclear_norm(left, maps[number])
            found += known[key]
            taken.update(left)
    return found


def _nuclear_norm(parts: Mapping[Place, SplitRows], classes: Mapping[int, Integers]) -> float:
    """Return the nuclear norm of the sum of some parts of a group over all its cells, of equal weight."""
    attributes = sorted(classes)
    rows = np.zeros((1,) * (1 + len(attributes)))
    for place, part in parts.items():
        sizes = iter(part.rows.shape[1:])
        rows = rows + part.rows.reshape(-1, *(next(sizes) if a in place else 1 for a in attributes))
    for axis, a in enumerate(reversed(attributes)):
        share = np.bincount(classes[a]) / len(classes[a])
        rows = rows * np.sqrt(share).reshape(-1, *(1,) * axis)
    flat = rows.reshape(len(rows), -1)
    squares = np.linalg.eigvalsh(flat @ flat.T if len(flat) <= flat.shape[1] else flat.T @ flat)
    return float(np.sqrt(np.maximum(squares, 0.0)).sum())
