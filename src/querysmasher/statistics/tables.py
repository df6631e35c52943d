"""Cross-tables: counts or percentages by one attribute or several, with labels and totals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import TooLargeError, WorkloadError, as_given, explained, suggestion
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import count, figure, one_line
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.tidy import NUMBERS, frame_of
from querysmasher.schema import Schema
from querysmasher.statistics.figures import AnswerSource, Column, Figure, Figures, cell_columns
from querysmasher.statistics.ratios import correlations, ratios_of
from querysmasher.statistics.reliability import SUPPRESSED, THRESHOLDS, UNRELIABLE, Rules
from querysmasher.statistics.selection import RowFactor, Selection, family_on, select
from querysmasher.workload.families import Identity

MAX_ROWS, MAX_COLUMNS = 40, 16
"""Maximum number of rows and columns printed."""

TOTAL = "Total"

Percent = Literal["row", "column", "total"] | None

OF = {"row": "of each row", "column": "of each column", "total": "of the total"}
"""What percentages are of."""

MAX_CELLS = 2_000_000
"""Maximum number of cells of a cross-table."""

MAX_VALUES = 10_000
"""Maximum number of values of an attribute with totals or percentages: its queries are written out."""

CHUNK = 2_000
"""Number of queries whose covariance with their denominators is computed at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class LabelledTable:
    """Cells by one attribute or several; the last one forms the columns, "Total" stands for all values."""

    attributes: tuple[Attribute, ...]
    values: Array
    """Values, with an axis per attribute; with totals, they are the last entry of each."""
    percent: str | None
    title: str
    """What the table shows."""

    def _strings(self, part: slice) -> Iterable[str]:
        """Return cells as text."""
        raise NotImplementedError

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        """The value of every attribute in each cell, in row-major order."""
        return cell_columns(self.attributes, self.values.shape)

    @property
    def _labels(self) -> list[str]:
        """The labels of the columns as readers see them."""
        return [*self.attributes[-1].shown, TOTAL][: self.values.shape[-1]]

    def _index(self, key: Any) -> int:
        """Return the index of a cell by the value of each attribute; None stands for all values."""
        wanted = key if isinstance(key, tuple) else (key,)
        if len(wanted) != len(self.attributes):
            names = ", ".join(a.name for a in self.attributes)
            raise WorkloadError(f"table[…]: expected one value for each of {names}, got {len(wanted)}")
        indexes = []
        for value, attribute, size in zip(wanted, self.attributes, self.values.shape, strict=True):
            if value is None and size == attribute.size:
                raise WorkloadError("table[…]: the table has no totals; ask for it with totals=True")
            indexes.append(attribute.size if value is None else attribute.position(value))
        return int(np.ravel_multi_index(indexes, self.values.shape))

    def _wide(self, long: Any, column: str, backend: Any) -> Any:
        """Return one row per row of the table, from an Arrow table with one row per cell."""
        if len(self.attributes) == 1:
            return frame_of(long.select([long.column_names[0], column]), backend)
        width = self.values.shape[-1]
        stub = long.column_names[: len(self.attributes) - 1]
        made = {name: long[name].take(pa.array(range(0, len(long), width))) for name in stub}
        for index, label in enumerate(self._labels):
            if label in made:
                raise WorkloadError(
                    f"wide: the value {label!r} of {self.attributes[-1].name!r} is also the name of a column"
                )
            made[label] = long[column].take(pa.array(range(index, len(long), width)))
        return frame_of(pa.table(made), backend)

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the first rows as text."""
        *outer, inner = (one_line(a.heading) for a in self.attributes)
        if not outer:
            labels = map(one_line, self._labels[:MAX_ROWS])
            strings = zip(labels, self._strings(slice(0, MAX_ROWS)), strict=True)
            return [inner, "percent" if self.percent else "count"], [[*row] for row in strings]
        width = self.values.shape[-1]
        rows = []
        for start in range(0, min(self.values.size, MAX_ROWS * width), width):
            stubs = (TOTAL if c.indexes[start] is None else c.text(start) for c in self._columns[:-1])
            rows.append([" × ".join(stubs), *self._strings(slice(start, start + min(width, MAX_COLUMNS)))])
        header = [f"{' × '.join(outer)} \\ {inner}", *map(one_line, self._labels)]
        return header[: MAX_COLUMNS + 1], rows

    def _notes(self) -> Iterator[str]:
        """Iterate over remarks below the table: whether rows or columns are not printed."""
        columns = self.values.shape[-1] if self.values.ndim > 1 else 1
        rows = self.values.size // columns
        if rows > MAX_ROWS or columns > MAX_COLUMNS:
            yield f"… of {count(rows, 'row')} and {count(columns, 'column')}; to_frame() returns all"

    def __len__(self) -> int:
        """Count the cells, with totals."""
        return int(self.values.size)

    def __repr__(self) -> str:
        """Print the table."""
        header, rows = self._shown()
        return "\n".join([self.title, *aligned([header, *rows]), *self._notes()])

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        header, rows = self._shown()
        body = html_table(header, rows, numbers=range(1, len(header)))
        return notebook(self.title, body, *(element("p", note) for note in self._notes()))


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable(LabelledTable):
    """Figures by one attribute or several; the last one forms the columns, "Total" stands for all values."""

    figures: Figures
    rules: Rules

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
            return frame_of(long, backend)
        if column not in NUMBERS[:-1]:
            known = ", ".join(map(repr, NUMBERS[:-1]))
            raise WorkloadError(f"column: expected one of {known}, got {as_given(column)}")
        return self._wide(long, column, backend)

    def __iter__(self) -> Iterator[Figure]:
        """Iterate over the cells in row-major order."""
        return iter(self.figures)

    def __getitem__(self, key: Any) -> Figure:
        """Return a cell by the value of each attribute; None stands for all values."""
        return self.figures[self._index(key)]

    def _strings(self, part: slice) -> Iterable[str]:
        unit = "%" if self.percent else ""
        for value, std, flag in zip(
            *(a.ravel()[part] for a in (self.values, self.std, self.flags)), strict=True
        ):
            mark = " ?" if flag == UNRELIABLE else ""
            hidden = flag == SUPPRESSED
            yield "·" if hidden else f"{figure(value, std)}{unit} ± {figure(std, std)}{mark}"

    def _notes(self) -> Iterator[str]:
        yield from super()._notes()
        flags = set(self.flags.ravel().tolist())
        if UNRELIABLE in flags:
            yield "?: unreliable, the denominator is within two standard errors of zero"
        if SUPPRESSED in flags:
            yield (
                "·: suppressed, the coefficient of variation is above "
                f"{100 * (self.rules.suppress or 0):g}%; what remains is biased upwards"
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
        suppress: coefficient of variation above which a cell is left out. Suppression is computed from noisy
            values and biases the remaining cells: small counts remain if their noise is positive.
    """
    schema = source.schema
    shape = check_table(schema, attributes, totals, percent)
    rules = Rules(thresholds, suppress)
    shown = tuple(schema[name] for name in attributes)
    if percent is None and not totals:
        figures = cells(source, attributes)
    else:
        for attribute in shown:
            if attribute.size > MAX_VALUES:
                raise TooLargeError(
                    f"attribute {attribute.name!r} has {attribute.size:,} values; at most {MAX_VALUES:,} "
                    "fit: use totals=False, without percentages"
                )
        figures = _with_totals(source, attributes, shape, percent, totals)
    title = f"{one_line(figures.title)} (value ± standard error)"
    return CrossTable(shown, figures.values, percent, title, figures, rules)


def cells(source: AnswerSource, attributes: Sequence[str]) -> Figures:
    """Return the counts of all cells without totals, however many values an attribute has.

    Without attributes, there is one cell: all records.
    """
    schema = source.schema
    factors = [family_on(schema, name, name, Identity((schema[name].size,))) for name in attributes]
    shape = schema.shape(attributes)
    return select(source, factors, attributes).figures(
        np.arange(math.prod(shape)).reshape(shape),
        f"Count by {', '.join(attributes)}" if attributes else "Count",
        cell_columns([schema[name] for name in attributes], shape),
    )


def check_table(schema: Schema, attributes: Sequence[str], totals: bool, percent: Percent) -> tuple[int, ...]:
    """Return the shape of a cross-table with totals; refuse what is none, and one that is too large."""
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
    allowed = ("total",) if len(attributes) == 1 else ("row", "column", "total")
    if percent is not None and percent not in allowed:
        got = f"{as_given(percent)}{suggestion(percent, allowed)}"
        raise WorkloadError(f"percent: expected {', '.join(map(repr, allowed))} or None, got {got}")
    shape = tuple(n + 1 for n in schema.shape(attributes))
    if math.prod(shape) > MAX_CELLS:
        raise WorkloadError(
            f"attributes: a table of {math.prod(shape):,} cells is too large; at most {MAX_CELLS:,} fit"
        )
    return shape


def denominators(cells: NDArray[Any], percent: str) -> NDArray[Any]:
    """Return the denominator of each cell of a table with totals."""
    last = slice(-1, None)
    ends: dict[str, tuple[Any, ...]] = {
        "row": (..., last),
        "column": (*[last] * (cells.ndim - 1), slice(None)),
        "total": (last,) * cells.ndim,
    }
    return np.broadcast_to(cells[ends[percent]], cells.shape)


def _cells(
    source: AnswerSource,
    names: Sequence[str],
    kept: Sequence[Sequence[int] | None] = (),
    added: int | None = None,
) -> Selection:
    """Return the queries of all cells and totals, or those with the `kept` indexes on the first attributes.

    With `added`, the total over the attribute with that index is added to each cell.
    """
    factors: list[RowFactor] = []
    for number, (name, chosen) in enumerate(zip_longest(names, kept)):
        n = source.schema[name].size
        rows = np.concatenate([np.eye(n), np.ones((1, n))]) + (number == added)
        rows = rows if chosen is None else rows[list(chosen)]
        factors.append(RowFactor.of((name,), (source.schema.position(name),), rows))
    return select(source, factors, names)


def _with_totals(
    source: AnswerSource, names: Sequence[str], shape: tuple[int, ...], percent: str | None, totals: bool
) -> Figures:
    """Return counts or percentages of all cells, and of totals if they are shown."""
    queries = _cells(source, names)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    shown = tuple(slice(None) if totals else slice(-1) for _ in shape)
    columns = cell_columns([source.schema[name] for name in names], numbers[shown].shape)
    if percent is None:
        return queries.figures(numbers[shown], f"Count by {', '.join(names)}", columns)
    below = denominators(numbers, percent)
    _, std = queries.answers
    covariance = _with_denominators(source, names, percent, std**2, std.ravel()[below] ** 2)
    N, D = queries.figures(numbers[shown]), queries.figures(below[shown])
    correlation = correlations(covariance[shown], N.std, D.std)
    title = f"Percent {OF[percent]} by {', '.join(names)}"
    return ratios_of(title, columns, N, D, correlation, scale=100.0)


def _with_denominators(
    source: AnswerSource, names: Sequence[str], percent: str, above: Array, under: Array
) -> Array:
    """Return the covariance of each cell with its denominator, from the variances of both."""
    shape = above.shape
    if not under.any():
        return np.zeros(shape)
    if percent == "row" or (percent == "column" and len(names) == 2):  # cell + denominator is a product
        _, sums = _cells(source, names, added=len(names) - 1 if percent == "row" else 0).answers
        return (sums**2 - above - under) / 2
    below = _cells(source, names, [*([-1] for _ in names[:-1]), None if percent == "column" else [-1]])
    width = 1 if percent == "total" else shape[-1]
    denominator = np.arange(math.prod(shape[1:])) % width
    result = np.zeros(shape)
    step = max(1, CHUNK // math.prod(shape[1:]) - 1)
    for start in range(0, shape[0], step):  # a few rows at a time
        first = range(start, min(start + step, shape[0]))
        cells = _cells(source, names, [first])
        covariance = source.covariance(cells.workload, below.workload)[cells.order]
        joint = covariance[np.arange(len(covariance)), np.tile(below.order[denominator], len(first))]
        result[first] = joint.reshape(len(first), *shape[1:])
    return result
