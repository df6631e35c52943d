"""Cross-tables: counts or percentages by one attribute or several, with labels and totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, as_given, explained, suggestion
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import figure, one_line
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.tidy import frame
from querysmasher.statistics.figures import AnswerSource, Column, Figure, Figures, LinearErrors, cell_columns
from querysmasher.statistics.ratios import RatioParts, ratios_of
from querysmasher.statistics.reliability import SUPPRESSED, THRESHOLDS, UNRELIABLE, Rules
from querysmasher.statistics.selection import RowFactor, Selection, check_sizes, rows_on, select
from querysmasher.workload.builders import marginals, queries

MAX_ROWS, MAX_COLUMNS = 40, 16
"""Maximum number of rows and columns printed."""

TOTAL = "Total"

NUMBERS = ("value", "std", "low", "high", "cv")

Percent = Literal["row", "column", "total"] | None

OF = {"row": "of each row", "column": "of each column", "total": "of the total"}
"""What percentages are of."""

MAX_CELLS = 2_000_000
"""Maximum number of cells of a cross-table."""

CHUNK = 2_000
"""Number of queries whose covariance with their denominators is computed at a time."""


@dataclass(frozen=True, eq=False)
class Layout:
    """One attribute or several, the last of which forms the columns; totals are the last entry of an axis."""

    attributes: tuple[Attribute, ...]
    shape: tuple[int, ...]
    """The number of entries of each axis: the values of its attribute, and one more with totals."""

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The value of every attribute in each cell, in row-major order."""
        return cell_columns(self.attributes, self.shape)

    @property
    def labels(self) -> list[str]:
        """The labels of the columns as readers see them."""
        return [*self.attributes[-1].shown, TOTAL][: self.shape[-1]]

    def index(self, key: Any) -> int:
        """Return the index of a cell by the value of each attribute; None stands for all values."""
        wanted = key if isinstance(key, tuple) else (key,)
        if len(wanted) != len(self.attributes):
            names = ", ".join(a.name for a in self.attributes)
            raise WorkloadError(f"table[…]: expected one value for each of {names}, got {len(wanted)}")
        indexes = []
        for value, attribute, size in zip(wanted, self.attributes, self.shape, strict=True):
            if value is None and size == attribute.size:
                raise WorkloadError("table[…]: the table has no totals; ask for it with totals=True")
            indexes.append(attribute.size if value is None else attribute.position(value))
        return int(np.ravel_multi_index(indexes, self.shape))

    def wide(self, long: Any, column: str, backend: Any) -> Any:
        """Return one row per row of the table, from an Arrow table with one row per cell."""
        if len(self.attributes) == 1:
            return frame({name: long[name] for name in (long.column_names[0], column)}, backend)
        width = self.shape[-1]
        stub = long.column_names[: len(self.attributes) - 1]
        made = {name: long[name].take(pa.array(range(0, len(long), width))) for name in stub}
        for index, label in enumerate(self.labels):
            if label in made:
                raise WorkloadError(
                    f"wide: the value {label!r} of {self.attributes[-1].name!r} is also the name of a column"
                )
            made[label] = long[column].take(pa.array(range(index, len(long), width)))
        return frame(made, backend)

    def shown(self, cells: Callable[[slice], Iterable[str]], what: str) -> tuple[list[str], list[list[str]]]:
        """Return the header and the first rows as text; `cells` maps a range of cells to their texts."""
        if len(self.attributes) == 1:
            header = [one_line(self.attributes[0].heading), what]
            labels = map(one_line, self.labels[:MAX_ROWS])
            return header, [[a, b] for a, b in zip(labels, cells(slice(0, MAX_ROWS)), strict=True)]
        width = self.shape[-1]
        stubs = [_stub(c, width) for c in self.columns[:-1]]
        rows = []
        for i, parts in enumerate(zip(*stubs, strict=True)):
            if i == MAX_ROWS:
                break
            shown = slice(i * width, i * width + min(width, MAX_COLUMNS))
            rows.append([" × ".join(parts), *cells(shown)])
        names = " × ".join(one_line(a.heading) for a in self.attributes[:-1])
        header = [f"{names} \\ {one_line(self.attributes[-1].heading)}", *map(one_line, self.labels)]
        return header[: MAX_COLUMNS + 1], rows

    def cut(self) -> Iterator[str]:
        """Iterate over a note on rows and columns that are not printed, if there are any."""
        size = int(np.prod(self.shape))
        rows, columns = (size, 1) if len(self.shape) == 1 else (size // self.shape[-1], self.shape[-1])
        if rows > MAX_ROWS or columns > MAX_COLUMNS:
            yield f"… of {rows:,} rows and {columns:,} columns; to_frame() returns all"


def _stub(column: Column, width: int) -> Sequence[str]:
    """Return the labels of the rows that one attribute gives."""
    texts = (column.text(i) for i in range(0, len(column.indexes), width))
    return [TOTAL if column.indexes[i * width] is None else text for i, text in enumerate(texts)]


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable:
    """Figures by one attribute or several; the last one forms the columns, "Total" stands for all values."""

    attributes: tuple[Attribute, ...]
    figures: Figures
    percent: str | None
    rules: Rules

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.attributes, self.values.shape)

    @property
    def values(self) -> Array:
        """Values, with an axis per attribute; with totals, they are the last entry of each."""
        return self.figures.values

    @property
    def std(self) -> Array:
        """Standard errors."""
        return self.figures.std

    @property
    def cv(self) -> Array:
        """Coefficients of variation, standard error divided by absolute value."""
        return self.figures.cv

    @property
    def flags(self) -> Any:
        """The flag of each cell: the range of its coefficient of variation, "unreliable" or "suppressed"."""
        return self.rules.flags(self.cv, self.figures.reliable)

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Array, Array]:
        """Return confidence intervals, each of the given level or, if simultaneous, all together."""
        return self.figures.interval(level, simultaneous=simultaneous)

    def to_frame(
        self,
        backend: Any = "pyarrow",
        level: float = 0.95,
        *,
        wide: bool = False,
        simultaneous: bool = False,
        column: str = "value",
    ) -> Any:
        """Return a data frame: long, one row per cell (null = total), or wide, one row per row of the table.

        A wide frame has one number per cell: `column` is "value", "std", "low", "high" or "cv".
        """
        long = self.figures.to_frame(
            "pyarrow",
            level,
            simultaneous=simultaneous,
            thresholds=self.rules.thresholds,
            suppress=self.rules.suppress,
        )
        if not wide:
            return frame(dict(zip(long.column_names, long.columns, strict=True)), backend)
        if column not in NUMBERS:
            raise WorkloadError(
                f"column: expected one of {', '.join(map(repr, NUMBERS))}, got {as_given(column)}"
            )
        return self._layout.wide(long, column, backend)

    def __len__(self) -> int:
        """Count the cells, with totals."""
        return len(self.figures)

    def __iter__(self) -> Iterator[Figure]:
        """Iterate over the cells in row-major order."""
        return iter(self.figures)

    def __getitem__(self, key: Any) -> Figure:
        """Return a cell by the value of each attribute; None stands for all values."""
        return self.figures[self._layout.index(key)]

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the first rows as text."""
        flags = self.flags
        unit = "%" if self.percent else ""

        def cell(value: float, std: float, flag: str) -> str:
            if flag == SUPPRESSED:
                return "·"
            mark = " ?" if flag == UNRELIABLE else ""
            return f"{figure(value, std)}{unit} ± {figure(std, std)}{mark}"

        def cells(part: slice) -> Iterable[str]:
            return map(cell, *(a.ravel()[part] for a in (self.values, self.std, flags)))

        return self._layout.shown(cells, "percent" if self.percent else "count")

    def _notes(self) -> Iterator[str]:
        yield from self._layout.cut()
        flags = set(self.flags.ravel().tolist())
        if UNRELIABLE in flags:
            yield "?: unreliable, the denominator is within two standard errors of zero"
        if SUPPRESSED in flags:
            yield (
                "·: suppressed, the coefficient of variation is above "
                f"{100 * (self.rules.suppress or 0):g}%; what remains is biased upwards"
            )

    def __repr__(self) -> str:
        """Print the table: value ± standard error."""
        header, rows = self._shown()
        title = f"{one_line(self.figures.title)} (value ± standard error)"
        return "\n".join([title, *aligned([header, *rows]), *self._notes()])

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        header, rows = self._shown()
        return notebook(
            f"{self.figures.title} (value ± standard error)",
            html_table(header, rows, numbers=range(1, len(header))),
            *(element("p", note) for note in self._notes()),
        )


@explained("release.table('sex', 'age')")
def table(  # noqa: D417 - a method of the release
    source: AnswerSource,
    *attributes: str,
    totals: bool = True,
    percent: Percent = None,
    thresholds: Sequence[float] = THRESHOLDS,
    suppress: float | None = None,
) -> CrossTable:
    """Return the cross-table of one attribute or several; the last one forms the columns.

    Args:
        attributes: names of attributes.
        totals: whether to add totals, the last entry of each axis.
        percent: None for counts; "row", "column" or "total" for percentages of those.
        thresholds: coefficients of variation at which cells are flagged.
        suppress: coefficient of variation above which a cell is left out. This is computed from noisy
            values and biases what remains: small counts survive where their noise is positive.
    """
    schema = source.schema
    if not attributes:
        raise WorkloadError(
            "attributes: expected at least one attribute, as in table('sex', 'age'), got none"
        )
    wrong = [name for name in attributes if not isinstance(name, str)]
    if wrong:
        raise WorkloadError(
            f"attributes: expected names one by one, as in table('sex', 'age'), got {as_given(wrong[0])}"
        )
    schema.positions(attributes)
    if not isinstance(totals, bool):
        raise WorkloadError(f"totals: expected True or False, got {as_given(totals)}")
    check_percent(percent, len(attributes))
    rules = Rules(thresholds, suppress)
    shape = tuple(n + 1 for n in schema.shape(attributes))
    if math.prod(shape) > MAX_CELLS:
        raise WorkloadError(
            f"attributes: a table of {math.prod(shape):,} cells is too large; at most {MAX_CELLS:,} fit"
        )
    kept = tuple(slice(None) if totals else slice(n - 1) for n in shape)
    if percent is None and not totals:
        return CrossTable(tuple(schema[n] for n in attributes), cells(source, attributes), None, rules)
    check_sizes(schema, attributes, "use totals=False, without percentages")
    table_cells = _Cells(source, attributes, shape, kept)
    figures = table_cells.counts() if percent is None else table_cells.percentages(percent)
    return CrossTable(tuple(schema[name] for name in attributes), figures, percent, rules)


def cells(source: AnswerSource, attributes: Sequence[str]) -> Figures:
    """Return the counts of all cells without totals, however many values an attribute has.

    Without attributes, there is one cell: all records.
    """
    schema = source.schema
    families = dict.fromkeys(attributes, "identity")
    workload = queries(schema, families) if families else marginals(schema, 0)
    answers = source.answer(workload)
    shape = schema.shape(attributes)
    return Figures(
        f"Count by {', '.join(attributes)}" if attributes else "Count",
        cell_columns([schema[name] for name in attributes], shape),
        answers.values.reshape(shape),
        answers.std.reshape(shape),
        linear=lambda: LinearErrors.of(source, workload, np.arange(answers.values.size)),
    )


def check_percent(percent: Percent, attributes: int) -> None:
    """Refuse percentages of what a table of so many attributes does not have."""
    allowed = ("total",) if attributes == 1 else ("row", "column", "total")
    if percent is not None and percent not in allowed:
        got = f"{as_given(percent)}{suggestion(percent, allowed)}"
        raise WorkloadError(f"percent: expected {', '.join(map(repr, allowed))} or None, got {got}")


class _Cells:
    """All cells of a table and its totals; `kept` are those shown."""

    def __init__(
        self, source: AnswerSource, names: tuple[str, ...], shape: tuple[int, ...], kept: tuple[slice, ...]
    ) -> None:
        self.source = source
        self.names = names
        self.shape = shape
        self.schema = source.schema
        self.kept = kept
        self.numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        """The index of each cell in row-major order."""

    def selection(
        self, *kept: NDArray[np.int64] | Sequence[int] | None, added: int | None = None
    ) -> Selection:
        """Return the queries of all cells, or of those with the given indexes on the first attributes.

        With `added`, to each cell the total over the attribute of that index is added.
        """
        factors: list[RowFactor] = []
        for name, chosen in zip_longest(self.names, kept):
            n = self.schema[name].size
            rows = np.concatenate([np.eye(n), np.ones((1, n))])
            if added is not None and name == self.names[added]:
                rows = rows + 1
            factors.append(rows_on(self.schema, name, name, rows if chosen is None else rows[chosen]))
        return select(self.schema, factors, self.names)

    @cached_property
    def all(self) -> Selection:
        """The queries of all cells."""
        return self.selection()

    def answers(self) -> tuple[Array, Array]:
        answers = self.source.answer(self.all.workload)
        return self.all.arranged(answers.values), self.all.arranged(answers.std)

    def errors(self, cells: NDArray[np.int64]) -> LinearErrors:
        """Return the errors of some cells."""
        return LinearErrors.of(self.source, self.all.workload, self.all.order[cells])

    def columns(self) -> tuple[Column, ...]:
        return cell_columns([self.schema[name] for name in self.names], self.numbers[self.kept].shape)

    def counts(self) -> Figures:
        values, std = self.answers()
        shown = self.numbers[self.kept]
        return Figures(
            f"Count by {', '.join(self.names)}",
            self.columns(),
            values[self.kept],
            std[self.kept],
            linear=lambda: self.errors(shown),
        )

    def percentages(self, percent: str) -> Figures:
        values, std = self.answers()
        below = self._denominators(percent)
        D = values.ravel()[below]
        v = std.ravel()[below] ** 2
        parts = RatioParts(
            values[self.kept],
            D[self.kept],
            std[self.kept] ** 2,
            v[self.kept],
            self._with_denominators(percent, std**2, v)[self.kept],
            scale=100.0,
        )
        shown, under = self.numbers[self.kept], below[self.kept]
        return ratios_of(
            f"Percent {OF[percent]} by {', '.join(self.names)}",
            self.columns(),
            parts,
            lambda: (self.errors(shown), self.errors(under)),
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
            sums_of = self.selection(added=-1 if percent == "row" else 0)  # cell + denominator is a product
            sums = sums_of.arranged(self.source.answer(sums_of.workload).std) ** 2
            return (sums - above - under) / 2
        return self._one_by_one(percent)

    def _one_by_one(self, percent: str) -> Array:
        """Return the covariance of each cell with its denominator, a few rows at a time."""
        under = self.selection(*([-1] for _ in self.names[:-1]), None if percent == "column" else [-1])
        width = 1 if percent == "total" else self.shape[-1]
        denominator = np.arange(math.prod(self.shape[1:])) % width
        result = np.zeros(self.shape)
        for first in self._chunks():
            cells = self.selection(first)
            covariance = self.source.covariance(cells.workload, under.workload)[cells.order]
            shared = covariance[np.arange(len(covariance)), np.tile(under.order[denominator], len(first))]
            result[first] = shared.reshape(len(first), *self.shape[1:])
        return result

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        width = math.prod(self.shape[1:])
        step = max(1, CHUNK // width - 1)
        for start in range(0, self.shape[0], step):
            yield np.arange(start, min(start + step, self.shape[0]), dtype=np.int64)
