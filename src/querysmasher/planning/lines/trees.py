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
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
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
    """The number of every value's leaf: values that no query distinguishes share one."""
    nodes: Nodes
    weights: Array
    """The sum of the weights of the queries about each node: zero for none."""


@dataclass(frozen=True, eq=False)
class _Level:
    """A partition of the values, and the weight of every group."""

    groups: Integers
    weights: Array


def nested(families: Iterable[Family], weights: Iterable[float], total: float = 0.0) -> Nested | None:
    """Return the forest of families with these weights, or None if their groups do not nest.

    `total` is the weight of the number of records.
    """
    found = list(families)
    if not all(is_nested(family) for family in found):
        return None
    levels = _chain(found, list(weights), total)
    return None if levels is None else _forest(levels)


def is_nested(family: Family) -> bool:
    """Return whether a family asks about groups of values that nest."""
    return family.original.levels() is not None


def _levels(family: Family, weight: float) -> Iterator[_Level]:
    """Iterate over the levels of a family."""
    every = np.full(family.rows, weight) * (1.0 if family.weights is None else family.weights)
    start = 0
    for groups, size in family.original.levels() or ():
        yield _Level(np.arange(size) if groups is None else groups, every[start : start + size])
        start += size


def _chain(families: list[Family], weights: list[float], total: float = 0.0) -> list[_Level] | None:
    """Return all levels from coarse to fine, equal ones once, or None if they do not nest."""
    found = [level for family, w in zip(families, weights, strict=True) for level in _levels(family, w)]
    if total:
        found.append(_Level(np.zeros_like(found[0].groups), np.array([total])))
    found.sort(key=lambda level: level.weights.size)
    chain = found[:1]
    for fine in found[1:]:
        coarse = chain[-1]
        parents = _first(fine)
        if not np.array_equal(coarse.groups[parents][fine.groups], coarse.groups):
            return None
        if fine.weights.size == coarse.weights.size:
            # the groups are the same, perhaps numbered differently
            chain[-1] = _Level(fine.groups, fine.weights + coarse.weights[coarse.groups[parents]])
        else:
            chain.append(fine)
    return chain


def _first(level: _Level) -> Integers:
    """Return a value of every group."""
    first = np.empty(level.weights.size, dtype=np.int64)
    first[level.groups[::-1]] = np.arange(level.groups.size - 1, -1, -1)
    return first


def _forest(levels: list[_Level]) -> Nested:
    """Return the forest of nested levels, in which no node has a single child."""
    ups = [np.full(levels[0].weights.size, -1)]
    ups += [coarse.groups[_first(fine)] for coarse, fine in itertools.pairwise(levels)]
    weights = [level.weights.astype(float) for level in levels]
    alive = [
        np.bincount(up, minlength=level.weights.size) > 1 for up, level in zip(ups[1:], levels, strict=False)
    ]
    alive.append(np.ones(levels[-1].weights.size, dtype=bool))
    starts = np.cumsum([0, *(own.size for own in alive)])
    count = int(starts[-1])
    parents = np.full(count, -1)  # the nearest node above that is alive
    for depth in range(1, len(levels)):
        up = ups[depth]
        weights[depth] = weights[depth] + np.where(alive[depth - 1][up], 0.0, weights[depth - 1][up])
        above = starts[depth - 1] + up
        parents[starts[depth] : starts[depth + 1]] = np.where(alive[depth - 1][up], above, parents[above])
    nodes, order = _in_order(parents, np.concatenate(alive))
    number = np.full(count, -1)
    number[order] = np.arange(order.size)
    leaf_nodes = number[starts[-2] :]
    rank = np.full(order.size, -1)
    rank[nodes.leaves] = np.arange(nodes.leaves.size)
    return Nested(rank[leaf_nodes][levels[-1].groups], nodes, np.concatenate(weights)[order])


def _in_order(parents: Integers, alive: Integers) -> tuple[Nodes, Integers]:
    """Return the forest of the nodes that are alive, level by level, and the old number of each."""
    left = np.flatnonzero(alive)
    number = np.full(parents.size, -1)
    order: list[Integers] = []
    new_parents: list[Integers] = []
    done = 0
    while left.size:
        roots = parents[left] < 0
        known = roots if not order else ~roots & (number[parents[left]] >= 0)
        own = left[known]
        up = np.full(own.size, -1) if not order else number[parents[own]]
        by_parent = np.argsort(up, kind="stable")
        own, up = own[by_parent], up[by_parent]
        order.append(own)
        new_parents.append(up)
        number[own] = np.arange(done, done + own.size)
        done += own.size
        left = left[~known]
    return Nodes(np.concatenate(new_parents)), np.concatenate(order)


@dataclass(frozen=True, eq=False)
class WeightedTree:
    """A forest in which a node may stand for several that are alike."""

    nodes: Nodes
    copies: Array
    """How many nodes below the same parent each stands for."""
    weights: Array
    """The weight of the query about each."""

    @cached_property
    def counts(self) -> Array:
        """How many nodes each stands for in all."""
        counts = self.copies.copy()
        for level in self.nodes.levels[1:]:
            counts[level] *= counts[self.nodes.parents[level]]
        return counts

    @cached_property
    def totals(self) -> Array:
        """The sum of the weights of the queries that each stands for."""
        return self.counts * self.weights

    @cached_property
    def leaf_counts(self) -> Array:
        """Number of leaves below each node."""
        return self.sums_up(np.where(self.nodes.is_leaf, 1.0, 0.0))

    def sums_up(self, values: Array) -> Array:
        """Return the sum of the values of each node and of all below it."""
        result = values.copy()
        for depth in range(len(self.nodes.levels) - 1, 0, -1):
            level, (parents, _) = self.nodes.levels[depth], self.nodes.families[depth]
            result[parents] += self.nodes.child_sums(depth, result[level] * self.copies[level])
        return result

    def variances(self, precisions: Array) -> tuple[Array, Array, Array]:
        """Return P, u and σ of every node."""
        nodes = self.nodes
        below, total = np.zeros(len(nodes)), precisions.astype(float)
        own = np.empty(len(nodes))
        for depth in range(len(nodes.levels) - 1, -1, -1):
            level = nodes.levels[depth]
            if depth < len(nodes.levels) - 1:
                parents = nodes.families[depth + 1][0]
                total[parents] += 1 / below[parents]
            own[level] = 1 / total[level]
            if depth:
                parents = nodes.families[depth][0]
                below[parents] = nodes.child_sums(depth, own[level] * self.copies[level])
        known = own.copy()
        for level in nodes.levels[1:]:
            up = nodes.parents[level]
            z = own[level] / below[up]
            known[level] = own[level] * (1 - z) + z * z * known[up]
        return own, below, known

    def loss(self, precisions: Array) -> float:
        """Return Σ_v M_v ω_v σ_v."""
        return float(self.totals @ self.variances(precisions)[2])

    def slopes(self, precisions: Array) -> tuple[float, Array]:
        """Return the loss, and minus its derivative by every precision: of all nodes that one stands for."""
        nodes = self.nodes
        own, below, known = self.variances(precisions)
        by_known, by_own, by_below = self.totals.copy(), np.zeros(len(nodes)), np.zeros(len(nodes))
        for depth in range(len(nodes.levels) - 1, 0, -1):
            level, parents = nodes.levels[depth], nodes.families[depth][0]
            up = nodes.parents[level]
            z, y = own[level] / below[up], known[up] / below[up]
            by_own[level] = by_known[level] * (1 - 2 * z + 2 * z * y)
            through = by_known[level] * z * z
            by_below[parents] = nodes.child_sums(depth, through * (1 - 2 * y))
            by_known[parents] += nodes.child_sums(depth, through)
        by_own[nodes.levels[0]] += by_known[nodes.levels[0]]
        slopes = np.empty(len(nodes))
        for depth, level in enumerate(nodes.levels):
            if depth:
                by_own[level] += by_below[nodes.parents[level]] * self.copies[level]
            slopes[level] = own[level] ** 2 * by_own[level]
            if depth < len(nodes.levels) - 1:
                parents = nodes.families[depth + 1][0]
                by_below[parents] += slopes[parents] / below[parents] ** 2
        return float(self.totals @ known), slopes


@dataclass(frozen=True, eq=False)
class Alike:
    """A forest with alike siblings merged, and which of its nodes each node of the whole one is like."""

    tree: WeightedTree
    node_of: Integers


def merge_alike(nodes: Nodes, weights: Array) -> Alike:
    """Merge siblings with equal weights and alike subtrees."""
    kinds = _kinds(nodes, weights)
    node_of = np.empty(len(nodes), dtype=np.int64)
    parents: list[Integers] = []
    copies: list[Integers] = []
    kept: list[Integers] = []
    done = 0
    for level in nodes.levels:
        up = nodes.parents[level]
        up = np.where(up < 0, -1, node_of[up])
        order = np.lexsort((kinds[level], up))
        own, ups = kinds[level][order], up[order]
        new = np.append(True, (own[1:] != own[:-1]) | (ups[1:] != ups[:-1]))
        number = np.cumsum(new) - 1
        node_of[np.arange(level.start, level.stop)[order]] = done + number
        firsts = np.flatnonzero(new)
        kept.append(level.start + order[firsts])
        parents.append(ups[firsts])
        copies.append(np.diff(np.append(firsts, own.size)))
        done += firsts.size
    chosen = np.concatenate(kept)
    counts = np.concatenate(copies).astype(float)
    up = np.concatenate(parents)
    own_counts = counts.copy()
    inner = up >= 0
    own_counts[inner] /= counts[up[inner]]
    return Alike(WeightedTree(Nodes(up), own_counts, weights[chosen]), node_of)


def _kinds(nodes: Nodes, weights: Array) -> Integers:
    """Return a number for every node, the same for nodes with equal weights and alike subtrees."""
    kinds = np.empty(len(nodes), dtype=np.int64)
    known: dict[tuple[float, bytes], int] = {}
    for depth in range(len(nodes.levels) - 1, -1, -1):
        level, below = nodes.levels[depth], dict[int, bytes]()
        if depth + 1 < len(nodes.levels):
            children = nodes.levels[depth + 1]
            up = nodes.parents[children]
            order = np.lexsort((kinds[children], up))
            firsts = np.flatnonzero(np.append(True, np.diff(up[order]) != 0))
            siblings = np.split(kinds[children][order], firsts[1:])
            below = {v: own.tobytes() for v, own in zip(up[order][firsts].tolist(), siblings, strict=True)}
        kinds[level] = [
            known.setdefault((weight, below.get(v, b"")), len(known))
            for v, weight in zip(range(level.start, level.stop), weights[level].tolist(), strict=True)
        ]
    return kinds
