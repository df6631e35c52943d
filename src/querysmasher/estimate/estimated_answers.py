"""Estimates as users read them: answers and tables with labels, without standard errors, marked as biased."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array
from querysmasher.formatting import count, one_line
from querysmasher.html import element, notebook, table
from querysmasher.release.answers import SHOWN, LabelledAnswers
from querysmasher.release.tidy import Tidy, column_names, frame, repeated
from querysmasher.statistics.figures import Marginal
from querysmasher.statistics.tables import LabelledTable

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

    def last(self, *numbers: Array) -> Iterator[Any]:
        (values,) = numbers
        yield from (pa.array(np.ascontiguousarray(values)), repeated(NOTE, len(values)))


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
        return self._frame(EstimateTidy(self.workload), backend, self.values)

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


class EstimatedTable(Marginal):
    """An array of estimated counts with an axis per attribute; `to_frame()` adds labels.

    What is computed from it, such as a slice or a sum, has no labels.
    """

    note: ClassVar[str] = NOTE


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedCrossTable(LabelledTable):
    """Estimates by one attribute or several; the last one forms the columns, "Total" stands for all values.

    Totals are sums of the cells shown. There are no standard errors: an estimate is biased.
    """

    note: str

    def to_frame(self, backend: Any = "pyarrow", *, wide: bool = False) -> Any:
        """Return a data frame: long, one row per cell (null = total), or wide, one row per row of the table.

        A long frame has a column with the note. A percentage of nothing is null.
        """
        names = column_names([one_line(a.name) for a in self.attributes])
        made = {name: column.to_arrow() for name, column in zip(names, self._columns, strict=True)}
        flat = np.ascontiguousarray(self.values).ravel()
        made["value"] = pa.array(flat, mask=np.isnan(flat))
        if wide:
            return self._wide(pa.table(made), "value", backend)
        made["note"] = repeated(self.note, len(flat))
        return frame(made, backend)

    def __getitem__(self, key: Any) -> float:
        """Return a cell by the value of each attribute; None stands for all values."""
        return float(self.values.ravel()[self._index(key)])

    def _texts(self, part: slice) -> Iterable[str]:
        unit = "%" if self.percent else ""
        return ("·" if math.isnan(v) else f"{v:,.1f}{unit}" for v in self.values.ravel()[part].tolist())
