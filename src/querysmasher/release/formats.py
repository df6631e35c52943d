"""File formats of answers, by the ending of the file's name; each is written one Arrow table at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
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

NOTES = "Notes"
"""The sheet of a workbook that says where the figures come from."""

About = Mapping[str, Any]
"""Where the figures come from, as plain data."""


class Writer:
    """Writes tables to a file, and closes it."""

    @property
    def sheets(self) -> Mapping[str, Sequence[str]]:
        """The columns of each sheet, by its title, in a format that has sheets."""
        return {}

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
        noisy = ["value", "low", "high", "cv"]  # whose first bytes repeat, and the last of all but value
        self._schema = schema.with_metadata({"querysmasher": json.dumps(about)})
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="ZSTD",
            compression_level=1,
            use_dictionary=[name for name in schema.names if name not in (*noisy, "query")],
            use_byte_stream_split=noisy,
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
        written = date.fromisoformat(about.get("date", "1980-01-01"))  # as zip files have it without a date
        self._book.set_properties({"created": datetime(written.year, written.month, written.day, tzinfo=UTC)})
        self._value_of = {f.name: (f.metadata or {}).get(b"value", b"").decode() for f in schema}
        self._sheets: dict[str, tuple[Any, int, list[str]]] = {}
        self._titles: set[str] = set()
        self._head = self._book.add_format({"bold": True})
        self._number = self._book.add_format({"num_format": "#,##0.0###"})
        wrapped = self._book.add_format({"text_wrap": True, "valign": "top"})
        notes = self._book.add_worksheet(self._title(NOTES))
        notes.set_column(0, 0, 22)
        notes.set_column(1, 1, 100)
        for row, (key, value) in enumerate(about.items()):
            notes.write_string(row, 0, key, self._head)
            notes.write_string(row, 1, value if isinstance(value, str) else json.dumps(value), wrapped)

    def write(self, table: Any) -> None:
        for cells in plain(table).to_pylist():
            name = cells["table"]
            if name not in self._sheets:
                own = [n for n, value in self._value_of.items() if not value or cells[value] is not None]
                self._sheets[name] = self._sheet(name, own), 1, own
            sheet, row, names = self._sheets[name]
            if row > SHEET_ROWS:
                msg = f"path: the table on {name!r} has more rows than a sheet of Excel; use .parquet or .csv"
                raise FileError(msg)
            for place, value in enumerate(_plain(cells[n]) for n in names):
                if isinstance(value, str):
                    sheet.write_string(row, place, value)
                elif value is not None:
                    sheet.write(row, place, value, self._number if isinstance(value, float) else None)
            self._sheets[name] = sheet, row + 1, names

    def _sheet(self, name: str, columns: list[str]) -> Any:
        """Return a new sheet with the names of the columns of one table, which stay in view."""
        sheet = self._book.add_worksheet(self._title(name))
        sheet.freeze_panes(1, 0)
        for place, column in enumerate(columns):
            sheet.set_column(place, place, 40 if column == "query" else 14)
            sheet.write_string(0, place, column, self._head)
        return sheet

    @property
    def sheets(self) -> Mapping[str, Sequence[str]]:
        return {sheet.get_name(): names for sheet, _, names in self._sheets.values()}

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
