"""Nodes of a tree, each measured with a precision: the strategy of hierarchies.

V = Σ_v a_v 1_v1_vᵀ, with a_v the precision of node v. Every product with V⁻¹ takes a pass up and one down.
With P_v and u_v as in `lines.trees`, and T_v = 1_vᵀV_v⁻¹q of what is measured at v and below,

    T_v = Σ_c T_c / (1 + a_v u_v);   s_v = T_v − β_v P_v,   β_c = β_v + a_v s_v,

where s_v = 1_vᵀV⁻¹q is the covariance of q with the count of v, and β is zero at roots.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from querysmasher.arrays import CHUNK, Array
from querysmasher.errors import TooLargeError
from querysmasher.fields import floats, integers
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.trees import WeightedTree
from querysmasher.planning.strategies.coarse import ClassedStrategy
from querysmasher.planning.strategies.strategy import LARGEST
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Nodes, Tree
from querysmasher.privacy.factors.tree import CountsOfNodes, OnForest, OnNodes
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.privacy.pairs import MOST_CELLS, Products
from querysmasher.workload.family import Family


class NodesStrategy(OnNodes, ClassedStrategy):
    """The count of every node, each with a precision."""

    precisions: Array
    """a: positive for leaves, zero for nodes that are not measured."""
    factor: ClassVar[type[CountsOfNodes]]
    """Its kind in integers."""
    least: ClassVar[int] = 0
    """Minimum of the integer multiple of the count of a node that is measured."""

    def scaled(self, factor: float) -> Self:
        return replace(self, precisions=self.precisions * factor)  # type: ignore[type-var]

    @property
    @abstractmethod
    def node_variances(self) -> Array:
        """The variance of every node's count."""

    @cached_property
    def measured(self) -> Integers:
        """The nodes that are measured."""
        return np.flatnonzero(self.precisions)

    def answers_whole(self, tables: Array) -> Array:
        sums = self.nodes.sums(self.partition.sums(tables.reshape(-1, self.classes.size).T))[self.measured]
        sums *= np.sqrt(self.precisions[self.measured])[:, None]
        return sums.T.reshape(*tables.shape[:-1], self.measured.size)

    @property
    def squares(self) -> Array:
        return self.nodes.path_sums(self.precisions)[self.classes]

    def whole_variances(self, family: Family) -> Array:
        levels = family.levels()
        if levels is not None:
            return np.concatenate([self._level_variances(groups, size) for groups, size in levels])
        if family.rows * len(self.nodes) > limits().merged_entries:
            raise TooLargeError(
                f"{family}: the variances of {family.rows:,} queries that are not groups of the hierarchy's "
                f"{len(self.nodes):,} nodes take too long; ask for fewer at a time"
            )
        return self.of_rows(self.contained(family))

    def _level_variances(self, groups: Integers | None, size: int) -> Array:
        """Return the variances of the counts of groups that partition the values, or of all values."""
        groups = np.arange(size) if groups is None else groups
        of_leaves = self._of_leaves(groups)
        if of_leaves is None:
            self.refuse()
        as_nodes = self._as_nodes(of_leaves, size)
        result = self.node_variances[as_nodes]
        others, step = np.flatnonzero(as_nodes < 0), max(1, CHUNK // groups.size)
        for some in (others[i : i + step] for i in range(0, others.size, step)):
            result[some] = self.of_rows((groups == some[:, None]).astype(float))
        return result

    @abstractmethod
    def _as_nodes(self, of_leaves: Integers, size: int) -> Integers:
        """Return the node that has exactly the leaves of each group, or -1 if none has."""

    def _of_leaves(self, groups: Integers) -> Integers | None:
        """Return the group of every leaf; None if a group separates values that the strategy does not."""
        of_leaves = np.empty(self.nodes.leaves.size, dtype=np.int64)
        of_leaves[self.classes] = groups
        return of_leaves if np.array_equal(of_leaves[self.classes], groups) else None

    # --- integers ---

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        """Return integer multiples of the counts of nodes; leaves get what precision rounding left."""
        finest = 2.0**bits - 1
        scale = finest / float(np.sqrt(self.precisions.max()))
        multipliers = np.maximum(np.rint(np.sqrt(self.precisions) * scale), self.least)
        leaves = self.nodes.leaves
        multipliers[leaves] = 0
        left = self.nodes.path_sums(self.precisions * scale**2) - self.nodes.path_sums(multipliers**2)
        multipliers[leaves] = np.clip(np.floor(np.sqrt(np.maximum(left, 0.0)) * (1 + 1e-12)), 1, finest)
        whole = replace(self, precisions=multipliers**2, moved=None)  # type: ignore[type-var]
        shift = np.zeros_like(multipliers)
        shift[whole.measured] = np.rint(whole.answers_whole(whole.balance))
        rounded = {"multipliers": multipliers.astype(np.int64), "shift": shift.astype(np.int64)}
        return self._in_integers(self.factor(**self._nodes_of(self) | rounded))

    @classmethod
    def _nodes_of(cls, given: OnNodes) -> dict[str, Any]:
        """Return the fields that state the nodes, of a strategy or a factor."""
        return {name: getattr(given, name) for name in cls.stored if name != "precisions"}

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        ratios = self.of_integers(rounded).node_variances / self.node_variances
        return float(ratios[self.measured].max()) * float(squared_sensitivity(rounded))

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        assert isinstance(factor, CountsOfNodes)  # noqa: S101 - the registry chooses by kind
        whole = cls(**cls._nodes_of(factor) | {"precisions": factor.multipliers.astype(float) ** 2})
        return whole.around_shift(factor, factor.shift[factor.measured])

    # --- files ---

    def _is_sound(self) -> bool:
        nodes, partition, a = self.nodes, self.partition, self.precisions
        if a.shape != (len(nodes),) or partition.columns != nodes.leaves.size:
            return False
        return bool(a.min() >= 0 and a.max() < LARGEST and a[nodes.leaves].min() > 1 / LARGEST)


@dataclass(frozen=True, eq=False)
class TreeStrategy(OnForest, NodesStrategy):
    """The nodes of a forest."""

    kind = "tree"
    factor = Tree
    stored: ClassVar = {
        "classes": partial(integers, ndim=1),
        "parents": partial(integers, ndim=1),
        "precisions": partial(floats, ndim=1),
    }

    classes: Integers
    parents: Integers
    precisions: Array
    moved: Array | None = None

    @cached_property
    def passes(self) -> tuple[Array, Array, Array]:
        """P, u and σ of every node, by a pass up and one down."""
        ones = np.ones(len(self.nodes))
        return WeightedTree(self.nodes, ones, ones).variances(self.precisions)

    def covary_whole(self, rows: Array) -> Array:
        nodes, (alone, below, _) = self.nodes, self.passes
        of_leaves = self.means(rows).reshape(-1, nodes.leaves.size).T
        result = np.zeros((len(nodes), of_leaves.shape[1]))  # s, for all nodes
        result[nodes.leaves] = of_leaves * alone[nodes.leaves][:, None]
        for level, parents, starts in nodes.families[:0:-1]:
            factor = 1 / (1 + self.precisions[parents] * below[parents])
            result[parents] = np.add.reduceat(result[level], starts) * factor[:, None]
        above = np.zeros_like(result)
        for level in nodes.levels[1:]:
            up = nodes.parents[level]
            above[level] = above[up] + self.precisions[up][:, None] * result[up]
            result[level] -= above[level] * alone[level][:, None]
        return self.spread(result[nodes.leaves].T).reshape(rows.shape)

    def orthonormal(self) -> TreeStrategy:
        return TreeStrategy(self.classes, np.full(self.rank + 1, -1), 1 / self.partition.sizes)

    @property
    def node_variances(self) -> Array:
        return self.passes[2]

    def _as_nodes(self, of_leaves: Integers, size: int) -> Integers:
        return groups_as_nodes(self.nodes, of_leaves, size)

    # --- fewer values ---

    def parts(self, groups: Integers) -> Integers:
        """Return the number of every value's part: the fewest nodes of which all groups of values consist."""
        of_leaves = self._of_leaves(groups)
        if of_leaves is None:
            return np.arange(self.shape[0])
        tops = parts_of_groups(self.nodes, of_leaves)
        return np.unique(tops, return_inverse=True)[1].reshape(-1)[self.classes]

    def pruned(self, parts: Integers) -> TreeStrategy:
        """Return the strategy over parts of the values, each a node, with the same covariances of counts.

        What is measured at a node and below determines its count like one measurement of variance P.
        """
        nodes, size = self.nodes, int(parts.max()) + 1
        of_leaves = self._of_leaves(parts)
        assert of_leaves is not None  # noqa: S101 - each part is a node
        as_nodes = groups_as_nodes(nodes, of_leaves, size)
        kept = np.zeros(len(nodes), dtype=bool)
        kept[as_nodes] = True
        for level in nodes.levels[:0:-1]:
            kept[nodes.parents[level][kept[level]]] = True
        number = np.cumsum(kept) - 1
        parents = np.where(nodes.parents[kept] < 0, -1, number[nodes.parents[kept]])
        precisions = self.precisions.copy()
        precisions[as_nodes] = 1 / self.passes[0][as_nodes]
        leaf = np.cumsum(Nodes(parents).is_leaf) - 1
        moved = None if self.moved is None else np.bincount(parts, weights=self.moved).astype(float)
        return TreeStrategy(leaf[number[as_nodes]], parents, precisions[kept], moved)

    def _column_products(self) -> Products:
        if self.classes.size <= MOST_CELLS:
            return super()._column_products()
        nodes, paths = self.nodes, self.nodes.along_paths(self.precisions)
        least = -nodes.largest_of_pairs(np.zeros(nodes.leaves.size), paths, -1) - 1 / self.total_variance
        farthest = nodes.largest_of_pairs(paths[nodes.leaves], paths, -2)
        return Products(None, None, float(least) / self.leverage, float(farthest) / self.leverage)


def groups_as_nodes(nodes: Nodes, of_leaves: Integers, size: int) -> Integers:
    """Return the node that has exactly the leaves of each group, or -1 if none has."""
    parts = parts_of_groups(nodes, of_leaves)
    as_nodes = np.full(size, -1)
    as_nodes[of_leaves] = parts
    as_nodes[of_leaves[as_nodes[of_leaves] != parts]] = -1  # groups of several parts
    return as_nodes


def parts_of_groups(nodes: Nodes, of_leaves: Integers) -> Integers:
    """Return for every leaf the largest node above it, or itself, whose leaves are all in one group."""
    group = np.empty(len(nodes), dtype=np.int64)
    group[nodes.leaves] = of_leaves
    for level, parents, starts in nodes.families[:0:-1]:
        children = group[level]
        least, most = np.minimum.reduceat(children, starts), np.maximum.reduceat(children, starts)
        group[parents] = np.where(least == most, most, -1)
    top = np.arange(len(nodes))
    for level in nodes.levels[1:]:
        up = nodes.parents[level]
        top[level] = np.where(group[up] >= 0, top[up], top[level])
    return top[nodes.leaves]
