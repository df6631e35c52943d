"""Queries on many attribute sets, in clusters of which each is measured as it is.

Measuring queries together is never worse than measuring them apart, so clusters grow while the cells that
their queries distinguish are few. Every cluster would learn the number of records anew; instead its queries
are centred: q − α·1 is measured, and the total once for all of them, from which α·1 follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.cells import MergedRows
from querysmasher.planning.estimator.whole import Place
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms.whole import root_diagonal, root_of
from querysmasher.planning.split_bound import Part, Parts
from querysmasher.schema import Schema
from querysmasher.workload.groups import Group

GRID = 16
"""Shares α are multiples of 1/16, so that centred rows stay ratios of small integers."""


def clusters(
    schema: Schema, groups: Sequence[Group], maps: Sequence[Mapping[int, Integers]]
) -> list[list[int]] | None:
    """Return the indexes of the groups of every cluster, or None if some group is too large for any.

    `maps` has the class of every value in each group, by attribute.
    """
    attributes = sorted({a for own in maps for a in own})
    joint = [_joint(own[a] for own in maps if a in own) for a in attributes]
    kept = _nested([frozenset(own) for own in maps])
    growth = _Growth(
        np.array(
            [[sum(_cuts(maps[i].get(a)) for i in own) for a in attributes] for own in kept], dtype=float
        ),
        np.array([[a in maps[own[0]] for a in attributes] for own in kept], dtype=bool),
        np.array([sum(groups[i].rows for i in own) for own in kept], dtype=float),
        np.array(joint, dtype=float),
        np.log([schema.sizes[a] for a in attributes]),
    )
    if not growth.all_fit():
        return None
    while (pair := growth.smallest()) is not None:
        first, second = pair
        kept[first] += kept[second]
        kept[second] = []
        growth.join(first, second)
    return [sorted(own) for own in kept if own]


def _joint(maps: Iterable[Integers]) -> int:
    """Return the number of classes of values that are alike in all groups."""
    return int(np.unique(np.stack(list(maps)), axis=1).shape[1])


def _cuts(classes: Integers | None) -> float:
    """Return how often the class changes from one value to the next."""
    return 0.0 if classes is None else float(np.count_nonzero(np.diff(classes)))


def _nested(sets: Sequence[frozenset[int]]) -> list[list[int]]:
    """Return the sets that are in no other one, each with those inside it, and itself first."""
    found: list[list[int]] = []
    for place in sorted(range(len(sets)), key=lambda place: -len(sets[place])):
        home = next((members for members in found if sets[place] <= sets[members[0]]), None)
        if home is None:
            found.append([place])
        else:
            home.append(place)
    return found


class _Growth:
    """Which two clusters to join next: those whose union distinguishes the fewest cells, as far as is known.

    An attribute with c cuts has at most c + 1 classes, and cuts add up.
    """

    def __init__(
        self, cuts: Array, asked: NDArray[np.bool_], rows: Array, classes: Array, values: Array
    ) -> None:
        self.cuts, self.asked, self.rows = cuts, asked, rows
        self.classes, self.values = classes, values
        self.gone = np.zeros(len(cuts), dtype=bool)
        self.sizes = np.array([self._with(place) for place in range(len(cuts))])

    def _with(self, place: int) -> Array:
        """Return the logarithms of the cells of all unions with one cluster, infinite if it is too large."""
        cells = self._cells(self.cuts + self.cuts[place])
        fit = self._fit(cells, self.rows + self.rows[place]) & ~self.gone
        fit &= (self.asked | self.asked[place]) @ self.values <= _log(limits().counted_cells)
        fit[place] = False
        return np.where(fit, cells, np.inf)

    def _cells(self, cuts: Array) -> Array:
        return np.asarray(np.log(np.minimum(cuts + 1, self.classes)).sum(axis=1))

    def _fit(self, cells: Array, rows: Array) -> NDArray[np.bool_]:
        few = cells <= _log(min(limits().cluster_cells, limits().merged_cells))
        return np.asarray(few & (cells + 2 * np.log(rows) <= _log(limits().beside_work)))

    def all_fit(self) -> bool:
        """Return whether every cluster can be measured as it is."""
        return bool(self._fit(self._cells(self.cuts), self.rows).all())

    def smallest(self) -> tuple[int, int] | None:
        """Return the two clusters with the smallest union, if one is small enough."""
        first, second = np.unravel_index(np.argmin(self.sizes), self.sizes.shape)
        return (int(first), int(second)) if np.isfinite(self.sizes[first, second]) else None

    def join(self, first: int, second: int) -> None:
        """Replace the first of two clusters by their union."""
        self.cuts[first] += self.cuts[second]
        self.asked[first] |= self.asked[second]
        self.rows[first] += self.rows[second]
        self.gone[second] = True
        self.sizes[second] = self.sizes[:, second] = np.inf
        self.sizes[first] = self.sizes[:, first] = self._with(first)


def _log(limit: float) -> float:
    return math.log(limit) if limit > 0 else -math.inf


def least_clustered(
    maps: Sequence[Mapping[int, Integers]], places: Iterable[Sequence[int]], parts: Sequence[Parts]
) -> float:
    """Return a lower bound of the sum of the clusters' root losses at unit cost, whatever their shares α.

    `parts` are what groups leave around uniform centres. A root loss is at least the nuclear norm of W P^½
    for any weights p of cells, here the same for all, and what is left in other residual spaces than that of
    the total does not depend on α. If groups of a cluster share such a space, the one with the most
    attributes keeps it: then they have nothing in common, and their nuclear norms add up.
    """
    known: dict[tuple[Part, ...], float] = {}
    found = 0.0
    for cluster in places:
        taken: set[Place] = {()}
        for own in sorted(cluster, key=lambda place: -len(maps[place])):
            left = {place: part for place, part in parts[own].items() if place not in taken}
            key = tuple(left.values())
            if key not in known:
                known[key] = _nuclear_norm(left, maps[own])
            found += known[key]
            taken.update(left)
    return found


def _nuclear_norm(parts: Parts, classes: Mapping[int, Integers]) -> float:
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


def shares(merged: MergedRows) -> Array:
    """Return α of every query: its mean over cells as the optimum weighs them, or 0 if nothing were left."""
    ones = np.ones((1, merged.rows.shape[1]))
    beside = np.concatenate([merged.rows, ones])
    weighed = replace(merged, rows=beside, weights=np.append(merged.weights, merged.weights.sum()))
    diagonal = root_diagonal(root_of(weighed))
    cells = ones[0] if diagonal is None else diagonal**2
    scale = np.abs(merged.rows).max(axis=1)
    scale[scale == 0] = 1.0
    alpha = np.round(GRID * (merged.rows @ (cells / cells.sum())) / scale) / GRID * scale
    return alpha if np.any(merged.rows != alpha[:, None]) else np.zeros(len(alpha))


def shifted(merged: MergedRows, alpha: Array) -> MergedRows:
    """Return the queries less α·1."""
    rows = merged.rows - alpha[:, None]
    rows.flags.writeable = False
    return replace(merged, rows=rows, spanning=rows)
