"""Reading Parquet files, by row groups."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from querysmasher.data.foreign import check_columns, quiet_iterator, quietly
from querysmasher.data.rows import Batch, no_records
from querysmasher.data.texts import Texts

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
