"""Rows of a dataframe in memory: pandas, Polars, PyArrow and whatever else narwhals knows."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import narwhals as nw
import pyarrow as pa

from querysmasher.data.counter import Limits
from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.rows import RowEncoder
from querysmasher.data.scan import ScanCounter


def count_frame(rows: RowEncoder, frame: Any, limits: Limits) -> ScanCounter:
    """Return a counter of a narwhals frame; a lazy one is collected when it is read, needed columns only."""
    lazy = isinstance(frame, nw.LazyFrame)
    columns = quietly(
        "reading the columns", lambda: frame.collect_schema().names() if lazy else frame.columns
    )
    check_columns(rows.names, columns)
    chosen = list(rows.names or columns[:1])  # one column at least, to know the number of rows
    return ScanCounter(rows, partial(_batches, frame, chosen, limits.read_rows), limits)


def _batches(frame: Any, names: list[str], rows: int) -> Generator[Any]:
    frame = quietly("reading the frame", frame.select, names)
    if isinstance(frame, nw.LazyFrame):
        frame = quietly("collecting the lazy frame", frame.collect)
    for start in range(0, len(frame), rows):
        part = frame[start : start + rows]
        columns = [quietly(f"reading column {name!r}", _arrow, part, name) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _arrow(part: Any, name: str) -> Any:
    """Return a column as one Arrow array."""
    column = part[name].to_arrow()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
