"""The variances of groups of leaves of a tree, whether they are nodes or not.

For q the count of a group, with T_v = 1_vᵀV_v⁻¹q and Q_v = qᵀV_v⁻¹q of what is measured at v and below, over
the part of q there,

    T_v = Σ_c T_c / (1 + a_v u_v),   Q_v = Σ_c Q_c − a_v / (1 + a_v u_v) · (Σ_c T_c)²,

and the variance is the sum of Q over the roots. Only pairs of a node and a group that has leaves below it
count: at most one per leaf and level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.privacy.factors import Nodes

Integers = NDArray[np.int64]


def groups_as_nodes(nodes: Nodes, of_leaves: Integers, size: int) -> Integers:
    """Return the node that has exactly the leaves of each group, or -1 if none has."""
    below = nodes.sums(np.ones(nodes.leaves.size, dtype=np.int64))
    wanted = np.bincount(of_leaves, minlength=size)
    node = nodes.leaves.copy()
    climbing = np.flatnonzero(below[node] < wanted[of_leaves])
    while climbing.size:
        node[climbing] = nodes.parents[node[climbing]]
        climbing = climbing[node[climbing] >= 0]
        climbing = climbing[below[node[climbing]] < wanted[of_leaves[climbing]]]
    found = np.full(size, -1)
    found[of_leaves] = node
    fits = np.ones(size, dtype=bool)
    fits[of_leaves[found[of_leaves] != node]] = False
    fits &= found >= 0
    fits[fits] = below[found[fits]] == wanted[fits]
    return np.where(fits, found, -1)


def parts_of_groups(nodes: Nodes, of_leaves: Integers) -> Integers:
    """Return for every leaf the largest node above it, or itself, whose leaves are all in one group."""
    group = np.empty(len(nodes), dtype=np.int64)
    group[nodes.leaves] = of_leaves
    for depth in range(len(nodes.levels) - 1, 0, -1):
        parents, starts = nodes.families[depth]
        own = group[nodes.levels[depth]]
        least, most = np.minimum.reduceat(own, starts), np.maximum.reduceat(own, starts)
        group[parents] = np.where(least == most, most, -1)
    top = np.arange(len(nodes))
    for level in nodes.levels[1:]:
        up = nodes.parents[level]
        top[level] = np.where(group[up] >= 0, top[up], top[level])
    return top[nodes.leaves]


def group_variances(
    nodes: Nodes,
    precisions: Array,
    own: Array,
    below: Array,
    of_leaves: Integers,
    chosen: NDArray[np.bool_],
    size: int,
) -> Array:
    """Return the variance of the count of every group of the chosen leaves, zero for groups without any.

    `own` and `below` are P and u of the nodes.
    """
    depth_of = np.empty(len(nodes), dtype=np.int64)
    for depth, level in enumerate(nodes.levels):
        depth_of[level] = depth
    leaves, groups = nodes.leaves[chosen], of_leaves[chosen]
    place = np.empty(0, np.int64)
    group = np.empty(0, np.int64)
    total, square = np.empty(0), np.empty(0)
    for depth in range(len(nodes.levels) - 1, -1, -1):
        here = depth_of[leaves] == depth
        place = np.concatenate([place, leaves[here]])
        group = np.concatenate([group, groups[here]])
        total = np.concatenate([total, own[leaves[here]]])
        square = np.concatenate([square, own[leaves[here]]])
        if not depth:
            break
        up = nodes.parents[place]
        order = np.lexsort((group, up))
        up, group, total, square = up[order], group[order], total[order], square[order]
        starts = np.flatnonzero(np.append(True, (up[1:] != up[:-1]) | (group[1:] != group[:-1])))
        if not up.size:
            continue
        place, group = up[starts], group[starts]
        sums = np.add.reduceat(total, starts)
        share = 1 / (1 + precisions[place] * below[place])
        square = np.add.reduceat(square, starts) - precisions[place] * share * sums**2
        total = sums * share
    return np.bincount(group, square, minlength=size).astype(float)


def pruned_tree(
    nodes: Nodes, precisions: Array, variances: Array, of_leaves: Integers
) -> tuple[Integers, Integers, Array] | None:
    """Return the leaf of every part, the parents and the precisions of a tree in which parts are leaves.

    None if some part is no node. `variances` are those given what is measured at a node and below.
    """
    found = groups_as_nodes(nodes, of_leaves, int(of_leaves.max()) + 1)
    if np.any(found < 0):
        return None
    kept = np.zeros(len(nodes), dtype=bool)
    kept[found] = True
    for level in nodes.levels[:0:-1]:
        kept[nodes.parents[level][kept[level]]] = True
    number = np.cumsum(kept) - 1
    parents = nodes.parents[kept]
    parents = np.where(parents < 0, -1, number[parents])
    own = precisions.copy()
    own[found] = 1 / variances[found]
    leaves = Nodes(parents).leaves
    rank = np.full(parents.size, -1)
    rank[leaves] = np.arange(leaves.size)
    return rank[number[found]], parents, own[kept]
