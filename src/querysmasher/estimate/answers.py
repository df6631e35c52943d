"""Estimates as users read them: answers and tables with labels, without standard errors, marked as biased."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array, Numbers
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import count, one_line
from querysmasher.html import element, notebook, table
from querysmasher.html import table as html_table
from querysmasher.release.answers import SHOWN, LabelledAnswers
from querysmasher.release.outputs import format_of
from querysmasher.release.tidy import Tidy, column_names, frame, repeated
from querysmasher.release.writing import MAX_QUERIES, write_tables
from querysmasher.schema import Schema
from querysmasher.statistics.tables import MAX_CELLS, OF, Layout, Percent, check_percent
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload

NOTE = "estimate: non-negative, shrunk where that is safe, not unbiased"
"""What every output says."""


class EstimateTidy(Tidy):
    """Makes tidy rows of estimates: what each counts, its value and the note."""

    numbers: ClassVar[tuple[str, ...]] = ("value", "note")

    meanings: ClassVar[Mapping[str, str]] = {
        "value": "Estimated number of records{counted}: non-negative, shrunk where that is safe, not "
        "unbiased, not rounded.",
        "note": "What kind of number the value is.",
    }

    def estimates(self, group: Group, values: Array) -> Iterator[Any]:
        """Iterate over Arrow tables of the estimates of a group."""
        flat = np.ascontiguousarray(values.ravel())
        return self.rows(group, lambda own: (pa.array(flat[own]), repeated(NOTE, len(flat[own]))))


@dataclass(frozen=True)
class EstimatedAnswer:
    """One estimate: the query in words and its value."""

    query: str
    value: float
    note: str = NOTE

    def __float__(self) -> float:
        """Return the value."""
        return self.value


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedAnswers(LabelledAnswers[EstimatedAnswer]):
    """Estimates, in the workload's order. They are biased, so they have no standard errors."""

    note: str = NOTE

    source: ClassVar[str] = "estimate"

    def _entry(self, label: str, index: int) -> EstimatedAnswer:
        return EstimatedAnswer(label, float(self.values[index]))

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return one tidy row per query: what it counts, its value and the note.

        The columns before `value` are those of `Answers.to_frame`.
        """
        tidy = EstimateTidy(self.workload)
        return self._frame(tidy, lambda group, rows: tidy.estimates(group, self.values[rows]), backend)

    def __repr__(self) -> str:
        """Show the first answers."""
        first = zip(self.workload.labels(), self.values[:5], strict=False)
        shown = [f"  {label}: {value:,.1f}" for label, value in first]
        more = [f"  … {len(self) - 5:,} more"] if len(self) > 5 else []
        return "\n".join([f"Estimates of {len(self):,} queries ({self.note})", *shown, *more])

    def _repr_html_(self) -> str:
        """Show the first answers in a notebook."""
        labels = zip(range(min(SHOWN, len(self))), self.workload.labels(), strict=False)
        rows = [(label, f"{self.values[i]:,.1f}") for i, label in labels]
        more = f"… {len(self) - SHOWN:,} more; to_frame() returns all" if len(self) > SHOWN else None
        return notebook(
            f"Estimates of {count(len(self), 'query', 'queries')}",
            element("p", self.note),
            table(["query", "value"], rows, numbers=[1]),
            element("p", more) if more else None,
        )


class EstimatedTable(np.ndarray[Any, np.dtype[Any]]):
    """An array of estimated counts with an axis per attribute; `to_frame()` adds labels.

    What is computed from it, such as a slice or a sum, has no labels.
    """

    note: ClassVar[str] = NOTE
    _labels: tuple[Schema, tuple[str, ...]] | None

    @classmethod
    def of(cls, values: Numbers, schema: Schema, attributes: tuple[str, ...]) -> Self:
        """Return the array with its labels."""
        made = np.array(values).view(cls)
        made._labels = schema, attributes  # noqa: SLF001 - of the same class
        return made

    def __array_finalize__(self, made_from: Any) -> None:
        """Drop the labels of what is made from a table."""
        self._labels = None

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return one row per cell: the value of each attribute, the estimate and the note."""
        if self._labels is None:
            msg = "to_frame: only the table itself has labels, not what is computed from it"
            raise WorkloadError(msg)
        schema, names = self._labels
        families = tuple(Identity.of(schema[name].size) for name in names)
        workload = Workload(schema, (Group(names, families),))
        return EstimatedAnswers(workload, np.asarray(self, dtype=float).ravel()).to_frame(backend)


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
        made["note"] = repeated(self.note, len(flat))
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


def write_estimates(
    answers: Callable[[Workload], Iterable[Array]],
    about: Mapping[str, Any],
    workload: Workload,
    path: str | os.PathLike[str],
    progress: bool | None,
    adopted: Callable[[Any], Any] | None = None,
) -> None:
    """Write one row per query: what it counts, its value and the note that it is an estimate.

    `answers` iterates over the answers to the groups, in order. The ending of the name decides the format;
    the file appears under its name only when it is complete. `adopted` changes the tables before they are
    written.
    """
    form = format_of(path)
    form.check()
    tidy = EstimateTidy(workload, queries=workload.query_count <= MAX_QUERIES, safe=form.safe)
    groups = (tidy.estimates(*pair) for pair in zip(workload, answers(workload), strict=True))
    write_tables(Path(path), form, tidy, about, groups, progress, adopted)
