"""The best strategies for hierarchies, against the dense optimum over all strategies on small trees."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from querysmasher.planning.lines.forest import solve_tree
from querysmasher.planning.lines.trees import nested
from querysmasher.planning.solvers.design import solve_design
from querysmasher.workload.families import Identity, Prefix
from querysmasher.workload.hierarchy import Hierarchy
from tests.profiles import fewer
from tests.strategies import by_appearance, trees, weights


def weighted_rows(families, weights):
    rows = [
        f.matrix() * np.sqrt((1.0 if f.weights is None else f.weights[:, None]) * w)
        for f, w in zip(families, weights, strict=True)
    ]
    return np.concatenate(rows)


def dense_optimum(rows):
    """The root of the least loss of any strategy: over distinct columns, as merging them loses nothing."""
    columns = np.unique(rows, axis=1)
    _, values, right = np.linalg.svd(columns, full_matrices=False)
    keep = values > 1e-10 * values[0]
    return solve_design(values[keep, None] * right[keep], np.full(columns.shape[1], 1.0), 1e-6)


@settings(max_examples=60)
@given(trees(), st.booleans(), st.sampled_from([0.0, 0.0, 2.0]))
def test_the_solution_is_near_the_dense_optimum_and_its_certificate_holds(tree, twice, total):
    families, weights = [tree], [1.0]
    if twice:
        families, weights = [tree, Identity(tree.shape)], [1.0, 0.5]
    rows = weighted_rows(families, weights)
    if total:
        rows = np.concatenate([rows, np.full((1, tree.cells), math.sqrt(total))])
    found = solve_tree(nested(families, weights, total))
    best = dense_optimum(rows)
    own = found.strategy
    whole = np.einsum("ij,ij->", rows, own.covary_whole(rows))  # with what the total says
    assert found.loss == pytest.approx(whole, rel=1e-9)
    assert own.leverage + 1 / own.total_variance == pytest.approx(1, rel=1e-9)
    assert math.sqrt(found.bound) <= best.upper * (1 + 1e-7)
    assert best.value * (1 - 1e-7) <= math.sqrt(found.loss) <= best.upper * 1.01
    assert math.sqrt(found.loss / found.bound) - 1 < 0.01
    assert own.is_sound()


@fewer(50)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_regular_trees_are_optimal(branches, data):
    """One precision per level, in closed form: the optimum over all strategies."""
    n = math.prod(branches)
    sizes = list(itertools.accumulate(branches, int.__mul__))[:-1]
    levels = tuple(np.arange(n) // (n // size) for size in sizes)
    names = tuple(tuple(range(size)) for size in sizes)
    drawn = tuple(data.draw(weights) for _ in range(len(sizes) + 1))
    tree = Hierarchy((n,), levels, names, True, drawn)
    found = solve_tree(nested([tree], [1.0]))
    assert math.sqrt(found.loss / found.bound) - 1 < 2e-5
    assert math.sqrt(found.loss) <= dense_optimum(weighted_rows([tree], [1.0])).upper * (1 + 1e-3)


@pytest.mark.parametrize(("spread", "most"), [(1, 0.004), (4, 0.025), (8, 0.03)])
def test_wild_weights_are_solved_and_certified(spread, most):
    """Every node has a weight of its own, from e^-spread to e^spread: the certificate says how good it is."""
    rng = np.random.default_rng(spread)
    groups = by_appearance(np.sort(rng.integers(0, 12, 60)).tolist())
    coarse = by_appearance((groups // 4).tolist())
    tree = Hierarchy((60,), (coarse, groups), tuple(tuple(range(int(g.max()) + 1)) for g in (coarse, groups)))
    asked = nested([tree], [1.0], 1.0)
    wild = asked.weights * np.exp(rng.uniform(-spread, spread, len(asked.weights)))
    found = solve_tree(type(asked)(asked.leaf_of, asked.nodes, wild))
    rows = asked.nodes.sums(np.eye(60)) * np.sqrt(wild)[:, None]
    best = dense_optimum(rows[:, asked.leaf_of])
    assert math.sqrt(found.bound) <= best.upper * (1 + 1e-7)
    assert math.sqrt(found.bound) >= best.value * (1 - 1e-3)
    assert math.sqrt(found.loss / found.bound) - 1 < most


@fewer(40)
@given(trees(leaves=True), st.data())
def test_the_variances_of_any_groups(tree, data):
    """Groups that are nodes or not, of levels that nest or not, against rows written out."""
    strategy = solve_tree(nested([tree], [1.0])).strategy
    n = tree.cells
    groups = by_appearance(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    other = Hierarchy((n,), (groups,), (tuple(range(int(groups.max()) + 1)),), data.draw(st.booleans()))
    for family in (tree, other, Identity((n,)), Prefix((n,))):
        expected = strategy.variances([((0,), family.matrix())])
        scale = strategy.whole_variances(family).max()
        np.testing.assert_allclose(strategy.query_variances(family), expected, rtol=1e-9, atol=1e-13 * scale)
        assert strategy.loss(family.reweighted(np.ones(family.rows))) == pytest.approx(
            expected.sum(), abs=1e-10 * scale
        )
    assume(tree.weights is not None)
    expected = tree.weights @ strategy.query_variances(tree)
    assert strategy.loss(tree) == pytest.approx(expected)


@fewer(50)
@given(trees(), st.data())
def test_a_pruned_strategy_knows_as_much_about_groups(tree, data):
    strategy = solve_tree(nested([tree], [1.0])).strategy
    groups = by_appearance(data.draw(st.lists(st.integers(0, 2), min_size=tree.cells, max_size=tree.cells)))
    parts = strategy.parts(groups)
    if parts.max() + 1 == len(parts) and strategy.nodes.leaves.size < len(parts):
        return  # the strategy does not separate what the groups do
    assert len({(p, g) for p, g in zip(parts, groups, strict=True)}) == parts.max() + 1
    small = strategy.pruned(parts)
    assert small.is_sound()
    rows = data.draw(st.lists(st.integers(-2, 2), min_size=len(small.classes), max_size=len(small.classes)))
    query = np.array(rows, dtype=float)[None]
    wide = strategy.variances([((0,), query[:, parts])])
    np.testing.assert_allclose(small.variances([((0,), query)]), wide, rtol=1e-9, atol=1e-12)
    assert small.total_variance == pytest.approx(strategy.total_variance)
