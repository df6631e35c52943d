"""Rows of a dataframe in memory: pandas, Polars, PyArrow and others that narwhals supports."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from querysmasher.data.counter import Limits
from querysmasher.data.encoding import sure_array
from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.rows import Batch, RowEncoder
from querysmasher.data.scan import ScanCounter


def count_frame(rows: RowEncoder, frame: Any, limits: Limits) -> ScanCounter:
    """Return a counter of a narwhals frame; a lazy one is collected when read, with needed columns only."""
    lazy = isinstance(frame, nw.LazyFrame)
    columns = quietly(
        "reading the columns", lambda: frame.collect_schema().names() if lazy else frame.columns
    )
    check_columns(rows.columns, columns, person=rows.person)
    chosen = list(rows.columns or columns[:1])  # one column at least, to know the number of rows
    return ScanCounter(rows, partial(_batches, frame, chosen, limits.read_rows), limits)


def _batches(frame: Any, names: list[str], rows: int) -> Generator[Batch]:
    frame = quietly("reading the frame", frame.select, names)
    if isinstance(frame, nw.LazyFrame):
        frame = quietly("collecting the lazy frame", frame.collect)
    for start in range(0, len(frame), rows):
        part = frame[start : start + rows]
        columns = {name: quietly(f"reading column {name!r}", _column, part[name]) for name in names}
        yield Batch(columns, len(part))


def _column(series: Any) -> Any:
    """Return a column as one Arrow array, or as its Python objects."""
    native = series.to_native()
    kind = getattr(native, "dtype", None)
    categories = getattr(kind, "categories", None)  # which Arrow would convert because of one another
    unsure = str(getattr(categories, "dtype", "")) == "object" and sure_array(categories) is None
    if str(kind) == "object" or unsure:  # by pandas' own word: narwhals looks at the values
        return np.asarray(native, dtype=object)
    try:
        column = series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # categories of several kinds
        return np.asarray(native, dtype=object)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
