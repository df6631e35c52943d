"""Tables of other libraries: dataframes (pandas, Polars, PyArrow, …, by narwhals) and DuckDB relations."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from querysmasher.data.encoding import sure_array
from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.people import can_name
from querysmasher.data.rows import Batch, RowEncoder, ScanCounter, no_records
from querysmasher.errors import DataError

OBJECTS = ("object", "Object", "Int128", "UInt128")
"""Types of pandas and Polars that Arrow does not have: their values are read as Python objects."""


def open_frame(rows: RowEncoder, data: object) -> ScanCounter | None:
    """Return a counter of a frame; a lazy one is collected when read, with needed columns only."""
    native = _without_doubles(data, rows.columns)
    frame: Any = quietly("opening the frame", nw.from_native, native, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return None
    lazy = isinstance(frame, nw.LazyFrame)
    columns = quietly(
        "reading the columns", lambda: frame.collect_schema().names() if lazy else frame.columns
    )
    check_columns(rows.columns, columns, person=rows.person)
    chosen = list(rows.columns or columns[:1])  # one column at least, to know the number of rows
    pandas_like = frame.implementation.is_pandas_like()
    if pandas_like:
        _check_labels(rows, frame)
    inferring = rows if pandas_like and rows.unknown == "drop" else None
    return ScanCounter(rows, partial(_batches, frame, chosen, rows.limits.read_rows, inferring))


def _batches(frame: Any, names: list[str], size: int, inferring: RowEncoder | None) -> Generator[Batch]:
    frame = quietly("reading the frame", frame.select, names)
    if isinstance(frame, nw.LazyFrame):
        frame = quietly("collecting the lazy frame", frame.collect)
    for start in range(0, max(1, len(frame)), size):  # once at least: types are refused without records too
        part = frame[start : start + size]
        columns = {n: quietly(f"reading column {n!r}", _column, part[n], n, inferring) for n in names}
        yield Batch(columns, len(part))


def _fits(rows: RowEncoder, name: str, kind: Any) -> bool:
    """Return whether a pandas column of this type is read as it is, if records are dropped.

    pandas infers types: one text makes objects of integers, and one missing value floats. So no type is
    refused, or one record would decide; values of a type that does not fit are read as objects, one by one.
    """
    encoder = rows.encoders.get(name)
    named = name != rows.person or can_name(kind)
    return named and (encoder is None or (encoder.accepts(kind) and not encoder.loses_digits(kind)))


def _check_labels(rows: RowEncoder, frame: Any) -> None:
    """Refuse pandas' own types for labels that floats cannot distinguish: one missing value makes floats."""
    for name, encoder in rows.encoders.items():
        inferred = isinstance(getattr(frame[name].to_native(), "dtype", None), np.dtype)
        if inferred and encoder.loses_digits(pa.float64()):
            raise DataError(
                f"attribute {name!r}: a column of pandas' own types cannot represent its large integers "
                "exactly as soon as one value is missing; pass a column of type Int64 or of strings"
            )


def _column(series: Any, name: str, inferring: RowEncoder | None) -> Any:
    """Return a column as one Arrow array, or as its Python objects."""
    native = series.to_native()
    kind = getattr(native, "dtype", None)
    categories = getattr(kind, "categories", None)  # which Arrow would convert because of one another
    unsure = str(getattr(categories, "dtype", "")) == "object" and sure_array(categories) is None
    if str(kind) in OBJECTS or unsure:  # by the frame's own word: narwhals looks at the values
        return np.asarray(native if str(kind) == "object" or unsure else native.to_list(), dtype=object)
    try:
        column = series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeError):
        return np.asarray(native, dtype=object)  # categories of several kinds; halves of characters
    if inferring is not None and not _fits(inferring, name, column.type):
        return np.asarray(native, dtype=object)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _without_doubles(native: Any, names: Sequence[str]) -> Any:
    """Return a pandas or Arrow frame with only the needed columns, if a name is repeated.

    Refuse a frame in which a needed column is repeated.
    """
    if isinstance(native, pa.Table):
        columns = native.column_names
    elif type(native).__module__.split(".")[0] == "pandas" and hasattr(native, "columns"):
        columns = list(native.columns)
    else:
        return native
    if len(set(columns)) == len(columns):
        return native
    check_columns(names, columns)
    indexes = [columns.index(name) for name in names] or [0]  # one at least, to know the number of rows
    return native.select(indexes) if isinstance(native, pa.Table) else native.iloc[:, indexes]


WIDE = ("HUGEINT", "UHUGEINT", "BIGNUM")
"""DuckDB's integers that Arrow cannot hold: they are read as strings of digits."""


def open_relation(rows: RowEncoder, data: Any) -> ScanCounter | None:
    """Return a counter of a DuckDB relation, which is evaluated when it is read."""
    duckdb = sys.modules.get("duckdb")  # loaded, if there is a relation
    if duckdb is None or not isinstance(data, duckdb.DuckDBPyRelation):
        return None
    columns = data.columns
    check_columns(rows.columns, columns, person=rows.person)
    chosen = rows.columns or columns[:1]  # one column at least, to know the number of rows
    types = dict(zip(columns, map(str, data.types), strict=True))
    wide = [name for name in chosen if types[name] in WIDE and rows.reads_texts(name)]
    casts = {name: f"CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in wide}
    selection = ", ".join(casts.get(name, _quoted(name)) for name in chosen)
    return ScanCounter(rows, partial(_relation_batches, data, selection, rows.limits.read_rows))


def _relation_batches(relation: Any, selection: str, rows: int) -> Generator[Any]:
    selected = quietly("reading the table", relation.project, selection)
    # DuckDB before 1.4 has the reader under its older name.
    read = getattr(selected, "to_arrow_reader", None) or selected.fetch_arrow_reader
    with closing(quietly("reading the table", read, rows)) as reader:
        yield no_records(reader.schema)
        yield from quiet_iterator("reading the table", reader)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
