"""Hierarchies: the nodes of a tree, each with its best precision, and a bound on any strategy whatsoever."""

from __future__ import annotations

import math

import numpy as np

from querysmasher.errors import PlanError
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import TreeStrategy
from querysmasher.planning.trees.merging import merge_alike
from querysmasher.planning.trees.nested import Nested
from querysmasher.planning.trees.solving import any_bound, best_precisions

ENOUGH = 10
"""The bound is raised until the gap is this many times smaller than the tolerance, or no more."""


def solve_tree(asked: Nested, tolerance: float) -> Solution:
    """Return the strategy of least loss that measures nodes; its bound is on the loss of any strategy."""
    if not asked.weights.any():
        msg = "workload: all its queries are zero, so there is nothing to measure"
        raise PlanError(msg)
    scale = float(asked.weights.max())
    alike = merge_alike(asked.nodes, asked.weights / scale)
    precisions, slopes = best_precisions(alike.tree)
    strategy = TreeStrategy(asked.leaf_of, asked.nodes.parents, precisions[alike.node_of])
    loss = alike.tree.loss(precisions)
    root = math.sqrt(loss)
    bound = any_bound(alike.tree, slopes, root / (1 + tolerance / ENOUGH))
    factor = math.sqrt(scale)
    return Solution(strategy, factor * root, factor * min(root, bound), "tree")


def tree_loss(asked: Nested, strategy: TreeStrategy) -> float:
    """Return the loss of any strategy on the same nodes."""
    return float(np.dot(asked.weights, strategy.node_variances))
