"""Hierarchies: the nodes of a tree, each with its best precision, and a bound on any strategy whatsoever."""

from __future__ import annotations

import math
from dataclasses import dataclass

from querysmasher.planning.limits import limits
from querysmasher.planning.nothing import nothing_to_measure
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import TreeStrategy
from querysmasher.planning.trees.merging import merge_alike
from querysmasher.planning.trees.nested import Nested
from querysmasher.planning.trees.solving import any_bound, best_precisions, largest_root


@dataclass(frozen=True, eq=False)
class TreeSolution(Solution):
    """A strategy on a tree, with a bound on what is left if the total were known."""

    strategy: TreeStrategy
    rest: float = 0.0
    """A lower bound on √(loss) of what the queries ask beside the total: tr X^½ without its largest root, as
    removing one dimension removes at most that (interlacing)."""


def solve_tree(asked: Nested, tolerance: float) -> TreeSolution:
    """Return the strategy of least loss that measures nodes; its bound is on the loss of any strategy."""
    if not asked.weights.any():
        raise nothing_to_measure()
    scale = float(asked.weights.max())
    alike = merge_alike(asked.nodes, asked.weights / scale)
    precisions, slopes = best_precisions(alike.tree)
    strategy = TreeStrategy(asked.leaf_of, asked.nodes.parents, precisions[alike.node_of])
    root = math.sqrt(alike.tree.loss(precisions))
    bound, p = any_bound(alike.tree, slopes, root / (1 + tolerance / limits().tree_closeness))
    rest = max(0.0, bound - largest_root(alike.tree, p))
    factor = math.sqrt(scale)
    return TreeSolution(strategy, factor * root, factor * min(root, bound), "tree", factor * rest)
