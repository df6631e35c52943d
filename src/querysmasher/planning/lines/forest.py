"""Hierarchies of very many values: the best precisions of their nodes.

Among strategies V = Σ_v a_v 1_v1_vᵀ with path sums of one, the loss f is convex, and homogeneous of degree
-1. Write a_v as a fraction s_v of what is left on the path above v; leaves take the rest. With slopes
g_v = -∂f/∂a_v and R_v = s_v g_v + (1 − s_v) Σ_c R_c, the minimum has g_v = Σ_c R_c at every inner node, and

    s_v / (1 − s_v)  ←  s_v / (1 − s_v) · (g_v / Σ_c R_c)^½

is exact for two nodes on a path and converges in a few steps for most trees.

For any b with path sums of at most one, f(b) ≥ f²/Σ g b, so no strategy of this class has a loss below f²/M,
with M_v = max(g_v, Σ_c M_c) summed over the roots: that ends the steps. `solvers.bounds` has a bound on any
strategy whatsoever. Where that is lower, groups of small siblings are measured too (`trees.graduated`).
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import ROUNDING, Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.checks import nothing_to_measure
from querysmasher.planning.lines.filters import LineSolution
from querysmasher.planning.lines.gram import LineGram, is_implicit
from querysmasher.planning.lines.trees import Nested, WeightedTree, graduated, merge_alike, nested
from querysmasher.planning.solvers.bounds import tree_bound
from querysmasher.planning.strategies import TreeStrategy
from querysmasher.workload.family import Structure


def solve_tree(groups: Nested) -> LineSolution:
    """Return the strategy of least loss that measures nodes; its bound is on the loss of any strategy.

    If the bound does not show that it is best, it may also measure groups of siblings.
    """
    if not groups.weights.any():
        raise nothing_to_measure()
    scale, measured = float(groups.weights.max()), groups
    tree, node_of = merge_alike(groups.nodes, groups.weights / scale)
    precisions, slopes, loss = best_precisions(tree)
    enough = math.sqrt(loss) / (1 + 1e-4)
    bound = tree_bound(tree, slopes, enough)
    if bound < enough:
        measured = graduated(groups)
        tree, node_of = merge_alike(measured.nodes, measured.weights / scale)
        precisions, slopes, loss = best_precisions(tree, 1e-5)
    strategy = TreeStrategy(measured.leaf_of, measured.nodes.parents, precisions[node_of])
    return LineSolution(strategy, scale * loss, scale * min(loss, bound**2))


def best_precisions(tree: WeightedTree, gain: float = 0.0) -> tuple[Array, Array, float]:
    """Return the precisions of least loss, with path sums of one, the slopes there, and the loss.

    The steps also end when one lowers the loss by less than the fraction `gain`.
    """
    inner = ~tree.nodes.is_leaf
    odds = np.ones(len(tree.nodes))
    exponent, best = 0.5, math.inf
    precisions = slopes = np.zeros(0)
    last, change = odds, np.ones_like(odds)
    for _ in range(300):
        fractions = np.where(inner, odds / (1 + odds), 1.0)
        a = _allocated(tree, fractions)
        total, g = tree.slopes(a)
        loss = float(total)
        if not loss < best * (1 + 1e-12):  # the step was too long
            exponent /= 2
            if exponent < 1e-3:
                break
            odds = last * change**exponent
            continue
        slow = loss > best * (1 - gain)
        best, precisions, slopes, last = min(loss, best), a, g, odds
        most = float(np.maximum(g, _below(tree, g))[tree.nodes.levels[0]].sum())
        if slow or math.sqrt(most / loss) - 1 <= 1e-5:
            break
        change = np.where(inner, g / np.where(inner, _below(tree, g, fractions), 1.0), 1.0)
        odds = np.clip(odds * change**exponent, ROUNDING, 1 / ROUNDING)
    return precisions, slopes, best


def _allocated(tree: WeightedTree, fractions: Array) -> Array:
    """Return the precisions with these fractions: path sums are one."""
    left = np.ones(len(fractions))
    for level in tree.nodes.levels[1:]:
        up = tree.nodes.parents[level]
        left[level] = left[up] * (1 - fractions[up])
    return left * fractions


def _below(tree: WeightedTree, slopes: Array, fractions: Array | None = None) -> Array:
    """Return Σ_c R_c for every node, or Σ_c M_c if no fractions are given."""
    nodes, below = tree.nodes, np.zeros(len(slopes))
    for level, parents, starts in nodes.families[:0:-1]:
        g, rest = slopes[level], below[level]
        best = (
            np.maximum(g, rest) if fractions is None else fractions[level] * g + (1 - fractions[level]) * rest
        )
        below[parents] = np.add.reduceat(best, starts)
    return below


def solve_forest(gram: LineGram, *, always: bool = False) -> LineSolution | None:
    """Return the best strategy that measures nodes, or None if no family is a hierarchy, or one has ranges.

    With `always`, single values count as a hierarchy. Other queries, which must be few, count in the loss
    only. Hierarchies that do not nest in each other are refused.
    """
    families = [(family, weight) for family, weight in gram.families if family.levels() is not None]
    if any(is_implicit(family) and family.levels() is None for family, _ in gram.families):
        return None  # prefixes and ranges are too many
    if not families or not (always or any(family.structure is Structure.TREE for family, _ in families)):
        return None
    groups = nested([family for family, _ in families], [weight for _, weight in families], gram.total)
    if groups is None:
        msg = (
            f"workload: hierarchies of {gram.size:,} values that do not nest in each other cannot be planned "
            "together. Remedies: plan one of them alone; coarser values"
        )
        raise TooLargeError(msg)
    solution = solve_tree(groups)
    loss = solution.strategy.whole_loss(gram)
    return LineSolution(solution.strategy, loss, min(solution.bound, loss))
