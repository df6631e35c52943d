"""Which values a column has: every value that occurs, and counts of them, for `privacy/discovery` only.

A table is read twice: for the values that occur, and to count them by the same code as any marginal, with
codes that are places in the sorted list of these values.

A value is text, a number, a boolean or a date. What it is depends on the value alone, never on other records
or on the type in which a library happens to store the column, which one record can change (`encoding`): 3,
3.0 and a decimal 3 are one number, and a timestamp at midnight is a date. Missing values, infinite numbers,
numbers from 2^53 on (which floats do not distinguish), other times of day, text that is not Unicode and
objects of other kinds are no values: their records are not counted. All values of a CSV file are text, and
an empty field is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querysmasher.attributes import Attribute, Label
from querysmasher.data.counting import Limits
from querysmasher.data.encoding import (
    EPOCH,
    EXACT_FLOATS,
    INTEGER,
    MISSING_TYPES,
    PLAIN,
    Code,
    Encoder,
    Strings,
    days,
    kind_of,
    midnight,
    plain_number,
    sure_array,
)
from querysmasher.data.foreign import quietly
from querysmasher.data.framing import UNREADABLE
from querysmasher.data.rows import RowEncoder, TableCounter
from querysmasher.data.sources import counter_of
from querysmasher.errors import DataError
from querysmasher.privacy.bound import Bound, ValueBound
from querysmasher.privacy.factors import Integers
from querysmasher.schema import Schema

TEXT, NUMBER, BOOLEAN, DAY = "tnbd"
"""The first characters of keys: a key is a value with its kind, as a string."""

NOTHING = ""
"""The key of no value: it comes first, so that there always is one."""

READ_ROWS = 2**20
"""Rows read in one step: every step looks its values up in a table of all."""

Keys = Any
"""An Arrow array of strings; null for what is no value."""


def key(value: Any) -> str | None:
    """Return the key of a Python value, or None if it is no value."""
    if isinstance(value, np.generic):
        value = None if isinstance(value, np.datetime64) else value.item()
    if type(value).__name__ in MISSING_TYPES:
        return None
    if isinstance(value, complex) and not value.imag:  # one complex number makes all complex in pandas
        value = value.real
    if isinstance(value, Decimal):
        value = plain_number(value)
    value = midnight(value)
    if isinstance(value, bool):
        return f"{BOOLEAN}{value:d}"
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT_FLOATS:
        value = int(value)
    if isinstance(value, int):
        return f"{NUMBER}{int(value)}" if abs(value) < EXACT_FLOATS else None
    if isinstance(value, float):
        return f"{NUMBER}{value!r}" if math.isfinite(value) and abs(value) < EXACT_FLOATS else None
    if isinstance(value, str):
        readable = UNREADABLE not in value and value.encode(errors="replace").decode() == value
        return f"{TEXT}{value}" if readable else None
    return f"{DAY}{value.isoformat()}" if type(value) is date else None


def label(text: str) -> Label:
    """Return the value that has a key."""
    kind, rest = text[0], text[1:]
    if kind == NUMBER:
        return int(rest) if INTEGER.fullmatch(rest) else float(rest)
    if kind == BOOLEAN:
        return rest == "1"
    return date.fromisoformat(rest) if kind == DAY else rest


def keys(column: Any, name: str) -> Keys:
    """Return the key of each value of a column: an Arrow array, Python objects, or strings."""
    if isinstance(column, Strings):
        column = pc.if_else(pc.equal(column.column, ""), None, column.column)
    if isinstance(column, np.ndarray):
        typed = sure_array(column)
        if typed is None:
            of = lru_cache(maxsize=None, typed=True)(key)
            return pa.array([of(v) if type(v) in PLAIN else key(v) for v in column], pa.large_string())
        column = typed
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return keys(column.dictionary, name).take(column.indices)
    of_kind = kind_of(kind)
    if of_kind is None and not types.is_null(kind):
        got = str(kind).split("<", maxsplit=1)[0].split("[", maxsplit=1)[0]
        raise DataError(
            f"attribute {name!r}: expected a column of strings, numbers, booleans or dates, got {got}"
        )
    if of_kind is str:
        column = column.cast(pa.large_string())
        with suppress(pa.ArrowInvalid):  # if some are not Unicode; its message quotes one
            column.validate(full=True)
            lost = pc.match_substring(column, pattern=UNREADABLE)
            text, between = (pa.scalar(word, pa.large_string()) for word in (TEXT, ""))
            return pc.binary_join_element_wise(text, pc.if_else(lost, None, column), between)
        column = column.cast(pa.large_binary())
    elif of_kind is date:
        column = _known_days(column)
    elif types.is_floating(kind):
        column = column.cast(pa.float64())
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    decoded = (v.decode(errors="surrogateescape") if isinstance(v, bytes) else v for v in values)
    return pa.array(map(key, decoded), pa.large_string()).take(encoded.indices)


def _known_days(column: Any) -> Any:
    """Return the dates of a column that Python has; null for others, and for other times of day."""
    number = np.asarray(days(column).fill_null(-(2**31)), dtype=np.int64)
    is_day = (number >= date.min.toordinal() - EPOCH) & (number <= date.max.toordinal() - EPOCH)
    return pa.array(np.where(is_day, number, 0).astype(np.int32), mask=~is_day).cast(pa.date32())


class Places(Attribute):
    """The places of keys in their list, as values of an attribute."""

    def __post_init__(self) -> None:
        """Check nothing: the values are places."""


@dataclass(frozen=True)
class ValueEncoder(Encoder):
    """Turns values into the places of their keys in a sorted list."""

    known: Keys
    reads_strings = False  # whatever the places are

    def accepts(self, kind: Any) -> bool:  # noqa: ARG002 - any type
        """Return that a column of any type may be read."""
        return True

    def loses_digits(self, kind: Any) -> bool:  # noqa: ARG002 - any type
        """Return that no type merges values, because those that floats do not distinguish are no values."""
        return False

    def codes(self, column: Any) -> Code:
        """Return the place of each value in the list, or the code of a missing one."""
        found = pc.index_in(keys(column, self.attribute.name), value_set=self.known)
        return np.asarray(found.fill_null(self.missing)).astype(self.dtype)


@dataclass(frozen=True, repr=False)
class ValueRows(RowEncoder):
    """Encodes rows as places of the values of one column."""

    known: Keys = field(default_factory=lambda: pa.array([NOTHING], pa.large_string()))

    @cached_property
    def encoders(self) -> dict[str, Encoder]:
        """The encoder of the column."""
        return {name: ValueEncoder(self.schema[name], self.known) for name in self.names}

    @classmethod
    def of(cls, column: str, known: Keys, bound: Bound | None, limits: Limits) -> ValueRows:
        """Return the rows of a column with these values."""
        schema = Schema([Places(column, range(len(known)))])
        return cls(schema, (column,), "drop", bound, limits, known)

    def keys(self, batch: Any) -> Keys:
        """Return the different values of a batch."""
        (name,) = self.names
        found = quietly(f"reading attribute {name!r}", keys, batch.column(name), name)
        return found.unique().drop_null()


@dataclass(frozen=True, repr=False)
class Values:
    """The values that occur in a column: as private as the table.

    Attributes:
        counter: counts them, by their places.
        known: their keys.
    """

    counter: TableCounter
    known: Keys

    def labels(self, places: Integers) -> list[Label]:
        """Return the values at some places."""
        return [label(text) for text in self.known.take(pa.array(places)).to_pylist()]


def open_values(column: str, data: Any, bound: Bound | None, limits: Limits | None = None) -> Values:
    """Open a table, and read which values a column has.

    With a `bound`, at most its number of values of each person are counted, once each.
    """
    limits = limits or Limits(read_rows=READ_ROWS, people_bytes=2**28)
    none = pa.array([NOTHING], pa.large_string())
    rows = ValueRows.of(column, none, bound, limits)
    counter_of(rows, data)  # refuses what it can before anything is read
    known = _joined(counter_of(replace(rows, bound=None), data).different(ValueRows.keys))
    if bound is not None:
        words = np.fromiter(
            (bound.number(text.encode()) for text in known.to_pylist()), np.uint64, len(known)
        )
        bound = ValueBound(bound.column, bound.most, bound.key, words=words)
    return Values(counter_of(ValueRows.of(column, known, bound, limits), data), known)


def _joined(parts: Iterable[Keys]) -> Keys:
    """Return all keys once, in order, and that of no value."""
    held, more = pa.array([NOTHING], pa.large_string()), []
    for part in parts:
        more.append(part)
        if sum(map(len, more)) > len(held) + READ_ROWS:
            held, more = pa.concat_arrays([held, *more]).unique(), []
    held = pa.concat_arrays([held, *more]).unique()
    return held.take(pc.sort_indices(held))
