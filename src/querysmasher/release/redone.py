"""Published files of answers, written again from the noisy numbers as they were asked for, and compared."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from querysmasher.errors import FileError, QuerySmasherError
from querysmasher.estimate.estimate import Estimate
from querysmasher.release.comparing import WRITER, difference
from querysmasher.release.description import NAME
from querysmasher.release.release import Release

CHOSEN = ("level", "thresholds", "suppress")
"""What the publisher chose, as `datapackage.json` states it."""


def redone(source: Release | Estimate, file: Path) -> tuple[str | None, str]:
    """Write the answers to all planned queries again; return how the file differs, and its description.

    Level, thresholds and suppression are those that the description beside the file states. No difference is
    the empty string; None means that the format is not compared, or that there is no description.
    """
    stated = _package(file.with_name(NAME))
    try:
        options = _options(stated, file.name) if isinstance(source, Release) else {}
        with tempfile.TemporaryDirectory(prefix="querysmasher-") as made:
            fresh = Path(made) / file.name
            source.write(source.workload, fresh, progress=False, **options)
            found = difference(file, fresh, options.get("level", 0.95))
            return found, _described(stated, _package(fresh.with_name(NAME)), file)
    except QuerySmasherError as error:
        return str(error), ""


def _package(path: Path) -> Mapping[str, Any]:
    """Return a description; an empty one if it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _resources(package: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = package.get("resources")
    parts = found if isinstance(found, list) else []
    return [one for one in parts if isinstance(one, dict) and one.get("path") == name]


def _options(package: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the choices with which a file was written, or nothing if they are not stated."""
    for resource in _resources(package, name):
        stated = resource.get("querysmasher")
        if not isinstance(stated, dict):
            msg = f"{NAME} does not say how {name!r} was written"
            raise FileError(msg)
        return {key: stated[key] for key in CHOSEN if key in stated}
    return {}


def _described(stated: Mapping[str, Any], fresh: Mapping[str, Any], file: Path) -> str:
    """Return what a description says otherwise than the one that follows from the release."""
    if not file.with_name(NAME).exists():
        return ""
    parts = stated.get("resources")
    if not isinstance(parts, list):
        return "it is not valid"
    paths = [one.get("path") if isinstance(one, dict) else None for one in parts]
    there = [one.name for one in file.parent.iterdir()]
    missing = [path for path in paths if path not in there]
    if missing:
        return f"it describes {missing[0]!r}, which is not there"
    later = {"name"} if paths[-1:] != [file.name] else set()  # the package has the name of its last file
    head = {*stated, *fresh} - {"resources", "querysmasher", *later}
    wrong = sorted(key for key in head if stated.get(key) != fresh.get(key))
    own = _without(stated.get("querysmasher"))
    if all(own != _without(one.get("querysmasher")) for one in parts if isinstance(one, dict)):
        wrong.append("querysmasher")
    if wrong:
        return f"it says something else about {', '.join(wrong)}"
    given, expected = (_resources(package, file.name) for package in (stated, fresh))
    if len(given) != len(expected):
        return f"it describes {len(given)} tables of {file.name}, which has {len(expected)}"
    for one, other in zip(given, expected, strict=True):
        wrong = _differing(one, {**other, **({"bytes": file.stat().st_size} if "bytes" in other else {})})
        if wrong:
            return f"it says something else about {', '.join(wrong)} of {file.name}"
    return ""


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in {*one, *other} if _without(one.get(key)) != _without(other.get(key)))


def _without(value: Any) -> Any:
    """Return a part of a description without the version of the software."""
    return {k: v for k, v in value.items() if k != WRITER} if isinstance(value, dict) else value
