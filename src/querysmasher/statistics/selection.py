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
from querysmasher.statistics.figures import AnswerSource, Column, Figures, LinearErrors, cell_columns
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
    """Queries of a release: factors on disjoint attributes; `axes` is the order of the axes of answers."""

    source: AnswerSource
    factors: tuple[RowFactor, ...]
    axes: tuple[str, ...]

    @cached_property
    def workload(self) -> Workload:
        """The queries, as one group."""
        schema = self.source.schema
        names = tuple(schema.names[p] for factor in self.factors for p in factor.positions)
        return Workload(schema, (Group(names, tuple(factor.family for factor in self.factors)),))

    def _arranged(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Return answers to the workload with an axis per name of `axes`."""
        axes = [axis for factor in self.factors for axis in factor.axes]
        shape = [n for factor in self.factors for n in factor.shape]
        return answers.reshape(shape).transpose([axes.index(axis) for axis in self.axes])

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The index in the workload of each answer, in row-major order."""
        return self._arranged(np.arange(self.workload.query_count)).ravel()

    @cached_property
    def answers(self) -> tuple[Array, Array]:
        """Values and standard errors, with an axis per name of `axes`."""
        answers = self.source.answer(self.workload)
        return self._arranged(answers.values), self._arranged(answers.std)

    def figures(
        self,
        which: NDArray[np.int64] | slice,
        title: str = "",
        columns: tuple[Column, ...] = (),
        note: str = "",
        scale: float = 1.0,
    ) -> Figures:
        """Return scale × the answers with some indexes in row-major order as figures."""
        values, std = (scale * array.ravel()[which] for array in self.answers)

        def linear() -> LinearErrors:
            return LinearErrors.of(self.source, self.workload, self.order[which], scale)

        return Figures(title, columns, values, std, note, linear=linear)


def select(source: AnswerSource, factors: Iterable[RowFactor], axes: Sequence[str]) -> Selection:
    """Return a selection, with factors that have attributes in common multiplied."""
    separate: list[RowFactor] = []
    for given in factors:
        merged = given
        for other in [f for f in separate if set(f.positions) & set(given.positions)]:
            separate.remove(other)
            merged = other.times(merged)
        separate.append(merged)
    return Selection(source, tuple(separate), tuple(axes))


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


class Groups:
    """The records that a statistic is about: by group, among those of a condition."""

    def __init__(
        self,
        source: AnswerSource,
        by: str | Sequence[str] | None,
        where: str | None,
        attribute: str | None = None,
        name: str = "where",
    ) -> None:
        """Refuse repeated grouping attributes and that of the statistic; `name` is the argument `where`."""
        self.source = source
        schema = source.schema
        if by is not None and not isinstance(by, str | Sequence):
            msg = f"by: expected the name of an attribute or a list of names, got {as_given(by)}"
            raise WorkloadError(msg)
        self.names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
        schema.positions(self.names)
        if attribute in self.names:
            msg = f"by: {attribute!r} is the attribute of the statistic itself; group by others"
            raise WorkloadError(msg)
        self.conditions = among(schema, where, name)
        by_names = f" by {', '.join(self.names)}" if self.names else ""
        self.words = by_names + (f", among {where.strip()}" if where else "")
        """The end of the title of a statistic, such as " by sex, among age >= 18"."""

    def queries(self, *factors: RowFactor) -> Selection:
        """Return the queries of a factor, whose only axis is `ROWS`, by group; without one, count records."""
        schema = self.source.schema
        values = (family_on(schema, name, name, Identity((schema[name].size,))) for name in self.names)
        axes = [axis for factor in factors for axis in factor.axes]
        return select(self.source, [*factors, *values, *self.conditions], (*axes, *self.names))

    def columns(self, repeats: int = 1) -> tuple[Column, ...]:
        """Return what each group is about, each group `repeats` times in a row."""
        schema = self.source.schema
        return cell_columns([schema[name] for name in self.names], schema.shape(self.names), repeats)
