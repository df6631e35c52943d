"""Cross-tables: counts or percentages by one attribute or several, with totals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, as_given, suggestion
from querysmasher.statistics.cross_table import CrossTable
from querysmasher.statistics.figures import Column, Figures
from querysmasher.statistics.groups import schema_of
from querysmasher.statistics.linear import Linear
from querysmasher.statistics.ratios import Parts, ratios_of
from querysmasher.statistics.reliability import THRESHOLDS, Rules
from querysmasher.statistics.selection import Factor, Selection, check_sizes, rows_on, select
from querysmasher.statistics.source import Source
from querysmasher.workload.builders import marginals, queries

Percent = Literal["row", "column", "total"] | None

OF = {"row": "of each row", "column": "of each column", "total": "of the total"}
"""What percentages are of."""

MAX_CELLS = 2_000_000
"""Maximum number of cells of a cross-table."""

CHUNK = 2_000
"""Number of queries whose covariance with their denominators is computed at a time."""


def table(
    source: Source,
    attributes: Sequence[str],
    *,
    totals: bool = True,
    percent: Percent = None,
    thresholds: Sequence[float] = THRESHOLDS,
    suppress: float | None = None,
) -> CrossTable:
    """Return the cross-table of one attribute or several; the last one forms the columns."""
    schema = schema_of(source)
    if not attributes:
        msg = "attributes: expected at least one attribute, as in table('sex', 'age'), got none"
        raise WorkloadError(msg)
    wrong = [name for name in attributes if not isinstance(name, str)]
    if wrong:
        msg = f"attributes: expected names one by one, as in table('sex', 'age'), got {as_given(wrong[0])}"
        raise WorkloadError(msg)
    schema.positions(attributes)
    if not isinstance(totals, bool):
        msg = f"totals: expected True or False, got {as_given(totals)}"
        raise WorkloadError(msg)
    check_percent(percent, len(attributes))
    rules = Rules(thresholds, suppress)
    shape = tuple(n + 1 for n in schema.shape(attributes))
    if math.prod(shape) > MAX_CELLS:
        msg = f"attributes: a table of {math.prod(shape):,} cells is too large; at most {MAX_CELLS:,} fit"
        raise WorkloadError(msg)
    kept = tuple(slice(None) if totals else slice(n - 1) for n in shape)
    if percent is None and not totals:
        return CrossTable(tuple(schema[n] for n in attributes), cells(source, attributes), None, rules)
    check_sizes(schema, attributes, "use totals=False, without percentages")
    own = _Cells(source, tuple(attributes), shape, kept)
    figures = own.counts() if percent is None else own.percentages(percent)
    return CrossTable(tuple(schema[name] for name in attributes), figures, percent, rules)


def cells(source: Source, attributes: Sequence[str]) -> Figures:
    """Return the counts of all cells without totals, however many values an attribute has.

    Without attributes, there is one cell: all records.
    """
    schema = schema_of(source)
    asked = dict.fromkeys(attributes, "identity")
    workload = queries(schema, asked) if asked else marginals(schema, 0)
    answers = source.answer(workload)
    shape = schema.shape(attributes)
    places = np.indices(shape).reshape(len(attributes), answers.values.size)
    return Figures(
        f"Count by {', '.join(attributes)}" if attributes else "Count",
        tuple(Column.of(schema[n], own.tolist()) for n, own in zip(attributes, places, strict=True)),
        answers.values.reshape(shape),
        answers.std.reshape(shape),
        linear=lambda: Linear.of(source, workload, (np.arange(answers.values.size), np.ones(()))),
    )


def check_percent(percent: Percent, attributes: int) -> None:
    """Refuse percentages of what a table of so many attributes does not have."""
    allowed = ("total",) if attributes == 1 else ("row", "column", "total")
    if percent is not None and percent not in allowed:
        got = f"{as_given(percent)}{suggestion(percent, allowed)}"
        msg = f"percent: expected {', '.join(map(repr, allowed))} or None, got {got}"
        raise WorkloadError(msg)


class _Cells:
    """All cells of a table and its totals; `kept` are those shown."""

    def __init__(
        self, source: Source, names: tuple[str, ...], shape: tuple[int, ...], kept: tuple[slice, ...]
    ) -> None:
        self.source = source
        self.names = names
        self.shape = shape
        self.schema = schema_of(source)
        self.kept = kept
        self.numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        """The index of each cell in row-major order."""

    def selection(
        self, *kept: NDArray[np.int64] | Sequence[int] | None, added: int | None = None
    ) -> Selection:
        """Return the queries of all cells, or of those with the given indexes on the first attributes.

        With `added`, to each cell the total over the attribute of that index is added.
        """
        factors: list[Factor] = []
        for name, own in zip_longest(self.names, kept):
            n = self.schema[name].size
            rows = np.concatenate([np.eye(n), np.ones((1, n))])
            if added is not None and name == self.names[added]:
                rows = rows + 1
            factors.append(rows_on(self.schema, name, name, rows if own is None else rows[own]))
        return select(self.schema, factors, self.names)

    def answers(self) -> tuple[Array, Array]:
        asked = self.selection()
        found = self.source.answer(asked.workload)
        return asked.arranged(found.values), asked.arranged(found.std)

    def errors(self, *cells: NDArray[np.int64]) -> list[Linear]:
        """Return the errors of some cells, of which there may be several lists."""
        asked = self.selection()
        return [Linear.of(self.source, asked.workload, (asked.order[c], np.ones(c.shape))) for c in cells]

    def columns(self) -> tuple[Column, ...]:
        places = np.indices(self.shape)[(slice(None), *self.kept)].reshape(len(self.names), -1)
        return tuple(
            Column.of(self.schema[n], own.tolist()) for n, own in zip(self.names, places, strict=True)
        )

    def counts(self) -> Figures:
        values, std = self.answers()
        shown = self.numbers[self.kept]
        return Figures(
            f"Count by {', '.join(self.names)}",
            self.columns(),
            values[self.kept],
            std[self.kept],
            linear=lambda: self.errors(shown)[0],
        )

    def percentages(self, percent: str) -> Figures:
        values, std = self.answers()
        below = self._denominators(percent)
        D = values.ravel()[below]
        v = std.ravel()[below] ** 2
        parts = Parts(
            values[self.kept],
            D[self.kept],
            std[self.kept] ** 2,
            v[self.kept],
            self._with_denominators(percent, std**2, v)[self.kept],
            scale=100.0,
        )
        shown, under = self.numbers[self.kept], below[self.kept]

        def errors() -> tuple[Linear, Linear]:
            above, denominators = self.errors(shown, under)
            return above, denominators

        return ratios_of(
            f"Percent {OF[percent]} by {', '.join(self.names)}",
            self.columns(),
            parts,
            errors,
        )

    def _denominators(self, percent: str) -> NDArray[np.int64]:
        """Return the index of the denominator of each cell."""
        ends: dict[str, Any] = {
            "row": (..., slice(-1, None)),
            "column": (*[slice(-1, None)] * (len(self.shape) - 1), slice(None)),
            "total": tuple(slice(-1, None) for _ in self.shape),
        }
        return np.broadcast_to(self.numbers[ends[percent]], self.shape)

    def _with_denominators(self, percent: str, above: Array, under: Array) -> Array:
        """Return the covariance of each cell with its denominator, from the variances of both and of sums."""
        if not under.any():
            return np.zeros(self.shape)
        if percent == "row" or (percent == "column" and len(self.names) == 2):
            asked = self.selection(added=-1 if percent == "row" else 0)  # cell + denominator is a product
            sums = asked.arranged(self.source.answer(asked.workload).std) ** 2
            return (sums - above - under) / 2
        return self._one_by_one(percent)

    def _one_by_one(self, percent: str) -> Array:
        """Return the covariance of each cell with its denominator, a few rows at a time."""
        under = self.selection(*([-1] for _ in self.names[:-1]), None if percent == "column" else [-1])
        width = 1 if percent == "total" else self.shape[-1]
        own = np.arange(math.prod(self.shape[1:])) % width
        result = np.zeros(self.shape)
        for first in self._chunks():
            asked = self.selection(first)
            covariance = self.source.covariance(asked.workload, under.workload)[asked.order]
            found = covariance[np.arange(len(covariance)), np.tile(under.order[own], len(first))]
            result[first] = found.reshape(len(first), *self.shape[1:])
        return result

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        width = math.prod(self.shape[1:])
        step = max(1, CHUNK // width - 1)
        for start in range(0, self.shape[0], step):
            yield np.arange(start, min(start + step, self.shape[0]), dtype=np.int64)
