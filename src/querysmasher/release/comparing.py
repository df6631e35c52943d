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

from querysmasher.release.workbook import WITHIN, read_workbook

Columns = dict[str, list[Any]]

ROUNDING = {"value": 1e-6, "std": 1e-6, "low": 2e-3, "high": 2e-3, "cv": 2e-3}
"""Maximum difference of two numbers that are the same but for rounding, on another machine.

It is relative to the standard error for the ends of intervals, which files round, and to the number itself
for all others (for `value`, to the standard error if that is larger).
"""


def difference(given: Path, expected: Path) -> str | None:
    """Return where two files differ, nothing if they do not, or None if their format is not compared.

    Equal bytes are equal answers. Otherwise the files are read: values, errors and intervals must be within
    `ROUNDING` of each other; all else must be equal.
    """
    if sha256(given) == sha256(expected):
        return ""
    read = next((reader for ending, reader in READERS.items() if given.name.endswith(ending)), None)
    if read is None:
        return None
    try:
        first, second = read(given), read(expected)
        if list(first) != list(second) or any(len(first[name]) != len(second[name]) for name in first):
            return "it has other columns or rows"
        return next((f"column {name!r}" for name in second if not _same(name, first, second)), "")
    except (pa.ArrowException, ValueError, OSError, LookupError, TypeError, AttributeError) as error:
        return f"it cannot be read ({type(error).__name__})"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _same(name: str, given: Columns, expected: Columns) -> bool:
    sheet, _, column = name.rpartition(WITHIN)
    if column not in ROUNDING:
        return given[name] == expected[name]
    errors = sheet + WITHIN + "std" if sheet else "std"
    std = expected.get(errors, [1.0] * len(expected[name]))  # estimates have none: one record
    found, wanted, unit = (_floats(one) for one in (given[name], expected[name], std))
    if column in ("low", "high"):
        unit = np.abs(unit) + 1e-6 * np.abs(wanted)
    else:
        unit = np.abs(wanted) if column == "cv" else np.maximum(np.abs(wanted), np.abs(unit))
    close = np.abs(found - wanted) <= ROUNDING[column] * unit
    return bool(np.all(close | (np.isnan(found) & np.isnan(wanted)) | (found == wanted)))


def _floats(values: list[Any]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _columns(table: Any) -> Columns:
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _csv(path: Path) -> Columns:
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    return _columns(pyarrow.csv.read_csv(pa.BufferReader(data)))


def _json(path: Path) -> Columns:
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = found if isinstance(found, list) else next(v for v in found.values() if isinstance(v, list))
    return {name: [row[name] for row in rows] for name in rows[0]}


READERS: dict[str, Callable[[Path], Columns]] = {
    ".parquet": lambda path: _columns(pq.read_table(path)),
    ".pq": lambda path: _columns(pq.read_table(path)),
    ".csv": _csv,
    ".csv.gz": _csv,
    ".arrow": lambda path: _columns(pyarrow.feather.read_table(path)),
    ".feather": lambda path: _columns(pyarrow.feather.read_table(path)),
    ".json": _json,
    ".xlsx": read_workbook,
}
