"""Siblings whose subtrees are alike, merged: the best strategy treats them alike, because the loss is convex.

Subtrees are compared by 64-bit words: of a node's weight and the multiset of its children's words. Should two
different subtrees share a word, the comparison afterwards finds out, and nothing is merged: every node must
have the weight of the one that it is like, and as many children like each of its children.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.lattice import Integers
from querysmasher.planning.trees.passes import WeightedTree
from querysmasher.privacy.factors import Nodes

Words = NDArray[np.uint64]

OF_CHILDREN = np.uint64(0x9E3779B97F4A7C15)
"""Added to the word of a child, so that it differs from that of the same node by itself."""


@dataclass(frozen=True, eq=False)
class Alike:
    """A forest with alike siblings merged, and which of its nodes each node of the whole one is like."""

    tree: WeightedTree
    node_of: Integers


def merge_alike(nodes: Nodes, weights: Array) -> Alike:
    """Merge siblings with equal weights and alike subtrees."""
    words = _words(nodes, weights)
    node_of = np.empty(len(nodes), dtype=np.int64)
    parents: list[Integers] = []
    copies: list[Integers] = []
    kept: list[Integers] = []
    done = 0
    for level in nodes.levels:
        up = nodes.parents[level]
        up = np.where(up < 0, -1, node_of[up])
        # siblings below alike parents are alike if their words are: look at those below one of the parents
        order = np.lexsort((words[level], up))
        own, ups = words[level][order], up[order]
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
    found = Alike(WeightedTree(Nodes(up), own_counts, weights[chosen]), node_of)
    if _is_right(found, nodes, weights):
        return found
    return Alike(WeightedTree(nodes, np.ones(len(nodes)), weights), np.arange(len(nodes)))


def _is_right(found: Alike, nodes: Nodes, weights: Array) -> bool:
    """Return whether every node is like the one that stands for it, exactly."""
    tree, node_of = found.tree, found.node_of
    if not np.array_equal(weights, tree.weights[node_of]):
        return False
    below = np.flatnonzero(nodes.parents >= 0)
    order = below[np.lexsort((node_of[below], nodes.parents[below]))]
    pairs = np.stack([nodes.parents[order], node_of[order]])
    new = np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)) if order.size else np.empty(0, bool)
    firsts = np.flatnonzero(new)
    copies = np.diff(np.append(firsts, order.size))
    if not np.array_equal(copies, tree.copies[pairs[1, firsts]]):
        return False
    kinds = np.bincount(pairs[0, firsts], minlength=len(nodes))
    expected = np.bincount(tree.nodes.parents[tree.nodes.parents >= 0], minlength=len(tree.nodes))
    return bool(np.array_equal(kinds, expected[node_of]))


def _words(nodes: Nodes, weights: Array) -> Words:
    words = _mixed(np.ascontiguousarray(weights + 0.0).view(np.uint64).copy())
    for depth in range(len(nodes.levels) - 1, 0, -1):
        parents = nodes.families[depth][0]
        sums = nodes.child_sums(depth, _mixed(words[nodes.levels[depth]] + OF_CHILDREN))
        words[parents] = _mixed(words[parents] + _mixed(sums))
    return words


def _mixed(words: Words) -> Words:
    """Return the finaliser of SplitMix64: a bijection without structure."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words = words ^ (words >> np.uint64(27))
    words = words * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
