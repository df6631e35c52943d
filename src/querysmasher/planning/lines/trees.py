"""Queries about groups of values that nest: the nodes of a forest, each with its weight.

Families on one attribute whose groups all nest (single values, hierarchies, the total) are one forest. Groups
with the same values are one node, whose weight is the sum of theirs. Variances on it, and their derivatives,
take passes up and down.

A strategy measures every node v with precision a_v: V = Σ_v a_v 1_v1_vᵀ. With P_v the variance of node v
given what is measured at v and below, u_v = Σ_c m_c P_c over its children (m_c of them alike) and
1/P_v = a_v + 1/u_v. Given everything, the variance of a root is P, and that of a child c of v is

    σ_c = P_c (1 − z) + z² σ_v,   z = P_c / u_v.

The loss is Σ_v M_v ω_v σ_v, with M_v the number of nodes like v and ω_v the weight of its query; its
derivatives come from the same passes in reverse.

Siblings whose subtrees are alike are merged: the best strategy treats them alike, because the loss is convex.
Nodes that no query asks about can help, if some queries weigh much more than others (`graduated`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.lattice import Integers
from querysmasher.privacy.factors import Nodes
from querysmasher.workload.family import Family


@dataclass(frozen=True, eq=False)
class Nested:
    """A forest of groups of values, and how much each counts; its arrays must not be changed."""

    leaf_of: Integers
    """The number of every value's leaf: the same for values that no query distinguishes."""
    nodes: Nodes
    weights: Array
    """The sum of the weights of the queries about each node: zero for none."""


def nested(families: Iterable[Family], weights: Iterable[float], total: float = 0.0) -> Nested | None:
    """Return the forest of families with these weights, or None if their groups do not nest.

    `total` is the weight of the number of records. A group with the same values as one above it is the same
    node, so that no node has a single child.
    """
    listed = list(families)
    if any(family.levels() is None for family in listed):
        return None
    levels = weighted_levels(listed, weights, total)
    cells = levels[0][0].size
    parents, depths, sizes = (np.zeros(0, dtype=np.int64) for _ in range(3))
    sums, node_of = np.zeros(0), np.full(cells, -1)
    for groups, added in sorted(levels, key=lambda level: level[1].size):
        above = node_of[np.unique(groups, return_index=True)[1]]
        if not np.array_equal(above[groups], node_of):
            return None
        counts = np.bincount(groups)
        new = counts < np.append(sizes, cells + 1)[above]
        sums[above[~new]] += added[~new]
        numbers = above.copy()
        numbers[new] = parents.size + np.arange(np.count_nonzero(new))
        depths = np.append(depths, np.append(depths, -1)[above[new]] + 1)
        parents, sizes = np.append(parents, above[new]), np.append(sizes, counts[new])
        sums, node_of = np.append(sums, added[new]), numbers[groups]
    return _in_order(parents, depths, sums, node_of)


def weighted_levels(
    families: Iterable[Family], weights: Iterable[float], total: float
) -> list[tuple[Integers, Array]]:
    """Return the group of every value, and the weight of every group, for all levels of hierarchies.

    `total` is the weight of the number of records, which is a level if it is not zero.
    """
    levels: list[tuple[Integers, Array]] = []
    for family, weight in zip(families, weights, strict=True):
        queries = np.full(family.rows, weight) * (1.0 if family.weights is None else family.weights)
        for groups, size in family.levels() or ():
            levels.append((np.arange(size) if groups is None else groups, queries[:size]))
            queries = queries[size:]
    levels += [(np.zeros(levels[0][0].size, dtype=np.int64), np.array([total]))] if total else []
    return levels


def _in_order(parents: Integers, depths: Integers, weights: Array, node_of: Integers) -> Nested:
    """Return a forest given in any order, with the node of every value's leaf."""
    number, order = np.full(parents.size, -1), np.zeros(0, dtype=np.int64)
    for depth in range(int(depths.max()) + 1):  # siblings together, in the order of their parents
        level = np.flatnonzero(depths == depth)
        level = level[np.argsort(number[parents[level]], kind="stable")]
        number[level] = order.size + np.arange(level.size)
        order = np.append(order, level)
    nodes = Nodes(np.where(parents[order] < 0, -1, number[parents[order]]))
    return Nested((np.cumsum(nodes.is_leaf) - 1)[number[node_of]], nodes, weights[order])


def graduated(groups: Nested) -> Nested:
    """Add nodes without queries: below every node, its children up to each size together.

    Large groups are harder to answer well than small ones. With these nodes, small siblings can have more in
    common than large ones, as they have in the best strategies of any kind.
    """
    nodes = groups.nodes
    sizes = nodes.sums(np.bincount(groups.leaf_of))
    parents, depths = nodes.parents.copy(), np.zeros(len(nodes), dtype=np.int64)
    for level, _, _ in nodes.families[1:]:
        order = np.lexsort((sizes[level], nodes.parents[level]))
        tops, own = nodes.parents[level][order], sizes[level][order]
        starts = np.flatnonzero(np.append(True, (tops[1:] != tops[:-1]) | (own[1:] != own[:-1])))
        counts = np.diff(starts, append=order.size)
        runs, tops = np.repeat(np.arange(starts.size), counts), tops[starts]  # a run: siblings of one size
        last = np.append(tops[1:] != tops[:-1], True)
        joins = np.append(True, last[:-1]) & ~last & (counts == 1)  # one child needs no further node
        added = ~last & ~joins
        above = np.where(last, tops, parents.size + np.cumsum(added) - 1)  # the parent of a run's children
        above[joins] = above[1:][joins[:-1]]
        steps = np.flatnonzero(last)[np.cumsum(last) - last] - np.arange(tops.size) - joins
        parents[level.start + order] = above[runs]
        depths[level.start + order] = depths[tops[runs]] + 1 + steps[runs]
        parents = np.append(parents, above[1:][added[:-1]])
        depths = np.append(depths, depths[tops[added]] + steps[added])
    weights = np.append(groups.weights, np.zeros(parents.size - len(nodes)))
    return _in_order(parents, depths, weights, nodes.leaves[groups.leaf_of])


@dataclass(frozen=True, eq=False)
class WeightedTree:
    """A forest in which a node may stand for several that are alike."""

    nodes: Nodes
    counts: Array
    """How many nodes each stands for."""
    weights: Array
    """The weight of the query about each."""

    @cached_property
    def copies(self) -> Array:
        """How many nodes below the same parent each stands for."""
        parents = self.nodes.parents
        return self.counts / np.where(parents < 0, 1.0, self.counts[parents])

    def variances(self, precisions: Array) -> tuple[Array, Array, Array]:
        """Return P, u and σ of every node; precisions may have further axes, for several strategies."""
        nodes, copies = self.nodes, _column(self.copies, precisions)
        below, total = np.zeros(precisions.shape), precisions.astype(float)
        for level, parents, starts in nodes.families[:0:-1]:
            below[parents] = np.add.reduceat(copies[level] / total[level], starts)
            total[parents] += 1 / below[parents]
        P = 1 / total
        known = P.copy()
        for level in nodes.levels[1:]:
            up = nodes.parents[level]
            z = P[level] / below[up]
            known[level] = P[level] * (1 - z) + z * z * known[up]
        return P, below, known

    def slopes(self, precisions: Array) -> tuple[Array, Array]:
        """Return the loss, and minus its derivative by every precision, for all nodes that one stands for."""
        nodes, copies = self.nodes, _column(self.copies, precisions)
        P, below, known = self.variances(precisions)
        by_P, by_below = np.zeros(precisions.shape), np.zeros(precisions.shape)
        by_known = by_P + _column(self.counts * self.weights, precisions)
        loss = np.asarray((by_known * known).sum(axis=0))
        for level, parents, starts in nodes.families[:0:-1]:
            up = nodes.parents[level]
            z, y = P[level] / below[up], known[up] / below[up]
            by_P[level] = by_known[level] * (1 - 2 * z + 2 * z * y)
            through = by_known[level] * z * z
            by_below[parents] = np.add.reduceat(through * (1 - 2 * y), starts)
            by_known[parents] += np.add.reduceat(through, starts)
        by_P[nodes.levels[0]] = by_known[nodes.levels[0]]
        slopes = P**2 * by_P
        for level, parents, _ in nodes.families[1:]:
            by_below[parents] += slopes[parents] / below[parents] ** 2
            slopes[level] += P[level] ** 2 * by_below[nodes.parents[level]] * copies[level]
        return loss, slopes


def _column(values: Array, like: Array) -> Array:
    """Return values of nodes with as many axes as another array."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def merge_alike(nodes: Nodes, weights: Array) -> tuple[WeightedTree, Integers]:
    """Merge siblings with equal weights and alike subtrees; return also the merged node of every node."""
    kinds, below = np.zeros((2, len(nodes) + 1), dtype=np.int64)  # the last one is the parent of roots
    codes = np.random.default_rng(0).integers(2**62, size=len(nodes))  # sums of them tell children apart
    for level, parents, starts in reversed(nodes.families):
        for values in (below, weights):
            pairs = np.unique(values[level], return_inverse=True)[1] + len(nodes) * kinds[level]
            kinds[level] = np.unique(pairs, return_inverse=True)[1]
        below[parents] = np.add.reduceat(codes[kinds[level]], starts)
    node_of = np.full(len(nodes) + 1, -1)
    kept, counts = np.zeros(0, dtype=np.int64), np.zeros(0)
    for level in nodes.levels:
        keys = node_of[nodes.parents[level]] * len(nodes) + kinds[level]
        _, first, alike, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        node_of[level] = kept.size + alike
        kept, counts = np.append(kept, level.start + first), np.append(counts, count)
    return WeightedTree(Nodes(node_of[nodes.parents[kept]]), counts, weights[kept]), node_of[:-1]
