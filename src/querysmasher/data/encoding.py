"""From the values of a column to codes: the places of the values in the attribute's domain.

A value matches the label that it equals. Text matches text, booleans match booleans, and numbers match
numbers of any width: 3 and 3.0 are the same. Text is never read as a number, nor the other way round. A date
matches dates and timestamps (see `dates`) and its ISO text. A missing value matches nothing, unless the
attribute declares the value that stands for missing ones.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.attributes import Attribute, Binned
from querysmasher.data.dates import day_number, days, is_date_column
from querysmasher.data.missing import is_missing
from querysmasher.errors import DataError

Code = NDArray[np.unsignedinteger[Any]]
"""Places of values in a domain, in the smallest type that holds the domain's size."""

INT64 = range(-(2**63), 2**63)
EXACT_FLOATS = 2**53  # from here on, different whole numbers are the same float


@dataclass(frozen=True)
class Encoder:
    """Turns columns into codes of one attribute; what is not in the domain gets the code `unknown`."""

    attribute: Attribute

    @property
    def unknown(self) -> int:
        """The code of every value outside the domain, and of a missing one."""
        return self.attribute.size

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The smallest type that holds every code and `unknown`."""
        return np.min_scalar_type(self.unknown)

    @property
    def kinds(self) -> tuple[type, ...]:
        """The kinds of values that the attribute has: `str`, `bool`, `date`, and `float` for any number."""
        return tuple(self._by_kind) or (float,)

    def encode(self, column: Any) -> Code:
        """Return the code of each value of an Arrow array."""
        codes = self._codes(column)
        if self.attribute.missing is not None:
            codes[is_missing(column)] = self.attribute.position(self.attribute.missing)
        return codes

    def _codes(self, column: Any) -> Code:
        """Return the code of each value, where a missing one is unknown."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            lookup = np.append(self._codes(column.dictionary), self.dtype.type(self.unknown))
            return lookup.take(_filled(column.indices, len(column.dictionary)))
        if pa.types.is_null(kind):
            return np.full(len(column), self.unknown, self.dtype)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._texts(column)
        if kind == pa.string_view():
            return self._texts(column.cast(pa.large_string()))
        if pa.types.is_boolean(kind):
            return self._booleans(column)
        if is_date_column(kind):
            return self._dates(column)
        if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
            return self._numbers(column.cast(pa.float64()))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._numbers(column)
        raise self._mismatch(kind)

    def _texts(self, column: Any) -> Code:
        labels = {str(day): place for day, place in self._by_kind.get(date, {}).items()}
        if not labels or str in self._by_kind:
            labels |= self._labels(str, column)
        found = pc.index_in(column, value_set=pa.array(list(labels), type=column.type))
        return self._lookup(labels.values()).take(_filled(found, len(labels)))

    def _booleans(self, column: Any) -> Code:
        labels = self._labels(bool, column)
        lookup = self._lookup(labels.get(value, self.unknown) for value in (False, True))
        return lookup.take(_filled(column.cast(pa.uint8()), 2))

    def _dates(self, column: Any) -> Code:
        labels = self._labels(date, column)
        return self._search(days(column), np.array([*map(day_number, labels)]), list(labels.values()))

    def _numbers(self, column: Any) -> Code:
        values = _filled(column, 0)
        if isinstance(self.attribute, Binned):
            codes = self._bins(values)
        elif values.dtype.kind == "f":
            codes = self._floats(values, self._labels(float, column))
        else:
            codes = self._integers(values, self._labels(float, column))
        if column.null_count:
            codes[np.asarray(column.is_null())] = self.unknown
        return codes

    def _bins(self, values: NDArray[Any]) -> Code:
        edges = np.array(self.attribute.edges, dtype=np.float64)  # type: ignore[attr-defined]
        values = values.astype(np.float64, copy=False)
        bins = np.searchsorted(edges, values, side="right") - 1
        bins[values == edges[-1]] = self.attribute.size - 1
        bins[bins < 0] = self.unknown
        return bins.astype(self.dtype)  # NaN sorts after the last edge, which is `unknown` as well

    def _integers(self, values: NDArray[Any], labels: dict[Any, int]) -> Code:
        whole = {int(v): p for v, p in labels.items() if math.isfinite(v) and int(v) == v}
        places = {v: p for v, p in whole.items() if v in INT64}
        if not places:
            return np.full(len(values), self.unknown, self.dtype)
        low, high = min(places), max(places)
        beyond = values > INT64[-1] if values.dtype == np.uint64 else None
        values = values.astype(np.int64, copy=False)
        if high - low < max(2**12, 16 * len(places)):
            # One guard at either end; a difference that wraps around still misses the domain.
            lookup = np.full(high - low + 3, self.unknown, self.dtype)
            for value, place in places.items():
                lookup[value - low + 1] = place
            codes = lookup.take(values - low + 1, mode="clip")
        else:
            codes = self._search(values, np.array(list(places)), list(places.values()))
        if beyond is not None:
            codes[beyond] = self.unknown
        return codes

    def _floats(self, values: NDArray[Any], labels: dict[Any, int]) -> Code:
        places = {v: p for v, p in labels.items() if isinstance(v, float) or abs(v) < EXACT_FLOATS}
        known: NDArray[Any] = np.array(list(places), dtype=np.float64)
        if values.dtype == np.float32:
            # 0.1 in a narrow column means the label 0.1, unless that would make two labels one.
            with np.errstate(over="ignore"):
                narrow = known.astype(np.float32)
            known = narrow if len(np.unique(narrow)) == len(narrow) else known
        return self._search(values, known, list(places.values()))

    def _search(self, values: NDArray[Any], known: NDArray[Any], places: list[int]) -> Code:
        if not len(known):
            return np.full(len(values), self.unknown, self.dtype)
        order = np.argsort(known)
        known = known[order]
        nearest = np.minimum(np.searchsorted(known, values), len(known) - 1)
        codes = self._lookup(places)[:-1][order][nearest]
        codes[known[nearest] != values] = self.unknown
        return codes

    def _lookup(self, places: Any) -> Code:
        """Return the given places as codes, with `unknown` at the end."""
        return np.array([*places, self.unknown], dtype=self.dtype)

    def _labels(self, kind: type, column: Any) -> dict[Any, int]:
        """Return the labels of a kind (float: any number) with their places, or refuse the column."""
        if kind not in self._by_kind:
            raise self._mismatch(column.type)
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[type, dict[Any, int]]:
        groups: dict[type, dict[Any, int]] = {}
        if isinstance(self.attribute, Binned):
            return groups
        for place, label in enumerate(self.attribute.values):
            kind = next((k for k in (str, bool, date) if isinstance(label, k)), float)
            groups.setdefault(kind, {})[label] = place
        return groups

    def _mismatch(self, kind: object) -> DataError:
        words = {str: "texts", bool: "booleans", float: "numbers", date: "dates"}
        expected = " or ".join(words[k] for k in self.kinds)
        found = re.split(r"[<(\[]", str(kind))[0]  # fields, lengths and digits may come from the data
        return DataError(f"attribute {self.attribute.name!r}: expected a column of {expected}, got {found}")


def _filled(column: Any, missing: int) -> NDArray[Any]:
    """Return an Arrow array as a numpy one, with `missing` for what is missing."""
    if column.null_count:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.int64()) if column.type != pa.uint64() else column
        column = column.fill_null(missing)
    return np.asarray(column)
