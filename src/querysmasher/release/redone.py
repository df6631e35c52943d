"""Published files of answers, written again from the noisy numbers as they were asked for, and compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from querysmasher.errors import FileError, MissingExtraError, QuerySmasherError
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.writing import write_estimates
from querysmasher.fields import read_json
from querysmasher.release.comparing import WRITER, Adopted, difference, same_bytes
from querysmasher.release.description import NAME, document, software
from querysmasher.release.finding import FAILED, OK, OPEN, Finding
from querysmasher.release.formats import WRITERS
from querysmasher.release.release import Release
from querysmasher.release.writing import write_answers
from querysmasher.statistics.reliability import Rules

ANSWERS, ESTIMATES = "answers", "estimates"

TABLES = tuple(f"{stem}{ending}" for stem in (ANSWERS, ESTIMATES) for ending in WRITERS)
"""The files of answers and estimates that a folder can have, in the order in which they are written."""


def check_tables(release: Release, folder: Path, there: Sequence[str]) -> Iterator[Finding]:
    """Write the files of answers and estimates again, and their description; compare them with those there.

    Level, thresholds and suppression are those that the description states.
    """
    files = [folder / name for name in TABLES if name in there]
    described = NAME in there and bool(files)
    stated, wrong = _package(folder / NAME) if described else ({}, "")
    with tempfile.TemporaryDirectory(prefix="querysmasher-") as made:
        for file in files:
            source = release if file.name.startswith(ANSWERS) else release.estimate()
            yield _checked(source, file, stated, Path(made))
        if wrong:
            yield Finding(NAME, FAILED, wrong)
        elif described and not all((Path(made) / file.name).is_file() for file in files):
            yield Finding(NAME, OPEN, "not every file that it describes could be written again")
        elif described:
            yield _description(stated, folder, Path(made))


def _checked(source: Release | Estimate, file: Path, stated: Mapping[str, Any], made: Path) -> Finding:
    """Write one file again: if its bytes differ, with its own numbers where these differ by rounding only."""
    what = "answers and standard errors" if isinstance(source, Release) else "estimates"
    words = f"{source.workload.query_count:,} {what} follow from the noisy numbers"
    fresh = made / file.name
    try:
        options = _options(stated, file.name)
        level = options.get("level", 0.95)
        _write(source, fresh, options)
        if not same_bytes(file, fresh):
            _write(source, fresh, options, Adopted(file, level))
    except MissingExtraError as error:
        return Finding(file.name, OPEN, f"it cannot be written again to compare it: {error}")
    except QuerySmasherError as error:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {error}")
    if same_bytes(file, fresh):
        return Finding(file.name, OK, words)
    wrong = difference(file, fresh, level)
    if wrong:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {wrong}")
    how = f"its bytes are not those that {software('pyarrow')} writes here"
    return Finding(file.name, OPEN, f"{words}, but {how}: another program may read something else from it")


def _write(
    source: Release | Estimate, path: Path, options: Mapping[str, Any], adopted: Adopted | None = None
) -> None:
    if isinstance(source, Release):
        chosen = dict(options)
        level = chosen.pop("level", 0.95)
        write_answers(source, source.workload, path, False, level, Rules(**chosen), adopted)
    else:
        about = {**source.about, "note": source.note}
        write_estimates(source.answers, about, source.workload, path, False, adopted)


def _package(path: Path) -> tuple[dict[str, Any], str]:
    """Return a description, or an empty one and what is wrong with it."""
    try:
        found = read_json(path.read_bytes())
    except (OSError, ValueError) as error:
        return {}, "it repeats a key" if "repeats" in str(error) else "it is not valid"
    parts = found.get("resources") if isinstance(found, dict) else None
    if not isinstance(parts, list) or not all(isinstance(one, dict) for one in parts):
        return {}, "it is not valid"
    return found, ""


def _options(package: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the choices with which a file was written, or nothing if they are not stated."""
    for resource in package.get("resources", []):
        if resource.get("path") == name:
            stated = resource.get("querysmasher")
            if not isinstance(stated, dict):
                msg = f"{NAME} does not say how {name!r} was written"
                raise FileError(msg)
            return {key: stated[key] for key in ("level", "thresholds", "suppress") if key in stated}
    return {}


def _description(stated: Mapping[str, Any], folder: Path, made: Path) -> Finding:
    """Compare a description with the one that follows from the release, for files of these sizes."""
    expected = _package(made / NAME)[0]
    for one in expected["resources"]:
        if "bytes" in one:
            one["bytes"] = (folder / one["path"]).stat().st_size
    if document(expected) == (folder / NAME).read_bytes():
        return Finding(NAME, OK, "columns, labels, units, guarantee and sizes of these files")
    wrong = _otherwise(stated, expected)
    if wrong:
        return Finding(NAME, FAILED, wrong)
    writers = {str(part["querysmasher"].get(WRITER)) for part in (stated, *stated["resources"])}
    if writers != {software()}:
        by = " and ".join(sorted(writers))
        return Finding(NAME, OPEN, f"nothing in it is wrong; {by} wrote it, and this is {software()}")
    return Finding(NAME, FAILED, f"it is not the text that {software()} writes")


def _otherwise(stated: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return what a description says otherwise than expected, but for the software that wrote it."""
    given, wanted = stated["resources"], expected["resources"]
    there = [one["path"] for one in wanted]
    foreign = [one.get("path") for one in given if one.get("path") not in there]
    if foreign:
        return f"it describes {foreign[0]!r}, which is not there"
    wrong = _differing({**stated, "resources": None}, {**expected, "resources": None})
    if wrong:
        return f"it says something else about {', '.join(wrong)}"
    for one, other in zip_longest(given, wanted):
        if one is None or other is None:
            return f"it describes {len(given)} tables, and there are {len(wanted)}"
        wrong = _differing(one, other)
        if wrong:
            return f"it says something else about {', '.join(wrong)} of {other['path']}"
    return ""


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in {*one, *other} if _without(one.get(key)) != _without(other.get(key)))


def _without(value: Any) -> Any:
    """Return a part of a description without the software that wrote it."""
    return {k: v for k, v in value.items() if k != WRITER} if isinstance(value, dict) else value
