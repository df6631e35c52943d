"""Queries over cells of which many share a column: by their sums over coarse cells, then over columns.

Coarse cells are combinations of classes of values (`Partition`). All sums are inner products with unit
vectors, so that lengths and variances are those over the cells themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.strategies.strategy import AxisRows
from querysmasher.privacy.factors import Partition

CHUNK = 10_000_000
"""Maximum number of entries of an intermediate array."""


@dataclass(frozen=True, eq=False)
class CoarseCells:
    """The coarse cells and the columns of a partition."""

    partition: Partition

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of classes of every attribute."""
        return self.partition.labels.shape

    @property
    def size(self) -> int:
        """Number of coarse cells."""
        return self.partition.labels.size

    @cached_property
    def root_sizes(self) -> Array:
        """The roots of the numbers of cells of the columns."""
        return np.sqrt(self.partition.sizes)

    @cached_property
    def _shares(self) -> Array:
        """What a coarse cell adds to its column, both as unit vectors: √(its cells / the column's cells)."""
        return np.sqrt(self.partition.coarse_sizes) / self.root_sizes[self.partition.labels.ravel()]

    def of_values(self, rows: Array, axes: Sequence[int]) -> Array:
        """Return rows over the values of some axes on their classes, with an axis for each."""
        tensor = rows.reshape(-1, *(self.partition.shape[a] for a in axes))
        for place, axis in enumerate(axes, start=1):
            sums = self.partition.class_sums(tensor, place, axis)
            tensor = sums / _along(self._class_roots[axis], place, tensor.ndim)
        return tensor

    @cached_property
    def _class_roots(self) -> list[Array]:
        """The roots of the numbers of values of the classes, by axis."""
        return [np.sqrt(sizes.astype(float)) for sizes in self.partition.class_sizes]

    def _to_values(self, coarse: Array, axes: Sequence[int]) -> Array:
        """Return the combination of unit vectors of the classes: the transpose of `of_values`."""
        for place, axis in enumerate(axes, start=1):
            coarse = coarse / _along(self._class_roots[axis], place, coarse.ndim)
            coarse = np.take(coarse, self.partition.maps[axis], axis=place)
        return coarse

    def on_columns(self, coarse: Array) -> Array:
        """Return rows over the coarse cells on the columns."""
        return self.partition.column_sums(coarse * self._shares, 1)

    def within_columns(self, coarse: Array, columns: Array) -> Array:
        """Return the squared lengths of what of the rows varies within columns."""
        rest = coarse - self._shares * np.take(columns, self.partition.labels.ravel(), axis=1)
        return np.asarray(np.einsum("ij,ij->i", rest, rest))

    def products(self, factors: Sequence[AxisRows]) -> Iterator[tuple[slice, Array]]:
        """Iterate over slices of all products of one row per factor, on the coarse cells."""
        coarse = [self._spread(axes, rows) for axes, rows in factors]
        counts = [len(rows) for rows in coarse]
        step = max(1, CHUNK // self.size)
        for start in range(0, math.prod(counts), step):
            stop = min(start + step, math.prod(counts))
            product = np.ones(1)
            for rows, chosen in zip(
                coarse, np.unravel_index(np.arange(start, stop), counts) if counts else (), strict=True
            ):
                product = product * rows[chosen]
            yield (
                slice(start, stop),
                np.broadcast_to(product, (stop - start, *self.shape)).reshape(stop - start, -1),
            )

    def _spread(self, axes: tuple[int, ...], rows: Array) -> Array:
        """Return rows over some axes on the coarse cells, with an axis of length one for every other."""
        sizes = (n if axis in axes else 1 for axis, n in enumerate(self.shape))
        return self.of_values(rows, axes).reshape(len(rows), *sizes)

    def within_classes(self, factors: Sequence[AxisRows]) -> Array:
        """Return the squared length of what varies within the classes, for all products of rows.

        Each factor is a sum of what is equal within classes and an orthogonal rest. So the squared length of
        the product's rest is a sum over the factors: the rest of one, times what is equal of those before,
        times all of those after.
        """
        equal, total = np.ones(()), np.zeros(())
        for axes, rows in factors:
            coarse = self.of_values(rows, axes)
            own_equal = (coarse.reshape(len(rows), -1) ** 2).sum(axis=1)
            own_rest = ((rows - self._to_values(coarse, axes).reshape(rows.shape)) ** 2).sum(axis=1)
            total = np.multiply.outer(total, own_equal + own_rest) + np.multiply.outer(equal, own_rest)
            equal = np.multiply.outer(equal, own_equal)
        return total.ravel()

    def batches(self, asked: Iterable[Sequence[AxisRows]]) -> Iterator[list[Sequence[AxisRows]]]:
        """Iterate over lists of factors with few products together, or of one that has many."""
        few: list[Sequence[AxisRows]] = []
        products = 0
        for factors in asked:
            if few and not self.are_few(products + count(factors)):
                yield few
                few, products = [], 0
            few.append(factors)
            products += count(factors)
        if few:
            yield few

    def are_few(self, products: int) -> bool:
        """Return whether so many product queries are written out at once."""
        return products * self.size <= CHUNK


def count(factors: Sequence[AxisRows]) -> int:
    """Return the number of products of one row per factor."""
    return math.prod(len(rows) for _, rows in factors)


def _along(values: Array, place: int, axes: int) -> Array:
    return values.reshape([-1 if i == place else 1 for i in range(axes)])
