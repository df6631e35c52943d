"""Rows and queries over classes of values that no row distinguishes, with means over all cells.

All classes of an attribute count alike in a mean, and so do all values of a class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.lattice import Integers
from querysmasher.planning.split import PlacedFamily
from querysmasher.planning.whole_rows import Place, Whole, on_values
from querysmasher.schema import Schema
from querysmasher.workload.groups import Group


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of every value, by attribute."""

    maps: tuple[Integers, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], wholes: Sequence[Whole]) -> Classes:
        """Return classes of values that are alike to all rows."""
        found: list[list[Integers]] = [[np.zeros(size, dtype=np.int64)] for size in sizes]
        for whole in wholes:
            for attribute, own in zip(whole.attributes, whole.maps, strict=True):
                found[attribute].append(own)
        joint = (np.unique(np.stack(own), axis=1, return_inverse=True)[1].ravel() for own in found)
        return cls(tuple(joint))

    def count(self, attribute: int) -> int:
        """Return the number of classes of an attribute."""
        return int(self.maps[attribute].max()) + 1

    def cells(self, places: Sequence[int]) -> int:
        """Return the number of combinations of classes."""
        return math.prod(map(self.count, places))

    def means(self, rows: Array, places: Sequence[int]) -> Array:
        """Return the means of rows over the values of every class; their last axes are the attributes."""
        for axis, attribute in enumerate(places, start=rows.ndim - len(places)):
            own = self.maps[attribute]
            rows = _sums(rows, own, axis) / _along(np.bincount(own), axis, rows.ndim)
        return rows

    def mean_square(self, rows: Array, places: Sequence[int]) -> Array:
        """Return the means of the squares of rows over classes; their last axes are the attributes."""
        return np.asarray((rows**2).mean(axis=tuple(range(rows.ndim - len(places), rows.ndim))))

    def spread(self, table: Array, places: Sequence[int]) -> Array:
        """Return what a table over classes says of values: each has its part in a mean."""
        for axis, attribute in enumerate(places):
            own = self.maps[attribute]
            counts = np.bincount(own)
            if table.ndim == 0 or table.shape[axis] == 1:
                table = np.broadcast_to(table, [*table.shape[:axis], counts.size, *table.shape[axis + 1 :]])
            table = np.take(table / _along(counts * counts.size, axis, table.ndim), own, axis=axis)
        return table


class WholeOnClasses:
    """The rows of one whole measurement: over its own classes of values, each of some of the joint ones."""

    def __init__(self, whole: Whole, classes: Classes) -> None:
        """Take rows over classes of their own, and finer ones."""
        self.whole = whole
        self._own: dict[int, Integers] = {}
        """The own class of every joint one, by attribute."""
        for attribute, own in zip(whole.attributes, whole.maps, strict=True):
            firsts = np.unique(classes.maps[attribute], return_index=True)[1]
            self._own[attribute] = own[firsts]
        self._means: dict[Place, Array] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.whole.rows)

    def mean(self, kept: Place) -> Array:
        """Return the means of the rows over all attributes but some of its own."""
        if kept not in self._means:
            rows = self.whole.rows
            for axis, attribute in reversed(list(enumerate(self.whole.attributes, start=1))):
                if attribute not in kept:
                    own = self._own[attribute]
                    rows = np.tensordot(rows, np.bincount(own) / own.size, axes=(axis, 0))
            self._means[kept] = rows
        return self._means[kept]

    def products(self, other: WholeOnClasses) -> Array:
        """Return the inner products of all rows with those of another measurement."""
        kept = tuple(a for a in self.whole.attributes if a in other.whole.attributes)
        mine, theirs = self.mean(kept), other.mean(kept)
        for axis, attribute in enumerate(kept, start=1):
            common = np.zeros((mine.shape[axis], theirs.shape[axis]))
            np.add.at(common, (self._own[attribute], other._own[attribute]), 1 / self._own[attribute].size)
            theirs = np.moveaxis(np.tensordot(theirs, common, axes=(axis, 1)), -1, axis)
        return np.asarray(mine.reshape(len(self), -1) @ theirs.reshape(len(other), -1).T)

    def with_queries(self, asked: QueriesOnClasses) -> Array:
        """Return the inner products of product queries with all rows: the last axis runs over these."""
        kept = tuple(a for a in self.whole.attributes if a in asked.places)
        found, left = self.mean(kept), list(kept)
        for places, rows in asked.parts:  # each takes its axes away, and puts its queries at the end
            own = [a for a in places if a in kept]
            gone = tuple(i for i, a in enumerate(places, start=1) if a not in kept)
            folded = rows.mean(axis=gone) if gone else rows
            for axis, attribute in enumerate(own, start=1):
                classes = self._own[attribute]
                folded = _sums(folded, classes, axis) / classes.size
            axes = [1 + left.index(a) for a in own]
            found = np.tensordot(found, folded, axes=(axes, list(range(1, folded.ndim))))
            left = [a for a in left if a not in own]
        return np.moveaxis(found, 0, -1)

    def combined(self, coefficients: Array, places: Sequence[int]) -> Array:
        """Return sums of multiples of the rows over joint classes, averaged over all but some attributes."""
        kept = tuple(a for a in self.whole.attributes if a in places)
        table = np.tensordot(coefficients, self.mean(kept), axes=1)
        lead = coefficients.ndim - 1
        for axis, attribute in enumerate(kept, start=lead):
            table = np.take(table, self._own[attribute], axis=axis)
        sizes = (self._own[a].size if a in kept else 1 for a in places)
        return table.reshape((*table.shape[:lead], *sizes))


@dataclass(frozen=True, eq=False)
class QueriesOnClasses:
    """The product queries of a group: means over classes, and how much varies within these."""

    parts: tuple[tuple[Place, Array], ...]
    """The increasing attributes of every family, and its queries over their classes."""
    lengths: tuple[Array, ...]
    """The mean squares of every family's queries."""
    rests: tuple[Array, ...]
    """Those of what varies within classes."""

    @classmethod
    def of(cls, schema: Schema, group: Group, classes: Classes) -> QueriesOnClasses:
        """Return the group's queries over classes."""
        parts, lengths, rests = [], [], []
        for names, family in group.parts():
            positions = schema.positions(names)
            places = tuple(sorted(positions))
            rows = PlacedFamily.on(positions, family).tensor(weighted=False)
            means = classes.means(rows, places)
            rest = rows - on_values(means, [classes.maps[a] for a in places])
            squares = classes.means(rest**2, places).reshape(len(rows), -1).mean(axis=1)
            parts.append((places, means))
            rests.append(squares)
            lengths.append(squares + classes.mean_square(means, places))
        return cls(tuple(parts), tuple(lengths), tuple(rests))

    @property
    def places(self) -> Place:
        """All attributes."""
        return tuple(a for places, _ in self.parts for a in places)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of queries of every family."""
        return tuple(len(rows) for _, rows in self.parts)

    def squares(self) -> Array:
        """Return the mean squares of all queries."""
        result: Array = np.ones(())
        for own in self.lengths:
            result = np.multiply.outer(result, own)
        return result

    def within(self) -> Array:
        """Return those of what varies within classes: of one factor, times what is equal of those before."""
        equal, total = np.ones(()), np.zeros(())
        for length, rest in zip(self.lengths, self.rests, strict=True):
            total = np.multiply.outer(total, length) + np.multiply.outer(equal, rest)
            equal = np.multiply.outer(equal, length - rest)
        return total

    def on(self, places: Sequence[int]) -> Array:
        """Return all queries over the classes of attributes, with an axis per family before those."""
        result: Array = np.ones((1,) * (len(self.parts) + len(places)))
        for number, (own, rows) in enumerate(self.parts):
            sizes = [1] * result.ndim
            sizes[number] = len(rows)
            for a, size in zip(own, rows.shape[1:], strict=True):
                sizes[len(self.parts) + list(places).index(a)] = size
            result = result * rows.reshape(sizes)
        return result


def _sums(rows: Array, classes: Integers, axis: int) -> Array:
    """Return the sums over the members of every class along an axis."""
    counts = np.bincount(classes)
    ordered = np.take(rows, np.argsort(classes, kind="stable"), axis=axis)
    return np.asarray(np.add.reduceat(ordered, np.cumsum(counts) - counts, axis=axis))


def _along(values: Array | Integers, place: int, axes: int) -> Array:
    return np.asarray(values, dtype=float).reshape([-1 if i == place else 1 for i in range(axes)])
