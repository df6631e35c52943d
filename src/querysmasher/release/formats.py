"""File formats of answers, by the ending of the file's name; each is written one Arrow table at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from querysmasher.errors import FileError
from querysmasher.extras import xlsxwriter
from querysmasher.release.tidy import plain

SHEET_ROWS = 1_048_575
"""Maximum number of rows of a sheet of Excel, below its header."""

About = Mapping[str, Any]
"""Where the figures come from, as plain data."""


class Writer:
    """Writes tables to a file, and closes it."""

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Complete the file, unless an error occurred."""
        self.close(failed=error[0] is not None)

    def write(self, table: Any) -> None:
        """Append a table."""
        raise NotImplementedError

    def close(self, *, failed: bool) -> None:
        """Complete the file."""
        raise NotImplementedError


class ParquetWriter(Writer):
    """Parquet, with the provenance in its metadata."""

    def __init__(self, path: Path, schema: Any, about: About) -> None:
        """Open the file."""
        noisy = {"value", "low", "high", "cv"}  # which no compression makes smaller
        self._schema = schema.with_metadata({"querysmasher": json.dumps(about)})
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression={name: "NONE" if name in noisy else "ZSTD" for name in schema.names},
            use_dictionary=[name for name in schema.names if name not in noisy],
            write_statistics=False,
        )

    def write(self, table: Any) -> None:
        self._writer.write_table(table.replace_schema_metadata(self._schema.metadata))

    def close(self, *, failed: bool) -> None:  # noqa: ARG002 - the file is deleted on failure
        self._writer.close()


class CsvWriter(Writer):
    """CSV, compressed if the name ends in .gz."""

    def __init__(self, path: Path, schema: Any, about: About, *, compressed: bool = False) -> None:  # noqa: ARG002
        """Open the file."""
        self._file = pa.OSFile(str(path), "wb")
        self._sink = pa.CompressedOutputStream(self._file, "gzip") if compressed else self._file
        self._writer = pyarrow.csv.CSVWriter(self._sink, plain(schema.empty_table()).schema)

    def write(self, table: Any) -> None:
        self._writer.write_table(plain(table))

    def close(self, *, failed: bool) -> None:  # noqa: ARG002
        self._writer.close()
        self._sink.close()
        self._file.close()


class ArrowWriter(Writer):
    """Arrow's file format, also called Feather."""

    def __init__(self, path: Path, schema: Any, about: About) -> None:
        """Open the file."""
        own = plain(schema.empty_table()).schema.with_metadata({"querysmasher": json.dumps(about)})
        self._schema = own
        self._file = pa.OSFile(str(path), "wb")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_file(self._file, own, options=options)

    def write(self, table: Any) -> None:
        self._writer.write_table(plain(table).replace_schema_metadata(self._schema.metadata))

    def close(self, *, failed: bool) -> None:  # noqa: ARG002
        self._writer.close()
        self._file.close()


class JsonWriter(Writer):
    """An object with the provenance under `about` and a list of rows under `answers`."""

    def __init__(self, path: Path, schema: Any, about: About) -> None:  # noqa: ARG002
        """Open the file."""
        self._stream = path.open("w", encoding="utf-8", newline="\n")
        self._stream.write(f'{{"about": {json.dumps(about)},\n"answers": [')
        self._between = "\n"

    def write(self, table: Any) -> None:
        for row in plain(table).to_pylist():
            clean = {name: _plain(value) for name, value in row.items()}
            self._stream.write(self._between + json.dumps(clean, allow_nan=False))
            self._between = ",\n"

    def close(self, *, failed: bool) -> None:
        if not failed:
            self._stream.write("\n]}\n")
        self._stream.close()


class ExcelWriter(Writer):
    """A workbook with one sheet per table, and one of notes; XlsxWriter writes it row by row."""

    def __init__(self, path: Path, schema: Any, about: About) -> None:
        """Open the workbook and write the notes."""
        self._book = xlsxwriter().Workbook(
            str(path), {"constant_memory": True, "strings_to_formulas": False, "nan_inf_to_errors": True}
        )
        self._names = schema.names
        self._sheets: dict[str, tuple[Any, int]] = {}
        self._titles: set[str] = set()
        notes = self._book.add_worksheet(self._title("Notes"))
        for row, (key, value) in enumerate(about.items()):
            notes.write_string(row, 0, key)
            notes.write_string(row, 1, value if isinstance(value, str) else json.dumps(value))

    def write(self, table: Any) -> None:
        columns = plain(table).to_pydict()
        rows = zip(*columns.values(), strict=True)
        for name, cells in zip(columns["table"], rows, strict=True):
            if name not in self._sheets:
                sheet = self._book.add_worksheet(self._title(name))
                sheet.write_row(0, 0, self._names)
                self._sheets[name] = sheet, 1
            sheet, row = self._sheets[name]
            if row > SHEET_ROWS:
                msg = f"path: the table on {name!r} has more rows than a sheet of Excel; use .parquet or .csv"
                raise FileError(msg)
            for place, value in enumerate(map(_plain, cells)):
                if isinstance(value, str):
                    sheet.write_string(row, place, value)
                elif value is not None:
                    sheet.write(row, place, value)
            self._sheets[name] = sheet, row + 1

    def close(self, *, failed: bool) -> None:  # noqa: ARG002
        self._book.close()

    def _title(self, name: str) -> str:
        """Return a name for a sheet: short, without characters that Excel forbids, and not used yet."""
        stem = "".join("_" if c in "[]:*?/\\'" else c for c in name)[:31].strip() or "table"
        title, number = stem, 1
        while title.casefold() in self._titles or title.casefold() == "history":
            number += 1
            title = f"{stem[: 30 - len(str(number))]} {number}"
        self._titles.add(title.casefold())
        return title


def _plain(value: Any) -> Any:
    """Return a value that JSON and Excel hold: no NaN, no infinity, dates as text."""
    if isinstance(value, float) and not (-float("inf") < value < float("inf")):
        return None
    return str(value) if isinstance(value, date) else value


def _gzip(path: Path, schema: Any, about: About) -> CsvWriter:
    return CsvWriter(path, schema, about, compressed=True)


WRITERS: dict[str, Callable[[Path, Any, About], Writer]] = {
    ".parquet": ParquetWriter,
    ".pq": ParquetWriter,
    ".csv": CsvWriter,
    ".csv.gz": _gzip,
    ".arrow": ArrowWriter,
    ".feather": ArrowWriter,
    ".json": JsonWriter,
    ".xlsx": ExcelWriter,
}
"""The writer of each ending."""
