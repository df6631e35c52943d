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
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querysmasher.arrays import ROUNDING, Array
from querysmasher.errors import TooLargeError
from querysmasher.planning.cells import numbered_columns
from querysmasher.planning.checks import nothing_to_measure
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.crossed import Overlapping, WeightedCrossing, overlapping
from querysmasher.planning.lines.filters import LineSolution
from querysmasher.planning.lines.gram import LineGram, WeightedFamily, is_implicit
from querysmasher.planning.lines.trees import Nested, WeightedTree, graduated, merge_alike, nested
from querysmasher.planning.solvers.bounds import crossed_bound, tree_bound
from querysmasher.planning.strategies import CrossedStrategy, TreeStrategy
from querysmasher.workload.family import Structure
from querysmasher.workload.hierarchy import Hierarchy


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


def solve_crossed(groups: Overlapping) -> LineSolution:
    """Return the strategy of least loss that measures groups which cross; its bound is on any strategy."""
    if not groups.weights.any():
        raise nothing_to_measure()
    sizes = groups.nodes.sizes
    others = sum(sizes) - max(sizes)
    if sum(sizes) * others > limits().crossed_entries:
        msg = (
            f"workload: hierarchies that do not nest in each other have {others:,} groups beside the "
            f"{max(sizes):,} of the largest level, too many for one plan. Remedies: leave out the second "
            "finest level; coarser levels; plan one of the hierarchies alone"
        )
        raise TooLargeError(msg)
    scale = float(groups.weights.max())
    model, node_of = WeightedCrossing.merged(groups.nodes, groups.weights / scale)
    precisions, prices = crossed_precisions(model)
    loss = model.loss(precisions)
    bound = crossed_bound(model, prices)
    strategy = CrossedStrategy(groups.leaf_of, groups.nodes.groups, precisions[node_of])
    return LineSolution(strategy, scale * loss, scale * min(loss, bound**2))


def crossed_precisions(model: WeightedCrossing) -> tuple[Array, Array]:
    """Return the precisions of least loss, with path sums of one, and how dearly each leaf's path is paid.

    With prices λ of the leaves, whose sum is one, a_v ← a_v (g_v / Σ_{j in v} λ_j)^½ lowers the loss plus the
    price of all precisions. Prices follow the path sums. For any b with path sums of at most one,
    f(b) ≥ f²/max_v (g_v / Σ λ_j): that ends the steps.
    """
    nodes, leaves = model.nodes, model.nodes.leaves
    count = model.counts[leaves]
    a, prices = np.full(len(nodes), 1 / nodes.depth), np.full(leaves.size, 1 / count.sum())
    for _ in range(100):
        loss, g = model.slopes(a)
        cost = nodes.sums((prices * count)[:, None])[:, 0]
        cost[leaves] = prices
        ratios = np.maximum(g, 0.0) / model.counts / cost  # rounding errors remain where nothing is asked
        if float(nodes.path_sums(a).max() * ratios.max() / loss) < 1 + 4e-3:
            break
        a *= np.sqrt(ratios)
        a = np.maximum(a / (nodes.path_sums(a) @ (prices * count)), 1e-9)
        prices *= nodes.path_sums(a)
        prices /= prices @ count
    a /= nodes.path_sums(a).max()
    a[leaves] += 1 - nodes.path_sums(a)
    return a, prices * count


def solve_forest(gram: LineGram, *, always: bool = False) -> LineSolution | None:
    """Return the best strategy that measures nodes, or None if no family is a hierarchy, or one has ranges.

    With `always`, single values count as a hierarchy. Other queries, which must be few, count in the loss
    only; values that only they distinguish are groups of a finer level. Few values of hierarchies that do not
    nest are left to matrices.
    """
    families = [(family, weight) for family, weight in gram.families if family.levels() is not None]
    others = [(family, weight) for family, weight in gram.families if family.levels() is None]
    if any(is_implicit(family) for family, _ in others):
        return None  # prefixes and ranges are too many
    if not families or not (always or any(family.structure is Structure.TREE for family, _ in families)):
        return None
    solution = _solved(families, gram)
    if solution is None:
        return None  # written out
    rows = [family.matrix() for family, _ in others]
    if others and not solution.strategy.contains([((0,), np.concatenate(rows))]):
        energies = np.concatenate([weight * family.query_weights() for family, weight in others])
        finer = _solved([*families, _finer(families, np.concatenate(rows), energies)], gram)
        assert finer is not None  # noqa: S101 - it nests where the coarser one does
        solution = replace(finer, bound=solution.bound)
    loss = solution.strategy.whole_loss(gram)
    return LineSolution(solution.strategy, loss, min(solution.bound, loss))


def _solved(families: Sequence[WeightedFamily], gram: LineGram) -> LineSolution | None:
    asked = [family for family, _ in families], [weight for _, weight in families], gram.total
    groups = nested(*asked)
    if groups is None and gram.size <= limits().line_matrix:
        return None
    return solve_crossed(overlapping(*asked)) if groups is None else solve_tree(groups)


def _finer(families: Sequence[WeightedFamily], rows: Array, weights: Array) -> WeightedFamily:
    """Return the groups of values that neither the groups of families nor rows distinguish.

    A group has the weight of what rows ask of it; none is left without any.
    """
    levels = [g for family, _ in families for g, _ in family.levels() or () if g is not None]
    numbers, first = numbered_columns(np.vstack([*levels, rows]))
    asked = weights @ rows[:, first] ** 2
    made = Hierarchy(numbers.shape, (numbers,), (tuple(range(first.size)),), leaves=False)
    return made.reweighted(np.maximum(asked, 1e-3 * asked.mean())), 1.0
