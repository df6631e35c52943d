"""The nodes of a forest, level by level, so that sums run up and down it with a few array operations.

Roots come first, then their children, then the children of these: the parents of all nodes never decrease,
and a parent comes before its children. The nodes at one depth are then a slice, and siblings are adjacent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Integers

Tables = NDArray[Any]
"""Values along the first axis: 64-bit integers, doubles or Python integers; results have the same type."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """A forest, given by the parent of every node; its arrays must not be changed."""

    parents: Integers
    """The parent of every node, -1 for a root."""

    def __post_init__(self) -> None:
        """Refuse parents that are not those of a forest in order."""
        own = self.parents
        ordered = own.size and own[0] == -1 and bool(np.all(own[1:] >= own[:-1]))
        if not ordered or not np.all(own < np.arange(own.size)):
            msg = "forest: expected the parents of nodes in order of depth, -1 for roots"
            raise PrivacyError(msg)

    def __len__(self) -> int:
        """Count the nodes."""
        return self.parents.size

    @cached_property
    def levels(self) -> tuple[slice, ...]:
        """The nodes at each depth, roots first."""
        found, start = [], 0
        stop = int(np.searchsorted(self.parents, 0))
        while start < stop:
            found.append(slice(start, stop))
            start, stop = stop, int(np.searchsorted(self.parents, stop))
        return tuple(found)

    @cached_property
    def families(self) -> tuple[tuple[Integers, Integers], ...]:
        """At each depth: the nodes that are parents of it, and where the children of each start in it."""
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for level in self.levels[1:]:
            own = self.parents[level]
            starts = np.flatnonzero(np.append(True, own[1:] != own[:-1]))
            found.append((own[starts], starts))
        return tuple(found)

    @cached_property
    def sizes(self) -> tuple[Integers, ...]:
        """At each depth: the number of children of each parent in `families`."""
        return tuple(
            np.diff(starts, append=level.stop - level.start)
            for level, (_, starts) in zip(self.levels, self.families, strict=True)
        )

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Which nodes have no children."""
        found = np.ones(len(self), dtype=bool)
        found[self.parents[self.parents >= 0]] = False
        return found

    @cached_property
    def leaves(self) -> Integers:
        """The nodes without children."""
        return np.flatnonzero(self.is_leaf)

    def child_sums(self, depth: int, values: Tables) -> Tables:
        """Sum values of the nodes at a depth within siblings; one sum per parent in `families`."""
        return np.add.reduceat(values, self.families[depth][1], axis=0)

    def sums(self, of_leaves: Tables) -> Tables:
        """Return the sum over the leaves below every node, given the values of the leaves, in order."""
        result = np.zeros((len(self), *of_leaves.shape[1:]), dtype=of_leaves.dtype)
        result[self.leaves] = of_leaves
        for depth in range(len(self.levels) - 1, 0, -1):
            result[self.families[depth][0]] = self.child_sums(depth, result[self.levels[depth]])
        return result

    def path_sums(self, values: Tables) -> Tables:
        """Return for every leaf, in order, the sum of the values on the path from its root."""
        result = values.copy()
        for level in self.levels[1:]:
            result[level] += result[self.parents[level]]
        return result[self.leaves]
