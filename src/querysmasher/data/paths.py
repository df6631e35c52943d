"""Streams the rows of CSV and Parquet files: the table need not fit in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from querysmasher.data.counting import Limits
from querysmasher.data.csv import CSVFile, open_csv
from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.framing import CSV
from querysmasher.data.rows import Batch, RowEncoder, ScanCounter, no_records
from querysmasher.data.values import Texts, text_labels
from querysmasher.endings import starting
from querysmasher.errors import DataError

SUFFIXES = {
    ".csv": "CSV",
    ".csv.gz": "CSV",
    ".tsv": "CSV",
    ".tsv.gz": "CSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
}


WIDE = ("HUGEINT", "UHUGEINT", "BIGNUM")
"""DuckDB's integers that Arrow cannot hold: they are read as strings of digits."""


def count_file(rows: RowEncoder, data: str | os.PathLike[str] | CSV, limits: Limits) -> ScanCounter:
    """Return a counter of a CSV or Parquet file, of a glob, or of a directory of Parquet files."""
    stated = isinstance(data, CSV)
    path = os.fspath(data.path if isinstance(data, CSV) else data)
    paths, kind = _locate(path, "CSV" if stated else None)
    if kind == "Parquet":
        root = path if Path(path).is_dir() else _fixed_part(path)
        parquet = [open_parquet(one, rows.columns, root, rows.person) for one in paths]
        return ScanCounter(rows, partial(_parquet_batches, parquet, limits.read_rows), limits)
    for encoder in rows.encoders.values():
        if len(encoder.places.kinds) > 1:
            text_labels(encoder.attribute)  # which refuses labels that are the same string
    dialect = data if isinstance(data, CSV) else CSV(data)
    texts = [open_csv(one, dialect, rows.columns, rows.person, rows.unknown == "drop") for one in paths]
    return ScanCounter(rows, partial(_csv_batches, texts), limits)


def check_exists(data: str | os.PathLike[str] | CSV) -> None:
    """Refuse a path at which there is no file of a known kind; open nothing."""
    stated = isinstance(data, CSV)
    _locate(os.fspath(data.path if isinstance(data, CSV) else data), "CSV" if stated else None)


def count_relation(rows: RowEncoder, relation: Any, limits: Limits) -> ScanCounter:
    """Return a counter of a DuckDB relation, which is evaluated when it is read."""
    columns = relation.columns
    check_columns(rows.columns, columns, person=rows.person)
    chosen = rows.columns or columns[:1]  # one column at least, to know the number of rows
    types = dict(zip(columns, map(str, relation.types), strict=True))
    wide = [name for name in chosen if types[name] in WIDE and rows.reads_texts(name)]
    casts = {name: f"CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in wide}
    selection = ", ".join(casts.get(name, _quoted(name)) for name in chosen)
    return ScanCounter(rows, partial(_relation_batches, relation, selection, limits.read_rows), limits)


def _csv_batches(files: Sequence[CSVFile]) -> Generator[Any]:
    for file in files:
        yield from file.batches()


def _parquet_batches(files: Sequence[ParquetFile], rows: int) -> Generator[Any]:
    for file in files:
        yield from file.batches(rows)


def _relation_batches(relation: Any, selection: str, rows: int) -> Generator[Any]:
    selected = quietly("reading the table", relation.project, selection)
    # DuckDB before 1.4 has the reader under its older name.
    read = getattr(selected, "to_arrow_reader", None) or selected.fetch_arrow_reader
    with closing(quietly("reading the table", read, rows)) as reader:
        yield no_records(reader.schema)
        yield from quiet_iterator("reading the table", reader)


def _locate(path: str, kind: str | None) -> tuple[list[str], str]:
    """Return the files of a path, and their kind. An existing file is never read as a glob."""
    if Path(path).is_dir():
        found = sorted(map(str, Path(path).rglob("*.parquet")))
        kind = kind or "Parquet"
    else:
        kind = kind or next((k for suffix, k in SUFFIXES.items() if path.lower().endswith(suffix)), None)
        found = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))  # noqa: PTH207
        found = [one for one in found if Path(one).is_file()]
    if kind is None:
        msg = f"data: unknown kind of file {path!r}; expected a name ending in {', '.join(SUFFIXES)}"
        raise DataError(msg)
    if not found:
        folder = Path(path).is_dir()
        msg = f"data: no Parquet file in the folder {path!r}; name one file, or a glob such as '*.csv'"
        raise DataError(msg if folder else f"data: no file at {path!r}{starting(path)}")
    return found, kind


def _fixed_part(path: str) -> str:
    """Return the folder above the first pattern of a glob."""
    folder = Path(path).parent
    while glob.has_magic(str(folder)):
        folder = folder.parent
    return str(folder)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ParquetFile:
    """One file, the columns read from it, and those given by its folders (`year=2024/`)."""

    path: str
    columns: tuple[str, ...]
    stated: dict[str, str]

    def batches(self, rows: int) -> Generator[Batch]:
        """Iterate over the records."""
        with quietly("reading the table", pa.parquet.ParquetFile, self.path) as file:
            columns = list(self.columns)
            yield self._batch(no_records(file.schema_arrow))
            parts = quietly("reading the table", file.iter_batches, batch_size=rows, columns=columns)
            for part in quiet_iterator("reading the table", parts):
                yield self._batch(part)

    def _batch(self, part: Any) -> Batch:
        columns = {name: part.column(name) for name in self.columns}
        texts = {n: Texts(pa.array([v] * part.num_rows, pa.large_string())) for n, v in self.stated.items()}
        return Batch(columns | texts, part.num_rows)


def open_parquet(path: str, names: Sequence[str], root: str, person: str | None = None) -> ParquetFile:
    """Read the schema of a file, and return the file.

    Args:
        path: the file.
        names: the needed columns; a column missing from the file may be given by its folders.
        root: the folder below which folder names give columns.
        person: which of the columns says to whom a record belongs.
    """
    columns = quietly(f"opening {path!r}", lambda: pa.parquet.read_schema(path).names)
    folders = Path(path).parent.parts[len(Path(root).parts) :]
    stated = {key: unquote(value) for key, sign, value in (f.partition("=") for f in folders) if sign}
    stated = {key: "" if value == NO_PARTITION else value for key, value in stated.items()}
    own = {name: stated[name] for name in names if name in stated and name not in columns}
    needed = [name for name in names if name not in own]
    check_columns(needed, columns, place=f"file {Path(path).name!r}", person=person)
    chosen = needed or columns[:1]  # one, to know the number of rows
    return ParquetFile(path, tuple(chosen), own)
