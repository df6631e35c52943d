"""Counts a Spark frame on its executors: the driver receives counts, never records.

The first job encodes the rows, and Spark keeps their codes in the executors' memory while the counter is in
use: about one byte per record and attribute. Codes are never kept on disk; what does not fit in memory is
computed again when needed. Each batch of marginals is then one job over the codes. A task counts its rows
into dense tables and sends them in slabs, each in the smallest integers that hold its counts; a slab of zeros
is not sent. If many tasks count, further tasks sum their tables before the driver receives them.

If the number of records per person is bounded, Spark first sorts the records by person (on disk, if they do
not fit in memory), and an encoding task holds one batch of rows and the records of one person.

Each task turns the Arrow batches of one partition into messages, as `mapInArrow` requires. An error of this
library is also sent as a message: raised on an executor, it would be logged together with records.

Memory, whatever the number of rows: a counting task holds one batch of marginals at 8 bytes per cell, twice,
and one Arrow batch of codes (`PIECE_BYTES`); a summing task holds what it receives (`SUMMED_CELLS`); the
driver holds one batch of marginals and what `DIRECT_TASKS` tasks send of it.

A Python task costs about 0.1 s, and one that counts also sends all its tables. So a local session gets a few
tasks per core, and tasks with few records are joined. The executors' Python needs this library too. This file
does not import Spark: the frame provides it.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from querysmasher.data.counting import Adder, Codes, Tally
from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.people import bounded_in_order, cut
from querysmasher.data.rows import Different, Look, RowEncoder, TableCounter
from querysmasher.errors import DataError
from querysmasher.privacy.counts import Counts

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_TASKS = 200  # if the session's setting is not a number
ENCODING_TASKS = 4  # per counting task, so that the codes of each fit in memory
TASK_RECORDS = 2**18  # counting fewer takes less time than sending the tables
DIRECT_TASKS = 4  # maximum number that send tables to the driver at once; executors sum those of more
SUMMED_CELLS = 2**24  # received by one summing task: 16 MB of small counts, 128 MB of the largest
LACKS = re.compile(
    r"No module named '?(querysmasher|pyarrow|numpy|pyspark)|PYTHON_VERSION_MISMATCH|Cannot run program"
)
"""Messages by which Spark reports an unsuitable Python; they are recognised and never shown."""


INTEGERS = ("tinyint", "smallint", "int", "bigint")
TYPES = dict(zip(INTEGERS, (pa.int8(), pa.int16(), pa.int32(), pa.int64()), strict=True)) | {
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "decimal": pa.decimal128(38),
    **dict.fromkeys(("string", "varchar", "char"), pa.string()),
}

PIECE_BYTES = 2**14
"""Bytes of codes per row of the encoded frame: Spark moves 10,000 rows at once by default, 160 MB."""
SLAB_CELLS = 2**14
"""Counts per row: 10,000 rows of 8-byte counts are 1.3 GB, below the 2 GB limit of an Arrow array."""
BATCH_ROWS, STRING_ROWS = 64, 2**14
"""Rows sent at a time, of codes or counts and of strings, because Spark takes 1 ms for each batch."""
SLABS = "failure string, slab int, width int, counts binary"
"""A slab's counts as unsigned integers of `width` bytes, the fewest that hold the largest count. Sums, which
may be negative, are signed integers of -`width` bytes."""
FINDINGS = "found binary"
STRINGS = "failure string, found string"
SENT = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
"""The types of what tasks send, by Spark's names."""


def open_spark(rows: RowEncoder, data: object) -> SparkCounter | None:
    """Return a counter of a PySpark frame, classic or Connect, without importing PySpark."""
    is_spark = any(cls.__module__.startswith("pyspark.sql") for cls in type(data).__mro__)
    return SparkCounter(rows, data) if is_spark and hasattr(data, "mapInArrow") else None


class SparkCounter(TableCounter):
    """Encodes a Spark frame once, and counts it in one job per batch of marginals."""

    def __init__(self, rows: RowEncoder, frame: Any) -> None:
        """Select the needed columns; nothing is computed yet."""
        super().__init__(rows)
        columns = list(frame.columns)
        check_columns(rows.columns, columns, person=rows.person)
        kinds = dict(_ask("reading the types of the columns", lambda: frame.dtypes))
        for name, encoder in rows.encoders.items():  # the tasks of a frame without records check no type
            kind = TYPES.get(kinds[name].split("(", maxsplit=1)[0])
            if kind is None:
                raise encoder.mismatch(kinds[name])
            encoder.encode(pa.nulls(0, kind))
        words = {n: _name(n, kinds[n]) if n == rows.person else _quoted(n) for n in rows.columns}
        # Under new names, because Spark fails on some names that it allows, such as those with a dot.
        selection = [f"{what} AS c{number}" for number, what in enumerate(words.values())]
        selection = selection or ["1 AS c0"]  # one column at least, to know the number of rows
        self._frame = _ask("selecting the columns", frame.selectExpr, *selection)
        self._encoded: Any = None

    def inspect(self, look: Look) -> list[bytes]:
        """Return what `look` finds in each partition, as `ScanCounter` does."""
        frame = self._frame.mapInArrow(partial(inspect_partition, self.rows, look), FINDINGS)
        rows = _ask("looking through the table in Spark", _run_job, frame, frame.collect)
        return [bytes(findings) for (findings,) in rows]

    def different(self, of: Different) -> Iterator[Any]:
        """Yield arrays of what `of` finds, as `ScanCounter` does, each string once."""
        frame = self._frame.mapInArrow(partial(different_strings, self.rows, of), STRINGS).distinct()
        for part in _ask("reading the values in Spark", _run_job, frame, frame.toArrow).to_batches():
            _check(part)
            yield part.column(1).cast(pa.large_string())

    def _scanned(self) -> tuple[int, Counts]:
        return _ask("counting in Spark", self._encode)

    def _tables(self, tally: Callable[[], Tally | Adder]) -> Iterator[Counts]:
        shapes = tally().shapes
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        flat = _ask("counting in Spark", self._run, tally, int(ends[-1]))
        for shape, part in zip(shapes, np.split(flat, ends[:-1]), strict=True):
            yield part.reshape(shape).copy()

    def _encode(self) -> tuple[int, Counts]:
        """Encode the rows, keep their codes, and return their number and what was left out."""
        # Spark Connect recognises a kept frame by the bytes of its function. A copy that nothing else uses
        # keeps these bytes the same; properties that the rows cache would change them.
        rows = EncodedRows(deepcopy(self.rows))
        tasks = ENCODING_TASKS * _tasks(self._frame)
        if self.rows.bound is None:
            joined = self._frame.coalesce(tasks)
        else:  # all records of a person in one task, one after the other
            person = f"c{self.rows.columns.index(self.rows.bound.column)}"
            joined = self._frame.repartition(tasks, person).sortWithinPartitions(person)
        encoded = joined.mapInArrow(rows.encode, rows.columns)
        encoded.persist(type(encoded.storageLevel).MEMORY_ONLY)
        # The codes are released with the counter, or with the session if that ends first.
        weakref.finalize(self, _release, encoded).atexit = False
        sums = [f"sum({name})" for name in ("records", *rows.left_out)]
        summed = encoded.selectExpr("max(failure)", *sums)
        ((failure, records, *out),) = _run_job(summed, summed.collect)
        if failure is not None:
            raise DataError(failure)
        self._encoded = encoded
        return records or 0, np.array([number or 0 for number in out], np.int64)

    def _run(self, tally: Callable[[], Tally | Adder], cells: int) -> Counts:
        """Count one batch of tables and return them in one flat array."""
        tasks = min(_tasks(self._frame), max(1, -(-self.records() // TASK_RECORDS)))
        count = partial(count_partition, EncodedRows(self.rows), tally)
        slabs = self._encoded.coalesce(tasks).mapInArrow(count, SLABS)
        if tasks > DIRECT_TASKS:
            summing = min(-(-cells // SLAB_CELLS), -(-tasks * cells // SUMMED_CELLS))
            slabs = slabs.repartition(summing, "slab").mapInArrow(sum_partition, SLABS)
        flat = np.zeros(cells, np.int64)
        for part in _run_job(slabs, slabs.toArrow).to_batches():
            for slab, counts in read_slabs(part):
                start = slab * SLAB_CELLS
                flat[start : start + SLAB_CELLS] += counts
        return flat


def _ask(doing: str, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of a call into Spark, as `quietly` does, and collect no garbage meanwhile.

    Spark's connection fails if the collector frees one of its objects while an answer is being read: freeing
    it sends a command over the same connection (py4j, "reentrant call").
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return quietly(doing, call, *arguments, **options)
    finally:
        if collects:
            gc.enable()


def _tasks(frame: Any) -> int:
    """Return the number of counting tasks: the cores of a local session, or the session's setting."""
    session = frame.sparkSession
    if _is_local(session) and hasattr(session, "sparkContext"):
        return max(1, int(session.sparkContext.defaultParallelism))
    setting = str(session.conf.get("spark.sql.shuffle.partitions"))
    return int(setting) if setting.isdigit() and int(setting) else DEFAULT_TASKS


def _is_local(session: Any) -> bool:
    return str(session.conf.get("spark.master", "")).startswith("local")


def _run_job(frame: Any, job: Callable[[], T]) -> T:
    """Run a job on the frame; explain the error if the executors' Python is unsuitable."""
    try:
        return job()
    except Exception as error:
        if not LACKS.search(str(error)):
            raise
    remedy = "install it there, or point PYSPARK_PYTHON to a Python that has it"
    if _is_local(frame.sparkSession):
        remedy = f"set the environment variable PYSPARK_PYTHON to this process's Python, {sys.executable!r},"
    raise DataError(
        "data: the Python of the Spark executors does not have querysmasher, or has another Python version "
        f"than this process; {remedy} before the Spark session starts"
    )


def _release(encoded: Any) -> None:
    with suppress(Exception):  # the session may have ended, and the codes with it
        encoded.unpersist()


def _name(column: str, kind: str) -> str:
    """Return an expression for the names of persons that Spark compares exactly."""
    if kind in (*INTEGERS, "string", "binary"):
        return _quoted(column)
    if re.fullmatch(r"decimal\((\d|1[0-8]),0\)", kind):
        return f"CAST({_quoted(column)} AS BIGINT)"
    got = re.split(r"[<(\[ ]", kind)[0]
    msg = f"person: expected a column of integers, strings or binary in {column!r}, got {got}; convert it"
    raise DataError(msg)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def joined(parts: Iterable[Any], rows: int) -> Iterator[Any]:
    """Join small batches into larger ones of at least `rows` rows."""
    held: list[Any] = []
    for part in parts:
        held.append(part)
        if sum(batch.num_rows for batch in held) >= rows:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


@dataclass(frozen=True)
class EncodedRows:
    """The rows of the encoded frame: each has the codes of several records, a column per attribute.

    The columns before the codes have the numbers of `Counter.left_out`, to be summed over all rows.
    """

    rows: RowEncoder

    @property
    def columns(self) -> str:
        """The columns as a Spark schema."""
        out = (f", {name} bigint" for name in self.left_out)
        codes = (f", c{number} binary" for number in range(len(self.rows.names)))
        return "failure string, records int" + "".join([*out, *codes])

    @property
    def left_out(self) -> list[str]:
        """The columns of the numbers of what was left out."""
        return [f"out{number}" for number in range(len(self.rows.nothing_left_out))]

    def encode(self, parts: Iterable[Any]) -> Iterator[Any]:
        """Encode the rows of a partition, or yield the message of a refusal."""
        return _sent(self.columns, self._pieces(parts))

    def _pieces(self, parts: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the records that are counted: all, or at most some of each person."""
        rows, bound, dtypes = self.rows.limits.read_rows, self.rows.bound, self._dtypes
        chunks = self.rows.chunks(joined(_named(self.rows, parts), rows), rows)  # small batches take longer
        step = max(1, PIECE_BYTES // max(1, sum(dtype.itemsize for dtype in dtypes.values())))
        for codes in chunks if bound is None else bounded_in_order(bound, chunks):
            for piece in cut(codes, step):
                out = (self.rows.nothing_left_out if piece.out is None else piece.out).tolist()
                columns = (piece.columns[name].astype(d).tobytes() for name, d in dtypes.items())
                yield None, piece.rows, *out, *columns

    def decode(self, part: Any) -> Codes:
        """Return the codes of a batch, or raise the refusal that it carries."""
        _check(part)
        columns = {}
        for number, (name, dtype) in enumerate(self._dtypes.items(), start=2 + len(self.left_out)):
            columns[name] = np.frombuffer(b"".join(part.column(number).to_pylist()), dtype)
        return Codes(columns, sum(part.column(1).to_pylist()))

    @property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        return {name: np.min_scalar_type(self.rows.schema[name].size) for name in self.rows.names}


def count_partition(
    encoded: EncodedRows, tally: Callable[[], Tally | Adder], parts: Iterable[Any]
) -> Iterator[Any]:
    """Yield the slabs of a partition's tables, one table after the other."""

    def counted() -> Iterator[tuple[int, Counts]]:
        into = tally()
        for part in parts:
            for chunk in cut(encoded.decode(part), encoded.rows.limits.chunk_rows):
                into.add(chunk)
        flat = np.concatenate([table.reshape(-1) for table in into.tables()])
        yield from enumerate(np.split(flat, range(SLAB_CELLS, flat.size, SLAB_CELLS)))

    return send_slabs(counted())


def sum_partition(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the sum of each slab of a partition, or a refusal if there is one."""

    def summed() -> Iterator[tuple[int, Counts]]:
        sums: dict[int, Counts] = {}
        for part in parts:
            for slab, counts in read_slabs(part):
                sums[slab] = sums[slab] + counts if slab in sums else counts
        yield from sums.items()

    return send_slabs(summed())


def inspect_partition(rows: RowEncoder, look: Look, parts: Iterable[Any]) -> Iterator[Any]:
    """Yield what `look` finds in a partition: for `check`, which shows records."""
    findings = look(rows, _named(rows, parts))
    yield _batch(FINDINGS, [(findings,)])


def different_strings(rows: RowEncoder, of: Different, parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the different strings of a partition, or a refusal."""
    found = (of(rows, part) for part in joined(_named(rows, parts), rows.limits.read_rows))
    return _sent(STRINGS, ((None, text) for texts in found for text in texts.to_pylist()), STRING_ROWS)


def _named(rows: RowEncoder, parts: Iterable[Any]) -> Iterable[Any]:
    """Return batches of the selected frame with the names of their columns."""
    return (part.rename_columns(list(rows.columns)) for part in parts) if rows.columns else parts


def _sent(columns: str, rows: Iterator[tuple[Any, ...]], size: int = BATCH_ROWS) -> Iterator[Any]:
    """Yield rows as batches; an error of this library becomes a last row with a first column."""
    failure = None
    try:
        while batch := list(islice(rows, size)):
            yield _batch(columns, batch)
    except DataError as error:
        failure = str(error)
    if failure:
        yield _batch(columns, [(failure, *[None] * columns.count(","))])


def _batch(columns: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return rows as an Arrow batch; the columns are a Spark schema."""
    fields = dict(column.split() for column in columns.split(", "))
    values = zip(*rows, strict=True)
    arrays = [pa.array(column, SENT[kind]) for column, kind in zip(values, fields.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(fields))


def send_slabs(slabs: Iterator[tuple[int, Counts]]) -> Iterator[Any]:
    """Yield numbered slabs as batches, or a refusal; slabs of zeros are not sent."""

    def narrowed() -> Iterator[tuple[Any, ...]]:
        for slab, counts in slabs:
            low, high = int(counts.min()), int(counts.max())
            kind = np.min_scalar_type(high if low >= 0 else min(low, -1 - high)).newbyteorder("<")
            if counts.any():
                width = kind.itemsize if low >= 0 else -kind.itemsize
                yield None, slab, width, counts.astype(kind).tobytes()

    return _sent(SLABS, narrowed())


def read_slabs(part: Any) -> Iterator[tuple[int, Counts]]:
    """Iterate over the slabs of a batch, with their numbers, or raise the refusal that it carries."""
    _check(part)
    columns = (part.column(number).to_pylist() for number in (1, 2, 3))
    for slab, width, counts in zip(*columns, strict=True):
        kind = f"<u{width}" if width > 0 else f"<i{-width}"
        yield slab, np.frombuffer(counts, kind).astype(np.int64)


def _check(part: Any) -> None:
    """Raise the refusal that a batch carries in its first column, if there is one."""
    for failure in filter(None, part.column(0).to_pylist()):
        raise DataError(failure)
