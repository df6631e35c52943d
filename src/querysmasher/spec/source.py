"""The source of the data: a file, or a table of a DuckDB database."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from querysmasher.data.foreign import quietly
from querysmasher.data.framing import CSV
from querysmasher.errors import FileError


@dataclass(frozen=True)
class Source:
    """A CSV or Parquet file, a glob, a folder of Parquet files; or a table of a DuckDB database."""

    path: Path
    table: str | None = None
    style: Mapping[str, str] = field(default_factory=dict)
    """The dialect of a CSV file: options of `CSV`."""

    def check(self) -> None:
        """Refuse a source that does not exist."""
        if not self.path.exists() and not glob.glob(str(self.path), recursive=True):  # noqa: PTH207
            msg = f"data: no file {str(self.path)!r}"
            raise FileError(msg)

    def open(self) -> Any:
        """Return the data for `measure`. Nothing is read yet, and nothing is ever modified."""
        self.check()
        if self.table is None:
            parquet = self.path.is_dir() or self.path.suffix.lower() in (".parquet", ".pq")
            return CSV(self.path, **self.style) if self.style and not parquet else self.path
        import duckdb  # noqa: PLC0415 - takes a while to load

        connection = quietly("opening the database", duckdb.connect, str(self.path), read_only=True)
        connection.execute("SET enable_progress_bar = false")  # otherwise it prints to stdout
        return quietly(f"opening the table {self.table!r}", connection.table, self.table)
