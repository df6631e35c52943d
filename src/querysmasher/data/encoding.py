"""From the values of a column to codes: the indexes of the values in the attribute's domain.

Columns come as Arrow arrays, as Python objects, or as the strings of a CSV file. All follow the rule of
`Matcher`, which states it for one value; this file applies it to whole columns.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.data.values import EXACT, Matcher, Texts, day_number, days, is_date_column
from querysmasher.errors import DataError

Code = NDArray[np.unsignedinteger[Any]]
"""Indexes of values in a domain, in the smallest type for the domain's size and the codes of `Matcher`."""

SURE = (pa.string(), pa.large_string(), pa.bool_(), pa.int64(), pa.null())
"""Types that Arrow infers only for objects that are all of this kind."""


class Encoder(Matcher):
    """Turns columns into codes of one attribute."""

    def encode(self, column: Any) -> Code:
        """Return the code of each value; a missing one counts as the declared value."""
        codes = self.codes(column)
        if self.stand_in is not None:
            codes[codes == self.missing] = self.stand_in
        return codes

    def codes(self, column: Any) -> Code:
        """Return the code of each value of an Arrow array, of Python objects, or of strings."""
        if isinstance(column, Texts):
            return column.codes(self)
        if isinstance(column, np.ndarray):
            typed = sure_array(column)
            if typed is None or not self.accepts(typed.type):  # no value is converted because of another
                return np.fromiter(map(self.code, column), self.dtype, len(column))
            column = typed
        return self._typed(column)

    def accepts(self, kind: Any) -> bool:
        """Return whether a value of a column of this Arrow type can match, whatever the domain."""
        if pa.types.is_dictionary(kind):
            return self.accepts(kind.value_type)
        of = kind_of(kind)
        texts = of is str and (bool(self.texts) or self.reads_texts)
        return texts or of in self.kinds or pa.types.is_null(kind)

    def loses_digits(self, kind: Any) -> bool:
        """Return whether a column of this Arrow type cannot distinguish the attribute's integers."""
        return pa.types.is_floating(kind) and self.largest_integer >= EXACT[str(kind)]

    def mismatch(self, kind: object) -> DataError:
        """Return the error about a column of a type that is not accepted."""
        got = re.split(r"[<(\[]", str(kind))[0]  # fields, lengths and digits may come from the data
        expected = kinds_in_words(self)
        return DataError(f"attribute {self.attribute.name!r}: expected a column of {expected}, got {got}")

    def _typed(self, column: Any) -> Code:
        kind = column.type
        if not self.accepts(kind):
            raise self.mismatch(kind)
        if pa.types.is_dictionary(kind):
            lookup = np.append(self._typed(column.dictionary), self.dtype.type(self.missing))
            return lookup.take(_filled(column.indices, len(column.dictionary)))
        if pa.types.is_null(kind):
            return np.full(len(column), self.missing, self.dtype)
        if is_date_column(kind):
            codes = self._matched(pa.array(days(column)), date)
        elif kind_of(kind) is float:
            codes = self._numbers(column)
        elif kind_of(kind) is str and self.reads_texts:
            codes = Texts(column.cast(pa.large_string()).fill_null("")).codes(self)
        else:
            codes = self._matched(column.cast(pa.large_string()) if kind == pa.string_view() else column)
        if column.null_count:
            codes[np.asarray(column.is_null())] = self.missing
        return codes

    def _numbers(self, column: Any) -> Code:
        kind = column.type
        if pa.types.is_decimal(kind) and kind.bit_width <= 64:
            column = column.cast(pa.decimal128(38, kind.scale))
        if self.loses_digits(kind):
            raise DataError(
                f"attribute {self.attribute.name!r}: a column of type {kind} cannot represent its large "
                "integers exactly; pass a column of integers (in pandas Int64, which also allows missing "
                "values) or of strings"
            )
        if self.attribute.edges is not None or pa.types.is_floating(kind):
            column = column.cast(pa.float32()) if pa.types.is_float16(kind) else column
            values = np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan)) + 0.0  # never -0
            codes = self.bins(values) if self.attribute.edges is not None else self._matched(pa.array(values))
            codes[np.isnan(values)] = self.missing
            return codes
        if pa.types.is_decimal(kind) or self.has_large_floats:  # one distinct value at a time
            encoded = column.dictionary_encode()
            codes = np.array([*map(self.code, encoded.dictionary.to_pylist()), self.missing], self.dtype)
            return codes.take(_filled(encoded.indices, len(encoded.dictionary)))
        if self._is_range and pa.types.is_signed_integer(kind):  # negative distances wrap to large ones
            values = np.asarray(column.fill_null(0)).astype(np.int64).view(np.uint64)
            distances = values - np.uint64(next(iter(self.integers)) % 2**64)
            return np.minimum(distances, self.unknown).astype(self.dtype)
        return self._matched(column)

    @cached_property
    def _is_range(self) -> bool:
        """Whether the labels are consecutive integers of 64 bits."""
        first = next(iter(self.integers), 0)
        labels = range(first, first + self.attribute.size)
        return -(2**63) <= first <= 2**63 - self.attribute.size and [*self.integers] == [*labels]

    def _matched(self, column: Any, kind: Any = None) -> Code:
        """Return the code of the label that each value equals; `kind` is `date` for the numbers of days."""
        key = kind or column.type
        if key not in self._known:
            labels = self._labels(key)
            codes = np.array([*labels.values(), self.unknown], self.dtype)
            self._known[key] = pa.array(list(labels), column.type), codes
        known, codes = self._known[key]
        return codes.take(_filled(pc.index_in(column, value_set=known), len(known)))

    @cached_property
    def _known(self) -> dict[Any, tuple[Any, Code]]:
        """The labels that values of each type can equal, and their codes: computed when needed."""
        return {}

    def _labels(self, kind: Any) -> dict[Any, int]:
        if kind is date:
            return {day_number(day): index for day, index in self.by_kind[date].items()}
        if pa.types.is_integer(kind):
            limits = np.iinfo(kind.to_pandas_dtype())
            return {v: index for v, index in self.integers.items() if limits.min <= v <= limits.max}
        if pa.types.is_floating(kind):
            return self.floats
        return self.by_kind[bool] if pa.types.is_boolean(kind) else self.texts


def sure_array(values: Any) -> Any | None:
    """Return Python objects as an Arrow array if they are all of one kind, so that none is converted."""
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        return None  # Arrow takes NumPy's True for 1 among integers, and crashes at some mixtures
    try:
        typed = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    return typed if typed.type in SURE else None


def kinds_in_words(matcher: Matcher) -> str:
    """Return the kinds of values that an attribute has, for a message."""
    words = {str: "texts", bool: "booleans", float: "numbers", date: "dates"}
    return " or ".join(words[kind] for kind in matcher.kinds)


def kind_of(kind: Any) -> type | None:
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


def _filled(indices: Any, missing: int) -> NDArray[np.int64]:
    """Return Arrow indices as a NumPy array, with `missing` for those that are null."""
    return np.asarray(indices.cast(pa.int64()).fill_null(missing))
