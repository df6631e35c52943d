"""Streams the rows of CSV and Parquet files: the table need not fit in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from querysmasher.data.counting import Limits
from querysmasher.data.csv import open_csv
from querysmasher.data.encoding import Texts
from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.framing import CSV
from querysmasher.data.rows import Batch, RowEncoder, ScanCounter, no_records
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


def open_path(rows: RowEncoder, data: object, limits: Limits) -> ScanCounter | None:
    """Return a counter of a CSV or Parquet file, of a glob, or of a directory of Parquet files."""
    if not isinstance(data, str | os.PathLike | CSV):
        return None
    path, paths, kind = _locate(data)
    if kind == "Parquet":
        root = path if Path(path).is_dir() else _fixed_part(path)
        parquet = [open_parquet(file, rows.columns, root, rows.person) for file in paths]
        return ScanCounter(rows, lambda: _chained(file.batches(limits.read_rows) for file in parquet), limits)
    for encoder in rows.encoders.values():
        if len(encoder.kinds) > 1:
            _ = encoder.labels  # which refuses those that are the same string
    dialect = data if isinstance(data, CSV) else CSV(data)
    texts = [open_csv(file, dialect, rows.columns, rows.person, rows.unknown == "drop") for file in paths]
    return ScanCounter(rows, lambda: _chained(file.batches() for file in texts), limits)


def check_path(data: object) -> None:
    """Refuse a path at which there is no file of a known kind; open nothing."""
    if issubclass(type(data), str | os.PathLike | CSV):  # asks the type, and leaves the data alone
        _locate(cast("str | os.PathLike[str] | CSV", data))


def _chained(files: Iterable[Generator[Batch]]) -> Generator[Batch]:
    for batches in files:
        yield from batches


def _locate(data: str | os.PathLike[str] | CSV) -> tuple[str, list[str], str]:
    """Return a path, its files, and their kind. An existing file is never read as a glob."""
    kind = "CSV" if isinstance(data, CSV) else None
    path = os.fspath(data.path if isinstance(data, CSV) else data)
    if Path(path).is_dir():
        files = sorted(map(str, Path(path).rglob("*.parquet")))
        kind = kind or "Parquet"
    else:
        kind = kind or next((k for suffix, k in SUFFIXES.items() if path.lower().endswith(suffix)), None)
        files = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))  # noqa: PTH207
        files = [file for file in files if Path(file).is_file()]
    if kind is None:
        msg = f"data: unknown kind of file {path!r}; expected a name ending in {', '.join(SUFFIXES)}"
        raise DataError(msg)
    if not files:
        folder = Path(path).is_dir()
        msg = f"data: no Parquet file in the folder {path!r}; name one file, or a glob such as '*.csv'"
        raise DataError(msg if folder else f"data: no file at {path!r}{starting(path)}")
    return path, files, kind


def _fixed_part(path: str) -> str:
    """Return the folder above the first pattern of a glob."""
    folder = Path(path).parent
    while glob.has_magic(str(folder)):
        folder = folder.parent
    return str(folder)


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
    """Read the schema of a file, and return the file; folders below `root` may give columns that it lacks."""
    columns = quietly(f"opening {path!r}", lambda: pa.parquet.read_schema(path).names)
    folders = Path(path).parent.parts[len(Path(root).parts) :]
    stated = {key: unquote(value) for key, sign, value in (f.partition("=") for f in folders) if sign}
    stated = {key: "" if value == NO_PARTITION else value for key, value in stated.items()}
    given = {name: stated[name] for name in names if name in stated and name not in columns}
    needed = [name for name in names if name not in given]
    check_columns(needed, columns, source=f"file {Path(path).name!r}", person=person)
    chosen = needed or columns[:1]  # one, to know the number of rows
    return ParquetFile(path, tuple(chosen), given)
