"""Reads back a workbook of answers as `formats` writes it, to compare it with another.

A workbook is a zip file of XML: a list of sheets, strings that cells share, and one file per sheet. This
reads no formulas and follows no links.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

WITHIN = "\x00"
"""Stands between the name of a sheet and that of a column."""

MAX_BYTES = 2_000_000_000
"""Maximum size of the XML of a sheet."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_LINK = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


def read_workbook(path: Path) -> dict[str, list[Any]]:
    """Return the columns of all sheets; a row that lacks a cell has None."""
    found: dict[str, list[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            strings = _strings(archive)
            for title, name in _sheets(archive):
                rows = _rows(archive, name, strings)
                header = rows[0] if rows else {}
                for place, column in header.items():
                    found[f"{title}{WITHIN}{column}"] = [row.get(place) for row in rows[1:]]
                stray = {place for row in rows for place in row} - set(header)
                if stray:
                    found[f"{title}{WITHIN}"] = [{p: row.get(p) for p in sorted(stray)} for row in rows]
    except (zipfile.BadZipFile, ET.ParseError, KeyError) as error:
        msg = "not a workbook"
        raise ValueError(msg) from error
    return found


def _read(archive: zipfile.ZipFile, name: str) -> ET.Element:
    if archive.getinfo(name).file_size > MAX_BYTES:
        msg = "a sheet is too large"
        raise ValueError(msg)
    data = archive.read(name)
    if b"<!DOCTYPE" in data[:10_000]:  # entities could expand without end
        msg = "a sheet has a document type"
        raise ValueError(msg)
    return ET.fromstring(data)  # noqa: S314 - no document type, so no entities


def _strings(archive: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in archive.namelist():
        return []
    return [_text(item) for item in _read(archive, "xl/sharedStrings.xml").iter(f"{_SHEET}si")]


def _text(item: ET.Element) -> str:
    return "".join(part.text or "" for part in item.iter(f"{_SHEET}t"))


def _sheets(archive: zipfile.ZipFile) -> list[tuple[str, str]]:
    """Return the title and the file of each sheet."""
    links = _read(archive, "xl/_rels/workbook.xml.rels").iter(_LINK)
    files = {link.attrib["Id"]: "xl/" + link.attrib["Target"].removeprefix("/xl/") for link in links}
    sheets = _read(archive, "xl/workbook.xml").iter(f"{_SHEET}sheet")
    return [(sheet.attrib["name"], files[sheet.attrib[_ID]]) for sheet in sheets]


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
    found = cell.find(f"{_SHEET}v")
    if found is None or found.text is None:
        return None
    if kind == "s":
        return strings[int(found.text)]
    return found.text == "1" if kind == "b" else found.text if kind in ("str", "e") else float(found.text)
