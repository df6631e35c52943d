"""Trees: every row counts the values below one node, times an integer of that node, less a multiple of all.

Row v is m_v·1_v − g_v·1. The column of a value has m_v − g_v for the nodes v on the path from a root to its
leaf, and −g_v for the others. So its squared length is the sum of m_v² − 2m_v g_v along that path, plus Σg²:
integers, added exactly. Answers are m_v times sums of counts, less g_v times the number of records. Every
partial sum is at most the bound on the table in absolute value, and every product at most bound × (max m +
max |g|), which the caller keeps below 2⁶²: 64-bit integers hold them exactly.

What follows the noise is generalised least squares by two passes. With P_v the variance of the best estimate
of node v from its own answer and those below it, and u_v the sum of P over its children,
1/P_v = m_v² + 1/u_v. Going down, what a node differs from the sum of its children is divided among them in
proportion to P.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Factor, Integers, largest_of, words
from querysmasher.privacy.factors.nodes import Nodes, Tables
from querysmasher.privacy.factors.partition import Partition


@dataclass(frozen=True, eq=False)
class Tree(Factor):
    """Row k is multipliers[v] times the sum over the values below node v, for the k-th node measured."""

    kind = "tree"
    stands_alone = True

    leaf_of: Integers
    """The number of every value's leaf, among the nodes without children: each is used."""
    parents: Integers
    """The parent of every node, -1 for a root, level by level (`nodes`)."""
    multipliers: Integers
    """A positive integer for every leaf, zero for a node that is not measured."""
    shift: Integers
    """Number subtracted from every entry of each node's row: zero where the node is not measured."""
    _partition: Partition = field(init=False, repr=False)
    _nodes: Nodes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the arrays describe a forest over the values; keep read-only copies."""
        leaf_of = words("strategy: the leaves of a tree", self.leaf_of, 1)
        nodes = Nodes(words("strategy: the parents in a tree", self.parents, 1))
        multipliers = words("strategy: the multipliers of a tree", self.multipliers, 1)
        partition = Partition((leaf_of,), np.arange(nodes.leaves.size))
        if len(nodes) != multipliers.size:
            msg = "strategy: expected a multiplier for every node of a tree"
            raise PrivacyError(msg)
        if multipliers.min() < 0 or not multipliers[nodes.leaves].all():
            msg = "strategy: expected positive multipliers for the leaves of a tree, and no negative ones"
            raise PrivacyError(msg)
        shift = words("strategy: the shift of a tree", self.shift, 1)
        if shift.shape != multipliers.shape or shift[multipliers == 0].any():
            msg = "strategy: expected a shift for every node of a tree that is measured"
            raise PrivacyError(msg)
        for name, value in (
            ("leaf_of", partition.maps[0]),
            ("parents", nodes.parents),
            ("multipliers", multipliers),
            ("shift", shift),
            ("_partition", partition),
            ("_nodes", nodes),
        ):
            object.__setattr__(self, name, value)

    @cached_property
    def measured(self) -> Integers:
        """The nodes that are measured: one row each, in order."""
        return np.flatnonzero(self.multipliers)

    @property
    def nodes(self) -> Nodes:
        """The forest."""
        return self._nodes

    @property
    def rows(self) -> int:
        return self.measured.size

    @property
    def cells(self) -> int:
        return self._partition.cells

    @cached_property
    def largest(self) -> int:
        return int(self.multipliers.max()) + largest_of(self.shift)

    def squared_column(self) -> int:
        fits = 3 * self.largest**2 * len(self._nodes.levels) < 2**62
        m, g = (own if fits else own.astype(object) for own in (self.multipliers, self.shift))
        return int(self._nodes.path_sums(m**2 - 2 * m * g).max()) + sum(own**2 for own in self.shift.tolist())

    def exact_answers(self, tables: Numbers, bound: int) -> Numbers:  # noqa: ARG002 - the caller keeps to it
        whole = tables.astype(np.int64)
        sums = self._nodes.sums(self._partition.sums(whole))
        if self.rows < len(self._nodes):
            sums = sums[self.measured]
        sums *= self.multipliers[self.measured][:, None]
        sums -= self.shift[self.measured][:, None] * whole.sum(axis=0)
        return sums

    def transposed(self, answers: Array) -> Array:
        return self.plain_transposed(answers) - self.shift[self.measured].astype(float) @ answers

    def plain_transposed(self, answers: Array) -> Array:
        """Return Aᵀz, before the shift."""
        return self._nodes.path_sums(self._scaled(answers))[self.leaf_of]

    def _scaled(self, answers: Tables) -> Tables:
        """Return the answers times their multipliers, over all nodes."""
        result = np.zeros((len(self._nodes), *answers.shape[1:]))
        own = self.multipliers[self.measured].astype(float)
        result[self.measured] = answers * own.reshape(-1, *[1] * (answers.ndim - 1))
        return result

    def written_out(self) -> Array:
        return self.distinct_columns()[:, self.leaf_of]

    def distinct_columns(self) -> Array:
        sums = self._nodes.sums(np.eye(self._nodes.leaves.size))[self.measured]
        rows = sums * self.multipliers[self.measured][:, None] - self.shift[self.measured][:, None]
        return np.asarray(rows, dtype=float)

    @property
    def rank(self) -> int:
        return self._nodes.leaves.size

    def undone(self, answers: Array) -> Array:
        nodes, squares = self._nodes, self.multipliers.astype(float) ** 2
        flat = self._scaled(answers.reshape(self.rows, -1))  # m·z, of which the estimates are made
        below = np.zeros(len(nodes))  # u
        own = np.empty(len(nodes))  # P
        for depth in range(len(nodes.levels) - 1, -1, -1):
            level = nodes.levels[depth]
            inner = ~nodes.is_leaf[level]
            precision = squares[level]
            precision[inner] += 1 / below[level][inner]
            own[level] = 1 / precision
            flat[level] *= own[level][:, None]
            if depth:
                parents = nodes.families[depth][0]
                below[parents] = nodes.child_sums(depth, own[level])
                flat[parents] += nodes.child_sums(depth, flat[level]) / below[parents][:, None]
        for depth in range(1, len(nodes.levels)):
            level, (parents, _) = nodes.levels[depth], nodes.families[depth]
            rest = (flat[parents] - nodes.child_sums(depth, flat[level])) / below[parents][:, None]
            flat[level] += own[level][:, None] * np.repeat(rest, nodes.sizes[depth], axis=0)
        values = flat[nodes.leaves] / self._partition.sizes[:, None]
        return values[self.leaf_of].T.reshape(*answers.shape[1:], self.cells)

    def to_data(self) -> dict[str, Any]:
        return {
            "leaf_of": self.leaf_of,
            "parents": self.parents,
            "multipliers": self.multipliers,
            "shift": self.shift,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["leaf_of"], data["parents"], data["multipliers"], data["shift"])
