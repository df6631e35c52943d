"""Opens a table, wherever it lives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

import duckdb
import narwhals as nw

from querysmasher.data.counting import Limits
from querysmasher.data.foreign import quietly
from querysmasher.data.frames import count_frame, without_doubles
from querysmasher.data.framing import CSV
from querysmasher.data.paths import check_exists, count_file, count_relation
from querysmasher.data.rows import RowEncoder
from querysmasher.data.spark import SparkCounter, is_spark_frame
from querysmasher.errors import DataError, as_given
from querysmasher.privacy.counts import Counter
from querysmasher.privacy.persons import Bound
from querysmasher.schema import Schema


def check_source(
    schema: Schema, data: object, attributes: Sequence[str], unknown: str, bound: Bound | None = None
) -> None:
    """Refuse options and paths that `open_table` would refuse, without opening the table."""
    RowEncoder(schema, tuple(attributes), unknown, bound)
    if issubclass(type(data), str | os.PathLike | CSV):  # asks the type, and leaves the data alone
        check_exists(cast("str | os.PathLike[str] | CSV", data))


def open_table(
    schema: Schema,
    data: object,
    attributes: Sequence[str],
    unknown: str = "refuse",
    limits: Limits | None = None,
    bound: Bound | None = None,
) -> Counter:
    """Return a counter of a table: exact counts, for `privacy/measurement` only.

    Columns are matched to attributes by name, and values by the rule in `values`. Nothing about the domain is
    read from the data. Other columns are ignored.

    Args:
        schema: the domain.
        data: a pandas, Polars, PyArrow or PySpark frame, a DuckDB relation, or the path of a CSV or Parquet
            file, a glob, or a directory of Parquet files; or a `CSV`, which states the dialect of a file.
        attributes: the attributes that will be counted.
        unknown: "refuse" raises `DataError` when a record has a missing value, or one outside the domain, in
            one of `attributes`; "drop" omits the whole record from every count. Attributes that are not
            counted are not read.
        limits: memory limits; see `Limits`.
        bound: how many records of each person are counted; by default all are.

    >>> import pyarrow
    >>> table = pyarrow.table({"a": [0, 1, 1], "other": ["x", "y", "z"]})
    >>> open_table(Schema.of(a=2, b=3), table, ["a"])
    ScanCounter(a)
    """
    names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
    rows = RowEncoder(schema, names, unknown, bound)
    limits = limits or Limits()
    if isinstance(data, str | os.PathLike | CSV):
        return count_file(rows, data, limits)
    native = nw.to_native(data, pass_through=True)
    if isinstance(native, duckdb.DuckDBPyRelation):
        return count_relation(rows, native, limits)
    if is_spark_frame(native):
        return SparkCounter(rows, native, limits)
    native = without_doubles(native, rows.columns)
    frame = quietly("opening the frame", nw.from_native, native, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        raise DataError(
            "data: expected a pandas, Polars, PyArrow or PySpark frame, a DuckDB relation, or the path of a "
            f"CSV or Parquet file, got {as_given(data)}; for lists, arrays and columns write "
            "pandas.DataFrame({'sex': ['F', 'M'], 'age': [30, 40]})"
        )
    return count_frame(rows, frame, limits)
