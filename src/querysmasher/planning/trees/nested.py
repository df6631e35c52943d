"""Queries about groups of values that nest: the nodes of a forest, each with its weight.

Families on one attribute whose groups all nest (single values, hierarchies, the total) are one forest. Groups
with the same values are one node, whose weight is the sum of theirs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
