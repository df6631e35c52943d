"""Sends integer columns from Spark to Python eight at a time.

Spark takes as long to transfer a byte to Python as a long. So the values of an attribute whose labels are few
integers travel as their distance from the smallest label, eight attributes in one long. Any other value, and
a missing one, travels as the first distance beyond the largest label. Python turns distances into values
again and matches those with labels like all others: what stands for what is decided in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.attributes import Attribute
from querysmasher.schema import Schema

INTEGERS = ("tinyint", "smallint", "int", "bigint")
TYPES = dict(zip(INTEGERS, (pa.int8(), pa.int16(), pa.int32(), pa.int64()), strict=True)) | {
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    **dict.fromkeys(("string", "varchar", "char"), pa.string()),
}
PACKED = 8  # bytes in a long
BEYOND = 255
SAFE = 2**62  # labels beyond would have to be written with care


@dataclass(frozen=True)
class Packing:
    """How the columns of some attributes are sent.

    Attributes:
        names: the attributes, in the order in which they are sent.
        lows: the smallest label of each attribute that is packed, and None for one that is sent as it is.
        spans: the number of integers from the smallest to the largest label; 0 where it is sent as it is.
    """

    names: tuple[str, ...]
    lows: tuple[int | None, ...]
    spans: tuple[int, ...]

    @classmethod
    def of(cls, schema: Schema, names: Sequence[str], kinds: Sequence[str]) -> Packing:
        """Choose which columns to pack, from their Spark types."""
        ranges = [
            _range(schema[name]) if kind in INTEGERS else None
            for name, kind in zip(names, kinds, strict=True)
        ]
        lows = tuple(None if own is None else own.start for own in ranges)
        return cls(tuple(names), lows, tuple(0 if own is None else len(own) for own in ranges))

    @property
    def _groups(self) -> list[list[int]]:
        packed = [place for place, low in enumerate(self.lows) if low is not None]
        return [packed[start : start + PACKED] for start in range(0, len(packed), PACKED)]

    def selection(self, columns: Sequence[str]) -> list[str]:
        """Return the expressions to select, given the names of the columns: packed ones first."""
        longs = [
            reduce("(shiftleft({}, 8) | {})".format, [self._distance(p, columns[p]) for p in group])
            for group in self._groups
        ]
        plain = [column for column, low in zip(columns, self.lows, strict=True) if low is None]
        return [f"{what} AS c{place}" for place, what in enumerate(longs + plain)]

    def _distance(self, place: int, column: str) -> str:
        low, span = self.lows[place] or 0, self.spans[place]
        known = f"{column} BETWEEN {low}L AND {low + span - 1}L"
        return f"(CASE WHEN {known} THEN {column} - ({low}L) ELSE {span}L END)"

    def unpack(self, part: Any) -> Any:
        """Return a batch with one column per attribute, from one of the selected columns."""
        columns: dict[int, Any] = {}
        for number, group in enumerate(self._groups):
            own = np.asarray(part.column(number)).astype("<i8", copy=False).view(np.uint8).reshape(-1, PACKED)
            for byte, place in enumerate(reversed(group)):  # the first has been shifted most
                low = self.lows[place]
                assert low is not None  # noqa: S101 - as its group says
                columns[place] = pa.array(own[:, byte] + np.int64(low))
        plain = [place for place, low in enumerate(self.lows) if low is None]
        columns |= {place: part.column(len(self._groups) + n) for n, place in enumerate(plain)}
        return pa.RecordBatch.from_arrays(
            [columns[p] for p in range(len(self.names))], names=list(self.names)
        )


def arrow_type(kind: str) -> Any | None:
    """Return the Arrow type of a Spark type by its name; None for one that no attribute matches."""
    name = kind.split("(", maxsplit=1)[0]
    if name == "decimal":
        return pa.decimal128(38)
    return TYPES.get(name)


def joined(parts: Iterable[Any], rows: int) -> Iterator[Any]:
    """Join small batches into larger ones of at least `rows` rows."""
    held: list[Any] = []
    for part in parts:
        held.append(part)
        if sum(one.num_rows for one in held) >= rows:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _range(attribute: Attribute) -> range | None:
    """Return the integers from the smallest to the largest label, if all are integers and they are few.

    If missing values count as a declared value, they must differ from values outside the domain.
    """
    if attribute.edges is not None or attribute.missing is not None:
        return None
    labels = [label for label in attribute.values if isinstance(label, int) and not isinstance(label, bool)]
    if len(labels) < attribute.size:
        return None
    low, high = min(labels), max(labels)
    return range(low, high + 1) if max(-low, high) < SAFE and high - low < BEYOND else None
