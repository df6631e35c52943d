"""Queries of a statistic: rows on one attribute, for each group of others, among the records of a condition.

A selection is a product of factors on disjoint attributes, like a group of queries. Factors that share an
attribute (the mean age of those over 65) are multiplied cell by cell into one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.conditions import conditions
from querysmasher.errors import PredicateError, TooLargeError, WorkloadError, as_given
from querysmasher.schema import Schema
from querysmasher.statistics.figures import AnswerSource, Column, LinearErrors, cell_columns
from querysmasher.workload.families import Identity
from querysmasher.workload.family import MAX_MATRIX_ENTRIES, Family
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group, Workload

WRITTEN_OUT = 2_000
"""Maximum number of values of an attribute whose family is written out to be multiplied by a condition."""

ROWS = "\x00rows"
"""The axis of the rows; no attribute has this name."""


@dataclass(frozen=True, eq=False)
class RowFactor:
    """Queries on the cells of some attributes; a query has an index on each named axis."""

    axes: tuple[str, ...]
    positions: tuple[int, ...]
    """Indexes of the attributes, increasing."""
    shape: tuple[int, ...]
    """Number of queries along each axis."""
    family: Family

    @classmethod
    def of(cls, axes: tuple[str, ...], positions: tuple[int, ...], rows: Array) -> RowFactor:
        """Return the queries with given rows: an axis per name in `axes`, then one per attribute."""
        shape, cells = rows.shape[: len(axes)], rows.shape[len(axes) :]
        return cls(axes, positions, shape, Rows(cells, rows.reshape(-1, math.prod(cells))))

    @property
    def rows(self) -> Array:
        """The rows, as in `of`; an error if a family has too many."""
        if self.family.closed_form and self.family.cells > WRITTEN_OUT:
            raise TooLargeError(
                "where: a condition on an attribute of very many values is too large here; use coarser values"
            )
        return self.family.matrix().reshape(*self.shape, *self.family.shape)

    def times(self, other: RowFactor) -> RowFactor:
        """Return the product: every row of one with every row of the other, multiplied cell by cell."""
        positions = tuple(sorted({*self.positions, *other.positions}))
        mine = self._spread(positions, after=len(other.axes))
        theirs = other._spread(positions, before=len(self.axes))
        entries = math.prod(np.broadcast_shapes(mine.shape, theirs.shape))
        if entries > MAX_MATRIX_ENTRIES:
            raise TooLargeError(
                f"conditions tie {len(positions)} attributes together: {entries:,} coefficients are too many"
            )
        return RowFactor.of((*self.axes, *other.axes), positions, mine * theirs)

    def _spread(self, positions: tuple[int, ...], before: int = 0, after: int = 0) -> Array:
        sizes = dict(zip(self.positions, self.family.shape, strict=True))
        cells = [sizes.get(p, 1) for p in positions]
        return self.rows.reshape([1] * before + [*self.shape] + [1] * after + cells)


@dataclass(frozen=True, eq=False)
class Selection:
    """Factors on disjoint attributes; `axes` is the order in which answers are arranged."""

    schema: Schema
    factors: tuple[RowFactor, ...]
    axes: tuple[str, ...]

    @cached_property
    def workload(self) -> Workload:
        """The queries, as one group."""
        names = tuple(self.schema.names[p] for factor in self.factors for p in factor.positions)
        return Workload(self.schema, (Group(names, tuple(factor.family for factor in self.factors)),))

    def arranged(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Return answers to the workload with an axis per name of `axes`."""
        axes = [axis for factor in self.factors for axis in factor.axes]
        shape = [n for factor in self.factors for n in factor.shape]
        return answers.reshape(shape).transpose([axes.index(axis) for axis in self.axes])

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The index in the workload of each arranged answer."""
        return self.arranged(np.arange(self.workload.query_count)).ravel()


def select(schema: Schema, factors: Iterable[RowFactor], axes: Sequence[str]) -> Selection:
    """Return a selection, with factors that share attributes multiplied."""
    separate: list[RowFactor] = []
    for given in factors:
        merged = given
        for other in [f for f in separate if set(f.positions) & set(given.positions)]:
            separate.remove(other)
            merged = other.times(merged)
        separate.append(merged)
    return Selection(schema, tuple(separate), tuple(axes))


def family_on(schema: Schema, name: str, axis: str, family: Family) -> RowFactor:
    """Return the queries of a family on one attribute, without writing them out."""
    return RowFactor((axis,), (schema.position(name),), (family.rows,), family)


def among(schema: Schema, predicate: str | None, name: str = "where") -> list[RowFactor]:
    """Return the factors of a condition, without axes; `name` is the argument that states it."""
    if predicate is None:
        return []
    if not isinstance(predicate, str) or not predicate.strip():
        raise PredicateError(f"{name}: expected a predicate such as 'age >= 18', got {as_given(predicate)}")
    return [RowFactor.of((), on, mask.astype(float)) for on, mask in conditions(schema, predicate)]


def groups_by(
    schema: Schema, by: str | Sequence[str] | None, *, besides: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the names of grouping attributes; refuse repeated ones and those of the statistic itself."""
    if by is not None and not isinstance(by, str | Sequence):
        raise WorkloadError(f"by: expected the name of an attribute or a list of names, got {as_given(by)}")
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    schema.positions(names)
    for name in names:
        if name in besides:
            raise WorkloadError(f"by: {name!r} is the attribute of the statistic itself; group by others")
    return names


@dataclass(frozen=True, eq=False)
class Grouped:
    """Answers to the rows of a factor by group: a line per row and a column per group."""

    source: AnswerSource
    selection: Selection
    by: tuple[str, ...]
    values: Array
    variances: Array

    def errors(self, row: int, scale: float = 1.0) -> LinearErrors:
        """Return scale × the errors of the answers to one row, by group."""
        index = self.selection.order.reshape(len(self.values), -1)[row]
        return LinearErrors.of(self.source, self.selection.workload, index, scale)

    def columns(self, repeats: int = 1) -> tuple[Column, ...]:
        """Return what each group is about, each group `repeats` times in a row."""
        attributes = [self.source.schema[name] for name in self.by]
        return cell_columns(attributes, self.source.schema.shape(self.by), repeats)


def grouped(
    source: AnswerSource, factor: RowFactor, by: tuple[str, ...], conditions: Sequence[RowFactor]
) -> Grouped:
    """Ask the rows of a factor, whose only axis is `ROWS`, by group and among the records of conditions."""
    schema = source.schema
    values = (family_on(schema, name, name, Identity((schema[name].size,))) for name in by)
    selection = select(schema, [factor, *values, *conditions], (ROWS, *by))
    answers = source.answer(selection.workload)
    counts, std = (selection.arranged(a).reshape(*factor.shape, -1) for a in (answers.values, answers.std))
    return Grouped(source, selection, by, counts, std**2)


def described(what: str, by: Sequence[str], where: str | None) -> str:
    """Return the title of a statistic.

    >>> described("Mean of age", ["sex"], "age >= 18")
    'Mean of age by sex, among age >= 18'
    """
    return what + (f" by {', '.join(by)}" if by else "") + (f", among {where.strip()}" if where else "")
