"""What splitting queries would cost at least around given centres, without solving anything.

On every attribute set the parts of all queries are rows over its cells, or classes of cells that are alike.
No strategy of unit sensitivity has a root loss below the length of the diagonal of the square root of their
Gram matrix (`mechanisms.whole`), and the root losses of all sets add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.lattice import Integers
from querysmasher.planning.mechanisms.whole import independent_root, least_root
from querysmasher.planning.split import PlacedFamily, split_rows
from querysmasher.planning.whole_rows import Place, on_values
from querysmasher.schema import Schema
from querysmasher.workload.groups import Group

Part = tuple[Array, list[Integers]]
"""Rows over classes, and the class of every value, by attribute."""


def split_roots(
    centres: Centres, schema: Schema, groups: Sequence[Group], maps: Sequence[Mapping[int, Integers]]
) -> dict[Place, float]:
    """Return lower bounds of the root loss at unit cost on every set, given classes of groups' values."""
    parts: dict[Place, list[Part]] = {}
    for group, classes in zip(groups, maps, strict=True):
        for place, part in _parts(centres, schema, group, classes):
            parts.setdefault(place, []).append(part)
    return {place: _root(own) for place, own in parts.items()}


def _parts(
    centres: Centres, schema: Schema, group: Group, classes: Mapping[int, Integers]
) -> Iterator[tuple[Place, Part]]:
    """Iterate over the attribute sets on which a group leaves something, with its rows, weighted."""
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
    order.sort()
    coarse = [Centre(np.bincount(classes[a], weights=centres[a].weights).astype(float)) for a in order]
    for kept, own in split_rows(rows, coarse).items():
        place, sizes = tuple(order[axis] for axis in kept), (len(coarse[axis]) for axis in kept)
        yield place, (own.reshape(len(rows), *sizes), [classes[a] for a in place])


def _root(parts: Sequence[Part]) -> float:
    """Return the bound for all rows on a set."""
    common = []
    for own in zip(*(maps for _, maps in parts), strict=True):
        joint = np.unique(np.stack(own), axis=1, return_inverse=True)[1].ravel()
        common.append(np.unique(joint, return_index=True)[1])
    every = (on_values(own, [m[f] for m, f in zip(maps, common, strict=True)]) for own, maps in parts)
    rows = np.concatenate([one.reshape(len(one), -1) for one in every])
    return least_root(independent_root(rows))
