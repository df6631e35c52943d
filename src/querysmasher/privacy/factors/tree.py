"""Trees: every row counts the records below one node, times an integer, less a multiple of all records.

Row v is m_v·1_v − g_v·1. The column of a value has m_v − g_v for the nodes v on the path from a root to its
leaf, and −g_v for the others. So its squared length is the sum of m_v² − 2m_v g_v along that path, plus Σg²:
integers, added exactly. Answers are m_v times sums of counts, less g_v times the number of records. Every
partial sum is at most the bound on the table in absolute value, and every product at most bound × (max m +
max |g|), which the caller keeps below 2⁶²: 64-bit integers hold them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers
from querysmasher.privacy.factors.factor import Factor, Integers, given, largest_of, require, sum_of_squares
from querysmasher.privacy.factors.matrix import OnClasses, Tables
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


def two_largest(values: Tables, starts: Integers) -> tuple[Tables, Tables]:
    """Return the largest and the second largest value of every run of values; of one value, that twice."""
    ends = np.append(starts[1:], values.size)
    run = np.repeat(np.arange(starts.size), ends - starts)
    ordered = values[np.lexsort((values, run))]
    return ordered[ends - 1], ordered[np.maximum(ends - 2, starts)]


class OnForest(OnClasses):
    """A mixin for operators over the nodes of a forest on an attribute's values: every class is a leaf."""

    parents: Integers
    """The parent of every node, -1 for a root, level by level."""

    @cached_property
    def nodes(self) -> Nodes:
        """The forest."""
        return Nodes(self.parents)


@dataclass(frozen=True, eq=False)
class Tree(OnForest, Factor):
    """Row k is multipliers[v] times the sum over the values below node v, for the k-th node measured."""

    kind = "tree"
    stored = dict.fromkeys(("classes", "parents", "multipliers", "shift"), given)
    stands_alone = True

    classes: Integers
    parents: Integers
    multipliers: Integers
    """A positive integer for every leaf, zero for a node that is not measured."""
    shift: Integers
    """Number subtracted from every entry of each node's row: zero where the node is not measured."""

    def __post_init__(self) -> None:
        """Check that the arrays describe a forest over the values; keep read-only copies."""
        self._keep(classes=1, parents=1, multipliers=1, shift=1)
        nodes, multipliers, shift = self.nodes, self.multipliers, self.shift
        fits = len(nodes) == multipliers.size and self.partition.columns == nodes.leaves.size
        require(fits, "strategy: expected a multiplier for every node of a tree")
        positive = multipliers.min() >= 0 and multipliers[nodes.leaves].all()
        require(positive, "strategy: expected positive multipliers for a tree's leaves, no negative ones")
        fits = shift.shape == multipliers.shape and not shift[multipliers == 0].any()
        require(fits, "strategy: expected a shift for every node of a tree that is measured")

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

    def squared_column(self) -> int:
        fits = 3 * self.largest**2 * len(self.nodes.levels) < 2**62
        m, g = (a if fits else a.astype(object) for a in (self.multipliers, self.shift))
        return int(self.nodes.path_sums(m**2 - 2 * m * g).max()) + sum_of_squares(self.shift)

    def column_products(self) -> Products:
        if self.cells <= MOST_CELLS:
            return super().column_products()
        if self.nodes.leaves.size == 1:
            return Products.bounded(1.0)
        fits = 6 * self.largest**2 * len(self.nodes.levels) < 2**62
        m, g = (a if fits else a.astype(object) for a in (self.multipliers, self.shift))
        squared, paths = float(self.squared_column()), self.nodes.along_paths(m**2)
        # two columns have the product Σm² down to where their paths part, less Σmg on both, plus Σg²
        least = sum_of_squares(self.shift) - self.nodes.largest_of_pairs(
            self.nodes.path_sums(m * g), paths, -1
        )
        farthest = self.nodes.largest_of_pairs(paths[self.nodes.leaves], paths, -2)
        return Products(None, None, float(least) / squared, float(farthest) / squared)

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
