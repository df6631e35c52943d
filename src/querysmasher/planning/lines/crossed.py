"""Groups of values that do not nest, such as counties and school districts: precisions of every group.

Every group v of every partition is measured with a precision a_v, and so is every leaf: V = Σ_v a_v 1_v1_vᵀ.
A leaf is a value, or values that no query distinguishes. With D the leaves' part of V, A the precisions of
the groups and U their rows, W = A^½UD^(-½) and T = I + WWᵀ,

    V⁻¹ = D^(-½) (I − WᵀT⁻¹W) D^(-½).

With x_v the unit vector of a group v, or the column of W of a leaf v, and τ_v = x_vᵀT⁻¹x_v, the variance of
every node is (1 − τ_v)/a_v. Minus the derivative of the loss Σ ω_v σ_v by a_v is

    g_v = (ω_v (1 − 2τ_v)/a_v + x_vᵀT⁻¹ΨT⁻¹x_v) / a_v,   Ψ = diag(ω/a) + W diag(ω/d) Wᵀ.

Groups of one partition are disjoint, so their block of T is diagonal. The largest partition is eliminated,
and only the groups of all others are a matrix (`Eliminated`): T⁻¹ = Δ + P S⁻¹ Pᵀ, with Δ and P sparse.

Leaves in the same groups are alike if their queries weigh the same: the best strategy treats them alike,
because the loss is convex. They are merged into one, which counts as often.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.cells import numbered_columns
from querysmasher.planning.lattice import Integers
from querysmasher.planning.lines.trees import weighted_levels
from querysmasher.privacy.factors import Crossing
from querysmasher.workload.family import Family

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Overlapping:
    """Partitions of values into groups, and how much each counts; its arrays must not be changed."""

    leaf_of: Integers
    """The number of every value's leaf: the same for values that no query distinguishes."""
    nodes: Crossing
    weights: Array
    """The sum of the weights of the queries about each group and each leaf: zero for none."""


def overlapping(families: Iterable[Family], weights: Iterable[float], total: float = 0.0) -> Overlapping:
    """Return the partitions of families with these weights, and of the total with its weight."""
    sums: dict[bytes, tuple[Integers, Array]] = {}
    asked = None
    for groups, added in weighted_levels(families, weights, total):
        numbers, order = numbered_columns(groups[None])
        if order.size == groups.size:  # single values
            asked = added[groups] if asked is None else asked + added[groups]
            continue
        key = numbers.tobytes()
        before = sums[key][1] if key in sums else 0.0
        sums[key] = numbers, before + added[groups[order]]
    levels = np.stack([numbers for numbers, _ in sums.values()])
    values = np.arange(levels.shape[1])
    leaf_of, first = (values, values) if asked is not None else numbered_columns(levels)
    of_leaves = np.zeros(first.size) if asked is None else asked
    each = np.concatenate([*(added for _, added in sums.values()), of_leaves])
    return Overlapping(leaf_of, Crossing(np.ascontiguousarray(levels[:, first])), each)


@dataclass(frozen=True, eq=False)
class WeightedCrossing:
    """Groups that cross, in which a leaf may stand for several that are alike."""

    nodes: Crossing
    counts: Array
    """How many nodes each stands for: one, of groups."""
    weights: Array
    """The weight of the query about each."""

    @classmethod
    def merged(cls, nodes: Crossing, weights: Array) -> tuple[WeightedCrossing, Integers]:
        """Merge leaves of equal weight in the same groups; return also the merged node of every node."""
        kinds = np.unique(weights[nodes.leaves], return_inverse=True)[1]
        codes, first = numbered_columns(np.vstack([nodes.groups, kinds]))
        groups = np.ones(len(nodes) - codes.size)
        fewer = Crossing(np.ascontiguousarray(nodes.groups[:, first]))
        node_of = np.append(np.arange(groups.size), groups.size + codes)
        counts: Array = np.append(groups, np.bincount(codes).astype(float))
        kept = np.append(np.arange(groups.size), groups.size + first)
        return cls(fewer, counts, weights[kept]), node_of

    def loss(self, precisions: Array) -> float:
        """Return the sum of weight × variance."""
        return float(self.counts * self.weights @ Eliminated(self.nodes, self.counts, precisions).variances)

    def slopes(self, precisions: Array) -> tuple[Array, Array]:
        """Return the loss, and minus its derivative by every precision, for all nodes that one stands for."""
        solved = Eliminated(self.nodes, self.counts, precisions)
        weighted = self.counts * self.weights
        return np.asarray(weighted @ solved.variances), self.counts * solved.slopes(self.weights)


@dataclass(frozen=True, eq=False)
class Eliminated:
    """V of given precisions, with T⁻¹ = Δ + P S⁻¹ Pᵀ after eliminating the largest partition."""

    nodes: Crossing
    counts: Array
    precisions: Array

    @cached_property
    def roots(self) -> Array:
        """The entry of W of every leaf in its group, for every partition."""
        return np.asarray(np.sqrt(self.precisions[self.nodes.paths] / self.precisions[self.nodes.leaves]))

    @cached_property
    def rows(self) -> csr_array:
        """W: groups × leaves."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - loads slowly

        paths, count = self.nodes.paths, self.nodes.leaves.size
        leaf = np.broadcast_to(np.arange(count), paths.shape)
        shape = len(self.nodes) - count, count
        return csr_array((self.roots.ravel(), (paths.ravel(), leaf.ravel())), shape)

    @cached_property
    def _parts(self) -> tuple[Array, csr_array, Array]:
        """Δ, P and S⁻¹."""
        from scipy.sparse import eye_array, vstack  # noqa: PLC0415 - loads slowly

        W, gone = self.rows, self.nodes.largest
        several = W * self.counts[self.nodes.leaves]
        kept = vstack([W[: gone.start], W[gone.stop :]], format="csr")
        diagonal = np.zeros(W.shape[0])
        diagonal[gone] = 1 / (1 + (several[gone] * W[gone]).sum(axis=1))
        across = (several[gone] @ kept.T).tocsr()
        scaled = (across * diagonal[gone, None]).tocsr()
        one = eye_array(kept.shape[0], format="csr")
        P = vstack([one[: gone.start], -scaled, one[gone.start :]], format="csr")
        whole = (kept * self.counts[self.nodes.leaves]) @ kept.T + one - across.T @ scaled
        return diagonal, P, np.linalg.inv(whole.toarray())

    @cached_property
    def explained(self) -> Array:
        """τ of every node."""
        diagonal, P, inverse = self._parts
        columns = P @ inverse
        return self._squares(columns, diagonal + (P * columns).sum(axis=1))

    def _squares(self, columns: Array, diagonal: Array) -> Array:
        """Return x_vᵀMx_v of every node, given M's diagonal and its columns of the groups that are kept.

        No leaf is in two groups of the largest partition, so that no other entry is needed.
        """
        paths, gone, roots = self.nodes.paths, self.nodes.largest, self.roots
        kept = np.where(paths < gone.start, paths, paths - (gone.stop - gone.start))
        order = sorted(
            range(len(paths)), key=lambda level: paths[level, 0] not in range(gone.start, gone.stop)
        )
        of_leaves = np.einsum("lj,lj->j", roots**2, diagonal[paths])
        for one, other in itertools.combinations(order, 2):  # the largest partition is first
            of_leaves += 2 * roots[one] * roots[other] * columns[paths[one], kept[other]]
        return np.append(diagonal, of_leaves)

    @cached_property
    def variances(self) -> Array:
        """The variance of every node."""
        return (1 - self.explained) / self.precisions

    def slopes(self, weights: Array) -> Array:
        """Return minus the derivative of the loss by the precision of every single node."""
        from scipy.sparse import diags_array  # noqa: PLC0415 - loads slowly

        (diagonal, P, inverse), a, leaves = self._parts, self.precisions, self.nodes.leaves
        relative = weights / a
        groups = diags_array(relative[: leaves[0]])
        inner = (self.rows * (self.counts * relative)[leaves]) @ self.rows.T + groups  # Ψ
        image = (inner @ P).tocsr()
        once = diagonal[:, None] * (image @ inverse)
        twice = P @ (inverse @ (P.T @ image).toarray() @ inverse)
        squares = diagonal**2 * inner.diagonal() + (P * (2 * once + twice)).sum(axis=1)
        through = self._squares(once + twice, squares)
        return np.asarray((relative * (1 - 2 * self.explained) + through) / a)

    def covary(self, of_leaves: Array) -> Array:
        """Return V⁻¹ times vectors over the leaves, in columns, where no leaf stands for several."""
        diagonal, P, inverse = self._parts
        roots = np.sqrt(self.precisions[self.nodes.leaves])[:, None]
        scaled = of_leaves / roots
        image = self.rows @ scaled
        within = self.rows.T @ (diagonal[:, None] * image + P @ (inverse @ (P.T @ image)))
        return np.asarray((scaled - within) / roots)
