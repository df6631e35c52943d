"""Compares two files of answers: the same rows, and numbers that differ by rounding only."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq

from querysmasher.release.formats import NOTES
from querysmasher.release.workbook import WITHIN, read_workbook
from querysmasher.statistics.critical import pointwise

Columns = dict[str, list[Any]]
Read = tuple[Columns, dict[str, Any]]

WRITER = "software"
"""What a file says about itself that may differ on another machine."""

CLOSE = 1e-6
"""Maximum difference of two numbers that are the same but for rounding, on another machine.

It is relative to the number, and for values and ends of intervals to the standard error if that is larger.
"""

NUMERIC = ("value", "std", "low", "high", "cv")

ROUNDED = {"low": 1 / 1000, "high": 1 / 1000, "cv": 1 / 1000}
"""By how much files round these numbers; relative to the standard error, or for cv to itself.

A number may be rounded to another step than here only if it is as close as that to the border between both.
"""


def difference(given: Path, expected: Path, level: float = 0.95) -> str | None:
    """Return where two files differ, nothing if they do not, or None if their format is not compared.

    Equal bytes are equal answers. Otherwise the files are read: numbers must be `CLOSE` to each other, all
    else must be equal. `level` is that of the intervals.
    """
    if sha256(given) == sha256(expected):
        return ""
    read = next((reader for ending, reader in READERS.items() if given.name.endswith(ending)), None)
    if read is None:
        return None
    try:
        (first, said), (second, wanted) = read(given), read(expected)
        wrong = sorted(key for key in {*said, *wanted} - {WRITER} if said.get(key) != wanted.get(key))
        if wrong:
            return f"it says something else about {', '.join(wrong)}"
        if list(first) != list(second) or any(len(first[name]) != len(second[name]) for name in first):
            return "it has other columns or rows"
        reach = pointwise(level)
        return next((f"column {name!r}" for name in second if not _same(name, first, second, reach)), "")
    except (pa.ArrowException, ValueError, OSError, LookupError, TypeError, AttributeError) as error:
        return f"it cannot be read ({type(error).__name__})"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _same(name: str, given: Columns, expected: Columns, reach: float) -> bool:
    sheet, _, column = name.rpartition(WITHIN)
    if column not in NUMERIC:
        return given[name] == expected[name]
    found, wanted = _floats(given[name]), _floats(expected[name])
    before = sheet + WITHIN if sheet else ""
    none = [1.0] * len(wanted)  # estimates have no errors: one record
    value, std = (_floats(expected.get(before + other, none)) for other in ("value", "std"))
    with np.errstate(all="ignore"):
        unit = np.abs(wanted) if column in ("std", "cv") else np.maximum(np.abs(wanted), np.abs(std))
        close = np.abs(found - wanted) <= CLOSE * unit
        if column in ROUNDED:
            exact, border = {
                "low": (value - reach * std, np.maximum(found, wanted)),
                "high": (value + reach * std, np.minimum(found, wanted)),
                "cv": (std / np.abs(value), (found + wanted) / 2),
            }[column]
            step = ROUNDED[column] * (np.abs(exact) if column == "cv" else std)
            at_border = np.abs(exact - border) <= CLOSE * np.maximum(unit, step)
            close |= (np.abs(found - wanted) <= 2 * step) & at_border
    return bool(np.all(close | (np.isnan(found) & np.isnan(wanted)) | (found == wanted)))


def _floats(values: list[Any]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _arrow(table: Any) -> Read:
    stated = (table.schema.metadata or {}).get(b"querysmasher", b"{}")
    return {name: table.column(name).to_pylist() for name in table.column_names}, dict(json.loads(stated))


def _csv(path: Path) -> Read:
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    return _arrow(pyarrow.csv.read_csv(pa.BufferReader(data)))


def _json(path: Path) -> Read:
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = found["answers"]
    if any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError
    return {name: [row[name] for row in rows] for name in rows[0]}, dict(found["about"])


def _workbook(path: Path) -> Read:
    found = read_workbook(path)
    notes = {name: found.pop(name) for name in [*found] if name.startswith(NOTES + WITHIN)}
    rows = [[name.removeprefix(NOTES + WITHIN), *cells] for name, cells in notes.items()]
    keys, words = rows  # the sheet has two columns and no header
    return found, dict(zip(keys, words, strict=True))


READERS: dict[str, Callable[[Path], Read]] = {
    ".parquet": lambda path: _arrow(pq.read_table(path)),
    ".pq": lambda path: _arrow(pq.read_table(path)),
    ".csv": _csv,
    ".csv.gz": _csv,
    ".arrow": lambda path: _arrow(pyarrow.feather.read_table(path)),
    ".feather": lambda path: _arrow(pyarrow.feather.read_table(path)),
    ".json": _json,
    ".xlsx": _workbook,
}
"""Returns the columns of a file, and what it says about itself."""
