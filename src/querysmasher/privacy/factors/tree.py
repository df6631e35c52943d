"""Counts of nodes: every row counts the records below one node, times an integer, less a multiple of all.

Row v is m_v·1_v − g_v·1. The column of a value has m_v − g_v for the nodes v on its path, those that count
it, and −g_v for the others. So its squared length is the sum of m_v² − 2m_v g_v along that path, plus Σg²:
integers, added exactly. In a forest the path leads from a root to the value's leaf. Where several partitions
cross, it has the value's group in each of them, and its leaf.

Answers are m_v times sums of counts, less g_v times the number of records. Every partial sum is at most the
bound on the table in absolute value, and every product at most bound × (max m + max |g|), which the caller
keeps below 2⁶²: 64-bit integers hold them exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers
from querysmasher.privacy.factors.factor import Factor, Integers, given, largest_of, require, sum_of_squares
from querysmasher.privacy.factors.matrix import OnClasses, Partition, Tables
from querysmasher.privacy.pairs import MOST_CELLS, Products


@dataclass(frozen=True, eq=False)
class Nodes:
    """A forest, level by level, so that sums run up and down it with a few array operations.

    Roots come first, then their children, then the children of these: the parents of all nodes never
    decrease, and a parent comes before its children. The nodes at one depth are then a slice, and siblings
    are adjacent. Values along the first axis of tables are 64-bit integers, doubles or Python integers;
    results have the same type.
    """

    parents: Integers
    """The parent of every node, -1 for a root."""

    def __post_init__(self) -> None:
        """Refuse parents that are not those of a forest in order."""
        parents = self.parents
        ordered = parents.size and parents[0] == -1 and np.all(parents[1:] >= parents[:-1])
        ordered = ordered and np.all(parents < np.arange(parents.size))
        require(ordered, "forest: expected the parents of nodes in order of depth, -1 for roots")

    def __len__(self) -> int:
        """Count the nodes."""
        return self.parents.size

    @cached_property
    def families(self) -> tuple[tuple[slice, Integers, Integers], ...]:
        """At each depth, roots first: the nodes, their parents, and where the children of each start."""
        families, start = [], 0
        while start < (stop := int(np.searchsorted(self.parents, start))):
            parents = self.parents[start:stop]
            starts = np.flatnonzero(np.append(True, parents[1:] != parents[:-1]))
            families.append((slice(start, stop), parents[starts], starts))
            start = stop
        return tuple(families)

    @cached_property
    def levels(self) -> tuple[slice, ...]:
        """The nodes at each depth, roots first."""
        return tuple(level for level, _, _ in self.families)

    @property
    def depth(self) -> int:
        """Maximum number of nodes on a path."""
        return len(self.families)

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Which nodes have no children."""
        is_leaf = np.ones(len(self), dtype=bool)
        is_leaf[self.parents[self.parents >= 0]] = False
        return is_leaf

    @cached_property
    def leaves(self) -> Integers:
        """The nodes without children."""
        return np.flatnonzero(self.is_leaf)

    def sums(self, of_leaves: Tables) -> Tables:
        """Return the sum over the leaves below every node, given the values of the leaves, in order."""
        result = np.zeros((len(self), *of_leaves.shape[1:]), dtype=of_leaves.dtype)
        result[self.leaves] = of_leaves
        for level, parents, starts in self.families[:0:-1]:
            result[parents] = np.add.reduceat(result[level], starts)
        return result

    def path_sums(self, values: Tables) -> Tables:
        """Return for every leaf, in order, the sum of the values on the path from its root."""
        return self.along_paths(values)[self.leaves]

    def along_paths(self, values: Tables) -> Tables:
        """Return for every node the sum of the values on the path from its root to it."""
        result = values.copy()
        for level in self.levels[1:]:
            result[level] += result[self.parents[level]]
        return result

    def largest_of_pairs(self, of_leaves: Tables, of_nodes: Tables, factor: int) -> int | float:
        """Return the largest f(u) + f(v) + factor·h(w) of two leaves, with w the last node on both paths.

        If their paths have no node in common, h is zero.
        """
        best = np.zeros(len(self), dtype=of_leaves.dtype)  # of the leaves at or below
        best[self.leaves], found = of_leaves, []
        for level, parents, starts in self.families[:0:-1]:
            best[parents], second = two_largest(best[level], starts)
            several = np.diff(np.append(starts, best[level].size)) > 1
            both = best[parents] + second + factor * of_nodes[parents]
            found += [both[several].max()] if several.any() else []
        roots = best[self.levels[0]]
        if roots.size > 1:
            first, second = two_largest(roots, np.zeros(1, dtype=np.int64))
            found.append(first[0] + second[0])
        return max(found, default=0)


@dataclass(frozen=True, eq=False)
class Crossing:
    """The groups of several partitions of leaves, which need not nest, and after these the leaves themselves.

    The path of a leaf has one group of every partition, and the leaf. Values and results are as in `Nodes`.
    """

    groups: Integers
    """For every partition, the group of every leaf: 0 .. k - 1, each used."""

    def __post_init__(self) -> None:
        """Refuse groups with gaps in their numbers."""
        require(all(level.columns for level in self.levels), "groups: expected some in every partition")

    @cached_property
    def levels(self) -> tuple[Partition, ...]:
        """The partitions."""
        return tuple(
            Partition((groups,), np.arange(min(int(groups.max()) + 1, groups.size))) for groups in self.groups
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of groups of every partition."""
        return tuple(level.columns for level in self.levels)

    def __len__(self) -> int:
        """Count the nodes."""
        return sum(self.sizes) + self.groups.shape[1]

    @property
    def depth(self) -> int:
        """Number of nodes on every path."""
        return len(self.groups) + 1

    @cached_property
    def paths(self) -> Integers:
        """For every partition, the node of every leaf's group."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        return self.groups + starts[:, None]

    @cached_property
    def leaves(self) -> Integers:
        """The nodes that are leaves."""
        return np.arange(sum(self.sizes), len(self))

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        """Which nodes are leaves."""
        return np.arange(len(self)) >= sum(self.sizes)

    @property
    def largest(self) -> slice:
        """The groups of the partition that has most."""
        start = int(np.argmax(self.sizes))
        before = sum(self.sizes[:start])
        return slice(before, before + self.sizes[start])

    @cached_property
    def whole(self) -> Integers:
        """The groups of all leaves: those of partitions with a single group."""
        return np.unique(self.paths[np.array(self.sizes) == 1])

    def sums(self, of_leaves: Tables) -> Tables:
        """Return the sum over the leaves in every node, given the values of the leaves, in order."""
        return np.concatenate([*(level.sums(of_leaves) for level in self.levels), of_leaves])

    def path_sums(self, values: Tables) -> Tables:
        """Return for every leaf, in order, the sum of the values on its path."""
        result = values[self.leaves]
        for nodes in self.paths:
            result = result + values[nodes]
        return result


def two_largest(values: Tables, starts: Integers) -> tuple[Tables, Tables]:
    """Return the largest and the second largest value of every run of values; of one value, that twice."""
    ends = np.append(starts[1:], values.size)
    run = np.repeat(np.arange(starts.size), ends - starts)
    ordered = values[np.lexsort((values, run))]
    return ordered[ends - 1], ordered[np.maximum(ends - 2, starts)]


class OnNodes(OnClasses):
    """A mixin for operators over nodes, which are groups of an attribute's values: every class is a leaf."""

    @property
    @abstractmethod
    def nodes(self) -> Nodes | Crossing:
        """The nodes."""


class OnForest(OnNodes):
    """The same over the nodes of a forest."""

    parents: Integers
    """The parent of every node, -1 for a root, level by level."""

    @cached_property
    def nodes(self) -> Nodes:
        """The forest."""
        return Nodes(self.parents)


class OnCrossing(OnNodes):
    """The same over the groups of several partitions."""

    groups: Integers
    """For every partition, the group of every leaf."""

    @cached_property
    def nodes(self) -> Crossing:
        """The groups, and the leaves."""
        return Crossing(self.groups)


class CountsOfNodes(OnNodes, Factor):
    """Row k is multipliers[v] times the sum over the values below node v, for the k-th node measured."""

    stands_alone = True

    multipliers: Integers
    """A positive integer for every leaf, zero for a node that is not measured."""
    shift: Integers
    """Number subtracted from every entry of each node's row: zero where the node is not measured."""

    def _check(self) -> None:
        """Check that the arrays, already kept, are those of nodes over the values."""
        nodes, multipliers, shift = self.nodes, self.multipliers, self.shift
        fits = len(nodes) == multipliers.size and self.partition.columns == nodes.leaves.size
        require(fits, f"strategy: expected a multiplier for every node of a {self.kind}")
        positive = multipliers.min() >= 0 and multipliers[nodes.leaves].all()
        require(
            positive, f"strategy: expected positive multipliers for a {self.kind}'s leaves, no negative ones"
        )
        fits = shift.shape == multipliers.shape and not shift[multipliers == 0].any()
        require(fits, f"strategy: expected a shift for every node of a {self.kind} that is measured")

    @cached_property
    def measured(self) -> Integers:
        """The nodes that are measured: one row each, in order."""
        return np.flatnonzero(self.multipliers)

    @property
    def rows(self) -> int:
        return self.measured.size

    @property
    def cells(self) -> int:
        return self.partition.cells

    @cached_property
    def largest(self) -> int:
        return int(self.multipliers.max()) + largest_of(self.shift)

    @cached_property
    def _words(self) -> tuple[Numbers, Numbers]:
        """Both, m and g, as integers in which the sums of squares along paths are exact."""
        fits = 6 * self.largest**2 * self.nodes.depth < 2**62
        m, g = (a if fits else a.astype(object) for a in (self.multipliers, self.shift))
        return m, g

    def squared_column(self) -> int:
        m, g = self._words
        return int(self.nodes.path_sums(m**2 - 2 * m * g).max()) + sum_of_squares(self.shift)

    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:  # noqa: ARG002 - the caller keeps to it
        whole = tables.astype(np.int64)
        sums = self.nodes.sums(self.partition.sums(whole))[self.measured]
        sums *= self.multipliers[self.measured][:, None]
        sums -= self.shift[self.measured][:, None] * whole.sum(axis=0)
        return sums

    def transposed(self, answers: Array) -> Array:
        weighted = np.zeros((len(self.nodes), answers.shape[1]))
        weighted[self.measured] = answers * self.multipliers[self.measured].astype(float)[:, None]
        shifted = self.shift[self.measured].astype(float) @ answers
        return self.nodes.path_sums(weighted)[self.classes] - shifted


@dataclass(frozen=True, eq=False)
class Tree(OnForest, CountsOfNodes):
    """The counts of the nodes of a forest."""

    kind = "tree"
    stored = dict.fromkeys(("classes", "parents", "multipliers", "shift"), given)

    classes: Integers
    parents: Integers
    multipliers: Integers
    shift: Integers

    def __post_init__(self) -> None:
        """Check that the arrays describe a forest over the values; keep read-only copies."""
        self._keep(classes=1, parents=1, multipliers=1, shift=1)
        self._check()

    def column_products(self) -> Products:
        if self.cells <= MOST_CELLS:
            return super().column_products()
        if self.nodes.leaves.size == 1:
            return Products.bounded(1.0)
        m, g = self._words
        squared, paths = float(self.squared_column()), self.nodes.along_paths(m**2)
        # two columns have the product Σm² down to where their paths part, less Σmg on both, plus Σg²
        least = sum_of_squares(self.shift) - self.nodes.largest_of_pairs(
            self.nodes.path_sums(m * g), paths, -1
        )
        farthest = self.nodes.largest_of_pairs(paths[self.nodes.leaves], paths, -2)
        return Products(None, None, float(least) / squared, float(farthest) / squared)


@dataclass(frozen=True, eq=False)
class Crossed(OnCrossing, CountsOfNodes):
    """The counts of the groups of several partitions."""

    kind = "crossed"
    stored = dict.fromkeys(("classes", "groups", "multipliers", "shift"), given)

    classes: Integers
    groups: Integers
    multipliers: Integers
    shift: Integers

    def __post_init__(self) -> None:
        """Check that the arrays describe partitions of the values; keep read-only copies."""
        self._keep(classes=1, groups=2, multipliers=1, shift=1)
        self._check()

    def column_products(self) -> Products:
        if self.cells <= MOST_CELLS:
            return super().column_products()
        m, g = self._words
        squared, common = float(self.squared_column()), int((m**2)[self.nodes.whole].sum())
        # two columns have the product Σm² over their common groups, less Σmg on both, plus Σg²
        least = sum_of_squares(self.shift) + common - 2 * int(self.nodes.path_sums(m * g).max())
        farthest = 2 * (int(self.nodes.path_sums(m**2).max()) - common)
        return Products(None, None, float(least) / squared, float(farthest) / squared)
