"""A cross-table as people read it: rows and columns with labels and totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import figure
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.frame import frame
from querysmasher.statistics.figures import Column, Figure, Figures
from querysmasher.statistics.reliability import SUPPRESSED, UNRELIABLE, Rules
from querysmasher.text import one_line

MAX_ROWS, MAX_COLUMNS = 40, 16
"""Maximum number of rows and columns printed."""

TOTAL = "Total"

NUMBERS = ("value", "std", "low", "high", "cv")


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable:
    """Figures by one attribute or several; the last one forms the columns, "Total" stands for all values."""

    attributes: tuple[Attribute, ...]
    figures: Figures
    percent: str | None
    rules: Rules

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
            msg = f"column: expected one of {', '.join(map(repr, NUMBERS))}, got {column!r}"
            raise WorkloadError(msg)
        if len(self.attributes) == 1:
            return frame({name: long[name] for name in (long.column_names[0], column)}, backend)
        width = self.values.shape[-1]
        stub = long.column_names[: len(self.attributes) - 1]
        made = {name: long[name].take(pa.array(range(0, len(long), width))) for name in stub}
        for place, label in enumerate(self._labels()):
            if label in made:
                msg = (
                    f"wide: the value {label!r} of {self.attributes[-1].name!r} is also the name of a column"
                )
                raise WorkloadError(msg)
            made[label] = long[column].take(pa.array(range(place, len(long), width)))
        return frame(made, backend)

    def __len__(self) -> int:
        """Count the cells, with totals."""
        return len(self.figures)

    def __iter__(self) -> Iterator[Figure]:
        """Iterate over the cells in row-major order."""
        return iter(self.figures)

    def __getitem__(self, key: Any) -> Figure:
        """Return a cell by the value of each attribute; None stands for all values."""
        wanted = key if isinstance(key, tuple) else (key,)
        if len(wanted) != len(self.attributes):
            names = ", ".join(a.name for a in self.attributes)
            msg = f"table[…]: expected one value for each of {names}, got {len(wanted)}"
            raise WorkloadError(msg)
        shape = self.values.shape
        places = []
        for value, attribute, size in zip(wanted, self.attributes, shape, strict=True):
            if value is None and size == attribute.size:
                msg = "table[…]: the table has no totals; ask for it with totals=True"
                raise WorkloadError(msg)
            places.append(attribute.size if value is None else attribute.position(value))
        return self.figures[int(np.ravel_multi_index(places, shape))]

    def _labels(self) -> list[str]:
        """Return the labels of the columns as readers see them."""
        attribute, size = self.attributes[-1], self.values.shape[-1]
        return [*attribute.shown, TOTAL][:size]

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the first rows as text."""
        flags = self.flags
        unit = "%" if self.percent else ""

        def cell(value: float, std: float, flag: str) -> str:
            if flag == SUPPRESSED:
                return "·"
            mark = " ?" if flag == UNRELIABLE else ""
            return f"{figure(value, std)}{unit} ± {figure(std, std)}{mark}"

        if len(self.attributes) == 1:
            flat = [cell(*one) for one in zip(self.values, self.std, flags, strict=True)][:MAX_ROWS]
            header = [one_line(self.attributes[0].heading), "percent" if self.percent else "count"]
            return header, [[one_line(a), b] for a, b in zip(self._labels(), flat, strict=False)]
        width = self.values.shape[-1]
        stubs = [_stub(c, width) for c in self.figures.columns[:-1]]
        rows = []
        for i, parts in enumerate(zip(*stubs, strict=True)):
            if i == MAX_ROWS:
                break
            own = slice(i * width, i * width + min(width, MAX_COLUMNS))
            numbers = (a.ravel()[own] for a in (self.values, self.std, flags))
            rows.append([" × ".join(parts), *map(cell, *numbers)])
        names = " × ".join(one_line(a.heading) for a in self.attributes[:-1])
        header = [f"{names} \\ {one_line(self.attributes[-1].heading)}", *map(one_line, self._labels())]
        return header[: MAX_COLUMNS + 1], rows

    def _notes(self) -> Iterator[str]:
        shape = self.values.shape
        rows, columns = (shape[0], 1) if len(shape) == 1 else (self.values.size // shape[-1], shape[-1])
        if rows > MAX_ROWS or columns > MAX_COLUMNS:
            yield f"… of {rows:,} rows and {columns:,} columns; to_frame() returns all"
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


def _stub(column: Column, width: int) -> Sequence[str]:
    """Return the labels of the rows that one attribute gives."""
    texts = (column.text(i) for i in range(0, len(column.places), width))
    return [TOTAL if column.places[i * width] is None else text for i, text in enumerate(texts)]
