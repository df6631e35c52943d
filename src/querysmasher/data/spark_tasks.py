"""The tasks of Spark executors: encode rows, count codes, sum counts.

Each function goes from the Arrow batches of one partition to messages, as `mapInArrow` requires. Codes stay
on the executors; only tables of counts go on to the driver. A table is sent in slabs, each in the smallest
integers that represent its counts; a slab of zeros is not sent. An error of ours is also sent as a message:
raised on an executor, it would be logged with its context.

Spark takes as long to transfer a byte to Python as a long. So the values of an attribute whose labels are few
integers travel as their distance from the smallest label, eight attributes in one long (`Packing`). Any other
value, and a missing one, travels as the first distance beyond the largest label. Python turns distances into
values again and matches those with labels like all others: what stands for what is decided in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.attributes import Attribute
from querysmasher.data.counting import Codes, Tally
from querysmasher.data.people import bounded_in_order
from querysmasher.data.rows import Batch, Look, RowEncoder
from querysmasher.errors import DataError
from querysmasher.privacy.counts import AttributeSet, Counts
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


PIECE_BYTES = 2**14
"""Codes per row of the encoded frame. Spark moves 10,000 rows at once by default, so 160 MB of codes."""
SLAB_CELLS = 2**14
"""Counts per row; 10,000 rows of the widest counts are 1.3 GB, below the 2 GB of an Arrow array."""
BATCH_SLABS = 64
SLAB_TYPES: dict[int, np.dtype[Any]] = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}
"""The integers of a slab, by their width in bytes; the narrowest that holds the largest count is taken."""
SLAB_SCHEMA = pa.schema(
    [("failure", pa.string()), ("slab", pa.int32()), ("width", pa.int32()), ("counts", pa.binary())]
)
SLABS = "failure string, slab int, width int, counts binary"
FINDINGS = "found binary"
PERSON = "person"
"""The column of the names of persons in the selected frame."""


@dataclass(frozen=True)
class EncodedRows:
    """The rows of the encoded frame: some records each, with one column of codes per attribute.

    Before the codes stand the numbers of `Counter.left_out`, which are to be summed over all rows.
    """

    rows: RowEncoder
    packing: Packing

    @property
    def columns(self) -> str:
        """The columns as a Spark schema."""
        out = (f", {name} bigint" for name in self.left_out)
        codes = (f", c{place} binary" for place in range(len(self.rows.names)))
        return "failure string, records int" + "".join([*out, *codes])

    @property
    def left_out(self) -> list[str]:
        """The columns of the numbers of what was left out."""
        return [f"out{place}" for place in range(len(self.rows.nothing_left_out))]

    def encode(self, read_rows: int, parts: Iterable[Any]) -> Iterator[Any]:
        """Encode the rows of a partition, or yield the message of a refusal."""
        batches = joined(parts, read_rows)  # or small ones would take most of the time
        failure = None
        try:
            for codes in self._counted(batches, read_rows):
                yield self._message(codes)
        except DataError as error:
            failure = str(error)
        if failure:
            yield self._batch([failure], [0], None, [[b""] for _ in self.rows.names])

    def _counted(self, batches: Iterable[Any], read_rows: int) -> Iterator[Codes]:
        """Return the codes of the records that are counted: all, or at most some of each person."""
        bound = self.rows.bound
        if bound is None:
            names = self.rows.names
            return self.rows.chunks(map(self.packing.unpack, batches) if names else batches, read_rows)
        return bounded_in_order(bound, self.rows.chunks(map(self._with_person, batches), read_rows))

    def _with_person(self, part: Any) -> Batch:
        """Return a batch of the attributes' columns and the names of the persons."""
        columns = {self.rows.person or "": part.column(PERSON)}
        if self.rows.names:
            unpacked = self.packing.unpack(part)
            columns |= {name: unpacked.column(name) for name in self.rows.names}
        return Batch(columns, part.num_rows)

    def decode(self, part: Any) -> Codes:
        """Return the codes of a batch, or raise the refusal that it carries."""
        _check(part)
        columns = {}
        for place, (name, dtype) in enumerate(zip(self.rows.names, self._dtypes, strict=True)):
            column = part.column(place + 2 + len(self.left_out))
            columns[name] = np.frombuffer(b"".join(column.to_pylist()), dtype)
        return Codes(columns, sum(part.column(1).to_pylist()))

    @property
    def _dtypes(self) -> list[np.dtype[Any]]:
        return [np.min_scalar_type(self.rows.schema[name].size) for name in self.rows.names]

    def _message(self, codes: Codes) -> Any:
        step = max(1, PIECE_BYTES // max(1, sum(dtype.itemsize for dtype in self._dtypes)))
        starts = range(0, max(1, codes.rows), step)  # one row at least, for what was left out
        pieces = []
        for name, dtype in zip(self.rows.names, self._dtypes, strict=True):
            column = codes.columns[name].astype(dtype, copy=False)
            pieces.append([column[start : start + step].tobytes() for start in starts])
        records = [min(step, codes.rows - start) for start in starts]
        return self._batch([None] * len(starts), records, codes.out, pieces)

    def _batch(
        self,
        failures: Sequence[str | None],
        records: Sequence[int],
        out: Counts | None,
        pieces: Sequence[Sequence[bytes]],
    ) -> Any:
        """Return rows of the encoded frame; the first has the numbers of what was left out."""
        arrays = [pa.array(failures, pa.string()), pa.array(records, pa.int32())]
        first = (self.rows.nothing_left_out if out is None else out).tolist()
        arrays += [pa.array([number] + [0] * (len(records) - 1), pa.int64()) for number in first]
        arrays += [pa.array(column, pa.binary()) for column in pieces]
        names = ["failure", "records", *self.left_out, *(f"c{place}" for place in range(len(pieces)))]
        return pa.RecordBatch.from_arrays(arrays, names=names)


def count_partition(
    encoded: EncodedRows, sets: tuple[AttributeSet, ...], chunk_rows: int, parts: Iterable[Any]
) -> Iterator[Any]:
    """Yield the slabs of a partition's tables, one table after the other.

    At a time a task holds the tables of the sets, 8 bytes per cell, once, a copy of the largest, and the
    codes of one Arrow batch.
    """
    tally = Tally(encoded.rows.schema, sets)
    failure = None
    try:
        for part in parts:
            codes = encoded.decode(part)
            for start in range(0, codes.rows, chunk_rows):
                rows = min(chunk_rows, codes.rows - start)
                chunk = {name: column[start : start + rows] for name, column in codes.columns.items()}
                tally.add(Codes(chunk, rows))
    except DataError as error:
        failure = str(error)
    yield from ([_refusal(failure)] if failure else _messages(enumerate(_slabs(tally.tables()))))


def sum_partition(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the sum of each slab of a partition, or a refusal if there is one."""
    sums: dict[int, Counts] = {}
    failure = None
    try:
        for part in parts:
            for slab, counts in read_slabs(part):
                sums[slab] = sums[slab] + counts if slab in sums else counts
    except DataError as error:
        failure = str(error)
    yield from [_refusal(failure)] if failure else _messages(sums.items())


def inspect_partition(rows: RowEncoder, look: Look, parts: Iterable[Any]) -> Iterator[Any]:
    """Yield what `look` finds in a partition: for `check`, which shows records."""
    named = (part.rename_columns(list(rows.columns)) for part in parts) if rows.columns else parts
    found = look(rows, named)
    yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], names=["found"])


def read_slabs(part: Any) -> Iterator[tuple[int, Counts]]:
    """Iterate over the slabs of a batch, with their numbers, or raise the refusal that it carries."""
    _check(part)
    columns = (part.column(place).to_pylist() for place in (1, 2, 3))
    for slab, width, counts in zip(*columns, strict=True):
        yield slab, np.frombuffer(counts, SLAB_TYPES[width]).astype(np.int64)


def _check(part: Any) -> None:
    """Raise the refusal that a batch carries in its first column, if there is one."""
    for failure in filter(None, part.column(0).to_pylist()):
        raise DataError(failure)


def _slabs(tables: Iterable[Counts]) -> Iterator[Counts]:
    """Cut tables, one after the other, into slabs; only the last may be shorter than the others."""
    held = np.empty(SLAB_CELLS, np.int64)
    filled = 0
    for table in tables:
        flat = table.reshape(-1)
        start = 0
        while start < flat.size:
            step = min(SLAB_CELLS - filled, flat.size - start)
            held[filled : filled + step] = flat[start : start + step]
            filled, start = filled + step, start + step
            if filled == SLAB_CELLS:
                yield held
                filled = 0
    if filled:
        yield held[:filled]


def _messages(slabs: Iterable[tuple[int, Counts]]) -> Iterator[Any]:
    """Write slabs as batches of rows: many at a time, because Spark takes 1 ms for each batch."""
    rows: list[tuple[None, int, int, bytes]] = []
    for slab, counts in slabs:
        most = int(counts.max())
        if most:
            width = next(width for width, dtype in SLAB_TYPES.items() if most <= np.iinfo(dtype).max)
            rows.append((None, slab, width, counts.astype(SLAB_TYPES[width]).tobytes()))
        if len(rows) == BATCH_SLABS:
            yield _slab_batch(rows)
            rows = []
    if rows:
        yield _slab_batch(rows)


def _refusal(failure: str) -> Any:
    return _slab_batch([(failure, 0, 1, b"")])


def _slab_batch(rows: Sequence[tuple[str | None, int, int, bytes]]) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SLAB_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SLAB_SCHEMA)
