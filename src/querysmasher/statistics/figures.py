"""Figures: the values of a statistic, with standard errors, intervals and what each is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import TooLargeError, WorkloadError
from querysmasher.fields import index_in
from querysmasher.formatting import columns as aligned
from querysmasher.formatting import figure, one_line
from querysmasher.html import element, notebook
from querysmasher.html import table as html_table
from querysmasher.release.frame import column_names, frame, value_column
from querysmasher.statistics.critical import MAX_JOINT, pointwise, simultaneous
from querysmasher.statistics.linear import Linear
from querysmasher.statistics.reliability import THRESHOLDS, Rules, coefficients

SHOWN = 30
"""Maximum number of figures printed."""


@dataclass(frozen=True)
class Column:
    """A column that says what each figure is about: an attribute's values (None: all of them), or others."""

    name: str
    values: Sequence[Any]
    """Every value that occurs."""
    places: tuple[int | None, ...]
    """The index of the value of each figure; None means all values."""
    shown: Sequence[str] | None = None
    """The values as readers see them, if that differs."""

    @classmethod
    def of(cls, attribute: Attribute, places: Sequence[int | None]) -> Column:
        """Return the column of an attribute; an index past its values means all of them."""
        kept = tuple(p if p is not None and p < attribute.size else None for p in map(_plain, places))
        return cls(attribute.name, attribute.values, kept, attribute.shown)

    def __getitem__(self, place: int) -> Any:
        """Return the value of one figure."""
        own = self.places[place]
        return None if own is None else self.values[own]

    def text(self, place: int) -> str:
        """Return the value of one figure as text."""
        own = self.places[place]
        return "all" if own is None else one_line(str((self.shown or self.values)[own]))

    def to_arrow(self) -> Any:
        """Return the column as an Arrow array."""
        return value_column(self.values, self.places)


def _plain(place: Any) -> int | None:
    return None if place is None else int(place)


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
    """Figures of one statistic. Intervals are for the noise: they cover the figure of the records counted.

    This class is for linear statistics (counts, totals, differences): their intervals are symmetric.
    """

    title: str
    columns: tuple[Column, ...]
    values: Array
    std: Array
    note: str = ""
    """How the figures were computed."""
    linear: Callable[[], Linear] | None = field(default=None, kw_only=True)
    """Returns the errors of the figures, in row-major order, as combinations of those of answers."""

    def errors(self) -> Linear:
        """Return the errors of the figures as combinations of those of answers."""
        return self._errors

    @cached_property
    def _errors(self) -> Linear:
        """The same, computed once."""
        if self.linear is None:
            msg = f"{self.title}: its joint covariance is not known"
            raise WorkloadError(msg)
        return self.linear()

    def covariance(self) -> Array:
        """Return the covariance of the figures in row-major order; that of ratios is to first order."""
        return self.errors().covariance()

    @property
    def reliable(self) -> NDArray[np.bool_]:
        """Whether intervals and standard errors of each figure hold."""
        return np.isfinite(self.values)

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

        Each covers its figure with probability `level`; with `simultaneous`, all do together.
        """
        return self._interval(self.reach(level, simultaneous=simultaneous))

    def reach(self, level: float = 0.95, *, simultaneous: bool = False) -> float:
        """Return how many standard errors the intervals reach."""
        if not simultaneous:
            return pointwise(level)
        return _together(level, self.values.size, self.covariance if self.linear else None)

    def _interval(self, reach: float) -> tuple[Array, Array]:
        return self.values - reach * self.std, self.values + reach * self.std

    def to_frame(
        self,
        backend: Any = "pyarrow",
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        thresholds: Sequence[float] = THRESHOLDS,
        suppress: float | None = None,
    ) -> Any:
        """Return one row per figure: what it is about, value, std, low, high, cv, flag.

        `backend` is any eager backend of narwhals that is installed: "pyarrow", "pandas", "polars", … A
        figure whose coefficient of variation exceeds `suppress` is null. Suppression biases what remains:
        small counts survive where their noise is positive.
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
        return frame(made, backend)

    @property
    def value(self) -> float:
        """The value, if there is only one."""
        if self.values.size != 1:
            msg = f"value: there are {self.values.size:,} figures; use values, or to_frame()"
            raise WorkloadError(msg)
        return float(self.values.ravel()[0])

    def __float__(self) -> float:
        """Return the value, if there is only one."""
        return self.value

    def __len__(self) -> int:
        """Count the figures."""
        return int(self.values.size)

    def __getitem__(self, place: int) -> Figure:
        """Return the figure at an index, in row-major order."""
        place = index_in(len(self), place, "figures")
        about = {column.name: column[place] for column in self.columns}
        value, std = (float(array.ravel()[place]) for array in (self.values, self.std))
        return Figure(about, value, std, bool(self.reliable.ravel()[place]), (self, place))

    def __iter__(self) -> Iterator[Figure]:
        """Iterate over the figures."""
        return (self[place] for place in range(len(self)))

    def _lines(self, most: int) -> list[tuple[str, ...]]:
        """Return the first figures as text."""
        low, high = (array.ravel() for array in self.interval())
        values, std = self.values.ravel(), self.std.ravel()
        flags = self.flags().ravel()
        return [
            (
                *(column.text(i) for column in self.columns),
                self._number(values[i], std[i]),
                self._number(std[i], std[i]),
                f"{self._number(low[i], std[i])} to {self._number(high[i], std[i])}",
                str(flags[i]),
            )
            for i in range(min(most, len(self)))
        ]

    def _number(self, value: float, std: float) -> str:
        """Return a value with as many digits as its error warrants."""
        return figure(value, std)

    @property
    def _header(self) -> tuple[str, ...]:
        names = (one_line(column.name) for column in self.columns)
        return (*names, "value", "std", "95% interval", "cv")

    def __repr__(self) -> str:
        """Show the first figures with their intervals."""
        more = [f"… {len(self) - SHOWN:,} more; to_frame() returns all"] if len(self) > SHOWN else []
        note = [self.note] if self.note else []
        shown = aligned([self._header, *self._lines(SHOWN)], words=len(self.columns))
        return "\n".join([one_line(self.title), *shown, *more, *note])

    def _repr_html_(self) -> str:
        """Show the first figures in a notebook."""
        first = len(self.columns)
        more = f"… {len(self) - SHOWN:,} more; to_frame() returns all" if len(self) > SHOWN else None
        numbers = range(first, first + 4)
        return notebook(
            self.title,
            html_table(self._header, self._lines(SHOWN), numbers=numbers),
            element("p", more) if more else None,
            element("p", self.note) if self.note else None,
        )


def _together(level: float, count: int, joint: Callable[[], Array] | None) -> float:
    if joint is None or count > MAX_JOINT:
        return simultaneous(level, count)
    try:
        covariance = joint()
    except TooLargeError:
        covariance = None
    return simultaneous(level, count, covariance)
