"""Workbooks of answers: one sheet per table, and one of notes.

XlsxWriter writes them row by row. A workbook is a zip file of XML: a list of sheets, strings that cells
share, and one file per sheet. The reader follows neither formulas nor links.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from querysmasher.errors import FileError, MissingExtraError
from querysmasher.release.formats import About, Content, Format, Write, plain_rows

SHEET_ROWS = 1_048_575
"""Maximum number of rows of a sheet of Excel, below its header."""

NOTES = "Notes"
"""The sheet of a workbook that says where the figures come from."""

WITHIN = "\x00"
"""Stands between the name of a sheet and that of a column."""

MAX_BYTES = 2_000_000_000
"""Maximum size of the XML of a sheet."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_LINK = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


def check_excel() -> None:
    """Raise an error if the library that writes Excel files is not installed, without loading it."""
    if find_spec("xlsxwriter") is None:
        raise MissingExtraError("Excel files need XlsxWriter: pip install 'querysmasher[excel]'")


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
            shared = "xl/sharedStrings.xml"
            items = _read(archive, shared).iter(f"{_SHEET}si") if shared in archive.namelist() else ()
            strings = [_text(item) for item in items]
            links = _read(archive, "xl/_rels/workbook.xml.rels").iter(_LINK)
            files = {link.attrib["Id"]: "xl/" + link.attrib["Target"].removeprefix("/xl/") for link in links}
            for sheet in _read(archive, "xl/workbook.xml").iter(f"{_SHEET}sheet"):
                title, rows = sheet.attrib["name"], _rows(archive, files[sheet.attrib[_ID]], strings)
                if title == NOTES:
                    notes = {row.pop("A"): row.pop("B") for row in rows}
                    if any(rows):
                        raise ValueError("a note has more than two cells")
                    continue
                header = rows[0] if rows else {}
                for letters, column in header.items():
                    columns[f"{title}{WITHIN}{column}"] = [row.get(letters) for row in rows[1:]]
                stray = {letters for row in rows for letters in row} - set(header)
                if stray:
                    columns[f"{title}{WITHIN}"] = [{p: row.get(p) for p in sorted(stray)} for row in rows]
    except (zipfile.BadZipFile, ET.ParseError, KeyError) as error:
        raise ValueError("not a workbook") from error
    return columns, notes


def _read(archive: zipfile.ZipFile, name: str) -> ET.Element:
    if archive.getinfo(name).file_size > MAX_BYTES:
        raise ValueError("a sheet is too large")
    data = archive.read(name)
    if b"<!DOCTYPE" in data[:10_000]:  # entities could expand without end
        raise ValueError("a sheet has a document type")
    return ET.fromstring(data)  # noqa: S314 - no document type, so no entities


def _text(item: ET.Element) -> str:
    return "".join(part.text or "" for part in item.iter(f"{_SHEET}t"))


def _rows(archive: zipfile.ZipFile, name: str, strings: list[str]) -> list[dict[str, Any]]:
    """Return the cells of each row, by the letters of their columns."""
    return [
        {
            re.sub(r"\d", "", cell.attrib["r"]): value
            for cell in row.iter(f"{_SHEET}c")
            if (value := _value(cell, strings)) is not None
        }
        for row in _read(archive, name).iter(f"{_SHEET}row")
    ]


def _value(cell: ET.Element, strings: list[str]) -> Any:
    kind = cell.attrib.get("t", "n")
    if kind == "inlineStr":
        return _text(cell)
    value = cell.find(f"{_SHEET}v")
    if value is None or value.text is None:
        return None
    if kind == "s":
        return strings[int(value.text)]
    return value.text == "1" if kind == "b" else value.text if kind in ("str", "e") else float(value.text)


WORKBOOK = Format(
    (".xlsx",),
    "xlsx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    _write_workbook,
    read_workbook,
    check=check_excel,
)
