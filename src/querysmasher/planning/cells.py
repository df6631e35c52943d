"""Cells that no query distinguishes, merged: few queries have few distinct columns, whatever the domain.

Values of an attribute that every query treats alike become one class. Then coarse cells, combinations of
classes, with equal columns become one column. The strategies of least error over all mechanisms treat merged
cells alike too (mathematics: two cells with equal columns in the queries have equal columns in every strategy
inside their row space), so merging loses nothing.

Families with more queries than cells are represented by as many rows as cells, with the same Gram matrix.

Nothing is written out over the cells of several families. Columns are distinguished by digests: each family's
over its cells, each group's over combinations of its families' distinct columns, by their directions and
scales; those of groups are added up over the coarse cells. A digest is two 64-bit sums of one pseudo-random
word per row and entry: different columns have equal sums with probability 2⁻¹²⁸.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, STRAIGHT, Array, kronecker
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.privacy.factors import Partition
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Group

Words = NDArray[np.uint64]

Placed = Sequence[tuple[Family, list[int]]]
"""The families of a group, each with its axes."""


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Queries over the distinct columns of the cells of some attributes; its arrays must not be changed."""

    attributes: tuple[int, ...]
    """Indexes of the attributes, increasing: the axes."""
    maps: tuple[Integers, ...]
    """The class of every value, by axis."""
    labels: Integers
    """The column of every coarse cell, with an axis of classes per attribute."""
    rows: Array
    """The queries on the distinct columns, or rows with the same Gram matrix: group by group, the last
    family's row varying fastest."""
    weights: Array
    """The weight of every row."""
    spanning: Array
    """Rows that span the same space: integers, if all queries given by their rows are."""
    classes: Integers | None = None
    """The class of every column, if neighbours agree on the number of records in every class."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the attributes."""
        return tuple(classes.size for classes in self.maps)

    @cached_property
    def corners(self) -> Corners | None:
        """The columns of which all others are means, unless they are all or have classes."""
        if self.classes is not None:
            return None
        partition = Partition(self.maps, self.labels)
        kept = partition.corners(self.rows, STRAIGHT)
        columns = partition.columns_of(kept)
        return None if len(columns) == self.rows.shape[1] else Corners(self.labels, kept, columns)

    @property
    def corner_count(self) -> int:
        """Number of columns that decide what is best."""
        return self.rows.shape[1] if self.corners is None else len(self.corners.columns)


@dataclass(frozen=True, eq=False)
class Corners:
    """Columns at the ends of straight lines, as those of sums are: the others are means of two of them.

    Convex functions of a column, or of two, such as the cost of a strategy, are largest at corners. So what
    is best for these is best for all columns.
    """

    labels: Integers
    classes: tuple[Integers, ...]
    """The classes of every axis that are kept."""
    columns: Integers
    """The columns, in increasing order."""

    def filled(self, rows: Array) -> Array:
        """Return rows on the corners as rows on all columns."""
        grid = rows[:, np.searchsorted(self.columns, self.labels[np.ix_(*self.classes)])]
        for axis, (kept, size) in enumerate(zip(self.classes, self.labels.shape, strict=True)):
            if len(kept) < size:
                every = np.arange(size)
                right = np.searchsorted(kept, every)
                left = np.maximum(right - 1, 0)
                part = (kept[right] - every) / np.maximum(kept[right] - kept[left], 1)
                part = part.reshape([-1 if a == axis else 1 for a in range(-1, self.labels.ndim)])
                first, last = (np.take(grid, ends, axis + 1) for ends in (left, right))
                grid = part * first + (1 - part) * last
        cells = np.unique(self.labels, return_index=True)[1]
        return grid.reshape(len(rows), -1)[:, cells]


@dataclass(frozen=True, eq=False)
class _Columns:
    """The distinct columns of a family, and which of them every cell has."""

    labels: Integers
    matrix: Array
    spanning: Array
    scales: Array
    """The first nonzero entry of every column, or 0."""
    directions: Integers
    """Equal for columns that are multiples of each other."""


Columns = Mapping[Hashable, _Columns]
"""The distinct columns of families, by key."""


def work_of(queries: int, columns: int) -> float:
    """Return columns × queries², or columns³ if that is less: the work of one step of a solver."""
    return float(columns * min(queries, columns) ** 2)


def merge(
    schema: Schema,
    groups: Sequence[Group],
    attributes: Sequence[int],
    most_work: float = math.inf,
    columns: Columns | None = None,
) -> MergedRows | None:
    """Merge the cells of some attributes that the groups' queries do not distinguish.

    `attributes` are increasing indexes and include those of every group. Two cells have the same label if and
    only if every query has the same coefficient at both. Return None if the queries or the coarse cells are
    too many (`PlanningLimits.merged_rows` and others), or take more than `most_work`. Whether they are too
    many is known before any of them is written out. `columns`: the distinct ones of all families, if known.
    """
    placed = [_placed(schema, group, attributes) for group in groups]
    most, count = limits(), sum(math.prod(map(height, group.families)) for group in groups)
    sizes = [schema.sizes[a] for a in attributes]
    if count > most.merged_rows and count * math.prod(sizes) > most.merged_entries:
        return None
    columns = distinct_columns(groups) if columns is None else columns
    if columns is None:
        return None
    maps, firsts = _classes(sizes, placed, columns)
    shape = tuple(map(len, firsts))
    if math.prod(shape) > most.merged_cells:
        return None
    coarse = []
    for pairs in placed:  # every family over the coarse cells of its attributes
        at = [(columns[family.key], np.ix_(*(firsts[axis] for axis in on))) for family, on in pairs]
        coarse.append([replace(whole, labels=whole.labels[cells]) for whole, cells in at])
    axes = [[axis for _, on in pairs for axis in on] for pairs in placed]
    labels, cells = _numbered(_digest_of_cells(coarse, axes, shape))
    if count * len(cells) > most.merged_entries or work_of(count, len(cells)) > most_work:
        return None
    spanning = rows = _rows(coarse, axes, cells, shape)
    if any(part.spanning is not part.matrix for part in columns.values()):
        coarse = [[replace(part, matrix=part.spanning) for part in parts] for parts in coarse]
        spanning = _rows(coarse, axes, cells, shape)
    weights = np.concatenate([_weights(group) for group in groups] or [np.ones(0)])
    for array in (*maps, labels, rows, weights, spanning):
        array.flags.writeable = False
    return MergedRows(tuple(attributes), maps, labels.reshape(shape), rows, weights, spanning)


def class_counts(
    schema: Schema, groups: Sequence[Group], attributes: Sequence[int], columns: Columns
) -> tuple[Array, Array]:
    """Return how often neighbouring values differ, by group and attribute, and the numbers of classes.

    The latter count the classes of every attribute's values in all groups together.
    """
    placed = [_placed(schema, group, attributes) for group in groups]
    changes = np.zeros((len(groups), len(attributes)))
    for number, pairs in enumerate(placed):
        for family, on in pairs:
            for axis, index in enumerate(on):
                labels = np.moveaxis(columns[family.key].labels, axis, 0).reshape(family.shape[axis], -1)
                changes[number, index] = np.count_nonzero((labels[1:] != labels[:-1]).any(axis=1))
    _, firsts = _classes([schema.sizes[a] for a in attributes], placed, columns)
    return changes, np.array([len(values) for values in firsts])


def _placed(schema: Schema, group: Group, attributes: Sequence[int]) -> Placed:
    return [
        (family, [list(attributes).index(a) for a in schema.positions(names)])
        for names, family in group.parts()
    ]


def height(family: Family) -> int:
    """Return the number of rows that represent a family: at most its cells, if it has a closed form."""
    return min(family.rows, family.cells) if family.closed_form else family.rows


def _weights(group: Group) -> Array:
    """Return the weight of every row that represents the group."""
    by_row = (f.weights if height(f) == f.rows else None for f in group.families)  # else the Gram has them
    ones = (np.ones(height(family)) for family in group.families)
    return group.weight * kronecker(o if w is None else w for w, o in zip(by_row, ones, strict=True))


def distinct_columns(groups: Sequence[Group]) -> Columns | None:
    """Return the distinct columns of all families, by key, or None if one is too large."""
    families = {family.key: family for group in groups for family in group.families}
    for family in families.values():
        entries = height(family) * family.cells
        if entries > limits().merged_entries or (height(family) == family.rows and not family.fits_memory):
            return None
    return {key: _distinct(family) for key, family in families.items()}


def _distinct(family: Family) -> _Columns:
    tall = height(family) < family.rows
    matrix = np.ascontiguousarray(np.linalg.cholesky(family.gram()).T) if tall else family.matrix()
    labels, cells = numbered_columns(matrix)
    distinct = matrix[:, cells]
    spanning = np.eye(len(distinct))[:, cells] if tall else distinct
    scales = distinct[(distinct != 0).argmax(axis=0), np.arange(len(cells))]
    directions = (scales != 0).astype(np.int64)
    if len(distinct) > 1:
        directions, _ = numbered_columns(distinct / np.where(scales == 0, 1.0, scales))
    return _Columns(labels.reshape(family.shape), distinct, spanning, scales, directions)


def _classes(
    sizes: Sequence[int], placed: Sequence[Placed], columns: Columns
) -> tuple[tuple[Integers, ...], list[Integers]]:
    """Return the class of every value of an attribute, and the first value of every class, by axis.

    Values are in one class if every family has equal columns for them.
    """
    sides = [dict[Hashable, Integers]({(): np.zeros((1, size), dtype=np.int64)}) for size in sizes]
    for family, on in (pair for pairs in placed for pair in pairs):
        for axis, index in enumerate(on):
            if (family.key, axis) not in sides[index]:
                labels = np.moveaxis(columns[family.key].labels, axis, -1)
                sides[index][family.key, axis] = labels.reshape(-1, family.shape[axis])
    rows = (np.concatenate([*side.values()][len(side) > 1 :]) for side in sides)
    classes = [numbered_columns(labels) for labels in rows]
    return tuple(labels for labels, _ in classes), [firsts for _, firsts in classes]


def _digest_of_cells(
    coarse: Sequence[Sequence[_Columns]], axes: Sequence[Sequence[int]], shape: tuple[int, ...]
) -> Words:
    """Return the digest of every coarse cell: two sums over all groups."""
    total = np.zeros((2, *shape), dtype=np.uint64)
    for parts, on in zip(coarse, axes, strict=True):
        sizes = (n if axis in on else 1 for axis, n in enumerate(shape))
        which = np.zeros((), dtype=np.int64)  # the combination of the families' columns at each coarse cell
        for part in parts:
            which = np.add.outer(which * part.matrix.shape[1], part.labels)
        which = which.transpose(np.argsort(on))
        total += np.take(_digest_of_products(parts), which, axis=1).reshape(2, *sizes)  # indexing is slow
    return total.reshape(2, -1)


def _digest_of_products(parts: Sequence[_Columns]) -> Words:
    """Return the digest of every combination of the families' columns.

    A product of columns is determined by their directions and the product of their scales, if that is not 0.
    """
    counts = [part.matrix.shape[1] for part in parts]
    scales = kronecker(part.scales for part in parts)
    chosen = np.unravel_index(np.arange(len(scales)), counts) if parts else ()
    directions = [part.directions[numbers] for part, numbers in zip(parts, chosen, strict=True)]
    columns = np.stack([*directions, scales]) * (scales != 0)
    return _mixed_sum(columns, _new_keys(len(columns)))


def _rows(
    coarse: Sequence[Sequence[_Columns]],
    axes: Sequence[Sequence[int]],
    cells: Integers,
    shape: tuple[int, ...],
) -> Array:
    """Return the rows of all groups at some coarse cells."""
    heights = [math.prod(len(part.matrix) for part in parts) for parts in coarse]
    result = np.empty((sum(heights), len(cells)))
    indexes = np.unravel_index(cells, shape) if shape else ()
    start = 0
    for parts, on, height in zip(coarse, axes, heights, strict=True):
        step = max(1, CHUNK // height)
        for i in range(0, len(cells), step):
            at = iter([indexes[axis][i : i + step] for axis in on])  # each family takes those of its axes
            rows = np.ones((1, 1))
            for part in parts:
                numbers = part.labels[tuple(islice(at, part.labels.ndim))]
                rows = rows[:, None] * np.take(part.matrix, numbers, axis=1)
                rows = rows.reshape(-1, len(numbers))
            result[start : start + height, i : i + step] = rows
        start += height
    return result


# --- digests ---


_generator = np.random.default_rng(0)
"""Columns are numbered by first appearance, so the result does not depend on the draws."""


def _new_keys(count: int) -> Words:
    """Draw two words per row."""
    return np.asarray(_generator.bit_generator.random_raw(2 * count), dtype=np.uint64).reshape(2, count)


def _column_digest(matrix: Array | Integers) -> Words | Array | Integers:
    """Return the digest of every column: two sums, or the entry itself of a single row."""
    if len(matrix) == 1:
        return matrix
    keys, step = _new_keys(len(matrix)), max(1, CHUNK // (16 * len(matrix)))  # several words per entry
    pieces = (matrix[:, i : i + step] for i in range(0, matrix.shape[1], step))
    return np.concatenate([_mixed_sum(piece, keys) for piece in pieces], axis=1)


def _mixed_sum(columns: Array | Integers, keys: Words) -> Words:
    """Return two sums per column: over its rows, of SplitMix64's finaliser of entry + key.

    The finaliser maps equal words to equal ones, and different words to unrelated ones.
    """
    entries = np.ascontiguousarray(columns + columns.dtype.type(0)).view(np.uint64)  # -0.0 becomes 0.0
    words = entries + keys[:, :, None]
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(multiplier)
    return words.sum(axis=1, dtype=np.uint64)


def numbered_columns(matrix: Array | Integers) -> tuple[Integers, Integers]:
    """Number distinct columns by first appearance; return every column's number, and the first of each."""
    return _numbered(_column_digest(matrix))


def _numbered(digest: Words | Array | Integers) -> tuple[Integers, Integers]:
    """Number columns with distinct digests in this way."""
    order = np.argsort(digest[0])
    alone, new = (_differ(rows[:, order]) for rows in (digest[:1], digest))
    if not np.array_equal(alone, new):  # different columns have equal first words
        order = np.lexsort(digest[::-1])
        new = _differ(digest[:, order])
    firsts = np.minimum.reduceat(order, np.flatnonzero(new))
    place = np.argsort(firsts)
    number = np.empty_like(place)
    number[place] = np.arange(len(place))
    labels = np.empty_like(order)
    labels[order] = number[np.cumsum(new) - 1]
    return labels, firsts[place]


def _differ(rows: Words | Array | Integers) -> NDArray[np.bool_]:
    """Return whether every column differs from the one before it."""
    return np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0))[: rows.shape[1]]
