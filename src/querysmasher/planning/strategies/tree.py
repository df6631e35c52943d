"""Nodes of a tree, each measured with its own precision: the strategy of hierarchies.

V = Σ_v a_v 1_v1_vᵀ, with a_v the precision of node v. Every product with V⁻¹ takes a pass up and one down.
With P_v and u_v as in `trees.passes`, and T_v = 1_vᵀV_v⁻¹q of what is measured at v and below,

    T_v = Σ_c T_c / (1 + a_v u_v);   s_v = T_v − β_v P_v,   β_c = β_v + a_v s_v,

where s_v = 1_vᵀV⁻¹q is the covariance of q with the count of v, and β is zero at roots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError, PrivacyError, TooLargeError
from querysmasher.fields import floats, integers
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.axis import AxisStrategy
from querysmasher.planning.strategies.groups import (
    group_variances,
    groups_as_nodes,
    parts_of_groups,
    pruned_tree,
)
from querysmasher.planning.strategies.strategy import LARGEST, AxisRows, is_negligible, squared_lengths
from querysmasher.planning.trees.passes import WeightedTree
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Nodes, Partition, Tree
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.families import Identity
from querysmasher.workload.family import Family

CHUNK = 10_000_000
"""Maximum number of entries of an intermediate array."""


@dataclass(frozen=True, eq=False)
class TreeStrategy(AxisStrategy):
    """The count of every node, with its own precision."""

    kind = "tree"

    leaf_of: Integers
    """The number of every value's leaf, among the nodes without children."""
    parents: Integers
    """The parent of every node, -1 for a root, level by level."""
    precisions: Array
    """a: positive for leaves, zero for nodes that are not measured."""
    moved: Array | None = None

    def scaled(self, factor: float) -> TreeStrategy:
        """Return the strategy with factor × V."""
        return replace(self, precisions=self.precisions * factor)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.leaf_of.shape

    @cached_property
    def nodes(self) -> Nodes:
        """The forest."""
        return Nodes(self.parents)

    @cached_property
    def partition(self) -> Partition:
        """Which values share a leaf."""
        return Partition((self.leaf_of,), np.arange(self.nodes.leaves.size))

    @cached_property
    def _variances(self) -> tuple[Array, Array, Array]:
        """P, u and σ of every node."""
        ones = np.ones(len(self.nodes))
        return WeightedTree(self.nodes, ones, ones).variances(self.precisions)

    @cached_property
    def measured(self) -> Integers:
        """The nodes that are measured."""
        return np.flatnonzero(self.precisions)

    @property
    def rank(self) -> int:
        return self.nodes.leaves.size - 1

    @property
    def is_complete(self) -> bool:
        """Whether every value has its own leaf, so that all queries can be answered."""
        return self.nodes.leaves.size == self.leaf_of.size

    def covariances(self, of_leaves: Array) -> Array:
        """Return the covariances of queries with the counts of all nodes; both along the first axis."""
        nodes, (own, below, _) = self.nodes, self._variances
        lead = (slice(None), *[None] * (of_leaves.ndim - 1))
        found = np.zeros((len(nodes), *of_leaves.shape[1:]))
        found[nodes.leaves] = of_leaves * own[nodes.leaves][lead]
        for depth in range(len(nodes.levels) - 1, 0, -1):
            parents = nodes.families[depth][0]
            share = 1 / (1 + self.precisions[parents] * below[parents])
            found[parents] = nodes.child_sums(depth, found[nodes.levels[depth]]) * share[lead]
        above = np.zeros_like(found)
        for level in nodes.levels[1:]:
            up = nodes.parents[level]
            above[level] = above[up] + self.precisions[up][lead] * found[up]
            found[level] -= above[level] * own[level][lead]
        return found

    def _merged(self, rows: Array) -> Array:
        """Return the mean of rows over the values of every leaf, leaves first."""
        flat = rows.reshape(-1, self.leaf_of.size).T
        return self.partition.sums(flat) / self.partition.sizes[:, None]

    def transform_whole(self, rows: Array) -> Array:
        image = self.covariances(self._merged(rows))[self.measured]
        image *= np.sqrt(self.precisions[self.measured])[:, None]
        return image.T.reshape(*rows.shape[:-1], self.measured.size)

    def covary_whole(self, rows: Array) -> Array:
        found = self.covariances(self._merged(rows))[self.nodes.leaves]
        return (found / self.partition.sizes[:, None])[self.leaf_of].T.reshape(rows.shape)

    def orthonormal(self) -> TreeStrategy:
        return TreeStrategy(self.leaf_of, np.full(self.rank + 1, -1), 1 / self.partition.sizes)

    def written_out(self) -> Array:
        sums = self.nodes.sums(np.eye(self.nodes.leaves.size))[self.measured][:, self.leaf_of]
        rows = sums * np.sqrt(self.precisions[self.measured])[:, None]
        return rows - (rows @ self.centre)[:, None]

    # --- variances ---

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        ((_, rows),) = factors
        step = max(1, CHUNK // len(self.nodes))
        parts = [self.transform(rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts] or [np.zeros(0)])

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        if self.is_complete:
            return True
        ((_, rows),) = factors
        outside = rows - self._merged(rows)[self.leaf_of].T
        return is_negligible(np.einsum("ij,ij->i", outside, outside), squared_lengths(factors))

    @property
    def total_variance(self) -> float:
        return float(self._variances[0][self.nodes.levels[0]].sum())

    @cached_property
    def value_variances(self) -> Array:
        """The variance of the count of every value's leaf."""
        return self._variances[2][self.nodes.leaves][self.leaf_of]

    def whole_variances(self, family: Family) -> Array:
        base = family.original
        levels = base.levels()
        if levels is not None:
            return np.concatenate([self._level_variances(groups, size) for groups, size in levels])
        if base.rows * len(self.nodes) > limits().node_entries:
            msg = (
                f"{base}: the variances of {base.rows:,} queries that are not groups of the hierarchy's "
                f"{len(self.nodes):,} nodes take too long; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        rows = base.matrix()
        if not self.contains([((0,), rows)]):
            self._refuse(base)
        step = max(1, CHUNK // len(self.nodes))
        parts = [self.transform_whole(rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts])

    def _level_variances(self, groups: Integers | None, size: int) -> Array:
        """Return the variances of the counts of groups that partition the values, or of all values."""
        if groups is None:
            self._check_complete(Identity((size,)))
            return self.value_variances
        of_leaves = np.empty(self.nodes.leaves.size, dtype=np.int64)
        of_leaves[self.leaf_of] = groups
        if not np.array_equal(of_leaves[self.leaf_of], groups):
            msg = "the groups of a level cannot be answered: the plan measures coarser groups of values only"
            raise OutsideMeasuredSpaceError(msg)
        found = groups_as_nodes(self.nodes, of_leaves, size)
        result = np.where(found >= 0, self._variances[2][found], 0.0)
        if np.any(found < 0):
            own, below, _ = self._variances
            other = found[of_leaves] < 0
            result += group_variances(self.nodes, self.precisions, own, below, of_leaves, other, size)
        return result

    def parts(self, groups: Integers) -> Integers | None:
        """Return the number of every value's part: the fewest nodes of which all groups of values consist.

        None if a group separates values that the strategy does not.
        """
        of_leaves = np.empty(self.nodes.leaves.size, dtype=np.int64)
        of_leaves[self.leaf_of] = groups
        if not np.array_equal(of_leaves[self.leaf_of], groups):
            return None
        found = parts_of_groups(self.nodes, of_leaves)
        return np.unique(found, return_inverse=True)[1].reshape(-1)[self.leaf_of]

    def pruned(self, parts: Integers) -> TreeStrategy | None:
        """Return the strategy over parts of the values, each a node, that knows as much; else None.

        What is measured at a node and below says as much about its count as one measurement of variance P.
        """
        of_leaves = np.empty(self.nodes.leaves.size, dtype=np.int64)
        of_leaves[self.leaf_of] = parts
        found = pruned_tree(self.nodes, self.precisions, self._variances[0], of_leaves)
        if found is None:
            return None
        moved = None if self.moved is None else np.bincount(parts, weights=self.moved).astype(float)
        return TreeStrategy(*found, moved)

    def _check_complete(self, family: Family) -> None:
        if not self.is_complete:
            self._refuse(family)

    def _refuse(self, family: Family) -> None:
        msg = (
            f"the queries ({family}) cannot be answered: the plan measures groups of values, not the values. "
            "Add these queries to the planned workload"
        )
        raise OutsideMeasuredSpaceError(msg)

    def whole_loss(self, family: Family, *, weighted: bool = True) -> float:
        variances = self.whole_variances(family)
        weights = family.weights if weighted else None
        return float(variances.sum() if weights is None else weights @ variances)

    # --- integers ---

    @property
    def spread(self) -> float:
        roots = np.sqrt(self.precisions)
        return float(roots.max() / roots[self.nodes.leaves].min())

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        """Return integer multiples of the counts of nodes; leaves take what others leave of the path sums."""
        finest = 2.0**bits - 1
        scale = finest / float(np.sqrt(self.precisions.max()))
        multipliers = np.rint(np.sqrt(self.precisions) * scale).astype(np.int64)
        leaves = self.nodes.leaves
        multipliers[leaves] = 0
        planned = self.nodes.path_sums(self.precisions) * scale**2
        left = planned - self.nodes.path_sums(multipliers.astype(float) ** 2)
        multipliers[leaves] = np.clip(np.floor(np.sqrt(np.maximum(left, 0.0)) * (1 + 1e-12)), 1, finest)
        found = TreeStrategy(self.leaf_of, self.parents, multipliers.astype(float) ** 2)
        sums = self.nodes.sums(self.partition.sums(found.balance[:, None]))[:, 0]
        shift = np.rint(sums * multipliers).astype(np.int64)
        return IntegerStrategy(self.shape, (((0,), Tree(self.leaf_of, self.parents, multipliers, shift)),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        own = type(self).of_integers(rounded)
        assert own is not None  # noqa: S101 - rounded by this class
        ratios = own.node_variances / self.node_variances
        return float(ratios[self.measured].max()) * float(squared_sensitivity(rounded))

    @property
    def node_variances(self) -> Array:
        """The variance of the count of every node."""
        return self._variances[2]

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        factor = strategy.factors[0][1]
        if not isinstance(factor, Tree):
            return None
        found = cls(factor.leaf_of, factor.parents, factor.multipliers.astype(float) ** 2)
        shift = factor.shift[factor.measured].astype(float)
        ahead = found.covary_whole(factor.plain_transposed(shift))  # ĝ
        return replace(found, moved=ahead + (1 - float(ahead.sum())) * found.balance)

    @property
    def leverage(self) -> float:
        return float(self.nodes.path_sums(self.precisions).max()) - 1 / self.total_variance

    def is_sound(self) -> bool:
        try:
            nodes, partition = self.nodes, self.partition
        except PrivacyError:
            return False
        a = self.precisions
        if a.shape != (len(nodes),) or partition.columns != nodes.leaves.size:
            return False
        return bool(a.min() >= 0 and a.max() < LARGEST and a[nodes.leaves].min() > 1 / LARGEST)

    def to_data(self) -> dict[str, Any]:
        return {"leaf_of": self.leaf_of, "parents": self.parents, "precisions": self.precisions}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(integers(data["leaf_of"], 1), integers(data["parents"], 1), floats(data["precisions"], 1))
