"""Attributes: columns of the table, each with a fixed, public list of values (labels)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import SchemaError, as_given, explained, nearest, not_one_of, some
from querysmasher.formatting import count, one_line, preview
from querysmasher.html import notebook, table

Label = str | int | float | bool | date
"""Types of the values of an attribute."""


def literal(value: object) -> str:
    """Return a value as predicates and messages write it: strings and dates in quotes.

    >>> literal("F"), literal(3), literal(date(2024, 3, 1))
    ("'F'", '3', "'2024-03-01'")
    """
    return repr(str(value)) if type(value) is date else repr(value)


def plain(value: Label) -> Any:
    """Return a label as JSON; a date is marked as such, to distinguish it from a string."""
    return {"date": str(value)} if isinstance(value, date) else value


def from_plain(value: Any) -> Any:
    """Return the label that `plain` returned as JSON."""
    if not isinstance(value, dict) or set(value) != {"date"}:
        return value
    try:
        return date.fromisoformat(value["date"])
    except (TypeError, ValueError):
        raise SchemaError(f"date: expected a string such as '2024-03-01', got {value['date']!r}") from None


def checked_label(name: str, value: Any, quoted: bool = True) -> Label:
    """Return a value of the attribute `name` as a plain Python label; refuse an invalid one.

    Messages quote it if `quoted`.
    """
    if type(value) is int or type(value) is str or (type(value) is float and value == value):  # noqa: PLR0124 - NaN
        return value  # nearly all values, of which there may be a million
    no_day = "expected dates without time or time zone"
    if getattr(getattr(value, "dtype", None), "kind", "") == "M" and value.ndim == 0:
        day = value.astype("datetime64[D]")
        if day != value:  # also if the time is missing: NaT
            raise _invalid(name, f"{no_day}, got {value}" if quoted else no_day)
        value = day
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar
    if isinstance(value, datetime):
        midnight = datetime.combine(value.date(), time.min) if value == value else None  # noqa: PLR0124 - NaT
        if value.tzinfo is not None or value != midnight:
            raise _invalid(name, f"{no_day}, got {value}" if quoted else no_day)
        return value.date()
    if not isinstance(value, str | int | float | bool | date):
        got = as_given(value) if quoted or value is None else f"values of type {type(value).__name__}"
        raise _invalid(name, f"expected strings, numbers or dates, got {got}")
    if isinstance(value, float) and math.isnan(value):
        raise _invalid(name, "NaN is not allowed as a value")
    return value


def _invalid(name: str, why: str, what: str = "values") -> SchemaError:
    return SchemaError(f"{what} of attribute {name!r}: {why}")


def _number(value: object) -> float | None:
    """Return a number as a plain one; None for anything else, also for NaN."""
    with suppress(SchemaError):
        label = checked_label("", value)
        return None if isinstance(label, str | bool | date) else label
    return None


NUMBER = "qs.Number('income', 0, 200_000, step=100)"

WORDS = ("title", "description", "unit")
"""Words about an attribute for readers."""


@dataclass(frozen=True, repr=False)
class Attribute:
    """A discrete attribute: a name and its possible values, in order.

    Use one of the kinds: `Categorical`, `Ordinal`, `Binned`, `Number`, `Cyclic`.

    Args:
        name: the name of the attribute, and of its column.
        values: strings, numbers, booleans or dates (`datetime.date`; a `datetime` at midnight is its date).
        missing: the value that missing ones count as: one of `values`, or a further value that stands beside
            them. Like the rest of the schema it is public knowledge, stated without looking at the data.
        title: a name for readers, such as "Age in years"; pages and files show it.
        description: what the attribute means.
        unit: the unit of numbers, such as "years".
        value_labels: names of values for readers, as a mapping from values or a list in their order.

    Titles, descriptions, units and labels are words for readers: attributes that differ only in these are
    equal.

    A value beside the others comes last. It has no place in their order and is no number: `age >= 18`, means
    and quantiles leave it out.

    >>> Categorical("race", ["A", "B", "unknown"], missing="unknown")
    Categorical('race', ['A', 'B', 'unknown'], missing='unknown')
    >>> Ordinal("age", range(100), missing="missing").values[-2:]
    (99, 'missing')
    >>> Categorical("sex", [1, 2], value_labels={1: "Male", 2: "Female"}).shown
    ('Male', 'Female')
    """

    name: str
    values: Sequence[Label]
    missing: Label | None = field(default=None, kw_only=True)
    title: str | None = field(default=None, kw_only=True, compare=False)
    description: str | None = field(default=None, kw_only=True, compare=False)
    unit: str | None = field(default=None, kw_only=True, compare=False)
    value_labels: Mapping[Any, str] | Sequence[str] | None = field(default=None, kw_only=True, compare=False)
    beside: tuple[Label, ...] = field(default=(), kw_only=True)
    """The last values, which stand beside the others: follows from `other` and `missing`."""

    kind: ClassVar[str] = ""
    ordered: ClassVar[bool] = False
    natural_family: ClassVar[str] = "identity"
    edges: ClassVar[Sequence[float] | None] = None
    """The edges of bins, or None if values are not bins of a number."""
    step: ClassVar[float | None] = None
    """The distance between neighbouring numbers, or None if it is not stated."""
    is_computed: ClassVar[bool] = False
    """Whether values are computed from numbers by `indexes`, rather than matched with a list."""
    other: ClassVar[Label | None] = None
    """The value that unlisted ones count as, if there is one."""

    def __init_subclass__(cls, family: str = "identity") -> None:
        """Name the kind after its class; its values are ordered unless its natural family is identity."""
        cls.kind, cls.natural_family, cls.ordered = cls.__name__.lower(), family, family != "identity"

    def __post_init__(self) -> None:
        """Check the name and the values, and freeze the values."""
        if type(self) is Attribute:
            raise SchemaError("Attribute is abstract: use Categorical, Ordinal, Binned, Number or Cyclic")
        if not isinstance(self.name, str) or not self.name:
            example = f"qs.{type(self).__name__}('age', …), the name first"
            msg = f"name: expected a non-empty string, got {as_given(self.name)}; write {example}"
            raise SchemaError(msg)
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            given: Any = self.values
            example = f"range({given})" if type(given) is int and given > 0 else "['F', 'M']"
            write = f"write qs.{type(self).__name__}({self.name!r}, {example})"
            raise _invalid(self.name, f"expected a list of values, got {as_given(given)}; {write}")
        listed = isinstance(self.values, list | tuple)  # by the user; anything else may be a column of data
        values = tuple(
            self.values if self.is_computed else (checked_label(self.name, v, listed) for v in self.values)
        )
        while self.beside and values and values[-1] in self.beside:  # of the attribute that this one replaces
            values = values[:-1]
        object.__setattr__(self, "values", values)
        if not self.values:
            raise _invalid(self.name, "the domain is empty; list at least one value")
        if not self.is_computed:  # a grid is increasing
            self._check_distinct(listed)
        declared = {
            key: self._declared(key) for key in ("other", "missing") if getattr(self, key) is not None
        }
        beside = tuple(dict.fromkeys(v for v in declared.values() if not self._lists(v)))
        for key, value in (*declared.items(), ("beside", beside), ("values", values + beside)):
            object.__setattr__(self, key, value)
        for key in ("_positions", "literals"):
            vars(self).pop(key, None)  # of the values without those beside them
        for key in WORDS:
            words = getattr(self, key)
            if words is not None and not (isinstance(words, str) and words.strip()):
                raise _invalid(self.name, f"expected a non-empty string, got {as_given(words)}", key)
        if self.value_labels is not None:
            object.__setattr__(self, "value_labels", self._labelled(self.value_labels))

    def _check_distinct(self, listed: bool) -> None:
        """Refuse values that are given twice; messages quote those that the user listed."""
        if len(set(self.values)) != len(self.values):
            twice = next(v for i, v in enumerate(self.values) if self._positions[v] != i)
            what = literal(twice) if listed else "a value"
            raise _invalid(self.name, f"{what} is given more than once; list every possible value once")
        both = [v for v in self.values if isinstance(v, date) and str(v) in self._positions]
        if both:
            raise _invalid(self.name, f"{literal(both[0])} is given both as a date and as a string")

    def _lists(self, value: Label) -> bool:
        """Return whether a label is one of the values."""
        return value in self._positions

    def _declared(self, key: str) -> Label:
        """Return the value that `other` or `missing` declares: one of the values, or one of its own."""
        given = getattr(self, key)
        with suppress(SchemaError):
            label = checked_label(self.name, given)
            if self._lists(label):
                return self.values[self._positions[label]]
        kinds = () if self.is_computed else tuple({type(v) for v in self.values} - {bool})
        if isinstance(given, str) and given.strip():
            return given
        if isinstance(given, kinds) and not isinstance(given, bool | str):
            with suppress(SchemaError):
                return checked_label(self.name, given)
        why = f"expected one of its values, {some(self.literals)}, or a string, got {_shown(given)}"
        raise _invalid(self.name, why, key)

    def _labelled(self, given: object) -> tuple[str, ...]:
        """Return a label for every value; a value that a mapping leaves out is its own label."""
        labels, size = list(self.labels), self.size
        if isinstance(given, Mapping):
            for value, label in given.items():
                labels[self.position(checked_label(self.name, value))] = label
        elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) in (size, self.listed):
            labels[: len(given)] = given
        else:
            why = f"expected a mapping from values to labels, or a list of {count(self.size, 'label')}"
            raise _invalid(self.name, why, "value_labels")
        if not all(isinstance(label, str) and label.strip() for label in labels):
            raise _invalid(self.name, "expected non-empty strings", "value_labels")
        return tuple(labels)

    @property
    def size(self) -> int:
        """Number of values of the attribute."""
        return len(self.values)

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The attributes whose columns a table has: this one, unless it combines several."""
        return (self,)

    @property
    def column_indexes(self) -> tuple[NDArray[np.intp], ...]:
        """For each column, the index of its value that every value of this attribute stands for."""
        return (np.arange(self.size),)

    def combined(self, codes: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the index of the value of each record, from those of its columns."""
        (code,) = codes
        return code

    @property
    def listed(self) -> int:
        """Number of values in order, before those that stand beside them."""
        return len(self.values) - len(self.beside)

    @property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lowest and the highest number of each bin."""
        raise NotImplementedError

    @cached_property
    def grid(self) -> NDArray[np.float64] | None:
        """The listed values, if they are numbers on a grid."""
        return None

    @property
    def rounding(self) -> str:
        """How numbers become values of a grid, in words; nothing if there is none."""
        return ""

    @property
    def rules(self) -> tuple[str, ...]:
        """What stands for values other than the listed ones, in words."""
        stated = {"unlisted": self.other, "missing": self.missing}
        counted = (f"{what} values count as {v}" for what, v in stated.items() if v is not None)
        return tuple(filter(None, [self.rounding, *counted]))

    def indexes(self, numbers: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the index of the value of each number, or -1 where it has none."""
        raise NotImplementedError

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as text, for tables and charts."""
        return tuple(map(str, self.values))

    @property
    def shown(self) -> tuple[str, ...]:
        """The values as readers see them: their labels, or the values themselves."""
        return self.labels if self.value_labels is None else tuple(self.value_labels)

    @property
    def heading(self) -> str:
        """The name as readers see it: the title with the unit, or the name itself."""
        unit = "" if self.unit is None else f" ({self.unit})"
        return (self.name if self.title is None else self.title) + unit

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """The values as predicates write them: strings and dates in quotes."""
        return tuple(map(literal, self.values))

    def exactly(self, name: str, index: int) -> str:
        """Return the condition that the attribute, written as `name`, has the value with an index."""
        return f"{name} == {self.literals[index]}"

    def up_to(self, name: str, last: int) -> str:
        """Return the condition that an ordered attribute has one of its first values."""
        return self._or_beside(name, self._up_to(name, min(last, self.listed - 1)), last)

    def between(self, name: str, first: int, last: int) -> str:
        """Return the condition that an ordered attribute has a value from one to another."""
        if first >= self.listed:
            return self.exactly(name, first) if first == last else self._among(name, first, last)
        return self._or_beside(name, self._between(name, first, min(last, self.listed - 1)), last)

    def _up_to(self, name: str, last: int) -> str:
        """Return what `up_to` does for values that are in order."""
        return f"{name} <= {self.literals[last]}"

    def _between(self, name: str, first: int, last: int) -> str:
        """Return what `between` does for values that are in order."""
        return f"{self.literals[first]} <= {name} <= {self.literals[last]}"

    def _or_beside(self, name: str, condition: str, last: int) -> str:
        """Return a condition, or that the attribute has a value beside the others up to `last`."""
        more = "" if last < self.listed else f" or {self.between(name, self.listed, last)}"
        return f"({condition}{more})" if more else condition

    def _among(self, name: str, first: int, last: int) -> str:
        return f"{name} in [{', '.join(self.literals[first : last + 1])}]"

    @cached_property
    def _positions(self) -> dict[Label, int]:
        return {value: position for position, value in enumerate(self.values)}

    def position(self, value: object) -> int:
        """Return the index of `value` among the values, or raise `SchemaError`."""
        try:
            return self._positions[value]  # type: ignore[index]
        except (KeyError, TypeError):
            raise SchemaError(f"attribute {self.name!r} has no value {self._misspelt(value)}") from None

    def _misspelt(self, value: object) -> str:
        """Return what was given, the value that may be meant, and the values."""
        given = _shown(value)
        names = self.value_labels if isinstance(self.value_labels, tuple) else ()
        if isinstance(value, str) and value in names:
            return f"{given}, which is the label of {self.literals[names.index(value)]}"
        near = nearest(value, self.labels)
        meant = "" if near is None else f"; did you mean {self.literals[self.labels.index(near)]}?"
        return f"{given}{meant} (it has {some(self.literals)})"

    def __repr__(self) -> str:
        """Show the name and some values."""
        given = {key: getattr(self, key) for key in ("other", "missing")}
        more = "".join(f", {key}={literal(value)}" for key, value in given.items() if value is not None)
        return f"{type(self).__name__}({self.name!r}, {self._stated()}{more})"

    def _stated(self) -> str:
        """Return what states the values."""
        return f"[{_few(self.values[: self.listed])}]"

    def _repr_html_(self) -> str:
        """Show the attribute in a notebook."""
        rows = [(key, value) for key in WORDS if (value := getattr(self, key)) is not None]
        rows += [("values", f"{self.size:,}: {preview(self.shown)}")]
        rows += [("rule", rule) for rule in self.rules]
        return notebook(f"{self.name} ({self.kind})", table(["", ""], rows))

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `attribute_from_json` rebuilds this attribute."""
        given = {
            "kind": self.kind,
            "name": self.name,
            **self._domain(),
            "other": None if self.other is None else plain(self.other),
            "missing": None if self.missing is None else plain(self.missing),
            **{key: getattr(self, key) for key in WORDS},
            "value_labels": None if self.value_labels is None else list(self.value_labels),
        }
        return {key: value for key, value in given.items() if value is not None}

    def _domain(self) -> dict[str, Any]:
        """Return what states the values, as plain data."""
        return {"values": [*map(plain, self.values[: self.listed])]}


@explained("qs.Categorical('sex', ['F', 'M'])")
@dataclass(frozen=True, repr=False)
class Categorical(Attribute):
    """Values without an order: sex, region, occupation.

    `other` is the value that all unlisted ones count as: one of `values`, or a further one.

    >>> Categorical("airport", ["JFK", "LGA"], other="other", missing="missing").values
    ('JFK', 'LGA', 'other', 'missing')
    """

    other: Label | None = field(default=None, kw_only=True)  # type: ignore[misc]  # here it is a field


@explained("qs.Ordinal('age', range(100))")
@dataclass(frozen=True, repr=False)
class Ordinal(Attribute, family="prefix"):
    """Values with an order: age in years, level of education."""


@explained("qs.Cyclic('hour', range(24))")
@dataclass(frozen=True, repr=False)
class Cyclic(Attribute, family="circular"):
    """Values on a circle, where the first follows the last: hour of day, month of birth."""


@explained("qs.Binned('income', edges=[0, 10_000, 25_000])")
@dataclass(frozen=True, repr=False)
class Binned(Attribute, family="prefix"):
    """A number in ordered bins: k increasing edges define k - 1 bins.

    A bin contains its left edge but not its right edge; the last bin contains both. The first edge may be
    `-inf` and the last one `inf`. Means over such open-ended bins are refused, and intervals of quantiles in
    them have no end.

    With `step`, numbers are multiples of it above an edge, as the integers are with `step=1`; others are
    rounded to the nearest. Means and quantiles then know that the bin [0, 10) ends with 9.

    >>> Binned("income", edges=[0, 10, 25]).labels
    ('[0, 10)', '[10, 25]')
    >>> Binned("age", edges=[0, 10, 25], step=1).ends[1]
    array([ 9., 25.])
    """

    values: Sequence[Label] = field(init=False, default=())
    edges: Sequence[float] = ()  # type: ignore[misc]  # here it is a field
    step: float | None = field(default=None, kw_only=True)  # type: ignore[misc]  # here it is a field

    is_computed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the edges and name the bins after them."""
        example = f"qs.Binned({self.name!r}, edges=[0, 10, 20])"
        if isinstance(self.edges, str) or not isinstance(self.edges, Iterable):
            why = f"expected a list of numbers, got {as_given(self.edges)}; write {example}"
            raise _invalid(self.name, why, "edges")
        given = list(self.edges)
        edges: Any = tuple(map(_number, given))
        inner = edges[edges[:1] == (-math.inf,) : len(edges) - (edges[-1:] == (math.inf,))]
        if any(e is None or abs(e) > 1e300 for e in inner):
            why = f"expected finite numbers, between -inf and inf if the ends are open, got {given!r}"
            raise _invalid(self.name, why, "edges")
        if len(edges) < 2:
            why = f"the domain is empty; give at least two edges, as in {example}"
            raise _invalid(self.name, why, "edges")
        if not inner:
            why = f"expected at least one finite number, got {list(edges)!r}"
            raise _invalid(self.name, why, "edges")
        if any(a >= b for a, b in pairwise(edges)):
            raise _invalid(self.name, f"expected increasing numbers, got {list(edges)!r}", "edges")
        self._check_step(inner)
        closing = ")" * (len(edges) - 2) + "]"
        bins = [f"[{a}, {b}{end}" for a, b, end in zip(edges, edges[1:], closing, strict=False)]
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "values", bins)
        super().__post_init__()

    def _check_step(self, finite: Sequence[Any]) -> None:
        """Refuse a step of which the edges are not multiples."""
        if self.step is None:
            return
        step = _number(self.step)
        if step is None or not 0 < step < EXACT:
            why = f"expected a number above 0 and below 2^53, got {as_given(self.step)}"
            raise _invalid(self.name, why, "step")
        object.__setattr__(self, "step", step)
        first, each = (Fraction(repr(number)) for number in (finite[0], step))
        for edge in finite:
            if abs(edge) >= EXACT or ((Fraction(repr(edge)) - first) / each).denominator > 1:
                why = f"expected {finite[0]} plus a multiple of step = {step}, got {edge}"
                raise _invalid(self.name, why, "edges")

    @property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lowest and the highest number of each bin; without a step, its edges."""
        edges = np.array(self.edges, dtype=float)
        high = edges[1:].copy()
        high[:-1] -= self.step or 0
        return edges[:-1], high

    @property
    def rounding(self) -> str:
        """How numbers are rounded, if there is a step."""
        if self.step is None:
            return ""
        first = self.edges[self.edges[0] == -math.inf]
        return f"numbers are rounded to multiples of {self.step:,} from {first:,}"

    def indexes(self, numbers: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the bin of each number, or -1 for one beyond the edges."""
        edges = np.array(self.edges, dtype=float)
        if self.step is not None:  # both in steps from the first finite edge
            first = edges[int(edges[0] == -math.inf)]
            edges = np.round((edges - first) / self.step)
            with np.errstate(invalid="ignore", over="ignore"):
                numbers = np.floor((np.asarray(numbers, dtype=float) - first) / self.step + 0.5)
        found = np.searchsorted(edges, numbers, side="right") - 1
        found -= numbers == edges[-1]
        found[found == len(edges) - 1] = -1
        return found

    def exactly(self, name: str, index: int) -> str:
        """Return the condition that the number is in a bin, by its edges.

        >>> Binned("income", edges=[0, 10, 25]).exactly("income", 0)
        '0 <= income < 10'
        """
        return self._between(name, index, index) if index < self.listed else super().exactly(name, index)

    def _up_to(self, name: str, last: int) -> str:
        if self.edges[last + 1] == math.inf:
            return self._between(name, 0, last)
        return f"{name} {'<=' if last == self.listed - 1 else '<'} {self.edges[last + 1]}"

    def _between(self, name: str, first: int, last: int) -> str:
        low, high = self.edges[first], self.edges[last + 1]
        if math.isfinite(low):
            return f"{low} <= {self._up_to(name, last)}" if math.isfinite(high) else f"{name} >= {low}"
        if math.isfinite(high):
            return self._up_to(name, last)
        return f"({name} < {self.edges[1]} or {name} >= {self.edges[1]})"

    def _stated(self) -> str:
        return f"edges=[{_few(self.edges)}]" + ("" if self.step is None else f", step={self.step}")

    def _domain(self) -> dict[str, Any]:
        edges = [e if math.isfinite(e) else str(e) for e in self.edges]
        return {"edges": edges} | ({} if self.step is None else {"step": self.step})


MOST_VALUES = 1_000_000
"""Maximum number of listed values, and of the steps of a `Number`: 0 to 1,000,000 are a million steps."""

EXACT = 2**53
"""From here on, floats do not distinguish neighbouring integers."""

OUTSIDE = ("clamp", "refuse")


@explained("qs.Number('income', 0, 200_000, step=100)")
@dataclass(frozen=True, repr=False)
class Number(Attribute, family="prefix"):
    """A number on a public grid, from the lowest value to the highest.

    A number between two values counts as the nearest one, and halfway between them as the larger. A number
    below the lowest value counts as that one, and above the highest as that: it is *clamped*. Everything
    computed from the counts is about the numbers as clamped and rounded.

    Args:
        low: the lowest value.
        high: the highest value, a multiple of `step` above the lowest.
        step: the distance between values. There are at most a million steps.
        outside: "clamp", or "refuse" to treat numbers below the lowest or above the highest value as outside
            the schema.

    >>> income = Number("income", 0, 200_000, step=100, missing="missing")
    >>> income
    Number('income', 0, 200000, step=100, missing='missing')
    >>> [income.values[i] for i in income.indexes([-5, 149, 150, 1e9])]
    [0, 100, 200, 200000]
    """

    values: Sequence[Label] = field(init=False, default=())
    low: float = math.nan
    high: float = math.nan
    step: float = field(default=1, kw_only=True)  # type: ignore[misc]  # here it is a field
    outside: str = field(default="clamp", kw_only=True)

    is_computed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the grid and compute its values."""
        if self.outside not in OUTSIDE:
            raise _invalid(self.name, not_one_of(OUTSIDE, self.outside), "outside")
        for key in ("low", "high", "step"):
            given = getattr(self, key)
            number = _number(given)
            if number is None or abs(number) >= EXACT:
                got = "nothing" if isinstance(given, float) and math.isnan(given) else as_given(given)
                why = f"expected a number below 2^53 in absolute value, got {got}; write {NUMBER}"
                raise _invalid(self.name, why, key)
            object.__setattr__(self, key, number)
        if self.high <= self.low:
            raise _invalid(self.name, f"expected a number above low = {self.low}, got {self.high}", "high")
        if self.step <= 0:
            raise _invalid(self.name, f"expected a number above 0, got {self.step}", "step")
        low, high, step = (Fraction(repr(given)) for given in (self.low, self.high, self.step))
        steps = (high - low) / step
        if steps > MOST_VALUES:
            why = f"expected at most {MOST_VALUES:,} steps from low to high, got {math.floor(steps):,} of "
            raise _invalid(self.name, f"{why}{self.step}; write {_round_step(high - low, step)}", "step")
        if steps.denominator > 1:
            nearest_high = float(low + math.ceil(steps) * step)
            why = f"expected low = {self.low} plus a multiple of step = {self.step}, got {self.high}; write "
            raise _invalid(self.name, f"{why}{nearest_high:.15g}", "high")
        unit = math.lcm(low.denominator, step.denominator)
        first, each = int(low * unit), int(step * unit)
        grid = range(first, first + each * int(steps) + 1, each)
        object.__setattr__(self, "values", [n / unit for n in grid] if unit > 1 else grid)
        super().__post_init__()

    def _lists(self, value: Label) -> bool:
        return not isinstance(value, str) and super()._lists(value)

    @property
    def rounding(self) -> str:
        """How numbers are clamped and rounded."""
        low, second, high = (self.values[i] for i in (0, 1, self.listed - 1))
        ends = f"numbers below {low:,} count as {low:,}, and above {high:,} as {high:,}; "
        rounded = f"numbers are rounded to the nearest of {low:,}, {second:,}, …, {high:,}"
        return f"{ends if self.outside == 'clamp' else ''}{rounded}"

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """The listed values, of which there may be a million."""
        grid = np.array(self.values[: self.listed], dtype=float)
        grid.setflags(write=False)
        return grid

    def indexes(self, numbers: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the index of the nearest value of each number, or -1 for one that is refused."""
        given = np.asarray(numbers, dtype=float)
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.floor((given - self.low) / self.step + 0.5)
            found = np.nan_to_num(np.clip(steps, 0, self.listed - 1)).astype(np.intp)
            if self.outside == "refuse":
                found[(given < self.low) | (given > self.high)] = -1
        return found

    def _stated(self) -> str:
        outside = "" if self.outside == "clamp" else f", outside={self.outside!r}"
        return f"{self.low}, {self.high}, step={self.step}{outside}"

    def _domain(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("low", "high", "step", "outside")}


KINDS: dict[str, type[Attribute]] = {cls.kind: cls for cls in (Categorical, Ordinal, Binned, Number, Cyclic)}


def _round_step(width: Fraction, step: Fraction) -> str:
    """Return the least of 1, 2 and 5 times powers of ten, if it can, that divides a width into few steps."""
    least = max(step, width / MOST_VALUES)
    power = math.floor(math.log10(least)) - 1
    tried = [Fraction(digit) * Fraction(10) ** (power + n) for n in range(4) for digit in (1, 2, 5)]
    fitting = [each for each in tried if each >= least]
    best = next((each for each in fitting if (width / each).denominator == 1), None)
    return f"step={float(best or fitting[0]):.15g}" + ("" if best else " and a multiple of it as high - low")


def _few(values: Sequence[Label]) -> str:
    """Return the first values and the last, as predicates write them."""
    some_values = values if len(values) <= 5 else [*values[:3], values[-1]]
    listed = [one_line(literal(value)) for value in some_values]
    return ", ".join(listed if len(values) <= 5 else [*listed[:-1], "…", listed[-1]])


def _shown(value: object) -> str:
    """Return what was given as a value, for a message."""
    return literal(value) if isinstance(value, date) else as_given(value)


def attribute_from_json(data: Mapping[str, Any]) -> Attribute:
    """Rebuild an attribute from what `Attribute.to_json` returned."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise SchemaError(f"kind: expected one of {sorted(KINDS)}, got {kind!r}")
    if isinstance(fields.get("values"), list):
        fields["values"] = [*map(from_plain, fields["values"])]
    if isinstance(fields.get("edges"), list):  # JSON has no infinite numbers
        fields["edges"] = [float(e) if e in ("inf", "-inf") else e for e in fields["edges"]]
    for key in ("other", "missing"):
        if key in fields:
            fields[key] = from_plain(fields[key])
    return KINDS[kind](**fields)
