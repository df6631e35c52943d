"""From the values of a column to codes: the indexes of the values in the attribute's domain.

`Encoder.code` states the rule for one value. A column (an Arrow array, Python objects, strings of a CSV file)
applies it to its distinct values; bins, grids and consecutive integers are computed for all values at once.

A value matches the label that it equals. Text matches text, booleans match booleans, and numbers match
numbers of any width: 3 and 3.0 are the same. A date matches dates and its ISO string, and timestamps at its
midnight, in their time zone if they have one; any other time of day matches no date. A missing value matches
nothing, unless the attribute declares the value that missing ones count as. What matches no label counts as
the attribute's value for others, if it declares one, whatever its kind. Such a value beside the labels is
matched itself if a label is of its kind: a string among strings, but not among numbers.

The rule depends on one value and the schema, never on the other records. One record can make a library store
all values of a column in a wider type: integers as floats (one is missing), narrow floats as wide ones,
anything as Python objects, or numbers as strings (one cannot be read). The indexes stay the same. Floats
cannot distinguish all integers from 2^53 on: an attribute with such labels refuses every column of floats,
and every column that pandas would convert to floats because of one missing value.

Where all labels are numbers, or all are booleans, a string is read as in a CSV file: what it means depends on
the attribute alone. A number is written as ``12``, ``-1.5``, ``+3e4`` or ``.5``, with the file's decimal
separator, and may be surrounded by spaces; ``nan`` is a missing number and ``inf`` a number outside every
domain. A boolean is one of `BOOLEANS`, in any case. An empty field is missing, unless the domain has the
empty string. The labels of an attribute with labels of several kinds are matched as strings. A number is
never read as a string.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.attributes import Attribute
from querysmasher.errors import DataError

EPOCH = date(1970, 1, 1).toordinal()

NO_DAY = np.iinfo(np.int32).min
"""Stands for a timestamp that is not at midnight."""


def days(column: Any) -> Any:
    """Return the day number of each value of a date column, counted from 1970, or `NO_DAY`."""
    if getattr(column.type, "tz", None) is not None:
        pc.local_timestamp(pa.scalar(0, column.type))  # refuses an unknown zone, also without records
        column = pc.local_timestamp(column)
    whole = column.cast(pa.date32(), safe=False)
    is_midnight = pc.equal(whole.cast(column.type, safe=False), column)
    return pc.if_else(is_midnight, whole.cast(pa.int32()), NO_DAY)


def midnight(value: object) -> object:
    """Return a timestamp at midnight as its date, in its own time zone; any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    nanoseconds = getattr(value, "nanosecond", 0)  # pandas' timestamps have them
    return value.date() if value.time() == time(0) and not nanoseconds else value


EXACT_FLOATS = 2**53
"""From here on, different integers are the same float."""

EXACT = {"halffloat": 2**11, "float": 2**24, "double": EXACT_FLOATS}
"""From here on, a column of such floats cannot distinguish integers."""

INT64 = range(-(2**63), 2**63)

BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
NUMBER = r"[+-]?(?:(?:[0-9]+(?:{sign}[0-9]*)?|{sign}[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))"

MOST_KNOWN = 2**22
"""Maximum number of values whose codes are remembered, unless the domain itself has more."""

MISSING_TYPES = ("NAType", "NaTType")
"""Names of the types by which pandas represents a missing value, without importing pandas."""


SURE = (pa.string(), pa.large_string(), pa.bool_(), pa.int64(), pa.null())
"""Types that Arrow infers only for objects that are all of this kind."""

PLAIN = (str, int, float, bool, date, type(None))
"""Types whose equal values have equal codes: equal timestamps in two time zones may be different dates."""


Code = NDArray[np.unsignedinteger[Any]]
"""Indexes of values in a domain, in the smallest type for the domain's size and the codes of `Encoder`."""


@dataclass(frozen=True, repr=False)
class Strings:
    """A column of a CSV file: an Arrow array of strings without nulls, and the file's decimal separator."""

    column: Any
    decimal: str = "."


@dataclass(frozen=True)
class Encoder:
    """Turns values into their indexes in an attribute's domain, or one of three codes if they have none."""

    attribute: Attribute

    @property
    def unknown(self) -> int:
        """The code of a value outside the domain, and the smallest code that is not an index."""
        return self.attribute.size

    @property
    def missing(self) -> int:
        """The code of a missing value: null, or a float that is not a number."""
        return self.attribute.size + 1

    @property
    def malformed(self) -> int:
        """The code of a value of the wrong kind: a string among numbers, for example."""
        return self.attribute.size + 2

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The smallest type that holds every code."""
        return np.min_scalar_type(self.malformed)

    @cached_property
    def by_kind(self) -> dict[type, dict[Any, int]]:
        """The labels with their indexes, by kind: `str`, `bool`, `date`, and `float` for any number."""
        labels = () if self.attribute.is_computed else self.attribute.values
        kinds = {
            cls: next((kind for kind in (str, bool, date) if issubclass(cls, kind)), float)
            for cls in dict.fromkeys(map(type, labels))
        }
        listed = {kinds[type(label)] for label in labels[: self.attribute.listed]}
        groups: dict[type, dict[Any, int]] = {kind: {} for kind in kinds.values() if kind in listed}
        for index, label in enumerate(labels):
            if kinds[type(label)] in listed:
                groups[kinds[type(label)]][label] = index
        return groups

    @property
    def kinds(self) -> tuple[type, ...]:
        """The kinds of values that the attribute has."""
        return tuple(self.by_kind) or (float,)

    @cached_property
    def strings(self) -> dict[str, int]:
        """The labels that a string matches, with their indexes: strings, and dates as ISO strings."""
        days = {str(day): index for day, index in self.by_kind.get(date, {}).items()}
        return days | self.by_kind.get(str, {})

    @cached_property
    def labels(self) -> dict[str, int]:
        """The codes of the fields of a CSV file: an empty one is missing, others are labels as strings."""
        labels = {label: index for index, label in enumerate(self.attribute.labels)}
        if len(labels) < self.attribute.size:
            name = self.attribute.name
            raise DataError(f"attribute {name!r}: two of its values are the same string in a CSV file")
        return {"": self.missing} | labels

    @cached_property
    def stand_ins(self) -> dict[int, int]:
        """The codes that count as a declared value, with the index of that value."""
        codes = {"missing": (self.missing,), "other": (self.unknown, self.malformed)}
        declared = {key: value for key in codes if (value := getattr(self.attribute, key)) is not None}
        return {code: self.attribute.position(v) for key, v in declared.items() for code in codes[key]}

    @cached_property
    def integers(self) -> dict[int, int]:
        """The labels that are integers, as `int` or as small `float`, with their indexes."""
        return {
            int(label): index
            for label, index in self.by_kind.get(float, {}).items()
            if isinstance(label, int) or (abs(label) < EXACT_FLOATS and label.is_integer())
        }

    @cached_property
    def floats(self) -> dict[float, int]:
        """The labels as floats, with their indexes; also as 32-bit floats if that is unambiguous.

        0.1 in a column of 32-bit floats matches the label 0.1, even after the column is widened.
        """
        labels = {
            float(label): index
            for label, index in self.by_kind.get(float, {}).items()
            if isinstance(label, float) or abs(label) < EXACT_FLOATS
        }
        narrow: dict[float, list[int]] = {}
        for label, index in labels.items():
            with np.errstate(over="ignore"):
                rounded = float(np.float32(label))
            # Not an integer, which would match as a float, beside missing values, but not as an integer.
            if rounded not in labels and math.isfinite(rounded) and not rounded.is_integer():
                narrow.setdefault(rounded, []).append(index)
        return labels | {value: indexes[0] for value, indexes in narrow.items() if len(indexes) == 1}

    @cached_property
    def largest_integer(self) -> int:
        """The largest absolute value of an integer label, or 0."""
        return max((abs(v) for v in self.by_kind.get(float, {}) if isinstance(v, int)), default=0)

    @property
    def reads_strings(self) -> bool:
        """Whether a string is read as a number or a boolean: all labels are numbers, or all are booleans."""
        return self.kinds in ((float,), (bool,))

    def read(self, text: str, decimal: str = ".") -> int:
        """Return the code of a string that stands for a number or a boolean; an empty one is missing."""
        if not text:
            return self.missing
        text = text.strip(" ")
        if self.kinds == (bool,):
            truth = BOOLEANS.get(text.lower())
            return self.malformed if truth is None else self.code(truth)
        if INTEGER.fullmatch(text):
            return self.code(int(text))
        formed = re.fullmatch(NUMBER.format(sign=re.escape(decimal)), text)
        return self.code(float(text.replace(decimal, "."))) if formed else self.malformed

    def code(self, value: Any) -> int:
        """Return the index of one Python value, or the code for why it has none."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, complex) and not value.imag:  # one complex number makes all complex in pandas
            value = value.real
        if value is None or type(value).__name__ in MISSING_TYPES:
            return self.missing
        if isinstance(value, str):
            if self.reads_strings:
                return self.read(value)
            return self.strings.get(value, self.unknown) if self.strings else self.malformed
        if isinstance(value, bool | date):
            labels = self.by_kind.get(bool if isinstance(value, bool) else date)
            return self.malformed if labels is None else labels.get(midnight(value), self.unknown)
        if isinstance(value, decimal.Decimal):
            value = plain_number(value)
        if isinstance(value, float) and math.isnan(value):
            return self.missing
        if not isinstance(value, int | float) or float not in self.kinds:
            return self.malformed
        if self.attribute.is_computed:
            return int(self.computed(np.array([_as_float(value)]))[0])
        index = self.integers.get(value) if isinstance(value, int) else None
        return self.floats.get(_as_float(value), self.unknown) if index is None else index

    def computed(self, values: NDArray[np.float64]) -> NDArray[np.unsignedinteger[Any]]:
        """Return the code of each number: its bin, or its value on a grid."""
        indexes = self.attribute.indexes(values)
        indexes[indexes < 0] = self.unknown
        indexes[np.isnan(values)] = self.missing
        return indexes.astype(self.dtype)

    def encode(self, column: Any) -> Code:
        """Return the code of each value; a missing or unlisted one counts as the declared value."""
        codes = self.codes(column)
        for code, index in self.stand_ins.items():
            codes[codes == code] = index
        return codes

    def codes(self, column: Any) -> Code:
        """Return the code of each value of an Arrow array, of Python objects, or of strings."""
        if isinstance(column, Strings):
            return self._strings(column.column, column.decimal)
        if isinstance(column, np.ndarray):
            typed = sure_array(column)
            if typed is None or not self.accepts(typed.type):  # no value is converted because of another
                code = lru_cache(maxsize=None, typed=True)(self.code)
                codes = (code(value) if type(value) in PLAIN else self.code(value) for value in column)
                return np.fromiter(codes, self.dtype, len(column))
            column = typed
        return self._typed(column)

    def accepts(self, kind: Any) -> bool:
        """Return whether the attribute has labels of the kind that a column of this Arrow type holds."""
        if pa.types.is_dictionary(kind):
            return self.accepts(kind.value_type)
        of = kind_of(kind)
        strings = of is str and (bool(self.strings) or self.reads_strings)
        return strings or of in self.kinds or pa.types.is_null(kind)

    def loses_digits(self, kind: Any) -> bool:
        """Return whether a column of this Arrow type cannot distinguish the attribute's integers."""
        return pa.types.is_floating(kind) and self.largest_integer >= EXACT[str(kind)]

    def mismatch(self, kind: object) -> DataError:
        """Return the error about a column of a type that is not accepted."""
        got = re.split(r"[<(\[]", str(kind))[0]  # fields, lengths and digits may come from the data
        expected = kinds_in_words(self)
        return DataError(f"attribute {self.attribute.name!r}: expected a column of {expected}, got {got}")

    def _typed(self, column: Any) -> Code:
        types, kind = pa.types, column.type
        if not self.accepts(kind):
            raise self.mismatch(kind)
        if self.loses_digits(kind):
            raise DataError(
                f"attribute {self.attribute.name!r}: a column of type {kind} cannot represent its large "
                "integers exactly; pass a column of integers (in pandas Int64, which also allows missing "
                "values) or of strings"
            )
        if types.is_dictionary(kind):
            lookup = np.append(self._typed(column.dictionary), self.dtype.type(self.missing))
            return lookup.take(np.asarray(column.indices.cast(pa.int64()).fill_null(len(lookup) - 1)))
        if types.is_decimal(kind) and kind.bit_width <= 64:
            column = column.cast(pa.decimal128(38, kind.scale))
        elif types.is_float16(kind):
            column = column.cast(pa.float32())
        of = kind_of(kind)
        if of is str and self.reads_strings:
            return self._strings(column.cast(pa.large_string()).fill_null(""))
        if of is str:
            return self._learned(column.cast(pa.large_string()), "strings", self.code, self.strings)
        if self.attribute.is_computed and of is float:
            if types.is_decimal(kind):
                column = column.cast(pa.string())  # Arrow casts decimals to floats beside the nearest
            return self.computed(np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan)))
        if of is date or of is bool:
            column = days(column) if of is date else column.cast(pa.int8())
        if of not in self._tables or not types.is_integer(column.type) or types.is_uint64(column.type):
            exact = kind == pa.int64() and self.largest_integer in INT64
            return self._learned(column, kind, self.code, self.integers if exact else {})
        start, table = self._tables[of]
        values = np.asarray(column.fill_null(0) if column.null_count else column)
        codes = table.take(values.astype(np.int64, copy=False) - start, mode="clip")
        if column.null_count:
            codes[np.asarray(column.is_null())] = self.missing
        return codes

    @cached_property
    def _tables(self) -> dict[type, tuple[int, Code]]:
        """The first integer of a table and the codes of all from there on, by kind: dates as day numbers.

        A table starts and ends with `unknown`, and a difference that overflows is beyond one of these ends.
        Labels that are far apart have no table.
        """
        days = {day.toordinal() - EPOCH: index for day, index in self.by_kind.get(date, {}).items()}
        labels_of_all_kinds = sum(map(len, self.by_kind.values()))
        integers = self.integers if len(self.integers) == labels_of_all_kinds else {}
        tables: dict[type, tuple[int, Code]] = {}
        for kind, labels in ((date, days), (bool, self.by_kind.get(bool, {})), (float, integers)):
            start, end = min(labels, default=0) - 1, max(labels, default=0) + 1
            if labels and start in INT64 and end in INT64 and end - start < max(MOST_KNOWN, 2 * len(labels)):
                codes = np.full(end - start + 1, self.unknown, self.dtype)
                codes[np.array([*labels], np.int64) - start] = [*labels.values()]
                tables[kind] = start, codes
        return tables

    def _learned(self, column: Any, rule: Any, code: Callable[[Any], int], labels: Mapping[Any, int]) -> Code:
        """Return the code of each value; those of `labels`, and of values seen before, are remembered."""
        if rule not in self._known:
            self._known[rule] = pa.array([*labels], column.type), np.array([*labels.values()], self.dtype)
        known, codes = self._known[rule]
        positions = pc.index_in(column, value_set=known)
        if positions.null_count:
            new = column.filter(positions.is_null()).unique()
            strings = kind_of(new.type) is str  # what is not UTF-8 matches nothing
            values = (new.cast(pa.large_binary()) if strings else new).to_pylist()
            decoded = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in values)
            more = [self.missing if value is None else code(value) for value in decoded]
            known, codes = pa.concat_arrays([known, new]), np.append(codes, np.array(more, self.dtype))
            positions = pc.index_in(column, value_set=known)
            if len(known) <= MOST_KNOWN:
                self._known[rule] = known, codes
        return codes.take(np.asarray(positions))

    @cached_property
    def _known(self) -> dict[Any, tuple[Any, Code]]:
        """Values and their codes, by rule."""
        return {}

    def _strings(self, column: Any, decimal: str = ".") -> Code:
        """Return the code of each string of a CSV file."""
        if self.attribute.is_computed:
            return self._text_numbers(column, decimal)
        if self.reads_strings:
            return self._learned(column, decimal, lambda text: self.read(text, decimal), {})
        return self._learned(column, "fields", lambda _: self.unknown, self.labels)

    def _text_numbers(self, column: Any, decimal: str) -> Code:
        """Return the code of each number: column-wise, because most are distinct."""
        try:
            values = None if decimal != "." else column.cast(pa.float64())
        except pa.ArrowInvalid:  # its message quotes the string
            values = None
        if values is not None and not np.isnan(np.asarray(values)).any():  # Arrow also reads "nan(x)"
            return self.computed(np.asarray(values))
        strings = pc.ascii_trim(column, characters=" ")
        formed = pc.match_substring_regex(strings, pattern=f"^{NUMBER.format(sign=re.escape(decimal))}$")
        plain = pc.replace_substring(strings, pattern=decimal, replacement=".")
        codes = self.computed(np.asarray(pc.if_else(formed, plain, "nan").cast(pa.float64())))
        codes[~np.asarray(formed) & np.asarray(pc.not_equal(column, ""))] = self.malformed
        return codes


def plain_number(value: decimal.Decimal) -> int | float:
    """Return a decimal as an integer if it is one of moderate size, else as the nearest float."""
    if value.is_finite() and value.adjusted() < 40 and value == value.to_integral_value():
        return int(value)
    return math.nan if value.is_nan() else float(value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def sure_array(values: Any) -> Any | None:
    """Return Python objects as an Arrow array if they are all of one kind, so that none is converted."""
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        return None  # Arrow takes NumPy's True for 1 among integers, and crashes at some mixtures
    try:
        typed = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    return typed if typed.type in SURE else None


def kinds_in_words(encoder: Encoder) -> str:
    """Return the kinds of values that an attribute has, for a message."""
    words = {str: "strings", bool: "booleans", float: "numbers", date: "dates"}
    return " or ".join(words[kind] for kind in encoder.kinds)


def kind_of(kind: Any) -> type | None:
    """Return the kind of values that a column of an Arrow type holds."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return str
    if types.is_boolean(kind):
        return bool
    if types.is_date(kind) or types.is_timestamp(kind):
        return date
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return float
    return None
