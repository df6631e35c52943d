"""An estimated table as people read it: rows and columns with labels and totals, without standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array, Numbers
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.estimate.answers import noted
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import one_line
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.tidy import column_names, frame
from querysmasher.statistics.tables import MAX_CELLS, OF, Layout, Percent, check_percent


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedCrossTable:
    """Estimates by one attribute or several; the last one forms the columns, "Total" stands for all values.

    Totals are sums of the cells shown. There are no standard errors: an estimate is biased.
    """

    attributes: tuple[Attribute, ...]
    values: Array
    """Counts or percentages, with an axis per attribute; with totals, they are the last entry of each."""
    percent: str | None
    note: str

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.attributes, self.values.shape)

    def to_frame(self, backend: Any = "pyarrow", *, wide: bool = False) -> Any:
        """Return a data frame: long, one row per cell (null = total), or wide, one row per row of the table.

        A long frame has a column with the note. A percentage of nothing is null.
        """
        columns = self._layout.columns
        names = column_names([one_line(column.name) for column in columns])
        made = {name: column.to_arrow() for name, column in zip(names, columns, strict=True)}
        flat = np.ascontiguousarray(self.values).ravel()
        made["value"] = pa.array(flat, mask=np.isnan(flat))
        if wide:
            return self._layout.wide(pa.table(made), "value", backend)
        made["note"] = noted(len(flat), self.note)
        return frame(made, backend)

    def __len__(self) -> int:
        """Count the cells, with totals."""
        return self.values.size

    def __getitem__(self, key: Any) -> float:
        """Return a cell by the value of each attribute; None stands for all values."""
        return float(self.values.ravel()[self._layout.index(key)])

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the first rows as text."""

        def cell(value: float) -> str:
            return "·" if math.isnan(value) else f"{value:,.1f}{'%' if self.percent else ''}"

        def cells(own: slice) -> Iterable[str]:
            return map(cell, self.values.ravel()[own].tolist())

        return self._layout.shown(cells, "percent" if self.percent else "count")

    @property
    def _title(self) -> str:
        names = ", ".join(one_line(a.name) for a in self.attributes)
        return f"{f'Percent {OF[self.percent]}' if self.percent else 'Count'} by {names} ({self.note})"

    def __repr__(self) -> str:
        """Print the table."""
        header, rows = self._shown()
        return "\n".join([self._title, *aligned([header, *rows]), *self._layout.cut()])

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        header, rows = self._shown()
        return notebook(
            self._title,
            html_table(header, rows, numbers=range(1, len(header))),
            *(element("p", note) for note in self._layout.cut()),
        )


def cross_table(
    attributes: Sequence[Attribute],
    cells: Numbers,
    total: float,
    note: str,
    *,
    totals: bool,
    percent: Percent,
) -> EstimatedCrossTable:
    """Return the cross-table of estimated cells, with an axis per attribute; `total` is all records."""
    values = np.asarray(cells, dtype=float)
    for axis in range(values.ndim):
        values = np.concatenate([values, values.sum(axis=axis, keepdims=True)], axis=axis)
    if math.isclose(values[(-1,) * values.ndim], total, rel_tol=1e-9):  # but for rounding errors
        values[(-1,) * values.ndim] = total
    if percent is not None:
        ends: dict[str, Any] = {
            "row": (..., slice(-1, None)),
            "column": (*[slice(-1, None)] * (values.ndim - 1), slice(None)),
            "total": (slice(-1, None),) * values.ndim,
        }
        below = np.broadcast_to(values[ends[percent]], values.shape)
        values = np.divide(100 * values, below, out=np.full(values.shape, np.nan), where=below > 0)
    if not totals:
        values = values[(slice(-1),) * values.ndim]
    return EstimatedCrossTable(tuple(attributes), values, percent, note)


def check_table(names: Sequence[str], shape: Sequence[int], percent: Percent) -> None:
    """Refuse a table without attributes, too large a one and unknown percentages."""
    if not names:
        msg = "attributes: expected at least one attribute"
        raise WorkloadError(msg)
    check_percent(percent, len(names))
    size = math.prod(n + 1 for n in shape)
    if size > MAX_CELLS:
        msg = f"attributes: a table of {size:,} cells is too large; at most {MAX_CELLS:,} fit"
        raise WorkloadError(msg)
