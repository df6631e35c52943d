"""What splitting queries would cost at least around given centres, without solving anything.

On every attribute set the parts of all queries are rows over its cells, or classes of cells that are alike.
No strategy of unit sensitivity has a root loss below the length of the diagonal of the square root of their
Gram matrix (`mechanisms.whole`), and the root losses of all sets add up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.estimator.whole import Place
from querysmasher.planning.lattice import Integers
from querysmasher.planning.mechanisms.whole import independent_root, least_root
from querysmasher.planning.split import Kept, PlacedFamily, split_rows
from querysmasher.schema import Schema
from querysmasher.workload.groups import Group


@dataclass(frozen=True, eq=False)
class Part:
    """What a group of queries leaves on an attribute set."""

    rows: Array
    """Weighted rows, with an axis over classes of values per attribute."""
    classes: Sequence[Integers]
    """The class of every value, by attribute."""


Parts = Mapping[Place, Part]
"""What a group leaves on each set."""


def split_groups(
    centres: Centres, schema: Schema, groups: Sequence[Group], maps: Sequence[Mapping[int, Integers]]
) -> list[Parts]:
    """Return what each group leaves on every set, given classes of its values.

    The parts of groups that ask the same of other attributes are the same objects: tables of one kind on
    many sets are split once.
    """
    known: dict[Hashable, Parts] = {}
    found: list[Parts] = []
    for group, classes in zip(groups, maps, strict=True):
        attributes = sorted(classes)
        families = [(*map(attributes.index, schema.positions(n)), family.key) for n, family in group.parts()]
        values = [(centres[a].weights.tobytes(), classes[a].tobytes()) for a in attributes]
        key = group.weight, tuple(families), tuple(values)
        if key not in known:
            known[key] = dict(_parts([centres[a] for a in attributes], schema, group, classes))
        found.append({tuple(attributes[i] for i in kept): part for kept, part in known[key].items()})
    return found


def split_roots(groups: Iterable[Parts]) -> dict[Place, float]:
    """Return lower bounds of the root loss at unit cost on every set."""
    parts: dict[Place, list[Part]] = {}
    for own in groups:
        for place, part in own.items():
            parts.setdefault(place, []).append(part)
    root = cache(_root)
    return {place: root(*own) for place, own in parts.items()}


def _parts(
    centres: Sequence[Centre], schema: Schema, group: Group, classes: Mapping[int, Integers]
) -> Iterator[tuple[Kept, Part]]:
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
    own = [classes[a] for a in sorted(order)]
    coarse = [
        Centre(np.bincount(one, weights=centre.weights).astype(float))
        for one, centre in zip(own, centres, strict=True)
    ]
    for kept, left in split_rows(rows, coarse).items():
        sizes = (len(coarse[axis]) for axis in kept)
        yield kept, Part(left.reshape(len(rows), *sizes), [own[axis] for axis in kept])


def on_values(rows: Array, maps: Sequence[Integers]) -> Array:
    """Return rows over classes on the values of these classes."""
    for place, own in enumerate(maps, start=1):
        rows = rows.take(own, axis=place)
    return rows


def _root(*parts: Part) -> float:
    """Return the bound for all rows on a set."""
    common = []
    for own in zip(*(part.classes for part in parts), strict=True):
        joint = np.unique(np.stack(own), axis=1, return_inverse=True)[1].ravel()
        common.append(np.unique(joint, return_index=True)[1])
    every = (on_values(p.rows, [m[f] for m, f in zip(p.classes, common, strict=True)]) for p in parts)
    rows = np.concatenate([one.reshape(len(one), -1) for one in every])
    return least_root(independent_root(rows))
