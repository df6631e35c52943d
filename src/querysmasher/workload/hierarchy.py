"""Hierarchies on one attribute, such as tracts, counties and states: `hierarchy` and the forms of its levels.

A level is the group of every value. `Coarsening` puts the groups of a level in place of the values.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.attributes import Attribute, Categorical, literal
from querysmasher.errors import FileError, WorkloadError, as_given, explained
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, check_schema
from querysmasher.workload.joint import Rows
from querysmasher.workload.levels import LABELLED, Hierarchy, Integers, Name
from querysmasher.workload.workload import Group, Workload


@explained("qs.hierarchy(schema, 'tract', state=2, county=5)")
def hierarchy(
    schema: Schema,
    attribute: str,
    *levels: Level,
    leaves: bool = True,
    weights: Sequence[float] | None = None,
    codebook: str | os.PathLike[str] | None = None,
    **named: Level,
) -> Hierarchy:
    """Return the queries of a hierarchy: one per group of each level, and one per value (`leaves`).

    Use the result as the family of that attribute. Groups of one level must lie within those of another.

    Args:
        schema: the schema.
        attribute: the name of the attribute whose values are the leaves.
        levels: each a mapping from every value to its group, or from every group to its values; a list of
            groups in the order of the values; the number of characters of a code that name the group (2 and 5
            for the states and counties of census tracts); or the name of a column of `codebook`.
        leaves: whether to ask for the single values too.
        weights: a weight for the queries of each level, and last for those of the values.
        codebook: a CSV file: a codebook with more columns, or one line per value in a column called as the
            attribute.
        named: more levels, with names: `state=2, county=5`.

    >>> schema = Schema.of(county=4)
    >>> print(hierarchy(schema, "county", {0: "north", 1: "north", 2: "south", 3: "south"}).rows)
    6
    >>> print(hierarchy(schema, "county", {"north": [0, 1], "south": [2, 3]}, leaves=False).rows)
    2
    """
    check_schema(schema)
    given = [*((None, level) for level in levels), *named.items()]
    return titled_hierarchy(schema[attribute], given, leaves=leaves, weights=weights, codebook=codebook)


def titled_hierarchy(
    attribute: Attribute,
    levels: Sequence[tuple[str | None, Any]],
    *,
    leaves: bool = True,
    weights: Sequence[float] | None = None,
    codebook: str | os.PathLike[str] | None = None,
) -> Hierarchy:
    """Return a hierarchy of levels, each with its name or None."""
    if not isinstance(leaves, bool):
        raise WorkloadError(f"leaves: expected True or False, got {as_given(leaves)}")
    if weights is not None and (isinstance(weights, str | Mapping) or not isinstance(weights, Sequence)):
        raise WorkloadError(f"weights: expected one number per level, got {as_given(weights)}")
    read = [read_level(attribute, number, own, codebook) for number, (_, own) in enumerate(levels, start=1)]
    titles = tuple(title or f"level {number}" for number, (title, _) in enumerate(levels, start=1))
    tree = Hierarchy(
        (attribute.size,),
        tuple(numbers for numbers, _ in read),
        tuple(names for _, names in read),
        leaves,
        None if weights is None else tuple(weights),
        titles if any(title for title, _ in levels) else None,
    )
    return tree if tree.rows > LABELLED else replace(tree, row_labels=tuple(tree.labels([attribute])))


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


@dataclass(frozen=True, eq=False)
class Coarsening:
    """Groups of the values of one attribute, as an attribute of another schema."""

    original: Schema
    attribute: str
    """The name of the attribute in the original schema."""
    groups: Integers
    """The number of every value's group."""
    schema: Schema
    """The same schema, with groups as the values of the attribute."""
    name: str
    """The name of the attribute there."""

    @classmethod
    def of(
        cls, schema: Schema, attribute: str, groups: Integers, names: Sequence[Name], title: str
    ) -> Coarsening:
        """Replace an attribute by groups of its values."""
        if len(set(map(str, names))) < len(names):
            names = [f"{number}: {name}" for number, name in enumerate(names, start=1)]
        coarse = Categorical(
            title, list(names), title=schema[attribute].title if title == attribute else None
        )
        attributes = [coarse if a.name == attribute else a for a in schema]
        return cls(schema, attribute, groups, Schema(attributes), title)

    @classmethod
    def read(cls, workload: Workload, name: str, groups: Any = None) -> Coarsening:
        """Return a named level of a workload's hierarchies, or `groups` of the values of an attribute."""
        schema = workload.schema
        if groups is not None:
            numbers, names = read_level(schema[name], 1, groups)
            return cls.of(schema, name, numbers, names, name)
        titles: list[str] = []
        for group in workload:
            for names_of, family in group.parts():
                for (title, groups_of), (own, _) in zip(
                    family.level_names(), family.levels() or (), strict=False
                ):
                    titles += [title] if title else []
                    if title == name and own is not None:
                        return cls.of(schema, names_of[0], own, groups_of, name)
        known = ", ".join(map(repr, dict.fromkeys(titles))) or "none"
        raise WorkloadError(
            f"level: expected the name of a level of the workload's hierarchies ({known}), or an attribute "
            f"and groups of its values, got {as_given(name)}"
        )

    def fine(self, workload: Workload) -> Workload:
        """Return the same queries on the original schema."""
        if not isinstance(workload, Workload) or workload.schema != self.schema:
            raise WorkloadError(f"workload: expected queries on the schema {self.schema}")
        return Workload(self.original, tuple(map(self._fine_group, workload)))

    def _fine_group(self, group: Group) -> Group:
        names = tuple(self.attribute if name == self.name else name for name in group.attributes)
        families = tuple(self._fine_family(own, family) for own, family in group.parts())
        return replace(group, attributes=names, families=families)

    def _fine_family(self, names: tuple[str, ...], family: Family) -> Family:
        """Return a family on the original attributes."""
        if self.name not in names:
            return family
        if len(names) == 1 and np.array_equal(self.groups, np.arange(self.groups.size)):
            return family
        if family.counts_values:
            return Hierarchy(self.groups.shape, (self.groups,), (tuple(range(family.rows)),), leaves=False)
        axis = names.index(self.name)
        shape = tuple(self.groups.size if i == axis else n for i, n in enumerate(family.shape))
        tensor = family.matrix().reshape(-1, *family.shape)
        rows = np.take(tensor, self.groups, axis=1 + axis).reshape(len(tensor), -1)
        return Rows(shape, rows, family.weights)
