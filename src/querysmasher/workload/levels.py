"""The levels of a hierarchy, in the forms that users give them: the group of every value of an attribute."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.labels import literal
from querysmasher.workload.crosswalk import read_column
from querysmasher.workload.tree import Integers, Name

Level = Mapping[Any, Any] | Sequence[Any] | int
"""Groups of values, groups in the order of the values, a number of characters of codes, or a column."""


def read_level(
    attribute: Attribute, number: int, level: Any, codebook: str | os.PathLike[str] | None = None
) -> tuple[Integers, tuple[Name, ...]]:
    """Return the number of every value's group, by first appearance, and the names of the groups."""
    here = f"level {number} of the hierarchy on {attribute.name!r}"
    if isinstance(level, np.integer | int) and not isinstance(level, bool):
        groups = _prefixes(attribute, int(level), here)
    elif isinstance(level, str):
        if codebook is None:
            msg = f"{here}: a column of a codebook needs the argument codebook, the file's name"
            raise WorkloadError(msg)
        groups = read_column(codebook, attribute, level)
    elif isinstance(level, Mapping):
        groups = _mapped(attribute, level, here)
    else:
        try:
            groups = list(level)
        except TypeError:
            raise WorkloadError(
                f"{here}: expected a mapping of values to groups, groups in the order of the values, a "
                f"number of characters, or a column of a codebook, got {type(level).__name__}"
            ) from None
        if len(groups) != attribute.size:
            raise WorkloadError(f"{here}: expected {attribute.size} groups, one per value, got {len(groups)}")
    return _numbered(groups, here)


def _numbered(groups: Sequence[Any], here: str) -> tuple[Integers, tuple[Name, ...]]:
    """Number the groups by first appearance."""
    found: dict[Hashable, int] = {}
    try:
        numbers = [found.setdefault(group, len(found)) for group in groups]
    except TypeError:
        raise WorkloadError(f"{here}: its groups are not strings or numbers") from None
    if any(group != group for group in found):  # noqa: PLR0124 - NaN, for a missing group
        raise WorkloadError(f"{here}: a group is missing (NaN); every value needs one")
    return np.array(numbers, dtype=np.int64), tuple(map(_name, found))


def _name(group: Any) -> Name:
    """Return a plain name for a group."""
    plain = group.item() if isinstance(group, np.generic) else group
    if isinstance(plain, str | int | float | bool):
        return plain
    return str(plain) if isinstance(plain, date) else repr(plain)


def _mapped(attribute: Attribute, level: Mapping[Any, Any], here: str) -> list[Any]:
    """Return the groups of a mapping from values to groups, or from groups to collections of values."""
    if level and all(isinstance(own, Collection) and not isinstance(own, str) for own in level.values()):
        level = _inverted(attribute, level, here)
    missing = next((v for v in attribute.values if v not in level), None)
    if missing is not None:
        raise WorkloadError(f"{here} has no group for value {literal(missing)}")
    return [level[v] for v in attribute.values]


def _inverted(attribute: Attribute, level: Mapping[Any, Any], here: str) -> dict[Any, Any]:
    known = set(attribute.values)
    found: dict[Any, Any] = {}
    for group, members in level.items():
        for value in members:
            if not isinstance(value, Hashable) or value not in known:
                msg = f"{here}: a group has {literal(value)}, which is no value of the attribute"
                raise WorkloadError(msg)
            if found.setdefault(value, group) != group:
                msg = f"{here} has value {literal(value)} in two groups; every value belongs to one"
                raise WorkloadError(msg)
    return found


def _prefixes(attribute: Attribute, length: int, here: str) -> list[str]:
    """Return the first characters of every value, a code."""
    texts = attribute.labels
    most = max(map(len, texts))
    if not 0 <= length < most:
        raise WorkloadError(
            f"{here}: expected groups, or a number of characters from 0 to {most - 1}, as codes have at most "
            f"{most}, got {length}"
        )
    if not all(isinstance(v, str) for v in attribute.values) and len(set(map(len, texts))) > 1:
        raise WorkloadError(
            f"{here}: the first {length} characters of numbers of different lengths are no groups: leading "
            "zeros are lost; write the codes as strings"
        )
    return [text[:length] for text in texts]
