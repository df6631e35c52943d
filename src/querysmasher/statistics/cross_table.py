"""A cross-table as people read it: rows and columns with labels and totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, as_given
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import figure, one_line
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.frame import frame
from querysmasher.statistics.figures import Figure, Figures
from querysmasher.statistics.layout import Layout
from querysmasher.statistics.reliability import SUPPRESSED, UNRELIABLE, Rules

NUMBERS = ("value", "std", "low", "high", "cv")


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
            msg = f"column: expected one of {', '.join(map(repr, NUMBERS))}, got {as_given(column)}"
            raise WorkloadError(msg)
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

        def cells(own: slice) -> Iterable[str]:
            return map(cell, *(a.ravel()[own] for a in (self.values, self.std, flags)))

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
