"""Rows of CSV and Parquet files and of DuckDB relations, streamed: the table need not fit in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from querysmasher.attributes import Attribute, Categorical
from querysmasher.data.counter import Limits
from querysmasher.data.encoding import Encoder
from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.rows import RowEncoder
from querysmasher.data.scan import ScanCounter
from querysmasher.errors import DataError, SchemaError
from querysmasher.schema import Schema

# Files are matched column by column on the name. CSV is read as text: no type is guessed from the data.
READERS = {
    "CSV": "FROM read_csv($path, header = true, all_varchar = true, union_by_name = true)",
    "Parquet": "FROM read_parquet($path, union_by_name = true)",
}
SUFFIXES = {".csv": "CSV", ".csv.gz": "CSV", ".tsv": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}


def count_file(rows: RowEncoder, path: str | os.PathLike[str], limits: Limits) -> ScanCounter:
    """Return a counter of a CSV or Parquet file, of a glob, or of a directory of Parquet files."""
    path, kind = _locate(os.fspath(path))
    if kind == "CSV":
        rows = RowEncoder(_as_text(rows.schema, rows.names), rows.names, rows.unknown)
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")  # or it draws on stdout
    relation = quietly(f"opening {path!r}", connection.sql, READERS[kind], params={"path": path})
    expressions = {name: _parsed(rows.schema[name]) for name in rows.names} if kind == "CSV" else {}
    return _count(rows, relation, expressions, limits)


def count_relation(rows: RowEncoder, relation: Any, limits: Limits) -> ScanCounter:
    """Return a counter of a DuckDB relation, which is run when it is read."""
    return _count(rows, relation, {}, limits)


def _count(rows: RowEncoder, relation: Any, expressions: dict[str, str], limits: Limits) -> ScanCounter:
    columns = relation.columns
    check_columns(rows.names, columns)
    chosen = rows.names or columns[:1]  # one column at least, to know the number of rows
    parts = [f"{expressions.get(name, _quoted(name))} AS {_quoted(name)}" for name in chosen]
    return ScanCounter(rows, partial(_batches, relation, ", ".join(parts), limits.read_rows), limits)


def _batches(relation: Any, selection: str, rows: int) -> Generator[Any]:
    selected = quietly("reading the table", relation.project, selection)
    # DuckDB before 1.4 has the reader under its older name.
    read = getattr(selected, "to_arrow_reader", None) or selected.fetch_arrow_reader
    with closing(quietly("reading the table", read, rows)) as reader:
        yield from quiet_iterator("reading the table", reader)


def _locate(path: str) -> tuple[str, str]:
    """Return the path that DuckDB is to read, and the kind of file there."""
    if Path(path).is_dir():
        path = str(Path(path) / "**" / "*.parquet")
    kind = next((kind for suffix, kind in SUFFIXES.items() if path.lower().endswith(suffix)), None)
    if kind is None:
        msg = (
            f"data: cannot tell the kind of file of {path!r}; expected a name ending in {', '.join(SUFFIXES)}"
        )
        raise DataError(msg)
    if "://" not in path and not Path(path).is_file() and not glob.glob(path, recursive=True):  # noqa: PTH207
        msg = f"data: no file at {path!r}"
        raise DataError(msg)
    return path, kind


def _as_text(schema: Schema, names: tuple[str, ...]) -> Schema:
    """Return the schema of a CSV file, where an attribute with labels of several kinds is all text."""

    def read(attribute: Attribute) -> Attribute:
        if len(Encoder(attribute).kinds) == 1:
            return attribute
        try:
            return Categorical(attribute.name, attribute.labels)
        except SchemaError:
            msg = f"attribute {attribute.name!r}: two of its values are the same text in a CSV file"
            raise DataError(msg) from None

    return Schema([read(a) if a.name in names else a for a in schema])


def _parsed(attribute: Attribute) -> str:
    """Return the SQL that makes values out of the text of a CSV column; what is no such value is missing."""
    column = _quoted(attribute.name)
    kinds = Encoder(attribute).kinds
    if kinds == (float,):
        return f"TRY_CAST({column} AS DOUBLE)"
    if kinds == (bool,):
        return f"TRY_CAST({column} AS BOOLEAN)"
    # An empty field is read as missing; it is a value only where the domain has the empty text.
    return f"COALESCE({column}, '')" if "" in attribute.values else column


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
