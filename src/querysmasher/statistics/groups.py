"""Linear statistics by group: some rows on one attribute, for every group of the records of a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.schema import Schema
from querysmasher.statistics.figures import Column
from querysmasher.statistics.linear import Linear
from querysmasher.statistics.selection import Factor, Selection, among, each_value, select
from querysmasher.statistics.source import Source

ROWS = "\x00rows"
"""The axis of the rows; no attribute has this name."""


@dataclass(frozen=True, eq=False)
class Grouped:
    """Answers to the rows of a factor by group: arrays with the axis of rows first, then the groups."""

    source: Source
    selection: Selection
    by: tuple[str, ...]

    @cached_property
    def _answers(self) -> tuple[Array, Array]:
        answers = self.source.answer(self.selection.workload)
        values, std = (self.selection.arranged(a) for a in (answers.values, answers.std))
        return values.reshape(len(values), -1), std.reshape(len(std), -1) ** 2

    @property
    def values(self) -> Array:
        """Answers, one line per row and one column per group."""
        return self._answers[0]

    @property
    def variances(self) -> Array:
        """Variances of the answers."""
        return self._answers[1]

    def errors(self, row: int, scale: float = 1.0) -> Linear:
        """Return scale × the errors of the answers to one row, by group."""
        index = self.selection.order.reshape(len(self.values), -1)[row]
        return Linear.of(self.source, self.selection.workload, (index, np.full(len(index), scale)))

    def pair(self) -> tuple[Linear, Linear]:
        """Return the errors of the first two rows."""
        return self.errors(0), self.errors(1)

    def columns(self, repeats: int = 1) -> tuple[Column, ...]:
        """Return what each group is about, each group `repeats` times in a row."""
        schema = self.selection.schema
        if not self.by:
            return ()
        places = np.indices(schema.shape(self.by)).reshape(len(self.by), -1).repeat(repeats, axis=1)
        return tuple(Column.of(schema[n], own.tolist()) for n, own in zip(self.by, places, strict=True))


def grouped(source: Source, factor: Factor, by: tuple[str, ...], where: str | list[Factor] | None) -> Grouped:
    """Ask the rows of a factor, whose only axis is `ROWS`, by group and among the records of a condition."""
    schema = source.workload.schema
    condition = where if isinstance(where, list) else among(schema, where)
    factors = [factor, *each_value(schema, by), *condition]
    return Grouped(source, select(schema, factors, (ROWS, *by)), by)


def described(what: str, by: Sequence[str], where: str | None) -> str:
    """Return the title of a statistic.

    >>> described("Mean of age", ["sex"], "age >= 18")
    'Mean of age by sex, among age >= 18'
    """
    return what + (f" by {', '.join(by)}" if by else "") + (f", among {where.strip()}" if where else "")


def schema_of(source: Source) -> Schema:
    """Return the schema of a release."""
    return source.workload.schema
