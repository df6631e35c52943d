"""Compares two files: the same bytes, or the same content, with numbers that differ by rounding only."""

from __future__ import annotations

import hashlib
import math
import mmap
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querysmasher.arrays import Array
from querysmasher.release.formats import expanded
from querysmasher.release.outputs import format_of
from querysmasher.release.tidy import masked
from querysmasher.release.workbook import WITHIN
from querysmasher.statistics.reliability import pointwise

Columns = Mapping[str, Any]
"""The values of each column, as an Arrow array or a list."""

WRITER = "software"
"""What a file says about itself that may differ on another machine."""

CLOSE = 1e-6
"""Maximum difference of two numbers that are the same but for rounding, on another machine.

It is relative to the standard error; for errors, to themselves.
"""

EXACT = 1e-10
"""The same, relative to the number: a millionth of a large count could be many standard errors."""

NOTHING = 1e-9
"""Maximum difference of two numbers that should both be zero, in records or as shares."""

NUMERIC = ("value", "std", "low", "high", "cv")

ROUNDED = {"low": 1 / 1000, "high": 1 / 1000, "cv": 1 / 1000}
"""By how much files round these numbers; relative to the standard error, or for cv to itself.

A number may be rounded to another step than here only if it is as close as that to the border between both.
"""

UNREADABLE = (
    *(pa.ArrowException, zipfile.BadZipFile, zlib.error),
    *(ValueError, OSError, LookupError, TypeError, AttributeError, NotImplementedError, RuntimeError),
)
"""Errors that reading a foreign file can raise."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def same_bytes(given: Path, expected: Path) -> bool:
    """Return whether two files are the same but for how the members of a zip or gzip file are compressed."""
    if sha256(given) == sha256(expected):
        return True
    try:
        if zipfile.is_zipfile(expected):
            return all(
                part == wanted for part, wanted in zip(_members(given), _members(expected), strict=True)
            )
        return _unzipped(expected) == _unzipped(given)
    except UNREADABLE:
        return False


def _members(path: Path) -> Iterator[object]:
    """Iterate over all bytes of a zip file, with its members expanded, and without their compressed sizes.

    The checksum at the end, which is the comment of an archive of this library, is left out: whoever reads it
    has checked it.
    """
    with (
        zipfile.ZipFile(path) as archive,
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        members, at = archive.infolist(), 0
        ends = [*(info.header_offset for info in members[1:]), archive.start_dir]
        for info, end in zip(members, ends, strict=True):
            size = info.compress_size
            start = at + 30 + _number(data[at + 26 : at + 28]) + _number(data[at + 28 : at + 30])
            packed, after = data[start : start + size], data[start + size : end]
            yield info.header_offset - at, data[at : at + 18], _other(data[at + 18 : at + 22], size)
            yield data[at + 22 : start], after[:8], _other(after[8:16], size), after[16:]
            yield (
                expanded(packed, -15, info.file_size)
                if info.compress_type == zipfile.ZIP_DEFLATED
                else packed
            )
            at = end
        for info in members:
            end = at + 46 + sum(_number(data[at + i : at + i + 2]) for i in (28, 30, 32))
            yield data[at : at + 20], _other(data[at + 20 : at + 24], info.compress_size)
            yield data[at + 24 : at + 42], _other(data[at + 42 : at + 46], info.header_offset)
            yield data[at + 46 : end]
            at = end
        last = len(data) - len(archive.comment)
        yield data[at : at + 16], _other(data[at + 16 : at + 20], archive.start_dir), data[at + 20 : last]


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _other(data: bytes, number: int) -> bytes:
    """Return what stands for a number if it is another one."""
    return b"" if _number(data) == number else data


def _unzipped(path: Path) -> tuple[bytes, bytes]:
    """Return the first bytes of a gzip file, which can announce a name or a comment, and its content."""
    data = path.read_bytes()
    return data[:8], expanded(data, 31, _number(data[-4:]))


def close(given: Any, expected: Any) -> bool:
    """Return whether two values are equal but for rounding, in nested plain data."""
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(close(given[key], expected[key]) for key in given)
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(map(close, given, expected))
    if type(given) is type(expected) is float:
        return math.isclose(given, expected, rel_tol=EXACT, abs_tol=NOTHING)
    return type(given) is type(expected) and bool(given == expected)


class Adopted:
    """Takes numbers from a given file where they equal computed ones but for rounding on another machine.

    Written again with these numbers, a file has the same bytes as the given one if all else is the same.
    """

    def __init__(self, given: Path, level: float) -> None:
        """Read the given file, with intervals of this level; one that cannot be read has no numbers."""
        try:
            self._columns, _ = format_of(given).read(given)
        except UNREADABLE:
            self._columns = {}
        self._reach = pointwise(level)
        sheets = dict.fromkeys(name.partition(WITHIN)[0] for name in self._columns if WITHIN in name)
        self._sheets = iter(sheets) if sheets else None
        self._before: dict[str, str] = {}
        self._start: dict[str, int] = defaultdict(int)

    def __call__(self, table: Any) -> Any:
        """Return the next rows of what is written, with numbers of the given file."""
        before = "" if self._sheets is None else self._sheet(table, self._sheets) + WITHIN
        start, rows = self._start[before], len(table)
        self._start[before] += rows
        expected = {name: table.column(name) for name in table.column_names if name in NUMERIC}
        for name, wanted in expected.items():
            try:
                numbers = _floats(self._columns[before + name][start : start + rows])
                same = _close(name, numbers, expected, self._reach)
            except UNREADABLE:
                continue
            column = masked(np.where(same, numbers, _floats(wanted)), _missing(wanted))
            table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
        return table

    def _sheet(self, table: Any, sheets: Iterator[str]) -> str:
        """Return the sheet of some rows: each table has one, in the order in which they appear."""
        name = table.column("table")[0].as_py()
        if name not in self._before:
            self._before[name] = next(sheets, "")
        return self._before[name]


def difference(given: Path, expected: Path, level: float = 0.95) -> str:
    """Return where the contents of two files differ, or nothing if they do not.

    Numbers must be `CLOSE` to each other, all else must be equal. `level` is that of the intervals.
    """
    form = format_of(given)
    try:
        (first, said), (second, wanted) = form.read(given), form.read(expected)
        wrong = sorted(key for key in {*said, *wanted} - {WRITER} if said.get(key) != wanted.get(key))
        if wrong:
            return f"it says something else about {', '.join(wrong)}"
        if list(first) != list(second) or any(len(first[name]) != len(second[name]) for name in first):
            return "it has other columns or rows"
        reach = pointwise(level)
        return next((f"column {name!r}" for name in second if not _same(name, first, second, reach)), "")
    except UNREADABLE as error:
        return f"it cannot be read ({type(error).__name__})"


def _same(name: str, given: Columns, expected: Columns, reach: float) -> bool:
    sheet, _, column = name.rpartition(WITHIN)
    if column not in NUMERIC:
        return bool(given[name] == expected[name])
    before = sheet + WITHIN if sheet else ""
    columns = {known: expected[before + known] for known in NUMERIC if before + known in expected}
    same = _close(column, _floats(given[name]), columns, reach)
    return bool(np.all(same & (_missing(given[name]) == _missing(expected[name]))))


def _close(column: str, given: Array, expected: Columns, reach: float) -> Any:
    """Return which numbers of a column are those expected, but for rounding."""
    wanted = _floats(expected[column])
    none = [1.0] * len(wanted)  # estimates have no errors: one record
    value, std = (_floats(expected.get(other, none)) for other in ("value", "std"))
    with np.errstate(all="ignore"):
        most = CLOSE * np.abs(wanted if column in ("std", "cv") else std) + EXACT * np.abs(wanted)
        near = np.abs(given - wanted) <= most
        if column in ROUNDED:
            exact, border = {
                "low": (value - reach * std, np.maximum(given, wanted)),
                "high": (value + reach * std, np.minimum(given, wanted)),
                "cv": (std / np.abs(value), (given + wanted) / 2),
            }[column]
            step = ROUNDED[column] * (np.abs(exact) if column == "cv" else std)
            at_border = np.abs(exact - border) <= most + CLOSE * step
            near |= (np.abs(given - wanted) <= 2 * step) & at_border
    return near | (np.isnan(given) & np.isnan(wanted)) | (given == wanted)


def _floats(values: Any) -> Array:
    """Return numbers, as NaN where they are missing."""
    if isinstance(values, list):
        values = pa.array(values, pa.float64())
    return np.asarray(pc.fill_null(values.cast(pa.float64()), math.nan), dtype=np.float64)


def _missing(values: Any) -> Any:
    """Return which values are missing; NaN is not."""
    if isinstance(values, list):
        return np.array([value is None for value in values], dtype=bool)
    return np.asarray(values.is_null())
