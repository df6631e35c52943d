"""Levels of a hierarchy from a column of a codebook, or of a crosswalk: a CSV file with one line per value.

Messages name lines and columns, and do not quote the file: it may be the private table, by mistake.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

from querysmasher.attributes import Attribute
from querysmasher.errors import FileError, WorkloadError

_RANGE = re.compile(r"(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})")


def read_column(path: str | os.PathLike[str], attribute: Attribute, column: str) -> list[str]:
    """Return the group of every value of an attribute, in order, from a column of a CSV file.

    The file is a codebook, with columns `attribute` and `values` (separated by semicolons, or `0..99`), or
    has a column called as the attribute, with one value per line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return _groups(csv.DictReader(stream), path.name, attribute, column)
    except (OSError, ValueError, csv.Error) as error:  # ValueError: not UTF-8, or not a path
        if isinstance(error, WorkloadError):
            raise
        raise FileError(f"codebook: the file {path.name!r} cannot be read ({type(error).__name__})") from None


def _groups(lines: csv.DictReader[str], name: str, attribute: Attribute, column: str) -> list[str]:
    columns = [str(one).strip() for one in lines.fieldnames or ()]
    lines.fieldnames = columns
    plain = [one.casefold() for one in columns]
    if column not in columns:
        raise WorkloadError(f"codebook: {name!r} has no column {column!r}")
    if attribute.name in columns:
        values, about = attribute.name, None
    elif {"attribute", "values"} <= set(plain):
        values, about = columns[plain.index("values")], columns[plain.index("attribute")]
    else:
        msg = f"codebook: {name!r} has no column {attribute.name!r}, nor the columns attribute and values"
        raise WorkloadError(msg)
    known = {label: place for place, label in enumerate(attribute.labels)}
    found: list[str | None] = [None] * attribute.size
    for line in lines:
        if about is not None and (line[about] or "").strip() != attribute.name:
            continue
        group = (line[column] or "").strip()
        for text in _values(line[values] or "", several=about is not None, known=known):
            place = known.get(text)
            problem = None
            if place is None:
                problem = f"a value is not one of attribute {attribute.name!r}"
            elif found[place] is not None and found[place] != group:
                problem = f"value {text!r} of attribute {attribute.name!r} is in two groups of {column!r}"
            elif not group:
                problem = f"value {text!r} of attribute {attribute.name!r} has no group in {column!r}"
            if problem or place is None:
                raise WorkloadError(f"codebook: {name!r}, line {lines.line_num}: {problem}")
            found[place] = group
    missing = next((place for place, group in enumerate(found) if group is None), None)
    if missing is not None:
        msg = f"codebook: {name!r} has no line for value {attribute.literals[missing]} of {attribute.name!r}"
        raise WorkloadError(msg)
    return [str(group) for group in found]


def _values(text: str, *, several: bool, known: dict[str, int]) -> Iterator[str]:
    """Iterate over the values of one line."""
    for part in text.split(";") if several else [text]:
        own = part.strip()
        span = _RANGE.fullmatch(own) if several and own not in known else None
        if span is None:
            yield own
        elif int(span[2]) - int(span[1]) >= len(known):
            yield own  # which is no value, and is refused
        else:
            yield from map(str, range(int(span[1]), int(span[2]) + 1))
