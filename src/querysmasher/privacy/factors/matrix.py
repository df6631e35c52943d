"""Matrices, entry by entry, and matrices with many equal columns, each stored once.

Products are exact. The tables are integers whose absolute values sum, in each column, to at most a known
bound, so every entry of a product, and every partial sum on the way, is at most bound × max|entries|.
Below 2^53 products of doubles are therefore exact in any order of summation, with any BLAS that multiplies by
plain sums, as all in common use do; a matrix that would lead beyond is cut into digits, and their products
are combined as integers.

If cells share columns (`Partition`), the matrix over all cells is never written out. Accounting is exact:
every stored column occurs, as every class and every column of a partition is used, and no other occurs, so
the longest column over the cells is the longest one stored. Answers are exact: the counts of the cells of one
column are added up first, in 64-bit integers, in which no partial sum exceeds the bound on the table; the
sums' absolute values sum to at most the same bound, under which the product with the stored columns is exact.
Likewise for classes of the values of one attribute, with any other factor in place of the stored columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers
from querysmasher.privacy.factors.factor import NEAR, Factor, Integers, given, largest_of, require, words
from querysmasher.privacy.factors.filter import Mirrored
from querysmasher.privacy.pairs import MOST_CELLS, Products

EXACT = 2**53
"""Doubles represent every integer below this in absolute value."""

FEW_ROWS = 1e-3
"""Maximum ratio of rows to cells of few rows."""

Tables = NDArray[Any]
"""Tables of 64-bit integers or doubles; sums have the same type."""


@dataclass(frozen=True, eq=False)
class Matrix(Factor):
    """Any rows of integers over the cells of its axes."""

    kind = "matrix"
    stored: ClassVar = {"entries": given}

    entries: Integers

    def __post_init__(self) -> None:
        """Check that the entries are 64-bit integers, and keep a read-only copy."""
        self._keep(entries=2)

    @property
    def rows(self) -> int:
        return len(self.entries)

    @property
    def cells(self) -> int:
        return self.entries.shape[1]

    @property
    def few_rows(self) -> Integers | None:
        return self.entries if self.rows == 1 or self.rows <= FEW_ROWS * self.cells else None

    @cached_property
    def largest(self) -> int:  # cached, as every attribute set needs it
        return largest_of(self.entries)

    def squared_column(self) -> int:
        if self.largest**2 * self.rows >= 2**62:
            # Sums of squares of doubles have relative errors below (rows + 3)·2⁻⁵³ < NEAR / 4. So a column
            # that is shorter by NEAR in floating point is shorter; the others are squared exactly.
            lengths = np.einsum("kj,kj->j", *[self.entries.astype(float)] * 2)
            longest = lengths >= (1 - NEAR) * lengths.max()
            return max(sum(int(b) ** 2 for b in column) for column in self.entries.T[longest])
        return int((self.entries**2).sum(axis=0).max())

    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        if bound * self.largest < EXACT:
            return np.matmul(self.entries.astype(np.float64), tables.astype(np.float64))
        digit = EXACT.bit_length() - 1 - bound.bit_length()
        if digit < 2:
            return np.matmul(self.entries, tables.astype(np.int64))  # slow, and exact below 2^63
        columns = tables.astype(np.float64)
        result = np.zeros((self.rows, tables.shape[1]), dtype=np.int64)
        matrix, shift = self.entries, 0
        while True:
            last = int(np.abs(matrix).max()) < 2**digit
            low = matrix if last else matrix & (2**digit - 1)
            result += np.matmul(low.astype(np.float64), columns).astype(np.int64) << shift
            if last:
                return result
            matrix, shift = (matrix - low) >> digit, shift + digit

    def transposed(self, answers: Array) -> Array:
        return np.matmul(self.entries.T.astype(float), answers)

    def written_out(self) -> Array:
        return self.entries.astype(float)


@dataclass(frozen=True, eq=False)
class Few(Matrix):
    """Few rows that determine a centre of their attribute: for everything else, a matrix."""

    kind = "few"


@dataclass(frozen=True, eq=False)
class Partition:
    """The columns of the cells of some axes: cells of one column are treated alike by every row.

    Values of an axis first merge into classes, then combinations of classes, the coarse cells, into columns.
    So nothing is kept over all cells, which can be far more than the coarse ones. Arrays are read-only.
    """

    maps: tuple[Integers, ...]
    """The class of every value of an axis: 0 .. k - 1, each used."""
    labels: Integers
    """The column of every coarse cell: 0 .. c - 1, each used."""

    def __post_init__(self) -> None:
        """Check that every class and every column is used; keep read-only copies."""
        require(type(self.maps) is tuple, "partition: expected a tuple of maps, one per axis")
        maps = tuple(words("partition: a map of values to classes", classes, 1) for classes in self.maps)
        labels = words("partition: its labels", self.labels, len(maps))
        counts = tuple(_count("a map of values to classes", classes) for classes in maps)
        require(labels.shape == counts, "partition: expected labels for all combinations of classes")
        _count("its labels", labels)
        object.__setattr__(self, "maps", maps)
        object.__setattr__(self, "labels", labels)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(classes.size for classes in self.maps)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.labels.max()) + 1

    @cached_property
    def sizes(self) -> Array:
        """Number of cells of every column."""
        counts = (np.bincount(classes).astype(float) for classes in self.maps)
        coarse: Array = reduce(np.multiply.outer, counts, np.ones(()))
        return np.bincount(self.labels.ravel(), coarse.ravel()).astype(float)

    def corners(self, matrix: Tables, tolerance: float = 0.0) -> tuple[Integers, ...]:
        """Return by axis the classes whose columns are not all halfway between those of both neighbours.

        Every column is a mean of columns of these classes. So no product of two columns is less than all
        products of theirs, and no two are farther apart. Integers of less than 2⁶² are compared exactly;
        `tolerance` is relative to the largest entry of a row.
        """
        straight = [np.ones(max(0, size - 2), dtype=bool) for size in self.labels.shape]
        for row in matrix:
            for axis in (axis for axis, inner in enumerate(straight) if inner.any()):
                steps = np.moveaxis(np.diff(row[self.labels], axis=axis), axis, 0)
                bends = np.abs((steps[1:] - steps[:-1]).astype(float)).reshape(len(steps) - 1, -1)
                straight[axis] &= bends.max(axis=1) <= tolerance * float(np.abs(row).max())
        sizes = zip(straight, self.labels.shape, strict=True)
        return tuple(np.flatnonzero(~np.pad(inner, 1)[:size]) for inner, size in sizes)

    @cached_property
    def _orders(self) -> tuple[tuple[Integers, Integers] | None, ...]:
        """For every map, and last the labels: an order that puts equals together, and where each starts.

        None for those that keep all apart, in order.
        """
        return tuple(map(_order, (*self.maps, self.labels.ravel())))

    def of_cells(self) -> Integers:
        """Return the column of every cell, in row-major order."""
        return self.labels[np.ix_(*self.maps)].ravel()

    def spread(self, columns: Tables) -> Tables:
        """Repeat the values of the columns, along the last axis, for every cell."""
        return columns if not any(self._orders) else columns[..., self.of_cells()]

    def class_sums(self, tables: Tables, axis: int, which: int) -> Tables:
        """Sum along an axis of the tables, which is axis `which` of the partition, within every class.

        If `which` is -1, the axis lists the coarse cells, and the sums are those within every column.
        """
        order = self._orders[which]
        return tables if order is None else np.add.reduceat(np.take(tables, order[0], axis), order[1], axis)

    def columns_of(self, classes: tuple[Integers, ...]) -> Integers:
        """Return the distinct columns of all combinations of some classes, in increasing order."""
        return np.unique(self.labels[np.ix_(*classes)])

    def sums(self, tables: Tables) -> Tables:
        """Sum the cells of every column, for tables in columns; in 64-bit integers, by additions alone."""
        result = tables.reshape(*self.shape, -1)
        for axis in range(len(self.maps)):
            result = self.class_sums(result, axis, axis)
        return self.class_sums(result.reshape(self.labels.size, -1), 0, -1)


def _count(what: str, numbers: Integers) -> int:
    """Return how many numbers there are, 0 .. k - 1; refuse gaps."""
    high = int(numbers.max())
    holds = numbers.min() >= 0 and high < numbers.size and np.bincount(numbers.ravel()).all()
    require(holds, f"partition: expected {what} to use every integer from 0 to its largest")
    return high + 1


def _order(numbers: Integers) -> tuple[Integers, Integers] | None:
    if np.array_equal(numbers, np.arange(numbers.size)):
        return None
    order = np.argsort(numbers, kind="stable")
    starts = np.cumsum(np.bincount(numbers)) - np.bincount(numbers)
    return order, starts


class OnColumns(Factor):
    """A factor over the columns of a partition of the cells."""

    partition: Partition
    """Which cells share a column."""
    inner: Factor
    """The factor over columns."""

    @property
    def rows(self) -> int:
        return self.inner.rows

    @property
    def cells(self) -> int:
        return self.partition.cells

    @property
    def largest(self) -> int:
        return self.inner.largest

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return self.partition.shape == sizes

    def squared_column(self) -> int:
        return self.inner.squared_column()

    def column_products(self) -> Products:
        return self.inner.column_products().spread(self.partition.of_cells, self.cells)

    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:
        return self.inner.exact_answers(self.partition.sums(tables.astype(np.int64)), bound)

    def transposed(self, answers: Array) -> Array:
        return self.inner.transposed(answers)[self.partition.of_cells()]


@dataclass(frozen=True, eq=False)
class Merged(OnColumns):
    """Rows of integers over cells of which many share a column: column matrix[:, labels[maps…]] at a cell."""

    kind = "merged"
    stored: ClassVar = {
        "maps": lambda maps: tuple(maps) if type(maps) is list else None,
        "labels": given,
        "matrix": given,
    }

    maps: tuple[Integers, ...]
    """The class of every value, by axis."""
    labels: Integers
    """The column of every coarse cell, a combination of classes."""
    matrix: Integers
    """Every distinct column once (rows × columns)."""

    def __post_init__(self) -> None:
        """Check that the labels are those of the columns; keep read-only copies."""
        partition, inner = Partition(self.maps, self.labels), Matrix(self.matrix)
        fits = partition.maps and inner.cells == partition.columns
        require(fits, "strategy: expected as many columns in a merged matrix as its labels name")
        vars(self).update(partition=partition, maps=partition.maps, labels=partition.labels)
        vars(self).update(inner=inner, matrix=inner.entries)

    def column_products(self) -> Products:
        if self.inner.cells <= MOST_CELLS:
            return super().column_products()
        corners = self.partition.columns_of(self.partition.corners(self.matrix))
        products = Matrix(self.matrix[:, corners]).column_products()
        return Products(None, None, products.least, products.farthest)


INNER: dict[str, type[Factor]] = {kind.kind: kind for kind in (Matrix, Mirrored)}
"""Kinds of the inner factor, by name."""


def _inner(data: Any) -> Factor:
    known = type(data) is dict and type(data.get("kind")) is str and data["kind"] in INNER
    require(known, f"coarse factor: expected inside one of the kinds {', '.join(INNER)}")
    return INNER[data["kind"]].from_data(data)


class OnClasses:
    """A mixin for operators over classes of the values of an attribute."""

    classes: Integers
    """The class of every value: 0 .. k - 1, each used."""

    @cached_property
    def partition(self) -> Partition:
        """Which values share a class; refused unless every class has some."""
        return Partition((self.classes,), np.arange(min(int(self.classes.max()) + 1, self.classes.size)))


@dataclass(frozen=True, eq=False)
class Coarse(OnClasses, OnColumns):  # type: ignore[override]
    """A factor over classes of the values of one attribute."""

    kind = "coarse"
    stored: ClassVar = {"classes": given, "inner": _inner}
    stands_alone = True

    classes: Integers
    inner: Factor

    def __post_init__(self) -> None:
        """Check that the inner factor has a cell for every class; keep read-only copies."""
        self._keep(classes=1)
        fits = type(self.inner) in INNER.values() and self.inner.cells == self.partition.columns
        require(fits, "strategy: expected a matrix or a mirrored filter over the classes of a coarse factor")
