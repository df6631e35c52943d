"""Counts a Spark frame on its executors: counts go to the driver, never records.

The first job encodes the rows, and Spark keeps their codes in the executors' memory while the counter is in
use: about one byte per record and attribute. Codes are never kept on disk; what does not fit in memory is
computed again when needed. Each batch of marginals is then one job over the codes. A task counts its rows
into dense tables and sends them in the smallest integers that hold the counts; where more than a few tasks
count, other tasks sum what they send, so that the driver receives one table of each.

If at most some records of each person are counted, Spark first sorts the records by person (on disk, if they
do not fit in memory), and an encoding task holds one batch of rows and the records of one person.

Memory, whatever the number of rows: a counting task holds one batch of marginals at 8 bytes per cell, a copy
of its largest table and one Arrow batch of codes (`PIECE_BYTES`); a summing task holds what it receives
(`SUMMED_CELLS`); the driver holds one batch of marginals and what `DIRECT_TASKS` tasks send of it.

A Python task costs about 0.1 s, and one that counts also sends all its tables. So a local session gets a few
tasks per core, and tasks with few records are joined. The executors' Python needs this library too. Spark
itself is never imported here: the frame provides it.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from querysmasher.data import spark_tasks
from querysmasher.data.counting import Limits
from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.rows import Look, RowEncoder, TableCounter
from querysmasher.data.spark_tasks import (
    FINDINGS,
    INTEGERS,
    PERSON,
    SLAB_CELLS,
    SLABS,
    EncodedRows,
    Packing,
    arrow_type,
)
from querysmasher.errors import DataError
from querysmasher.privacy.counts import AttributeSet, Counts

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_TASKS = 200  # where the session's own setting is no number
ENCODING_TASKS = 4  # per counting task, so that the codes of one are easily kept
TASK_RECORDS = 2**18  # counting fewer takes less time than sending the tables
DIRECT_TASKS = 4  # maximum number that send tables to the driver at once; executors sum those of more
SUMMED_CELLS = 2**24  # received by one summing task: 16 MB of small counts, 128 MB of the largest
LACKS = re.compile(
    r"No module named '?(querysmasher|pyarrow|numpy|pyspark)|PYTHON_VERSION_MISMATCH|Cannot run program"
)
"""How Spark reports an unsuitable Python; messages of Spark and Python, compared and never shown."""


def open_spark(rows: RowEncoder, data: object, limits: Limits) -> SparkCounter | None:
    """Return a counter of a PySpark frame, classic or Connect, without importing PySpark."""
    is_spark = any(cls.__module__.startswith("pyspark.sql") for cls in type(data).__mro__)
    return SparkCounter(rows, data, limits) if is_spark and hasattr(data, "mapInArrow") else None


class SparkCounter(TableCounter):
    """Encodes a Spark frame once, and counts it in one job per batch of marginals."""

    def __init__(self, rows: RowEncoder, frame: Any, limits: Limits) -> None:
        """Select the needed columns; nothing is computed yet."""
        super().__init__(rows, limits)
        columns = list(frame.columns)
        check_columns(rows.columns, columns, person=rows.person)
        kinds = dict(_ask("reading the types of the columns", lambda: frame.dtypes))
        for name, encoder in rows.encoders.items():  # the tasks of a frame without records check no type
            kind = arrow_type(kinds[name])
            if kind is None:
                raise encoder.mismatch(kinds[name])
            encoder.encode(pa.nulls(0, kind))
        packing = Packing.of(rows.schema, rows.names, [kinds[name] for name in rows.names])
        # Under new names, because Spark fails on some names that it allows, such as those with a dot.
        selection = packing.selection([_quoted(name) for name in rows.names])
        if rows.person is not None:
            selection = [*selection, f"{_name(rows.person, kinds[rows.person])} AS {PERSON}"]
        selection = selection or ["1 AS c0"]  # one column at least, to know the number of rows
        self._frame = _ask("selecting the columns", frame.selectExpr, *selection)
        self._packing = packing
        self._whole = frame
        self._encoded: Any = None

    def inspect(self, look: Look) -> list[bytes]:
        selection = [f"{_quoted(name)} AS c{place}" for place, name in enumerate(self.rows.columns)]
        frame = _ask("selecting the columns", self._whole.selectExpr, *(selection or ["1 AS c0"]))
        frame = frame.mapInArrow(partial(spark_tasks.inspect_partition, self.rows, look), FINDINGS)
        rows = _ask("looking through the table in Spark", _run_job, frame, frame.collect)
        return [bytes(found) for (found,) in rows]

    def _scanned(self) -> tuple[int, Counts]:
        return _ask("counting in Spark", self._encode)

    def _tables(self, sets: Sequence[AttributeSet]) -> Iterator[Counts]:
        shapes = [self.rows.schema.shape(one) for one in sets]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        flat = _ask("counting in Spark", self._run, sets, int(ends[-1]))
        for shape, part in zip(shapes, np.split(flat, ends[:-1]), strict=True):
            yield part.reshape(shape).copy()

    def _encode(self) -> tuple[int, Counts]:
        """Encode the rows, keep their codes, and return their number and what was left out."""
        # Spark Connect recognises a kept frame by the bytes of its function. Ours is a copy that nobody uses:
        # the bytes would change with what a schema remembers of earlier questions.
        rows = EncodedRows(deepcopy(self.rows), self._packing)
        encode = partial(rows.encode, self._limits.read_rows)
        tasks = ENCODING_TASKS * _tasks(self._frame)
        if self.rows.bound is None:
            joined = self._frame.coalesce(tasks)
        else:  # all records of a person in one task, one after the other
            joined = self._frame.repartition(tasks, PERSON).sortWithinPartitions(PERSON)
        encoded = joined.mapInArrow(encode, rows.columns)
        encoded.persist(type(encoded.storageLevel).MEMORY_ONLY)
        # With the counter its codes go, however the counter ends; a session that ends first takes them along.
        weakref.finalize(self, _release, encoded).atexit = False
        sums = [f"sum({name})" for name in ("records", *rows.left_out)]
        summed = encoded.selectExpr("max(failure)", *sums)
        ((failure, records, *out),) = _run_job(summed, summed.collect)
        if failure is not None:
            raise DataError(failure)
        self._encoded = encoded
        return records or 0, np.array([number or 0 for number in out], np.int64)

    def _run(self, batch: Sequence[AttributeSet], cells: int) -> Counts:
        """Count one batch of marginals and return its tables in one flat array."""
        tasks = min(_tasks(self._frame), max(1, -(-self.records() // TASK_RECORDS)))
        rows = EncodedRows(self.rows, self._packing)
        count = partial(spark_tasks.count_partition, rows, tuple(batch), self._limits.chunk_rows)
        slabs = self._encoded.coalesce(tasks).mapInArrow(count, SLABS)
        if tasks > DIRECT_TASKS:
            summing = min(-(-cells // SLAB_CELLS), -(-tasks * cells // SUMMED_CELLS))
            slabs = slabs.repartition(summing, "slab").mapInArrow(spark_tasks.sum_partition, SLABS)
        flat = np.zeros(cells, np.int64)
        for part in _run_job(slabs, slabs.toArrow).to_batches():
            for slab, counts in spark_tasks.read_slabs(part):
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
    """Return the expression for the names of persons, which Spark can compare exactly."""
    if kind in (*INTEGERS, "string", "binary"):
        return _quoted(column)
    if re.fullmatch(r"decimal\((\d|1[0-8]),0\)", kind):
        return f"CAST({_quoted(column)} AS BIGINT)"
    found = re.split(r"[<(\[ ]", kind)[0]
    msg = f"person: expected a column of integers, strings or binary in {column!r}, got {found}; convert it"
    raise DataError(msg)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
