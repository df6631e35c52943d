"""Files of answers follow from a release: each is written again and compared.

A file passes if writing it again produces the same bytes: with the computed numbers or, where the file's
numbers differ from these by rounding only, with the file's.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import FileError, MissingExtraError, QuerySmasherError
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.estimate_files import write_estimates
from querysmasher.formats import format_of
from querysmasher.formats.tabular import expanded
from querysmasher.formats.workbook import WITHIN
from querysmasher.formatting import count, read_json
from querysmasher.release.outputs import ANSWERS, DESCRIPTION, STATISTIC, tables
from querysmasher.release.release import Release
from querysmasher.release.writing import as_computed, document, software, write_answers, write_statistic
from querysmasher.statistics.reliability import Rules
from querysmasher.statistics.statistic import Statistic
from querysmasher.workload.workload import Group

OK, FAILED, OPEN, NOT_CHECKED = "passed", "FAILED", "not verified", "not checked"

WRITER = "software"
"""The key under which a file names the software that wrote it, which may differ on another machine."""

CLOSE = 1e-6
"""Maximum difference of two numbers that are the same but for rounding, on another machine.

It is relative to the standard error; for errors, to themselves.
"""

EXACT = 1e-10
"""The same, relative to the number: a millionth of a large count could be many standard errors."""

NOTHING = 1e-9
"""Maximum difference of two numbers that should both be zero, in records or as fractions."""

ADOPTED = ("value", "std")
"""Columns whose numbers may differ by rounding; those of the others follow from them."""

NUMERIC = (*ADOPTED, "low", "high", "cv")

UNREADABLE = (
    *(pa.ArrowException, zipfile.BadZipFile, zlib.error),
    *(ValueError, OSError, LookupError, TypeError, AttributeError, NotImplementedError, RuntimeError),
)
"""Errors that reading a foreign file can raise."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    status: str
    """`OK`; `FAILED`: it is wrong; `OPEN`: it cannot be checked here; `NOT_CHECKED`: nobody asked for it."""
    text: str


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
    """Return the bytes of a number, or no bytes if it is the expected number."""
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


def adopting(given: Path) -> Callable[..., list[Array]]:
    """Return a function that replaces computed numbers by those of a file that differ by rounding only.

    A file written again with these numbers has the bytes of the given one if nothing else differs. A file
    that cannot be read has no numbers.
    """
    columns: Mapping[str, Any] = {}
    with suppress(*UNREADABLE):
        columns, _ = format_of(given).read(given)
    prefixes = [*dict.fromkeys(name.partition(WITHIN)[0] + WITHIN for name in columns if WITHIN in name)]
    starts: dict[str, int] = {}  # the next row of each table: sheets are in the order in which tables appear

    def adopted(group: Group, *numbers: Array) -> list[Array]:
        """Return values and standard errors, if there are any, of the next group that is written."""
        name = " × ".join(group.attributes) if prefixes else ""
        start = starts.setdefault(name, 0)
        starts[name] += group.rows
        made = []
        for column, wanted in zip(ADOPTED, numbers, strict=False):
            try:
                stored = columns[(prefixes or [""])[[*starts].index(name)] + column]
                known, _ = _numbers(stored[start : start + group.rows])
                same = _close(known, wanted.ravel(), numbers[-1].ravel() if len(numbers) > 1 else 1.0)
                made.append(np.where(same, known, wanted.ravel()).reshape(wanted.shape))
            except UNREADABLE:
                made.append(wanted)
        return made

    return adopted


def adopting_figures(given: Path) -> Callable[[Any], Any]:
    """Return a function that does for the table of a statistic what `adopting` does for answers.

    The ends of its intervals do not follow from value and standard error, so all its numbers may differ.
    """
    columns: Mapping[str, Any] = {}
    with suppress(*UNREADABLE):
        columns, _ = format_of(given).read(given)
    stored = {name.rpartition(WITHIN)[2]: column for name, column in columns.items()}

    def adopted(table: Any) -> Any:
        made = table
        errors, _ = _numbers(table["std"])
        for name in NUMERIC:
            wanted, missing = _numbers(table[name])
            with suppress(*UNREADABLE):
                known, absent = _numbers(stored[name])
                same = _close(known, wanted, np.abs(wanted) if name == "cv" else errors) & ~absent
                column = pa.array(np.where(same, known, wanted), mask=missing)
                made = made.set_column(made.column_names.index(name), name, column)
        return made

    return adopted


def difference(given: Path, expected: Path) -> str:
    """Return where the contents of two files differ, or nothing if they do not.

    Answers and standard errors must be `CLOSE` to each other, all else must be equal.
    """
    form = format_of(given)
    try:
        (first, said), (second, wanted) = form.read(given), form.read(expected)
        wrong = sorted(key for key in {*said, *wanted} - {WRITER} if said.get(key) != wanted.get(key))
        if wrong:
            return f"it says something else about {', '.join(wrong)}"
        if list(first) != list(second) or any(len(first[name]) != len(second[name]) for name in first):
            return "it has other columns or rows"
        return next((f"column {name!r}" for name in second if not _same(name, first, second)), "")
    except UNREADABLE as error:
        return f"it cannot be read ({type(error).__name__})"


def _same(name: str, given: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    sheet, within, column = name.rpartition(WITHIN)
    if column not in NUMERIC:
        return bool(given[name] == expected[name])
    (numbers, missing), (wanted, not_there) = _numbers(given[name]), _numbers(expected[name])
    errors = expected.get(f"{sheet}{within}std")
    unit = 0.0 if column not in ADOPTED else 1.0 if errors is None else _numbers(errors)[0]
    return bool(np.all(_close(numbers, wanted, unit) & (missing == not_there)))


def _close(given: Array, wanted: Array, unit: Array | float) -> NDArray[np.bool_]:
    """Return which numbers are those wanted but for rounding, given their standard errors."""
    with np.errstate(invalid="ignore"):
        near = np.abs(given - wanted) <= CLOSE * np.abs(unit) + EXACT * np.abs(wanted)
    return np.asarray(near | (np.isnan(given) & np.isnan(wanted)) | (given == wanted))


def _numbers(values: Any) -> tuple[Array, NDArray[np.bool_]]:
    """Return numbers, NaN for missing ones, and which are missing; a stored NaN is not."""
    column = pa.array(values, pa.float64()) if isinstance(values, list) else values.cast(pa.float64())
    return np.asarray(pc.fill_null(column, math.nan), dtype=np.float64), np.asarray(column.is_null())


def check_tables(release: Release, folder: Path, there: Sequence[str]) -> Iterator[Finding]:
    """Write the files of answers and estimates again, and their description; compare both versions.

    Level, thresholds and suppression are those that the description states.
    """
    named = {f"{STATISTIC}{statistic.name}": statistic for statistic in release.statistics}
    files = [folder / name for name in tables(s.name for s in release.statistics) if name in there]
    described = DESCRIPTION in there and bool(files)
    stated, wrong = _package(folder / DESCRIPTION) if described else ({}, "")
    with tempfile.TemporaryDirectory(prefix="querysmasher-") as made:
        for file in files:
            stem = file.name.partition(".")[0]
            source = named.get(stem) or (release if stem == ANSWERS else release.estimate())
            yield _checked(release, source, file, stated, Path(made))
        if wrong:
            yield Finding(DESCRIPTION, FAILED, wrong)
        elif described and not all((Path(made) / file.name).is_file() for file in files):
            yield Finding(DESCRIPTION, OPEN, "not every file that it describes could be written again")
        elif described:
            yield _description(stated, folder, Path(made))


def _checked(
    release: Release,
    source: Release | Estimate | Statistic,
    file: Path,
    package: Mapping[str, Any],
    made: Path,
) -> Finding:
    """Write one file again: if its bytes differ, with its own numbers where these differ by rounding only."""
    fresh, words = made / file.name, "its figures follow from the noisy numbers"
    if not isinstance(source, Statistic):
        what = "answers and standard errors" if isinstance(source, Release) else "estimates"
        words = f"{source.workload.query_count:,} {what} follow from the noisy numbers"
    described = [part for part in package.get("resources", []) if part.get("path") == file.name]
    stated = described[0].get("querysmasher") if described else {}
    try:
        if not isinstance(stated, dict):
            raise FileError(f"{DESCRIPTION} does not say how {file.name!r} was written")
        for again in (False, True):
            adopted = adopting(file) if again else as_computed
            rules = Rules(**{key: stated[key] for key in ("thresholds", "suppress") if key in stated})
            level = stated.get("level", 0.95)
            if isinstance(source, Statistic):
                with_own = adopting_figures(file) if again else None
                write_statistic(release, source, fresh, level, rules, with_own)
            elif isinstance(source, Release):
                write_answers(source, source.workload, fresh, False, level, rules, adopted)
            else:
                write_estimates(source, source.workload, fresh, False, adopted)
            if same_bytes(file, fresh):
                return Finding(file.name, OK, words)
    except MissingExtraError as error:
        return Finding(file.name, OPEN, f"it cannot be written again to compare it: {error}")
    except QuerySmasherError as error:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {error}")
    wrong = difference(file, fresh)
    if wrong:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {wrong}")
    how = f"its bytes are not those that {software('pyarrow')} writes here"
    return Finding(file.name, OPEN, f"{words}, but {how}: another program may read something else from it")


def _package(path: Path) -> tuple[dict[str, Any], str]:
    """Return a description, or an empty one and what is wrong with it."""
    try:
        stated = read_json(path.read_bytes())
        parts = stated["resources"]
        if isinstance(parts, list) and all(isinstance(part, dict) for part in parts):
            return stated, ""
    except (OSError, ValueError, LookupError, TypeError) as error:
        if "repeats" in str(error):
            return {}, "it repeats a key"
    return {}, "it is not valid"


def _description(stated: Mapping[str, Any], folder: Path, made: Path) -> Finding:
    """Compare a description with the one that follows from the release, for files of these sizes."""
    expected = read_json((made / DESCRIPTION).read_bytes())
    given, wanted = stated["resources"], expected["resources"]
    for part in wanted:
        if "bytes" in part:
            part["bytes"] = (folder / part["path"]).stat().st_size
    if document(expected) == (folder / DESCRIPTION).read_bytes():
        return Finding(DESCRIPTION, OK, "columns, labels, units, guarantee and sizes of these files")
    paths = [part["path"] for part in wanted]
    foreign = [part.get("path") for part in given if part.get("path") not in paths]
    if foreign:
        return Finding(DESCRIPTION, FAILED, f"it describes {foreign[0]!r}, which is not there")
    if len(given) != len(wanted):
        words = f"it describes {count(len(given), 'table')} instead of {len(wanted):,}"
        return Finding(DESCRIPTION, FAILED, words)
    wholes = ({**package, "resources": None} for package in (stated, expected))
    for part, right in (tuple(wholes), *zip(given, wanted, strict=True)):
        wrong = sorted(k for k in {*part, *right} if _unsigned(part.get(k)) != _unsigned(right.get(k)))
        if wrong:
            where = f" of {right['path']}" if "path" in right else ""
            words = f"it says something else about {', '.join(wrong)}{where}"
            return Finding(DESCRIPTION, FAILED, words)
    writers = {str(part["querysmasher"].get(WRITER)) for part in (stated, *given)}
    if writers != {software()}:
        by = " and ".join(sorted(writers))
        return Finding(DESCRIPTION, OPEN, f"nothing in it is wrong; {by} wrote it, and this is {software()}")
    return Finding(DESCRIPTION, FAILED, f"it is not the text that {software()} writes")


def _unsigned(value: Any) -> Any:
    """Return a part of a description without the software that wrote it."""
    return {k: v for k, v in value.items() if k != WRITER} if isinstance(value, dict) else value
