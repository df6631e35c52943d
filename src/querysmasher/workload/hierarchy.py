"""Hierarchies on one attribute, such as tracts, counties and states: `hierarchy` and the forms of its levels.

A level is the group of every value; levels nest, with the values as leaves. The rows of a million leaves are
never written out: answers are sums over groups, level by level, and planning works on the nodes
(`planning.lines.trees`). Small hierarchies have rows like any other family. `Coarsening` puts the groups of a
level in place of the values.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, Categorical, literal
from querysmasher.errors import FileError, WorkloadError, as_given, explained
from querysmasher.fields import integers, items, number
from querysmasher.formatting import count
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.family import (
    LARGEST,
    Family,
    Indexes,
    Structure,
    check_schema,
    check_weights,
    one_of,
    optional,
    strings,
)
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Workload

Name = str | int | float | bool
"""Types of the names of groups."""

LISTED = 1_000
"""Maximum number of values that a predicate lists, and of queries whose labels are stored."""


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy(Family):
    """One query per group of each level and, with `leaves`, one per value."""

    groups: tuple[Indexes, ...]
    """For each level, the number of every value's group: 0 .. k - 1 in order of first appearance."""
    names: tuple[tuple[Name, ...], ...] = field(compare=False)
    """For each level, the names of its groups."""
    leaves: bool = True
    level_weights: tuple[float, ...] | None = None
    """The weight of the queries of each level, last that of the leaves; None if all are 1."""
    titles: tuple[str, ...] | None = field(default=None, compare=False)
    """The names of the levels, for readers and statistics."""
    row_labels: tuple[str, ...] | None = field(default=None, compare=False)
    """The labels of few queries."""

    name: ClassVar[str] = "hierarchy"
    axes: ClassVar[int | None] = 1
    structure: ClassVar[Structure] = Structure.TREE
    readers: ClassVar = {
        "groups": lambda levels: tuple(map(integers, items(levels))),
        "names": lambda levels: tuple(tuple(items(level)) for level in items(levels)),
        "level_weights": optional(lambda each: tuple(number(w, 5e-324, LARGEST) for w in items(each))),
        "titles": optional(strings),
        "row_labels": optional(strings),
    }

    def __post_init__(self) -> None:
        """Check the levels: every value is in one group of each, and levels nest."""
        (n,) = self.shape
        groups = tuple(np.array(numbers, dtype=np.int64) for numbers in self.groups)
        named = all(isinstance(name, Name) for level in self.names for name in level)
        if not named or not isinstance(self.leaves, bool):
            msg = "a hierarchy: expected strings or numbers as names of groups, and leaves as true or false"
            raise WorkloadError(msg)
        if not groups and not self.leaves:
            raise WorkloadError("levels: expected at least one level, or leaves=True")
        for level, (numbers, names) in enumerate(zip(groups, self.names, strict=True), start=1):
            highest = np.maximum.accumulate(np.append(-1, numbers))  # numbers follow their first appearance
            in_turn = numbers.shape == (n,) and numbers.min() >= 0 and np.all(numbers <= highest[:-1] + 1)
            if not in_turn or highest[-1] + 1 != len(names):
                expected = f"{count(n, 'group')}, one per value, each with a name"
                raise WorkloadError(f"level {level} of a hierarchy: expected {expected}")
            numbers.flags.writeable = False
        object.__setattr__(self, "groups", groups)
        weights = self.level_weights
        if weights is not None:
            check_weights("weights", weights)
            if len(weights) != len(groups) + self.leaves:
                raise WorkloadError(
                    f"weights: expected {len(groups) + self.leaves}, one per level"
                    f"{' and one for the values' * self.leaves}, got {len(weights)}"
                )
            same = all(weight == 1 for weight in weights)
            object.__setattr__(self, "level_weights", None if same else tuple(map(float, weights)))
        order = sorted(range(len(groups)), key=lambda level: int(groups[level].max()))
        for coarse, fine in itertools.pairwise(order):  # levels of equally many groups must be equal
            first = np.unique(groups[fine], return_index=True)[1]
            if not np.array_equal(groups[coarse][first][groups[fine]], groups[coarse]):
                raise WorkloadError(
                    f"hierarchy: level {fine + 1} does not nest in level {coarse + 1}: one of its groups has "
                    f"values in different groups of level {coarse + 1}; state them as two hierarchies"
                )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of queries of each level, last of the leaves."""
        return (*map(len, self.names), *[self.cells] * self.leaves)

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @cached_property
    def row_weights(self) -> Array | None:
        """The weight of every query, or None if all are 1."""
        return None if self.level_weights is None else np.repeat(self.level_weights, self.sizes)

    @cached_property
    def _orders(self) -> tuple[tuple[Indexes, Indexes], ...]:
        """For each level, an order of the values that puts groups together, and where each starts."""
        orders = [np.argsort(groups, kind="stable") for groups in self.groups]
        starts = [np.cumsum(n) - n for n in map(np.bincount, self.groups)]
        return tuple(zip(orders, starts, strict=True))

    def _matrix(self) -> Array:
        return self.answers(np.eye(self.cells))

    def answers(self, table: Array) -> Array:
        sums = [np.add.reduceat(table[order], starts, axis=0) for order, starts in self._orders]
        return np.concatenate([*sums, *[table] * self.leaves])

    def spread(self, values: Array) -> Array:
        parts = np.split(values, np.cumsum(self.sizes)[:-1])
        numbers = (*self.groups, *[np.arange(self.cells)] * self.leaves)
        return np.asarray(sum(part[number] for part, number in zip(parts, numbers, strict=True)))

    def levels(self) -> list[tuple[Indexes | None, int]]:
        return list(zip((*self.groups, *[None] * self.leaves), self.sizes, strict=True))

    def level_names(self) -> list[tuple[str, tuple[Name, ...]]]:
        return list(zip(self.titles or [""] * len(self.names), self.names, strict=True))

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        if self.row_labels is not None:
            return list(self.row_labels)
        (a,) = attributes
        groups = (f"{a.name} in {literal(group)}" for level in self.names for group in level)
        return [*groups, *(Identity(self.shape).labels([a]) if self.leaves else ())]

    def label_of(self, attributes: Sequence[Attribute], row: int) -> str:
        if self.row_labels is not None:
            return self.row_labels[row]
        (a,), groups = attributes, list(itertools.chain(*self.names))
        leaf = row - len(groups)
        return f"{a.name} in {literal(groups[row])}" if leaf < 0 else a.exactly(a.name, leaf)

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        said = []
        for names, (order, starts) in zip(self.names, self._orders, strict=True):
            for name, values in zip(names, np.split(order, starts[1:]), strict=True):
                is_large = values.size > LISTED
                listed = [] if is_large else [a.literals[value] for value in values]
                said.append(f"{a.name} in {literal(name)}" if is_large else one_of(a, listed))
        return [*said, *(Identity(self.shape).predicates([a]) if self.leaves else ())]

    def ends(self) -> Indexes:
        """Return the first and last value of each group that is a range of values, and of each leaf."""
        parts = []
        for order, starts in self._orders:
            ends = np.append(starts[1:], len(order))
            first, last = order[starts], order[ends - 1]
            is_range = last - first == ends - starts - 1
            parts.append(np.where(is_range[:, None], np.stack([first, last], axis=1), -1))
        leaves = np.arange(self.cells if self.leaves else 0)
        return np.concatenate([*parts, np.stack([leaves, leaves], axis=1)])

    def spans(self) -> tuple[Indexes, Indexes] | None:
        ends = self.ends()
        return None if np.any(ends < 0) else (ends[:, 0], ends[:, 1])

    def counted(self, attribute: Attribute) -> list[str | None]:  # noqa: ARG002 - groups have names of their own
        """Return the names of the groups."""
        groups: list[str | None] = [str(group) for level in self.names for group in level]
        return groups + [None] * (self.cells if self.leaves else 0)


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
        leaves: whether to count the single values too.
        weights: one weight for the queries of each level, followed by one for the single values.
        codebook: a CSV file: a codebook with more columns, or one line per value, with a column that has the
            name of the attribute.
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
    read = [read_level(attribute, depth, level, codebook) for depth, (_, level) in enumerate(levels, start=1)]
    titles = tuple(title or f"level {depth}" for depth, (title, _) in enumerate(levels, start=1))
    tree = Hierarchy(
        (attribute.size,),
        tuple(numbers for numbers, _ in read),
        tuple(names for _, names in read),
        leaves,
        None if weights is None else tuple(weights),
        titles if any(title for title, _ in levels) else None,
    )
    return tree if tree.rows > LISTED else replace(tree, row_labels=tuple(tree.labels([attribute])))


Level = Mapping[Any, Any] | Sequence[Any] | int
"""Groups of values, groups in the order of the values, a number of characters of codes, or a column."""


def read_level(
    attribute: Attribute, number: int, level: Any, codebook: str | os.PathLike[str] | None = None
) -> tuple[Indexes, tuple[Name, ...]]:
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
            expected = f"{count(attribute.size, 'group')}, one per value"
            raise WorkloadError(f"{here}: expected {expected}, got {len(groups):,}")
    number_of: dict[Hashable, int] = {}
    try:
        numbers = [number_of.setdefault(group, len(number_of)) for group in groups]  # by first appearance
    except TypeError:
        raise WorkloadError(f"{here}: its groups are not strings or numbers") from None
    if any(group != group for group in number_of):  # noqa: PLR0124 - NaN, for a missing group
        raise WorkloadError(f"{here}: a group is missing (NaN); every value needs one")
    return np.array(numbers, dtype=np.int64), tuple(map(_name, number_of))


def _name(group: Any) -> Name:
    """Return a plain name for a group."""
    plain = group.item() if isinstance(group, np.generic) else group
    if isinstance(plain, str | int | float | bool):
        return plain
    return str(plain) if isinstance(plain, date) else repr(plain)


def _mapped(attribute: Attribute, level: Mapping[Any, Any], here: str) -> list[Any]:
    """Return the groups of a mapping from values to groups, or from groups to collections of values."""
    groups = dict(level)
    if level and all(
        isinstance(entry, Collection) and not isinstance(entry, str) for entry in level.values()
    ):
        known, groups = set(attribute.values), {}
        for value, group in ((value, group) for group, members in level.items() for value in members):
            if not isinstance(value, Hashable) or value not in known:
                msg = f"{here}: a group has {literal(value)}, which is not a value of the attribute"
                raise WorkloadError(msg)
            if groups.setdefault(value, group) != group:
                msg = f"{here} has value {literal(value)} in two groups; every value belongs to one"
                raise WorkloadError(msg)
    missing = next((v for v in attribute.values if v not in groups), None)
    if missing is not None:
        raise WorkloadError(f"{here} has no group for value {literal(missing)}")
    return [groups[v] for v in attribute.values]


def _prefixes(attribute: Attribute, length: int, here: str) -> list[str]:
    """Return the first characters of every value, a code."""
    strings = attribute.labels[: attribute.listed]
    most = max(map(len, strings))
    if not 0 <= length < most:
        raise WorkloadError(
            f"{here}: expected groups, or a number of characters from 0 to {most - 1}, as codes have at most "
            f"{most}, got {length}"
        )
    codes = attribute.values[: attribute.listed]
    if not all(isinstance(v, str) for v in codes) and len(set(map(len, strings))) > 1:
        raise WorkloadError(
            f"{here}: the first {length} characters of numbers of different lengths are no groups: leading "
            "zeros are lost; write the codes as strings"
        )
    return [text[:length] for text in strings] + [*attribute.labels[attribute.listed :]]


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
    columns = lines.fieldnames = [str(header).strip() for header in lines.fieldnames or ()]
    plain = [header.casefold() for header in columns]
    if column not in columns:
        raise WorkloadError(f"codebook: {name!r} has no column {column!r}")
    if attribute.name in columns:
        values, about = attribute.name, None
    elif {"attribute", "values"} <= set(plain):
        values, about = columns[plain.index("values")], columns[plain.index("attribute")]
    else:
        msg = f"codebook: {name!r} has no column {attribute.name!r}, nor the columns attribute and values"
        raise WorkloadError(msg)
    known = {label: index for index, label in enumerate(attribute.labels)}
    groups: dict[int, str] = {}
    for line in lines:
        if about is not None and (line[about] or "").strip() != attribute.name:
            continue
        group = (line[column] or "").strip()
        for value in _values(line[values] or "", several=about is not None, known=known):
            if value not in known:
                problem = f"a value is not one of attribute {attribute.name!r}"
            elif groups.setdefault(known[value], group) != group:
                problem = f"value {value!r} of attribute {attribute.name!r} is in two groups of {column!r}"
            elif not group:
                problem = f"value {value!r} of attribute {attribute.name!r} has no group in {column!r}"
            else:
                continue
            raise WorkloadError(f"codebook: {name!r}, line {lines.line_num}: {problem}")
    missing = next((value for value in range(attribute.size) if value not in groups), None)
    if missing is not None:
        msg = f"codebook: {name!r} has no line for value {attribute.literals[missing]} of {attribute.name!r}"
        raise WorkloadError(msg)
    return [groups[value] for value in range(attribute.size)]


def _values(cell: str, *, several: bool, known: Collection[str]) -> Iterator[str]:
    """Iterate over the values of one line: one, or several and ranges of integers."""
    for value in map(str.strip, cell.split(";") if several else [cell]):
        span = _RANGE.fullmatch(value) if several and value not in known else None
        if span and int(span[2]) - int(span[1]) < len(known):
            yield from map(str, range(int(span[1]), int(span[2]) + 1))
        else:
            yield value  # a longer range is no value, and is refused


@dataclass(frozen=True, eq=False)
class Coarsening:
    """Groups of the values of one attribute, as an attribute of another schema."""

    original: Schema
    attribute: str
    """The name of the attribute in the original schema."""
    groups: Indexes
    """The number of every value's group."""
    schema: Schema
    """The same schema, with groups as the values of the attribute."""
    name: str
    """The name of the attribute there."""

    @classmethod
    def read(cls, workload: Workload, name: str, groups: Any = None) -> Coarsening:
        """Return a named level of a workload's hierarchies, or `groups` of the values of an attribute."""
        schema = workload.schema
        levels: dict[Any, tuple[str, Indexes | None, Sequence[Name]]] = {}
        for attributes, family in (part for group in workload for part in group.parts()):
            named = zip(family.level_names(), family.levels() or (), strict=False)
            for (title, names), (numbers, _) in named:
                levels.setdefault(title, (attributes[0], numbers, names))
        levels.pop("", None)  # the levels without a name
        known = ", ".join(map(repr, levels)) or "none"
        if groups is not None:
            levels = {name: (name, *read_level(schema[name], 1, groups))}
        attribute, of_values, names = levels.get(name if isinstance(name, str) else None, (name, None, ()))
        if of_values is None:
            raise WorkloadError(
                f"level: expected the name of a level of the workload's hierarchies ({known}), or an "
                f"attribute and groups of its values, got {as_given(name)}"
            )
        if len(set(map(str, names))) < len(names):
            names = [f"{number}: {group}" for number, group in enumerate(names, start=1)]
        coarse = Categorical(name, list(names), title=schema[name].title if name == attribute else None)
        replaced = Schema([coarse if a.name == attribute else a for a in schema])
        return cls(schema, attribute, of_values, replaced, name)

    def fine(self, workload: Workload) -> Workload:
        """Return the same queries on the original schema."""
        if not isinstance(workload, Workload) or workload.schema != self.schema:
            raise WorkloadError(f"workload: expected queries on the schema {self.schema}")
        groups = []
        for group in workload:
            names = tuple(self.attribute if name == self.name else name for name in group.attributes)
            families = tuple(self._fine_family(covered, family) for covered, family in group.parts())
            groups.append(replace(group, attributes=names, families=families))
        return Workload(self.original, tuple(groups))

    def _fine_family(self, names: tuple[str, ...], family: Family) -> Family:
        """Return a family on the original attributes."""
        same = len(names) == 1 and np.array_equal(self.groups, np.arange(self.groups.size))
        if self.name not in names or same:
            return family
        if family.structure is Structure.VALUES:
            return Hierarchy(self.groups.shape, (self.groups,), (tuple(range(family.rows)),), leaves=False)
        axis = names.index(self.name)
        shape = tuple(self.groups.size if i == axis else n for i, n in enumerate(family.shape))
        tensor = family.matrix().reshape(-1, *family.shape)
        rows = np.take(tensor, self.groups, axis=1 + axis).reshape(len(tensor), -1)
        return Rows(shape, rows, family.weights)
