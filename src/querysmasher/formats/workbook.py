"""Workbooks of answers: one sheet per table, and one of notes.

XlsxWriter writes them row by row, and openpyxl reads them to verify them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from querysmasher.errors import FileError, MissingExtraError
from querysmasher.formats.tabular import About, Content, Format, Write, plain_rows

SHEET_ROWS = 1_048_575
"""Maximum number of rows of a sheet of Excel, below its header."""

NOTES = "Notes"
"""The sheet of a workbook that says where the figures come from."""

WITHIN = "\x00"
"""Stands between the name of a sheet and that of a column."""

MAX_BYTES = 2_000_000_000
"""Maximum size of the XML of a sheet."""

MISSING = "Excel files need {}: pip install 'querysmasher[excel]'"


def check_excel() -> None:
    """Raise an error if the library that writes Excel files is not installed, without loading it."""
    if find_spec("xlsxwriter") is None:
        raise MissingExtraError(MISSING.format("XlsxWriter"))


@contextmanager
def _write_workbook(path: Path, schema: Any, about: About) -> Iterator[Write]:
    """Open a workbook and write the notes."""
    options = {"constant_memory": True, "strings_to_formulas": False, "nan_inf_to_errors": True}
    value_of = {f.name: (f.metadata or {}).get(b"value", b"").decode() for f in schema}
    columns: dict[str, list[str]] = {}  # of each sheet, by its title
    sheets: dict[str, list[Any]] = {}  # by the name of the table: the sheet, its next row, its columns
    with import_module("xlsxwriter").Workbook(str(path), options) as book:
        written = date.fromisoformat(about.get("date", "1980-01-01"))  # as zip files have it without a date
        book.set_properties({"created": datetime(written.year, written.month, written.day, tzinfo=UTC)})
        head = book.add_format({"bold": True})
        number = book.add_format({"num_format": "#,##0.0###"})
        wrapped = book.add_format({"text_wrap": True, "valign": "top"})
        notes = book.add_worksheet(NOTES)
        notes.set_column(0, 0, 22)
        notes.set_column(1, 1, 100)
        for row, (key, value) in enumerate(about.items()):
            notes.write_string(row, 0, key, head)
            notes.write_string(row, 1, value if isinstance(value, str) else json.dumps(value), wrapped)

        def write(table: Any) -> None:
            for cells in plain_rows(table):
                name = cells["table"]
                if name not in sheets:
                    names = [n for n, value in value_of.items() if not value or cells[value] is not None]
                    title = _title(name, {NOTES, *columns})
                    columns[title] = names
                    sheets[name] = [book.add_worksheet(title), 1, names]
                    sheets[name][0].freeze_panes(1, 0)  # the header stays in view
                    for column_index, column in enumerate(names):
                        sheets[name][0].set_column(
                            column_index, column_index, 40 if column == "query" else 14
                        )
                        sheets[name][0].write_string(0, column_index, column, head)
                sheet, row, names = sheets[name]
                if row > SHEET_ROWS:
                    much = f"the table on {name!r} has more rows than a sheet of Excel"
                    raise FileError(f"path: {much}; use .parquet or .csv")
                for column_index, value in enumerate(cells[n] for n in names):
                    if isinstance(value, str):
                        sheet.write_string(row, column_index, value)
                    elif value is not None:
                        sheet.write(row, column_index, value, number if isinstance(value, float) else None)
                sheets[name][1] += 1

        yield write, columns


def _title(name: str, taken: set[str]) -> str:
    """Return a name for a sheet: short, without characters that Excel forbids, and not taken."""
    stem = "".join("_" if c in "[]:*?/\\'" else c for c in name)[:31].strip() or "table"
    title, number = stem, 1
    while title.casefold() in {"history", *map(str.casefold, taken)}:
        number += 1
        title = f"{stem[: 30 - len(str(number))]} {number}"
    return title


def read_workbook(path: Path) -> Content:
    """Return the columns of all sheets, and the notes; a row that lacks a cell has None."""
    columns: dict[str, list[Any]] = {}
    notes: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            if any(info.file_size > MAX_BYTES for info in archive.infolist()):
                raise ValueError("a sheet is too large")
            if any(b"<!DOCTYPE" in archive.open(name).read(10_000) for name in archive.namelist()):
                raise ValueError("a sheet has a document type")  # its entities could expand without end
        book = import_module("openpyxl").load_workbook(path, read_only=True, data_only=True)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # a file may state wrong ones
            rows = [*sheet.iter_rows(values_only=True)]
            if sheet.title == NOTES:
                notes = {key: value for key, value in rows}  # noqa: C416 - refuses rows of other lengths
                continue
            for header, *cells in zip_longest(*rows):
                columns[f"{sheet.title}{WITHIN}{header}"] = cells
    except ModuleNotFoundError:
        raise MissingExtraError(MISSING.format("openpyxl")) from None
    except (zipfile.BadZipFile, SyntaxError, LookupError) as error:
        raise ValueError("not a workbook") from error
    return columns, notes


WORKBOOK = Format(
    (".xlsx",),
    "xlsx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    _write_workbook,
    read_workbook,
    check=check_excel,
    holds_records=False,
)
