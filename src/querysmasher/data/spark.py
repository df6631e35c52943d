"""Counting where a Spark frame lives: partitions send tables of counts, never records.

Each batch of marginals is one job. A partition encodes its rows and counts them into dense tables; the
tables travel in slabs, equal slabs are summed on the executors, and the driver collects one table of each.
So the driver holds one batch of marginals, whatever the number of rows. The executors' Python needs this
library too. Spark itself is never imported here: the frame brings it along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.data.counter import Limits
from querysmasher.data.counting import Tally, batches, check_cells
from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.rows import RowEncoder
from querysmasher.errors import DataError
from querysmasher.privacy.counter import Counts
from querysmasher.privacy.sets import AttributeSet

SLAB_CELLS = 2**17  # 1 MiB of counts
MOST_PARTITIONS = 200  # where the session's own setting is no number
FAILED = -1  # the slab that carries an error's message instead of counts
MESSAGE_SCHEMA = "slab int, counts binary"
SCHEMA = pa.schema([("slab", pa.int32()), ("counts", pa.binary())])


def is_spark_frame(data: object) -> bool:
    """Tell whether this is a PySpark frame, classic or Connect, without importing PySpark."""
    return any(cls.__module__.startswith("pyspark.sql") for cls in type(data).__mro__) and hasattr(
        data, "mapInArrow"
    )


class SparkCounter:
    """Counts a Spark frame, one job per batch of marginals; cache the frame if computing it is costly."""

    def __init__(self, rows: RowEncoder, frame: Any, limits: Limits) -> None:
        """Select the columns that are needed; nothing is computed yet."""
        columns = list(frame.columns)
        check_columns(rows.names, columns)
        chosen = rows.names or columns[:1]  # one column at least, to know the number of rows
        # By number, because Spark stumbles over some names that it allows, like those with a dot.
        selection = [f"{_quoted(name)} AS c{place}" for place, name in enumerate(chosen)]
        self._frame = quietly("selecting the columns", frame.selectExpr, *selection)
        self._rows = rows
        self._limits = limits
        self._records: int | None = None

    def __repr__(self) -> str:
        """Name the attributes, and show nothing of the records."""
        return f"SparkCounter({', '.join(self._rows.names)})"

    def marginals(self, sets: Sequence[AttributeSet]) -> Iterator[Counts]:
        """Yield the exact counts of each attribute set, in order; nothing is computed before the first."""
        checked = self._rows.check_sets(sets)
        return self._marginals(checked, check_cells(self._rows.schema, checked))

    def records(self) -> int:
        """Return the exact number of records that are counted."""
        if self._records is None:
            self._records = int(next(self.marginals([()])))
        return self._records

    def _marginals(self, sets: Sequence[AttributeSet], cells: Sequence[int]) -> Iterator[Counts]:
        for batch in batches(sets, cells, self._limits.batch_cells):
            shapes = [self._rows.schema.shape(one) for one in batch]
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
            flat = quietly("counting in Spark", self._run, batch, int(ends[-1]))
            for shape, part in zip(shapes, np.split(flat, ends[:-1]), strict=True):
                yield part.reshape(shape).copy()

    def _run(self, batch: Sequence[AttributeSet], cells: int) -> Counts:
        """Count one batch of marginals and return its tables one after the other."""
        # Of many small partitions, the dense tables would outweigh the rows: join them first.
        setting = str(self._frame.sparkSession.conf.get("spark.sql.shuffle.partitions"))
        widest = int(setting) if setting.isdigit() else MOST_PARTITIONS
        reducers = min(-(-cells // SLAB_CELLS), widest)
        count = partial(_count_partition, self._rows, tuple(batch), self._limits.chunk_rows)
        slabs = self._frame.coalesce(widest).mapInArrow(count, MESSAGE_SCHEMA)
        summed = slabs.repartition(reducers, "slab").mapInArrow(_sum_partition, MESSAGE_SCHEMA)
        flat = np.zeros(cells, np.int64)
        for slab, counts in _collected(summed):
            if slab == FAILED:
                raise DataError(bytes(counts).decode())
            start = slab * SLAB_CELLS
            flat[start : start + SLAB_CELLS] += np.frombuffer(counts, np.int64)
        return flat


def _collected(frame: Any) -> Any:
    """Run the job, and say so if the executors' Python lacks this library."""
    try:
        return frame.collect()
    except Exception as error:
        if "No module named 'querysmasher'" not in str(error):
            raise
    msg = (
        "data: the Python of the Spark executors has no querysmasher; install it there, or point "
        "PYSPARK_PYTHON to a Python that has it before the Spark session starts"
    )
    raise DataError(msg)


def _count_partition(
    rows: RowEncoder, sets: tuple[AttributeSet, ...], chunk_rows: int, parts: Iterable[Any]
) -> Iterator[Any]:
    """Yield the slabs of a partition's tables, or one message: an error would be logged with its context."""
    try:
        tally = Tally(rows.schema, sets)
        names = list(rows.names)
        named = (part.rename_columns(names) for part in parts) if names else parts
        for codes in rows.chunks(named, chunk_rows):
            tally.add(codes)
    except DataError as error:
        yield _message(FAILED, str(error).encode())
        return
    flat = np.concatenate([table.reshape(-1) for table in tally.tables()])
    for slab, start in enumerate(range(0, len(flat), SLAB_CELLS)):
        yield _message(slab, flat[start : start + SLAB_CELLS].tobytes())


def _sum_partition(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the sum of each slab, and the first message if there is one."""
    sums: dict[int, Counts] = {}
    failure = None
    for part in parts:
        for slab, counts in zip(part.column(0).to_pylist(), part.column(1).to_pylist(), strict=True):
            if slab == FAILED:
                failure = failure or counts
            elif slab in sums:
                sums[slab] += np.frombuffer(counts, np.int64)
            else:
                sums[slab] = np.frombuffer(counts, np.int64).copy()
    if failure:
        yield _message(FAILED, failure)
    for slab, total in sums.items():
        yield _message(slab, total.tobytes())


def _message(slab: int, counts: bytes) -> Any:
    return pa.RecordBatch.from_pydict({"slab": [slab], "counts": [counts]}, schema=SCHEMA)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
