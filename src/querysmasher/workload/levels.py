"""A hierarchy on one attribute as a tree: levels of groups that nest, and the values as leaves.

The rows of a million leaves are never written out: answers are sums over groups, level by level, and planning
works on the nodes (`planning.lines.trees`). Small hierarchies have rows like any other family.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, literal
from querysmasher.errors import WorkloadError
from querysmasher.fields import integers, items, number, text
from querysmasher.formatting import written_name
from querysmasher.workload.families import Identity, Intervals
from querysmasher.workload.family import LARGEST, ArrayFamily, Family, LineSums, check_weights, one_of

Integers = NDArray[np.int64]

Name = str | int | float | bool
"""Types of the names of groups."""

LISTED = 1_000
"""Maximum number of values of a group whose predicate lists them."""

LABELLED = 1_000
"""Maximum number of queries whose labels are stored."""


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy(ArrayFamily):
    """One query per group of each level and, with `leaves`, one per value."""

    groups: tuple[Integers, ...]
    """For each level, the number of every value's group: 0 .. k - 1 in order of first appearance."""
    names: tuple[tuple[Name, ...], ...]
    """For each level, the names of its groups."""
    leaves: bool = True
    level_weights: tuple[float, ...] | None = None
    """The weight of the queries of each level, last that of the leaves; None if all are 1."""
    titles: tuple[str, ...] | None = None
    """The names of the levels, for readers and statistics."""
    row_labels: tuple[str, ...] | None = None
    """The labels of few queries."""

    name: ClassVar[str] = "hierarchy"
    axes: ClassVar[int | None] = 1
    is_tree: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the levels: every value is in one group of each, and levels nest."""
        (n,) = self.shape
        groups = tuple(np.array(own, dtype=np.int64) for own in self.groups)
        if not groups and not self.leaves:
            raise WorkloadError("levels: expected at least one level, or leaves=True")
        for level, (own, names) in enumerate(zip(groups, self.names, strict=True), start=1):
            if own.shape != (n,) or not _numbers_by_appearance(own) or int(own.max()) + 1 != len(names):
                msg = f"level {level} of a hierarchy: expected {n} groups, one per value, each with a name"
                raise WorkloadError(msg)
            own.flags.writeable = False
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
        check_nesting(groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of queries of each level, last of the leaves."""
        return (*map(len, self.names), *[self.cells] * self.leaves)

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    @property
    def _content(self) -> Sequence[Any]:
        return [self.leaves, self.level_weights, *self.groups]

    @property
    def _words(self) -> Hashable:
        return self.names, self.titles, self.row_labels

    @cached_property
    def weights(self) -> Array | None:
        return None if self.level_weights is None else np.repeat(self.level_weights, self.sizes)

    @cached_property
    def _orders(self) -> tuple[tuple[Integers, Integers], ...]:
        """For each level, an order of the values that puts groups together, and where each starts."""
        found = []
        for own, size in zip(self.groups, self.sizes, strict=False):
            counts = np.bincount(own, minlength=size)
            found.append((np.argsort(own, kind="stable"), np.cumsum(counts) - counts))
        return tuple(found)

    def _matrix(self) -> Array:
        levels = [own == np.arange(size)[:, None] for own, size in zip(self.groups, self.sizes, strict=False)]
        return np.concatenate([*levels, np.eye(self.cells)[: self.cells * self.leaves]]).astype(float)

    def answers(self, table: Array) -> Array:
        result = np.empty((self.rows, *table.shape[1:]))
        start = 0
        for (order, starts), size in zip(self._orders, self.sizes, strict=False):
            np.add.reduceat(table[order], starts, axis=0, out=result[start : start + size])
            start += size
        if self.leaves:
            result[start:] = table
        return result

    def spread(self, values: Array) -> Array:
        """Return Σ value × query: for values of the queries along the first axis, those of the cells."""
        result = np.zeros((self.cells, *values.shape[1:]))
        start = 0
        for own, size in zip(self.groups, self.sizes, strict=False):
            result += values[start : start + size][own]
            start += size
        return result + values[start:] if self.leaves else result

    def add_to(
        self, sums: LineSums, weights: Array | None, coefficient: float
    ) -> list[tuple[Family, float]] | None:
        """Add the single values; other groups are ranges, unless their values are not consecutive."""
        spans = self.spans()
        if spans is None:
            return None
        every = np.broadcast_to(coefficient * (1.0 if weights is None else weights), self.rows)
        single = spans[0] == spans[1]
        np.add.at(sums.values, spans[0][single], every[single])
        if single.all():
            return []
        own = self.shape, spans[0][~single], spans[1][~single], every[~single] / coefficient
        return [(Intervals(*own), coefficient)]

    def levels(self) -> list[tuple[Integers | None, int]]:
        return list(zip((*self.groups, *[None] * self.leaves), self.sizes, strict=True))

    def level_names(self) -> list[tuple[str, tuple[Name, ...]]]:
        return list(zip(self.titles or [""] * len(self.names), self.names, strict=True))

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        if self.row_labels is not None:
            return list(self.row_labels)
        (a,) = attributes
        groups = (f"{a.name} in {literal(group)}" for level in self.names for group in level)
        return [*groups, *(Identity(self.shape).labels([a]) if self.leaves else ())]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        groups = (said for level in range(len(self.groups)) for said in self._stated(a, level))
        return [*groups, *(Identity(self.shape).predicates([a]) if self.leaves else ())]

    def _stated(self, attribute: Attribute, level: int) -> Iterator[str]:
        """Return the groups of a level as lists of their values; large ones in words."""
        order, starts = self._orders[level]
        literals, written = attribute.literals, written_name(attribute.name)
        for name, own in zip(self.names[level], np.split(order, starts[1:]), strict=True):
            if own.size > LISTED:
                yield f"{attribute.name} in {literal(name)}"
            elif own.size == 1:
                yield f"{written} == {literals[own[0]]}"
            else:
                yield one_of(attribute, [literals[value] for value in own])

    def ends(self) -> Integers:
        """Return the first and last value of each group that is a range of values, and of each leaf."""
        found = []
        for order, starts in self._orders:
            ends = np.append(starts[1:], len(order))
            first, last = order[starts], order[ends - 1]
            is_range = last - first == ends - starts - 1
            found.append(np.where(is_range[:, None], np.stack([first, last], axis=1), -1))
        leaves = np.arange(self.cells if self.leaves else 0)
        return np.concatenate([*found, np.stack([leaves, leaves], axis=1)])

    @cached_property
    def _spans(self) -> tuple[Integers, Integers] | None:
        ends = self.ends()
        return None if np.any(ends < 0) else (ends[:, 0], ends[:, 1])

    def spans(self) -> tuple[Integers, Integers] | None:
        return self._spans

    def counted(self, attribute: Attribute) -> list[str | None]:  # noqa: ARG002 - groups have names of their own
        """Return the names of the groups."""
        groups: list[str | None] = [str(group) for level in self.names for group in level]
        return groups + [None] * (self.cells if self.leaves else 0)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        names = tuple(tuple(items(level)) for level in items(fields["names"]))
        named = all(isinstance(name, str | int | float | bool) for level in names for name in level)
        if not named or not isinstance(fields["leaves"], bool):
            msg = "a hierarchy: expected texts or numbers as names of groups, and leaves as true or false"
            raise WorkloadError(msg)
        words, weights = ("titles", "row_labels"), fields["level_weights"]
        if weights is not None:
            weights = tuple(number(weight, 5e-324, LARGEST) for weight in items(weights))
        return fields | {
            "groups": tuple(integers(own, 1) for own in items(fields["groups"])),
            "names": names,
            "level_weights": weights,
            **{key: None if fields[key] is None else tuple(map(text, items(fields[key]))) for key in words},
        }


def check_nesting(groups: Sequence[Integers]) -> None:
    """Refuse levels that do not nest, whatever their order; levels of equally many groups must be equal."""
    order = sorted(range(len(groups)), key=lambda level: int(groups[level].max()))
    for coarse, fine in itertools.pairwise(order):
        first = np.unique(groups[fine], return_index=True)[1]
        expected = groups[coarse][first][groups[fine]]
        if not np.array_equal(expected, groups[coarse]):
            raise WorkloadError(
                f"hierarchy: level {fine + 1} does not nest in level {coarse + 1}: one of its groups has "
                f"values in different groups of level {coarse + 1}; state them as two hierarchies"
            )


def _numbers_by_appearance(own: Integers) -> bool:
    """Return whether numbers are 0 .. k - 1, each first used after those before it."""
    if not own.size or own[0] != 0:
        return False
    highest = np.maximum.accumulate(own)
    return bool(own.min() >= 0 and np.all(own[1:] <= highest[:-1] + 1))
