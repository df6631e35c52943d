"""Partitions of the cells of some axes into columns: cells that every row treats alike.

Values of an axis first merge into classes, then combinations of classes, the coarse cells, into columns. So
nothing is kept over all cells, which can be far more than the coarse ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Integers, words

Tables = NDArray[Any]
"""Tables of 64-bit integers or doubles; sums have the same type."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Every cell of some axes belongs to one column; its arrays are read-only."""

    maps: tuple[Integers, ...]
    """The class of every value of an axis: 0 .. k - 1, each used."""
    labels: Integers
    """The column of every coarse cell: 0 .. c - 1, each used."""

    def __post_init__(self) -> None:
        """Check that every class and every column is used; keep read-only copies."""
        if type(self.maps) is not tuple or not self.maps:
            msg = "partition: expected a tuple of maps, one per axis"
            raise PrivacyError(msg)
        maps = tuple(words("partition: a map of values to classes", one, 1) for one in self.maps)
        labels = words("partition: its labels", self.labels, len(maps))
        if labels.shape != tuple(_count("a map of values to classes", one) for one in maps):
            msg = "partition: its labels do not have one axis per map, as long as the map has classes"
            raise PrivacyError(msg)
        _count("its labels", labels)
        object.__setattr__(self, "maps", maps)
        object.__setattr__(self, "labels", labels)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(one.size for one in self.maps)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.labels.max()) + 1

    @cached_property
    def class_sizes(self) -> tuple[Integers, ...]:
        """Number of values of every class, by axis."""
        return tuple(np.bincount(one).astype(np.int64) for one in self.maps)

    @cached_property
    def coarse_sizes(self) -> Array:
        """Number of cells of every coarse cell, in row-major order."""
        sizes = np.ones(1)
        for one in self.class_sizes:
            sizes = np.multiply.outer(sizes, one.astype(float)).ravel()
        return sizes

    @cached_property
    def sizes(self) -> Array:
        """Number of cells of every column."""
        return np.bincount(self.labels.ravel(), self.coarse_sizes).astype(float)

    @cached_property
    def _orders(self) -> tuple[tuple[Integers, Integers] | None, ...]:
        """For every map, and last the labels: an order that puts equals together, and where each starts.

        None for those that keep all apart, in order.
        """
        return tuple(_order(one) for one in (*self.maps, self.labels.ravel()))

    def of_cells(self) -> Integers:
        """Return the column of every cell, in row-major order."""
        return self.labels[np.ix_(*self.maps)].ravel()

    def class_sums(self, tables: Tables, axis: int, which: int) -> Tables:
        """Sum along an axis of the tables, which is axis `which` of the partition, within every class."""
        return _sums(tables, axis, self._orders[which])

    def column_sums(self, tables: Tables, axis: int) -> Tables:
        """Sum along an axis of the tables, which lists the coarse cells, within every column."""
        return _sums(tables, axis, self._orders[-1])

    def sums(self, tables: Tables) -> Tables:
        """Sum the cells of every column, for tables in columns; in 64-bit integers, by additions alone."""
        result = tables.reshape(*self.shape, -1)
        for axis in range(len(self.maps)):
            result = self.class_sums(result, axis, axis)
        return self.column_sums(result.reshape(self.labels.size, -1), 0)


def _count(what: str, numbers: Integers) -> int:
    """Return how many numbers there are, 0 .. k - 1; refuse gaps."""
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= numbers.size or not np.bincount(numbers.ravel()).all():
        msg = f"partition: expected {what} to use every integer from 0 to its largest"
        raise PrivacyError(msg)
    return high + 1


def _order(numbers: Integers) -> tuple[Integers, Integers] | None:
    if np.array_equal(numbers, np.arange(numbers.size)):
        return None
    order = np.argsort(numbers, kind="stable")
    starts = np.cumsum(np.bincount(numbers)) - np.bincount(numbers)
    return order, starts


def _sums(tables: Tables, axis: int, order: tuple[Integers, Integers] | None) -> Tables:
    if order is None:
        return tables
    return np.add.reduceat(np.take(tables, order[0], axis=axis), order[1], axis=axis)
