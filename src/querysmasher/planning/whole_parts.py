"""What the rows of whole measurements leave on an attribute set, over values or classes of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.lattice import Integers
from querysmasher.planning.tied import Share
from querysmasher.planning.value_classes import class_sums
from querysmasher.planning.whole_rows import Place, on_values


@dataclass(frozen=True, eq=False)
class Part:
    """What the rows of one whole measurement leave on a set; inner products are sums over its cells."""

    at: slice
    """Where the rows are among all whole rows."""
    place: Place
    rows: Array
    """One axis for the rows, then one of values or classes per attribute."""
    maps: tuple[Integers, ...] | None = None
    """The class of every value, by attribute; None if nothing is merged."""

    def on_values(self) -> Array:
        """Return the rows over all cells of the set."""
        return self.rows if self.maps is None else on_values(self.rows, self.maps)

    def products(self, other: Part) -> Array:
        """Return the inner products with the rows of another measurement on the same set."""
        if other is self:
            own = self._weighed()
            return np.asarray(own @ own.T)
        theirs = other.rows
        for axis in range(1, self.rows.ndim):
            mine, yours = self._classes(axis), other._classes(axis)
            if mine is yours is None:
                continue
            mine = np.arange(self.rows.shape[axis]) if mine is None else mine
            yours = np.arange(other.rows.shape[axis]) if yours is None else yours
            common = np.zeros((self.rows.shape[axis], other.rows.shape[axis]))
            np.add.at(common, (mine, yours), 1.0)
            theirs = np.moveaxis(np.tensordot(theirs, common, axes=(axis, 1)), -1, axis)
        return np.asarray(self.rows.reshape(len(self.rows), -1) @ theirs.reshape(len(theirs), -1).T)

    def squares(self) -> Array:
        """Return the squared lengths of the rows."""
        return np.asarray((self._weighed() ** 2).sum(axis=1))

    def _weighed(self) -> Array:
        """Return flat rows, times the roots of the numbers of cells in every combination of classes."""
        sizes: Array = np.ones(())
        for own in self.maps or ():
            sizes = np.multiply.outer(sizes, np.bincount(own))
        rows = self.rows if self.maps is None else self.rows * np.sqrt(sizes)
        return rows.reshape(len(rows), -1)

    def _classes(self, axis: int) -> Integers | None:
        return None if self.maps is None else self.maps[axis - 1]

    def with_shares(self, shares: Sequence[Share]) -> Array:
        """Return the inner products of what product queries leave: the last axis runs over the rows."""
        found, left = self.rows, list(self.place)
        for share in shares:  # each takes its axes away, and puts its queries at the end
            sizes = [self._size(a) for a in share.kept]
            folded = share.rows.reshape(len(share.rows), *sizes)
            for axis, a in enumerate(share.kept, start=1):
                classes = self._classes(1 + self.place.index(a))
                folded = folded if classes is None else class_sums(folded, classes, axis)
            axes = [1 + left.index(a) for a in share.kept]
            found = np.tensordot(found, folded, axes=(axes, list(range(1, folded.ndim))))
            left = [a for a in left if a not in share.kept]
        return np.moveaxis(found, 0, -1)

    def _size(self, attribute: int) -> int:
        """Return the number of values of an attribute of the set."""
        axis = self.place.index(attribute)
        return self.rows.shape[1 + axis] if self.maps is None else self.maps[axis].size

    def combined(self, coefficients: Array) -> Array:
        """Return a sum of multiples of the rows, over all cells of the set."""
        table = np.tensordot(coefficients[self.at], self.rows, axes=1)[None]
        return table[0] if self.maps is None else on_values(table, self.maps)[0]


def inner_products(parts: Sequence[Part], others: Sequence[Part], count: int) -> Array:
    """Return the inner products of all parts with all others, at their places among `count` rows."""
    result = np.zeros((count, count))
    for part in parts:
        for other in others:
            result[part.at, other.at] += part.products(other)
    return result


def written_out(parts: Sequence[Part], count: int) -> Array:
    """Return all parts over the cells of their set, at their places among `count` rows."""
    cells = parts[0].on_values().shape[1:]
    result = np.zeros((count, *cells))
    for part in parts:
        result[part.at] += part.on_values()
    return result
