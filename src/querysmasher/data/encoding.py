"""From the values of a column to codes: the indexes of the values in the attribute's domain.

Columns come as Arrow arrays, as Python objects, or as the strings of a CSV file. All follow the rule of
`Places`, which states it for one value; this file applies it to whole columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.attributes import Attribute
from querysmasher.data.values import EXACT, INT64, Places, Texts, bins, day_number, days, is_date_column
from querysmasher.errors import DataError

Code = NDArray[np.unsignedinteger[Any]]
"""Indexes of values in a domain, in the smallest type for the domain's size and the codes of `Places`."""

SURE = (pa.string(), pa.large_string(), pa.bool_(), pa.int64(), pa.null())
"""Types that Arrow infers only for objects that are all of this kind."""


@dataclass(frozen=True)
class Encoder:
    """Turns columns into codes of one attribute."""

    attribute: Attribute

    @cached_property
    def places(self) -> Places:
        """The rule for single values."""
        return Places(self.attribute)

    @property
    def unknown(self) -> int:
        """The smallest code that is not an index of the domain."""
        return self.places.unknown

    def encode(self, column: Any) -> Code:
        """Return the code of each value; a missing one counts as the declared value."""
        codes = self.codes(column)
        if self.places.stand_in is not None:
            codes[codes == self.places.missing] = self.places.stand_in
        return codes

    def codes(self, column: Any) -> Code:
        """Return the code of each value of an Arrow array, of Python objects, or of strings."""
        if isinstance(column, Texts):
            return column.codes(self.places)
        if isinstance(column, np.ndarray):
            return self._objects(column)
        return self._typed(column)

    def accepts(self, kind: Any) -> bool:
        """Return whether a value of a column of this Arrow type can match, whatever the domain."""
        if pa.types.is_dictionary(kind):
            return self.accepts(kind.value_type)
        found = _kind(kind)
        texts = found is str and (bool(self.places.texts) or self.places.reads_texts)
        return texts or found in self.places.kinds or pa.types.is_null(kind)

    def loses_digits(self, kind: Any) -> bool:
        """Return whether a column of this Arrow type cannot distinguish the attribute's integers."""
        return pa.types.is_floating(kind) and self.places.largest_integer >= EXACT[str(kind)]

    def mismatch(self, kind: object) -> DataError:
        """Return the error about a column of a type that is not accepted."""
        found = re.split(r"[<(\[]", str(kind))[0]  # fields, lengths and digits may come from the data
        expected = kinds_in_words(self.places)
        return DataError(f"attribute {self.attribute.name!r}: expected a column of {expected}, got {found}")

    def _objects(self, column: NDArray[np.object_]) -> Code:
        """Return the code of each Python object: no value is converted because of another."""
        typed = sure_array(column)
        if typed is not None and self.accepts(typed.type):
            return self._typed(typed)
        memory: dict[Any, int] = {}
        codes = np.empty(len(column), self.places.dtype)
        for row, value in enumerate(column):
            if isinstance(value, datetime):  # equal moments may show different days on their own clocks
                codes[row] = self.places.place(value)
                continue
            try:
                key = (type(value), value)
                if key not in memory:
                    memory[key] = self.places.place(value)
                codes[row] = memory[key]
            except TypeError:  # a list, for example, is not hashable
                codes[row] = self.places.place(value)
        return codes

    def _typed(self, column: Any) -> Code:
        kind = column.type
        if not self.accepts(kind):
            raise self.mismatch(kind)
        if pa.types.is_dictionary(kind):
            lookup = np.append(self._typed(column.dictionary), self.places.dtype.type(self.places.missing))
            return lookup.take(_filled(column.indices, len(column.dictionary)))
        if pa.types.is_null(kind):
            return np.full(len(column), self.places.missing, self.places.dtype)
        if kind == pa.string_view():
            return self._typed(column.cast(pa.large_string()))
        found = _kind(kind)
        assert found is not None  # noqa: S101 - of an accepted type
        encoders = {str: self._texts, bool: self._booleans, float: self._numbers, date: self._dates}
        codes = encoders[found](column)
        if column.null_count:
            codes[np.asarray(column.is_null())] = self.places.missing
        return codes

    def _texts(self, column: Any) -> Code:
        if self.places.reads_texts:
            return Texts(column.fill_null("")).codes(self.places)
        labels = self.places.texts
        found = pc.index_in(column, value_set=pa.array(list(labels), type=column.type))
        return self._lookup(labels.values()).take(_filled(found, len(labels)))

    def _booleans(self, column: Any) -> Code:
        labels = self.places.by_kind[bool]
        lookup = self._lookup(labels.get(value, self.unknown) for value in (False, True))
        return lookup.take(_filled(column.cast(pa.uint8()), 2))

    def _dates(self, column: Any) -> Code:
        labels = self.places.by_kind[date]
        return self._search(days(column), np.array([*map(day_number, labels)]), list(labels.values()))

    def _numbers(self, column: Any) -> Code:
        kind = column.type
        if pa.types.is_decimal(kind):
            column = column if kind.bit_width > 64 else column.cast(pa.decimal128(38, kind.scale))
            binned = self.attribute.edges is not None
            return self._numbers(column.cast(pa.float64())) if binned else self._distinct(column)
        if self.loses_digits(kind):
            raise DataError(
                f"attribute {self.attribute.name!r}: a column of type {kind} cannot represent its large "
                "integers exactly; pass a column of integers (in pandas Int64, which also allows missing "
                "values) or of strings"
            )
        values = _filled(column.cast(pa.float32()) if pa.types.is_float16(kind) else column, 0)
        if self.attribute.edges is not None:
            return bins(self.places, values)
        if values.dtype.kind == "f":
            return self._floats(values)
        return self._distinct(column) if self.places.has_large_floats else self._integers(values)

    def _distinct(self, column: Any) -> Code:
        """Compute the codes of the distinct values, one at a time."""
        encoded = column.dictionary_encode()
        lookup = [self.places.place(value) for value in encoded.dictionary.to_pylist()]
        codes = np.array([*lookup, self.places.missing], self.places.dtype)
        return codes.take(_filled(encoded.indices, len(lookup)))

    @cached_property
    def _words(self) -> dict[int, int]:
        """The labels that are integers of 64 bits, with their indexes."""
        return {v: p for v, p in self.places.integers.items() if v in INT64}

    @cached_property
    def _table(self) -> tuple[int, Code] | None:
        """The smallest of them and the code of each integer from there on; None if these are far apart.

        One guard at either end; a difference that wraps around still misses the domain.
        """
        places = self._words
        low, high = min(places), max(places)
        if high - low >= max(2**12, 16 * len(places)):
            return None
        lookup = np.full(high - low + 3, self.unknown, self.places.dtype)
        lookup[np.array(list(places)) - low + 1] = list(places.values())
        return low, lookup

    def _integers(self, values: NDArray[Any]) -> Code:
        places = self._words
        if not places:
            return np.full(len(values), self.unknown, self.places.dtype)
        beyond = values > INT64[-1] if values.dtype == np.uint64 else None
        values = values.astype(np.int64, copy=False)
        if self._table is not None:
            low, lookup = self._table
            codes = lookup.take(values - low + 1, mode="clip")
        else:
            codes = self._search(values, np.array(list(places)), list(places.values()))
        if beyond is not None:
            codes[beyond] = self.unknown
        return codes

    def _floats(self, values: NDArray[Any]) -> Code:
        places = self.places.floats
        values = values.astype(np.float64, copy=False)
        codes = self._search(values, np.array(list(places), dtype=np.float64), list(places.values()))
        codes[np.isnan(values)] = self.places.missing
        return codes

    def _search(self, values: NDArray[Any], known: NDArray[Any], places: list[int]) -> Code:
        if not len(known):
            return np.full(len(values), self.unknown, self.places.dtype)
        order = np.argsort(known)
        known = known[order]
        nearest = np.minimum(np.searchsorted(known, values), len(known) - 1)
        codes = self._lookup(places)[:-1][order][nearest]
        codes[known[nearest] != values] = self.unknown
        return codes

    def _lookup(self, places: Any) -> Code:
        """Return the given indexes as codes, with `unknown` at the end."""
        return np.array([*places, self.unknown], dtype=self.places.dtype)


def sure_array(values: Any) -> Any | None:
    """Return Python objects as an Arrow array if they are all of one kind, so that none is converted."""
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        return None  # Arrow takes NumPy's True for 1 among integers, and crashes at some mixtures
    try:
        typed = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    return typed if typed.type in SURE else None


def kinds_in_words(places: Places) -> str:
    """Return the kinds of values that an attribute has, for a message."""
    words = {str: "texts", bool: "booleans", float: "numbers", date: "dates"}
    return " or ".join(words[kind] for kind in places.kinds)


def _kind(kind: Any) -> type | None:
    """Return the kind of values that a column of an Arrow type holds."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return str
    if types.is_boolean(kind):
        return bool
    if is_date_column(kind):
        return date
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return float
    return None


def _filled(column: Any, missing: int) -> NDArray[Any]:
    """Return an Arrow array as a NumPy array, with `missing` for missing values."""
    if column.null_count:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.int64()) if column.type != pa.uint64() else column
        column = column.fill_null(missing)
    return np.asarray(column)
