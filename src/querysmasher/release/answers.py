"""Answers to a workload, with their standard errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np
import pyarrow as pa

from querysmasher.arrays import Array
from querysmasher.errors import Explained, UnknownQueryError, WorkloadError
from querysmasher.fields import index_in
from querysmasher.formats.tabular import plain
from querysmasher.formatting import count, decimal
from querysmasher.html import element, notebook, table
from querysmasher.release.tidy import Tidy, frame_of
from querysmasher.statistics.reliability import THRESHOLDS, Rules, coefficients, pointwise
from querysmasher.workload.workload import Group, Workload

MAX_LABELS = 20_000_000
"""Maximum number of labelled rows of a frame; `Release.write` streams more to a file."""

SHOWN = 8
"""Number of answers shown in a notebook."""

AnswerType = TypeVar("AnswerType")


@dataclass(frozen=True)
class Answer:
    """One answer: the query in words, its unbiased value and its standard error."""

    query: str
    value: float
    std: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the lower and upper end of a confidence interval with coverage `level`."""
        reach = pointwise(level) * self.std
        return self.value - reach, self.value + reach

    def __float__(self) -> float:
        """Return the value."""
        return self.value


@dataclass(frozen=True, eq=False, repr=False)
class LabelledAnswers(Generic[AnswerType]):
    """Answers to a workload, in its order: the base of unbiased answers and of estimates."""

    workload: Workload
    values: Array

    source: ClassVar[str]
    """The name of the variable in examples: `release` or `estimate`."""
    _title: ClassVar[str]
    _header: ClassVar[tuple[str, ...]] = ("query", "value")

    def _cells(self, index: int) -> tuple[str, ...]:
        """Return the numbers of an answer as strings, under `_header`."""
        return (decimal(self.values[index], 1),)

    def _entry(self, label: str, index: int) -> AnswerType:
        """Return one answer."""
        raise NotImplementedError

    def _frame(self, tidy: Tidy, backend: Any, *numbers: Array) -> Any:
        """Return values, and standard errors if there are any, as a data frame of tidy rows."""
        if len(self) > MAX_LABELS:
            raise WorkloadError(
                f"to_frame: {len(self):,} labelled rows do not fit in memory; use "
                f"{self.source}.write(workload, path)"
            )
        made, start = [plain(tidy.schema.empty_table())], 0
        for group in self.workload:
            rows = slice(start, start + group.rows)
            made += map(plain, tidy.tables(group, *(column[rows] for column in numbers)))
            start = rows.stop
        return frame_of(pa.concat_tables(made), backend)

    def __len__(self) -> int:
        """Count the answers."""
        return len(self.values)

    def __iter__(self) -> Iterator[AnswerType]:
        """Iterate over the answers."""
        return (self._entry(label, index) for index, label in enumerate(self.workload.labels()))

    @overload
    def __getitem__(self, key: int | str) -> AnswerType: ...
    @overload
    def __getitem__(self, key: slice) -> list[AnswerType]: ...
    def __getitem__(self, key: int | str | slice) -> AnswerType | list[AnswerType]:
        """Return the answer at an index or to a query in words, or a list of answers for a slice."""
        if isinstance(key, slice):
            return [*self][key]
        if isinstance(key, str):
            labels = enumerate(self.workload.labels())
            index = next((i for i, label in labels if label == key.strip()), None)
            if index is None:
                raise UnknownQueryError(
                    f"answers[{key!r}]: no query has this label; ask {self.source}.answer({key!r})"
                )
        else:
            index = index_in(len(self), key, "answers")
        return self._entry(next(islice(self.workload.labels(), index, None)), index)

    def _shown(self, most: int) -> tuple[str, list[tuple[str, ...]]]:
        """Return the title and the first answers as strings."""
        labels = islice(self.workload.labels(), most)
        rows = [(label, *self._cells(index)) for index, label in enumerate(labels)]
        return self._title.format(count(len(self), "query", "queries")), rows

    def __repr__(self) -> str:
        """Show the first answers."""
        title, rows = self._shown(5)
        more = [f"  … {len(self) - 5:,} more"] if len(self) > 5 else []
        return "\n".join([title, *(f"  {label}: {' ± '.join(cells[:2])}" for label, *cells in rows), *more])

    def _repr_html_(self) -> str:
        """Show the first answers in a notebook."""
        title, rows = self._shown(SHOWN)
        more = f"… {len(self) - SHOWN:,} more; to_frame() returns all" if len(self) > SHOWN else None
        listed = table(self._header, rows, numbers=range(1, len(self._header)))
        return notebook(title, listed, element("p", more) if more else None)


@dataclass(frozen=True, eq=False, repr=False)
class Answers(LabelledAnswers[Answer], Explained):
    """Unbiased answers, in the workload's order; `std` is the standard error of each."""

    std: Array

    source: ClassVar[str] = "release"
    _title: ClassVar[str] = "Answers to {} (value ± standard error)"
    _header: ClassVar[tuple[str, ...]] = ("query", "value", "standard error", "95% interval")

    @classmethod
    def of(cls, workload: Workload, answer: Callable[[Group], tuple[Array, Array]]) -> Answers:
        """Answer a workload one group at a time: `answer` returns values and standard errors."""
        values, std = np.empty(workload.query_count), np.empty(workload.query_count)
        start = 0
        for group in workload:
            rows = slice(start, start + group.rows)
            values[rows], std[rows] = (part.ravel() for part in answer(group))
            start = rows.stop
        return cls(workload, values, std)

    def _entry(self, label: str, index: int) -> Answer:
        return Answer(label, float(self.values[index]), float(self.std[index]))

    def _cells(self, index: int) -> tuple[str, ...]:
        answer = self._entry("", index)
        value, std, low, high = (decimal(n, 1) for n in (answer.value, answer.std, *answer.interval()))
        return value, std, f"{low} … {high}"

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return the lower and upper ends of confidence intervals, each with coverage `level`."""
        reach = pointwise(level) * self.std
        return self.values - reach, self.values + reach

    @property
    def cv(self) -> Array:
        """The coefficient of variation of each answer: standard error divided by absolute value."""
        return coefficients(self.values, self.std)

    def to_frame(
        self,
        backend: Any = "pyarrow",
        level: float = 0.95,
        *,
        thresholds: Sequence[float] = THRESHOLDS,
        suppress: float | None = None,
    ) -> Any:
        """Return one tidy row per query: what it counts, value, std, low, high, cv and flag.

        The columns `table`, `kind` and `query` say what a row counts. One column per attribute has the value,
        or null if the query counts all values. `backend` is any eager backend of narwhals that is
        installed: "pyarrow", "pandas", "polars", … An answer whose coefficient of variation exceeds
        `suppress` is null. Suppression biases the remaining answers: small counts remain if their noise is
        positive.
        """
        tidy = Tidy(self.workload, level, Rules(thresholds, suppress))
        return self._frame(tidy, backend, self.values, self.std)
