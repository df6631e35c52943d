"""Figures: the values of a statistic, with standard errors, intervals and what each is about.

Errors of figures are combinations of the errors of answers. A count is one answer. A ratio N / D errs by
(e_N - R e_D) / D, to first order. A quantile errs by the error of the distribution function there, divided by
the density. Differences of such figures are combinations again, so the covariance of any two figures of one
release follows from that of the answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers
from querysmasher.attributes import Attribute
from querysmasher.errors import TooLargeError, WorkloadError
from querysmasher.fields import index_in
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import figure, one_line
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.answers import Answers
from querysmasher.release.tidy import column_names, frame_of, value_type
from querysmasher.schema import Schema
from querysmasher.statistics.reliability import (
    MAX_JOINT,
    SUPPRESSED,
    THRESHOLDS,
    Rules,
    coefficients,
    pointwise,
    together,
)
from querysmasher.workload.workload import Workload

SHOWN = 30
"""Maximum number of figures printed."""


class AnswerSource:
    """What statistics need of a release: answers with standard errors, and their joint covariance."""

    workload: Workload

    @property
    def schema(self) -> Schema:
        """The public schema."""
        return self.workload.schema

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Answer a workload."""
        raise NotImplementedError

    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return the covariance matrix of the answers to a workload, or with those to another one."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class LinearErrors:
    """Figure i errs by Σ_k coefficients[i, k] × (error of query indexes[i, k] of the workload)."""

    source: AnswerSource
    workload: Workload
    indexes: NDArray[np.int64]
    coefficients: Array

    @classmethod
    def of(
        cls,
        source: AnswerSource,
        workload: Workload,
        index: NDArray[np.int64],
        coefficient: Array | float = 1.0,
    ) -> LinearErrors:
        """Return figures that are multiples of the answers with these indexes in a workload."""
        scale = np.broadcast_to(np.asarray(coefficient, dtype=float), index.shape).reshape(-1, 1)
        return cls(source, workload, index.reshape(-1, 1), np.where(np.isfinite(scale), scale, 0.0))

    def covariance(self, other: LinearErrors | None = None) -> Array:
        """Return the covariance of the figures, or with other ones."""
        if other is None:
            return self.combined(self.combined(self.source.covariance(self.workload)).T)
        return other.combined(self.combined(self.source.covariance(self.workload, other.workload)).T).T

    def combined(self, rows: Array) -> Array:
        """Return one row per figure, from one per query."""
        result = np.zeros((len(self.indexes), rows.shape[1]))
        for index, coefficient in zip(self.indexes.T, self.coefficients.T, strict=True):
            result += coefficient[:, None] * rows[index]
        return result

    def take(self, indexes: Sequence[int]) -> LinearErrors:
        """Return some of the figures, possibly repeated."""
        chosen = list(indexes)
        return LinearErrors(self.source, self.workload, self.indexes[chosen], self.coefficients[chosen])

    def plus(self, other: LinearErrors, a: Array | float, b: Array | float) -> LinearErrors:
        """Return a × these figures + b × other ones, figure by figure."""
        same = self.workload is other.workload
        workload = self.workload if same else self.workload + other.workload
        shift = 0 if same else self.workload.query_count
        with np.errstate(invalid="ignore"):  # figures without a value
            scaled = [
                np.broadcast_to(np.asarray(scale, dtype=float), len(term.indexes))[:, None]
                * term.coefficients
                for term, scale in ((self, a), (other, b))
            ]
        coefficients = np.concatenate(scaled, axis=1)
        indexes = np.concatenate([self.indexes, other.indexes + shift], axis=1)
        return LinearErrors(
            self.source, workload, indexes, np.where(np.isfinite(coefficients), coefficients, 0.0)
        )


@dataclass(frozen=True)
class Column:
    """A column that says what each figure is about: an attribute's values (None: all of them), or others."""

    name: str
    values: Sequence[Any]
    """Every value that occurs."""
    indexes: tuple[int | None, ...]
    """The index of the value of each figure; None means all values."""
    shown: Sequence[str] | None = None
    """The values as readers see them, if that differs."""

    def __getitem__(self, index: int) -> Any:
        """Return the value of one figure."""
        value = self.indexes[index]
        return None if value is None else self.values[value]

    def text(self, index: int) -> str:
        """Return the value of one figure as text."""
        value = self.indexes[index]
        return "all" if value is None else one_line(str((self.shown or self.values)[value]))

    def to_arrow(self) -> Any:
        """Return the column as an Arrow array."""
        kind = value_type(self.values)
        strings = [one_line(str(v)) for v in self.values] if kind == pa.string() else list(self.values)
        return pa.array(strings, kind).take(pa.array(self.indexes, pa.int64()))


def cell_columns(
    attributes: Sequence[Attribute], shape: tuple[int, ...], repeats: int = 1
) -> tuple[Column, ...]:
    """Return a column per attribute: its value in each cell, in row-major order.

    An index after the last value means all values. Every cell occurs `repeats` times in a row.
    """
    if not attributes:
        return ()
    indexes = np.indices(shape).reshape(len(shape), -1).repeat(repeats, axis=1).tolist()
    return tuple(
        Column(a.name, a.values, tuple(i if i < a.size else None for i in column), a.shown)
        for a, column in zip(attributes, indexes, strict=True)
    )


@dataclass(frozen=True)
class Figure:
    """One figure: what it is about, its value, its standard error and whether it is reliable."""

    about: Mapping[str, Any]
    value: float
    std: float
    reliable: bool = True
    origin: tuple[Figures, int] | None = field(default=None, repr=False, compare=False)
    """The figures it is one of, and its index among them."""

    def __float__(self) -> float:
        """Return the value."""
        return self.value


@dataclass(frozen=True, eq=False, repr=False)
class Figures:
    """Figures of one statistic. Intervals cover the figure of the counted records.

    They account for the noise and, if only the bins of a number are known, for where records lie in these:
    `low` and `high` are the figure without noise if all records lie at the lower or upper ends of their bins.
    """

    title: str
    columns: tuple[Column, ...]
    values: Array
    std: Array
    note: str = ""
    """How the figures were computed."""
    linear: Callable[[], LinearErrors] | None = field(default=None, kw_only=True)
    """Returns the errors of the figures, in row-major order, as combinations of those of answers."""
    ends: Callable[[float], tuple[Array, Array]] | None = field(default=None, kw_only=True)
    """Returns the ends of intervals for a reach in standard errors, if these are not symmetric."""
    trusted: NDArray[np.bool_] | None = field(default=None, kw_only=True)
    """Whether intervals and standard errors of each figure hold, if that needs more than a finite value."""
    stepwise: NDArray[np.bool_] | bool = field(default=False, kw_only=True)
    """Whether values are far apart beside the noise: what correlations say of small errors does not hold."""
    number: Callable[[float, float], str] = field(default=figure, kw_only=True)
    """Returns a value as text, given its standard error."""
    corners: tuple[Figures, ...] = field(default=(), kw_only=True)
    """The same figures for extreme places of the records within bins; none if places do not matter."""

    @property
    def low(self) -> Array:
        """The least value for any places of records within bins; the noise is not accounted for."""
        return np.min([part.low for part in self.corners], axis=0) if self.corners else self.values

    @property
    def high(self) -> Array:
        """The largest value for any places of records within bins; the noise is not accounted for."""
        return np.max([part.high for part in self.corners], axis=0) if self.corners else self.values

    @cached_property
    def errors(self) -> LinearErrors:
        """The errors of the figures as combinations of those of answers."""
        if self.linear is None:
            raise WorkloadError(f"{self.title}: its joint covariance is not known")
        return self.linear()

    def covariance(self) -> Array:
        """Return the covariance of the figures in row-major order; that of ratios is to first order."""
        return self.errors.covariance()

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether the interval and standard error of each figure are valid."""
        return np.isfinite(self.values) if self.trusted is None else self.trusted

    @property
    def cv(self) -> Array:
        """The coefficient of variation of each figure: standard error divided by absolute value."""
        return coefficients(self.values, self.std)

    def flags(
        self, thresholds: Sequence[float] = THRESHOLDS, suppress: float | None = None
    ) -> NDArray[np.str_]:
        """Return a flag for each figure: the range of its coefficient of variation, or "unreliable"."""
        return Rules(thresholds, suppress).flags(self.cv, self.reliable)

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Array, Array]:
        """Return the lower and upper ends of confidence intervals.

        Each covers its figure with probability `level`; with `simultaneous`, all cover at the same time.
        """
        return self.reaching(self.reach(level, simultaneous=simultaneous))

    def reach(self, level: float = 0.95, *, simultaneous: bool = False) -> float:
        """Return how many standard errors the intervals reach."""
        if not simultaneous:
            return pointwise(level)
        joint = None
        if self.linear is not None and self.values.size <= MAX_JOINT:
            with contextlib.suppress(TooLargeError):
                joint = self.covariance()
        return together(level, self.values.size, joint)

    def reaching(self, reach: float) -> tuple[Array, Array]:
        """Return the ends of intervals that reach `reach` standard errors."""
        if self.corners:
            low, high = zip(*(part.reaching(reach) for part in self.corners), strict=True)
            return np.min(low, axis=0), np.max(high, axis=0)
        if self.ends is not None:
            return self.ends(reach)
        return self.values - reach * self.std, self.values + reach * self.std

    def take(self, indexes: Sequence[int]) -> Figures:
        """Return some of the figures, possibly repeated."""
        chosen = list(indexes)

        def ends(reach: float) -> tuple[Array, Array]:
            low, high = self.reaching(reach)
            return low.ravel()[chosen], high.ravel()[chosen]

        return replace(
            self,
            columns=tuple(replace(c, indexes=tuple(c.indexes[i] for i in chosen)) for c in self.columns),
            values=self.values.ravel()[chosen],
            std=self.std.ravel()[chosen],
            linear=lambda: self.errors.take(chosen),
            ends=ends,
            trusted=self.reliable.ravel()[chosen],
            stepwise=np.broadcast_to(self.stepwise, self.values.shape).ravel()[chosen],
            corners=tuple(part.take(chosen) for part in self.corners),
        )

    def to_frame(
        self,
        backend: Any = "pyarrow",
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        thresholds: Sequence[float] = THRESHOLDS,
        suppress: float | None = None,
    ) -> Any:
        """Return one row per figure: its groups, value, std, low, high, cv, flag.

        `backend` is any eager backend of narwhals that is installed: "pyarrow", "pandas", "polars", … A
        figure whose coefficient of variation exceeds `suppress` is null. Suppression biases the remaining
        figures: small counts remain if their noise is positive.
        """
        rules = Rules(thresholds, suppress)
        low, high = self.interval(level, simultaneous=simultaneous)
        cv = self.cv.ravel()
        hidden = rules.hidden(cv)
        numbers = {"value": self.values, "std": self.std, "low": low, "high": high, "cv": cv}
        names = column_names([one_line(column.name) for column in self.columns])
        made = {name: column.to_arrow() for name, column in zip(names, self.columns, strict=True)}
        for name, array in numbers.items():
            flat = np.ascontiguousarray(array, dtype=float).ravel()
            made[name] = pa.array(flat, mask=hidden | np.isnan(flat))
        made["flag"] = pa.array(rules.flags(cv, self.reliable.ravel()).tolist(), pa.string())
        return frame_of(pa.table(made), backend)

    @property
    def value(self) -> float:
        """The value, if there is only one."""
        if self.values.size != 1:
            raise WorkloadError(f"value: there are {self.values.size:,} figures; use values, or to_frame()")
        return float(self.values.ravel()[0])

    def __float__(self) -> float:
        """Return the value, if there is only one."""
        return self.value

    def __len__(self) -> int:
        """Count the figures."""
        return int(self.values.size)

    def __getitem__(self, index: int) -> Figure:
        """Return the figure at an index, in row-major order."""
        index = index_in(len(self), index, "figures")
        about = {column.name: column[index] for column in self.columns}
        value, std = (float(array.ravel()[index]) for array in (self.values, self.std))
        return Figure(about, value, std, bool(self.reliable.ravel()[index]), (self, index))

    def __iter__(self) -> Iterator[Figure]:
        """Iterate over the figures."""
        return (self[index] for index in range(len(self)))

    def shown(
        self, most: int = SHOWN, level: float = 0.95, rest: str = "to_frame() returns all", **rules: Any
    ) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
        """Return the header, the first figures and the notes as text; `rest` says where all figures are.

        `rules` are those of `flags`.
        """
        low, high = (array.ravel() for array in self.interval(level))
        values, std = self.values.ravel(), self.std.ravel()
        flags = self.flags(**rules).ravel()
        rows = [
            (
                *(column.text(i) for column in self.columns),
                self.number(values[i], std[i]),
                figure(std[i], std[i]),
                f"{self.number(low[i], std[i])} to {self.number(high[i], std[i])}",
                str(flags[i]),
            )
            if flags[i] != SUPPRESSED
            else (*(column.text(i) for column in self.columns), "", "", "", SUPPRESSED)
            for i in range(min(most, len(self)))
        ]
        interval = f"{100 * level:.10g}% interval"
        header = [*(one_line(column.name) for column in self.columns), "value", "std", interval, "cv"]
        more = f"… {len(self) - most:,} more; {rest}" if len(self) > most else ""
        return header, rows, [note for note in (more, self.note) if note]

    def __repr__(self) -> str:
        """Show the first figures with their intervals."""
        header, rows, notes = self.shown()
        return "\n".join([one_line(self.title), *aligned([header, *rows], words=len(self.columns)), *notes])

    def _repr_html_(self) -> str:
        """Show the first figures in a notebook."""
        header, rows, notes = self.shown()
        numbers = range(len(self.columns), len(header))
        paragraphs = (element("p", note) for note in notes)
        return notebook(self.title, html_table(header, rows, numbers=numbers), *paragraphs)


class Marginal(np.ndarray[Any, np.dtype[Any]]):
    """An array of counts with an axis per attribute; `to_frame()` adds labels and standard errors.

    What is computed from it, such as a slice or a sum, has no labels.
    """

    _labelled: Callable[[], Any] | None

    @classmethod
    def of(cls, values: Numbers, labelled: Callable[[], Any]) -> Self:
        """Return the array; `labelled` returns its figures when they are asked for."""
        made = np.array(values).view(cls)
        made._labelled = labelled  # noqa: SLF001 - of the same class
        return made

    def __array_finalize__(self, made_from: Any) -> None:
        """Drop the labels of what is made from a marginal."""
        self._labelled = None

    def to_frame(self, backend: Any = "pyarrow", *arguments: Any, **options: Any) -> Any:
        """Return one row per cell: the value of each attribute, then value, std, low, high, cv and flag.

        Further arguments are those of `Figures.to_frame`.
        """
        if self._labelled is None:
            raise WorkloadError("to_frame: only the table itself has labels, not what is computed from it")
        return self._labelled().to_frame(backend, *arguments, **options)
