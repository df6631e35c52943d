"""Estimates as users read them: answers and tables with labels, without standard errors, marked as biased."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Self, overload

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import UnknownQueryError, WorkloadError
from querysmasher.formatting import count
from querysmasher.html import element, notebook, table
from querysmasher.release.answers import MAX_LABELS
from querysmasher.release.formats import plain
from querysmasher.release.tidy import WORD, Tidy, frame_of
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload

NOTE = "estimate: non-negative, shrunk where that is safe, not unbiased"
"""What every output says."""

SHOWN = 8
"""Number of answers shown in a notebook."""


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
        return self.rows(group, lambda own: (pa.array(flat[own]), noted(len(flat[own]))))


def noted(size: int, note: str = NOTE) -> Any:
    """Return a column that repeats the note."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), pa.array([note])).cast(
        WORD
    )


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
class EstimatedAnswers:
    """Estimates, in the workload's order. They are biased, so they have no standard errors."""

    workload: Workload
    values: Array
    note: str = NOTE

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return one tidy row per query: what it counts, its value and the note.

        The columns before `value` are those of `Answers.to_frame`.
        """
        if len(self.values) > MAX_LABELS:
            msg = (
                f"to_frame: {len(self.values):,} labelled rows do not fit in memory; use "
                "estimate.write(workload, path)"
            )
            raise WorkloadError(msg)
        tidy = EstimateTidy(self.workload)
        tables, start = [plain(tidy.schema.empty_table())], 0
        for group in self.workload:
            own = self.values[start : start + group.rows]
            tables += [plain(one) for one in tidy.estimates(group, own)]
            start += group.rows
        return frame_of(pa.concat_tables(tables), backend)

    def __len__(self) -> int:
        """Count the answers."""
        return len(self.values)

    def __iter__(self) -> Iterator[EstimatedAnswer]:
        """Iterate over the answers."""
        rows = zip(self.workload.labels(), self.values.tolist(), strict=True)
        return (EstimatedAnswer(*row) for row in rows)

    @overload
    def __getitem__(self, key: int | str) -> EstimatedAnswer: ...
    @overload
    def __getitem__(self, key: slice) -> list[EstimatedAnswer]: ...
    def __getitem__(self, key: int | str | slice) -> EstimatedAnswer | list[EstimatedAnswer]:
        """Return the answer at an index or to a query in words, or a list of answers for a slice."""
        if isinstance(key, str):
            place = next((i for i, label in enumerate(self.workload.labels()) if label == key.strip()), None)
            if place is None:
                msg = f"answers[{key!r}]: no query is called so; ask estimate.answer({key!r})"
                raise UnknownQueryError(msg)
            key = place
        if isinstance(key, slice):
            return [*self][key]
        place = range(len(self))[key]  # also refuses an index out of range
        label = next(islice(self.workload.labels(), place, None))
        return EstimatedAnswer(label, float(self.values[place]))

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
