"""Strategies: one contract for every kind, against its rows written out, rounded to integers, and back."""

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from querysmasher.errors import OutsideMeasuredSpaceError, PlanError
from querysmasher.planning.centre import Centre
from querysmasher.planning.strategies import (
    KINDS,
    AxisStrategy,
    CoarseStrategy,
    CrossedStrategy,
    DenseStrategy,
    DiagonalStrategy,
    FewStrategy,
    FourierStrategy,
    MatrixAxis,
    MergedStrategy,
    MirroredStrategy,
    TreeStrategy,
    strategy_from_data,
    strategy_of_integers,
)
from querysmasher.planning.strategies import dense as module
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import KINDS as FACTORS
from querysmasher.workload.families import Identity, Prefix
from tests.contracts import check_after_noise, check_proof, check_storage, integer_rows, shifts
from tests.planning.strategies.toy_strategy import CountAxis, StepStrategy
from tests.reference import complement, kron

SHAPE = (3, 2, 4)
INSIDE = [complement(np.full(n, 1.0 / n)) for n in SHAPE]
"""Bases of the residual spaces: rows that sum to zero along every axis."""


def dense(rank, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((rank, 6)) @ kron(INSIDE)
    return DenseStrategy(SHAPE, rows / np.sqrt((rows**2).sum(axis=0).max()))


def diagonal(deficient=False, seed=0):
    rng = np.random.default_rng(seed)
    bases = [rng.standard_normal((len(f), len(f))) @ f for f in INSIDE]
    if deficient:
        bases[2] = bases[2][:2]
    weights = rng.uniform(0.2, 3.0, [len(b) for b in bases])
    return DiagonalStrategy(tuple(bases), weights / DiagonalStrategy(tuple(bases), weights).leverage)


def fourier(shape=SHAPE, deficient=False, seed=0):
    energy = np.abs(np.fft.fftn(np.random.default_rng(seed).standard_normal(shape))) ** 2
    for axis in range(len(shape)):
        np.moveaxis(energy, axis, 0)[0] = 0.0
    if deficient:
        np.moveaxis(energy, -1, 0)[[1, -1]] = 0.0
    return FourierStrategy(energy / energy.mean())


def merged(rank, lattice=False, seed=0):
    """Rows on seven columns of 24 cells; the second axis is not looked at."""
    rng = np.random.default_rng(seed)
    maps = (np.array([0, 1, 2]), np.array([0, 0]), np.array([1, 0, 2, 0]))
    labels = np.array([0, 1, 2, 3, 0, 4, 5, 1, 6]).reshape(3, 1, 3)
    whole = rng.integers(-3, 4, (rank, 7)) + 5 * np.eye(rank, 7, dtype=np.int64)
    rows = rng.standard_normal((rank, rank)) @ whole
    rows /= np.sqrt((rows**2).sum(axis=0).max())
    return MergedStrategy(SHAPE, maps, labels, rows, whole if lattice else None)


def tree(complete=True, seed=0):
    """A forest of nine nodes, one of them not measured, over the values of one attribute."""
    parents = np.array([-1, -1, 0, 0, 1, 1, 2, 2, 2])
    leaf_of = np.array([3, 0, 4, 1, 5, 2] if complete else [3, 0, 4, 4, 1, 5, 2, 0])
    precisions = np.random.default_rng(seed).uniform(0.2, 3.0, 9)
    precisions[0] = 0.0
    return normalised(TreeStrategy(leaf_of, parents, precisions))


def crossed(complete=True, seed=0):
    """Three groups, two groups that cross them, and the leaves, over the values of one attribute."""
    groups = np.array([[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]])
    leaf_of = np.array([3, 0, 4, 1, 5, 2] if complete else [3, 0, 4, 4, 1, 5, 2, 0])
    precisions = np.random.default_rng(seed).uniform(0.2, 3.0, 11)
    return normalised(CrossedStrategy(leaf_of, groups, precisions))


def normalised(strategy):
    """A strategy on one attribute, scaled so that the longest column has length one."""
    return strategy.scaled(1 / strategy.leverage)


def tree_rows(strategy):
    """The rows of a tree by its definition, before they are balanced: the values below each node."""
    leaves = np.setdiff1d(np.arange(len(strategy.parents)), strategy.parents)
    rows = np.zeros((len(strategy.parents), len(strategy.classes)))
    for value, leaf in enumerate(strategy.classes):
        node = leaves[leaf]
        while node >= 0:
            rows[node, value] = math.sqrt(strategy.precisions[node])
            node = strategy.parents[node]
    return rows[strategy.precisions > 0]


def crossed_rows(strategy):
    """The rows of groups and leaves by their definition, before they are balanced: the values in each."""
    levels = [*strategy.groups, np.arange(strategy.groups.shape[1])]
    rows = [level[strategy.classes] == group for level in levels for group in range(level.max() + 1)]
    return np.sqrt(strategy.precisions)[:, None] * np.array(rows)


def circulant(strategy):
    """The rows of a filter by its definition: shifts of one kernel."""
    return shifts(np.fft.ifftn(np.sqrt(strategy.weights)).real)


def mirrored(extra):
    rng = np.random.default_rng(3)
    rows = 0.3 * rng.standard_normal((extra, 5))
    return normalised(MirroredStrategy("prefix", 1 + rng.random(5), 1 + rng.random(5), rows))


def matrix_axis(seed=5):
    """The root of a prefix-like V, as rows in a random basis."""
    rng = np.random.default_rng(seed)
    return normalised(MatrixAxis(np.tri(5) + 0.3 * rng.standard_normal((5, 5))))


def few(count, seed=6):
    """Sums of some rows of integers, measured with the total."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((count + 1, count + 1)) + 2 * np.eye(count + 1)
    return normalised(FewStrategy(rng.integers(-50, 51, (count, 7)), root.T @ root))


def few_rows(strategy):
    """A root of AᵀMA, with A the rows divided by their largest entries, and the total."""
    rows = strategy.lattice / np.abs(strategy.lattice).max(axis=1, keepdims=True)
    return np.linalg.cholesky(strategy.weights).T @ np.vstack([rows, np.ones((1, 7))])


def coarse(inner):
    """A line on the five classes of eight values."""
    return normalised(CoarseStrategy(np.array([0, 0, 1, 2, 2, 2, 3, 4]), inner))


def mirrored_rows(strategy):
    """The root of a filter by its eigenvectors, which for prefixes are cosines, and more rows."""
    n = strategy.diagonal.size
    k, place = np.arange(n)[:, None], np.arange(n)
    waves = np.cos((2 * k + 1) * (2 * place + 1) * np.pi / (2 * (2 * n + 1))) * 2 / np.sqrt(2 * n + 1)
    root = (waves.T * np.sqrt(strategy.spectrum)) @ waves
    return np.vstack([root, strategy.extra]) * strategy.diagonal


def matrix_rows(strategy):
    return strategy.matrix


def diagonal_rows(strategy):
    return np.sqrt(strategy.weights).reshape(-1, 1) * kron(strategy.bases)


def merged_rows(strategy):
    return strategy.matrix[:, strategy.labels[np.ix_(*strategy.maps)].ravel()]


def coarse_rows(strategy):
    return rows_of_kind(strategy.inner)[:, strategy.classes]


def count_rows(strategy):
    return math.sqrt(strategy.scale) * np.eye(strategy.size)


CASES = {
    "mirrored": (mirrored(0), mirrored_rows),
    "mirrored, extra": (mirrored(2), mirrored_rows),
    "dense": (dense(6), matrix_rows),
    "dense, deficient": (dense(4), matrix_rows),
    "diagonal": (diagonal(), diagonal_rows),
    "diagonal, deficient": (diagonal(deficient=True), diagonal_rows),
    "fourier": (fourier(), circulant),
    "fourier, deficient": (fourier(deficient=True), circulant),
    "merged": (merged(7), merged_rows),
    "merged, deficient": (merged(4, lattice=True), merged_rows),
    "tree": (tree(), tree_rows),
    "tree, deficient": (tree(complete=False), tree_rows),
    "crossed": (crossed(), crossed_rows),
    "crossed, deficient": (crossed(complete=False), crossed_rows),
    "line": (matrix_axis(), matrix_rows),
    "few": (few(1), few_rows),
    "few, three": (few(3), few_rows),
    "coarse": (coarse(matrix_axis()), coarse_rows),
    "coarse, mirrored": (coarse(mirrored(1)), coarse_rows),
    "steps": (StepStrategy(5), StepStrategy.written_out),
    "counts": (normalised(CountAxis(5)), count_rows),
}
"""Strategies, each with the definition of its kind: all that a new kind needs to be held to the contract.

A definition returns the rows before they are balanced; those of a filter are dependent.
"""

EVERY = {name: strategy for name, (strategy, _) in CASES.items()}
DEFINITIONS = {strategy.kind: rows for strategy, rows in CASES.values()}

WHOLE = ("merged", "merged, deficient")
"""Those that are not split, and stand in no residual space."""


def balance(rows):
    """The centre around which V splits: V⁻¹1, normalised."""
    inverse_ones = np.linalg.pinv(rows.T @ rows).sum(axis=0)
    return inverse_ones / inverse_ones.sum()


def is_line(strategy):
    return isinstance(strategy, AxisStrategy)


def rows_of_kind(strategy):
    return DEFINITIONS[strategy.kind](strategy)


def strategy_rows(strategy):
    """The rows a strategy stands for; those with a centre of their own vanish there."""
    rows = rows_of_kind(strategy)
    return rows - (rows @ balance(rows))[:, None] if is_line(strategy) else rows


@pytest.fixture(params=EVERY)
def strategy(request):
    return EVERY[request.param]


def measurable(strategy, count, seed=1):
    """Random queries in the span of the strategy."""
    rows = strategy_rows(strategy)
    return np.random.default_rng(seed).standard_normal((count, len(rows))) @ rows


def test_a_strategy_knows_its_rows_shape_rank_and_leverage(strategy):
    rows = strategy_rows(strategy)
    np.testing.assert_allclose(strategy.written_out(), rows, atol=1e-12)
    assert math.prod(strategy.shape) == rows.shape[1]
    assert strategy.rank == np.linalg.matrix_rank(rows)
    assert strategy.leverage == pytest.approx((rows**2).sum(axis=0).max())
    assert strategy.is_sound()


@pytest.mark.parametrize("name", EVERY)
def test_a_strategy_stands_on_the_centres_it_was_made_for(name):
    strategy = EVERY[name]
    assert strategy.stands_on([Centre.uniform(n) for n in strategy.shape]) == (name not in WHOLE)
    others = [Centre.ratio(np.arange(1, n + 1)) for n in strategy.shape]
    assert strategy.stands_on(others) == is_line(strategy)  # which needs none of the given centres


def test_a_strategy_comes_back_from_its_data(strategy, monkeypatch):
    for kind in (StepStrategy, CountAxis):
        monkeypatch.setitem(KINDS, kind.kind, kind)
    again = strategy_from_data(strategy.kind, strategy.to_data())
    assert type(again) is type(strategy)
    assert again.shape == strategy.shape
    np.testing.assert_array_equal(again.written_out(), strategy.written_out())


@pytest.mark.parametrize("kind", ["surprise", 7, None])
def test_an_unknown_kind_is_refused(kind, refuses):
    with refuses(PlanError, ValueError, "strategy", "dense"):
        strategy_from_data(kind, {})


def test_rounded_rows_keep_the_space_and_the_variances(strategy):
    """Integer rows lie in the residual space, and answer planned queries with the planned variance.

    Rows with a centre of their own bring a new one, and answer queries that are split around that.
    """
    shape = strategy.shape
    centres = [Centre.uniform(n) for n in shape]
    rounded = strategy.rounded([np.ones(n, dtype=np.int64) for n in shape], 14)
    again = strategy_of_integers(rounded)
    assert again.stands_on(centres) == strategy.stands_on(centres)
    assert again.is_sound()
    rows = measurable(strategy, 5)
    axes = tuple(range(len(shape)))
    planned = strategy.variances([(axes, rows)])
    if is_line(strategy):
        rows = rows - (rows @ again.centre)[:, None]
        assert again.centre.sum() == pytest.approx(1)
        assert np.abs(written_integers(rounded) @ again.centre).max() < 2
    assert again.contains([(axes, rows)])
    scale = float(squared_sensitivity(rounded))
    np.testing.assert_allclose(again.variances([(axes, rows)]) * scale, planned, rtol=0.02)
    assert 0.98 < strategy.rounding_loss(rounded) < 1.1


def written_integers(rounded):
    """The rows of an integer strategy."""
    return kron([factor.written_out() for _, factor in rounded.factors])


def test_rounded_rows_are_held_to_the_contract_of_factors(strategy):
    """Each factor against its definition in integers; the cost of all together by brute force."""
    rounded = strategy.rounded([np.ones(n, dtype=np.int64) for n in strategy.shape], 14)
    for axes, factor in rounded.factors:
        assert factor.fits(tuple(strategy.shape[a] for a in axes))
        records = min(2**40, (2**62 - 1) // factor.largest)
        for cell in range(factor.cells):
            check_proof(factor, records, cell)
        check_after_noise(factor)
        check_storage(factor)
    rows = reduce(np.kron, [integer_rows(factor) for _, factor in rounded.factors])
    noise = np.ones(len(rows), dtype=object) if rounded.multipliers is None else rounded.multipliers.ravel()
    columns = [[Fraction(int(b) ** 2, int(m)) for b, m in zip(c, noise, strict=True)] for c in rows.T]
    exact = max(map(sum, columns))
    assert exact <= squared_sensitivity(rounded) <= exact * (1 + Fraction(1, 2**29))


def test_every_kind_is_held_to_the_contract():
    """Also every kind of factor: some strategy is rounded to it."""
    assert {strategy.kind for strategy in EVERY.values()} == {*KINDS, StepStrategy.kind, CountAxis.kind}
    rounded = [s.rounded([np.ones(n, dtype=np.int64) for n in s.shape], 14) for s in EVERY.values()]
    assert {factor.kind for integers in rounded for _, factor in integers.factors} == set(FACTORS)


def test_noisy_answers_become_least_squares_estimates(strategy):
    """Rows with a centre of their own do not tell the total, and their estimates sum to zero."""
    rounded = strategy.rounded([np.ones(n, dtype=np.int64) for n in strategy.shape], 14)
    again = strategy_of_integers(rounded)
    rows = written_integers(rounded)
    answers = np.random.default_rng(7).standard_normal((len(rows), 2, 3))
    found = again.undone(rounded, answers).reshape(6, -1)
    if is_line(strategy):
        rows = rows - (rows @ again.centre)[:, None]
        np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-9 * np.abs(found).max())
    expected = np.tensordot(answers, np.linalg.pinv(rows, rcond=1e-9), axes=(0, 1)).reshape(6, -1)
    seen = rows.T if is_line(strategy) else np.eye(rows.shape[1])
    np.testing.assert_allclose(found @ seen, expected @ seen, atol=1e-7 * np.abs(expected @ seen).max())


@pytest.mark.parametrize("name", [name for name in EVERY if is_line(EVERY[name])])
def test_rounded_rows_with_a_centre_of_their_own_are_predicted_exactly(name):
    """Whatever the shift: the best estimate of a query split around their centre, beside any total.

    The total is measured by itself, so the rows must not use what they say about it.
    """
    strategy = EVERY[name]
    for bits in (4, 14):
        rounded = strategy.rounded([np.ones(strategy.shape[0], dtype=np.int64)], bits)
        again = strategy_of_integers(rounded)
        whole = written_integers(rounded)
        queries = measurable(strategy, 5)
        queries = queries - (queries @ again.centre)[:, None]
        nuisance = whole - (whole @ again.centre)[:, None]  # what is left when the total may be anything
        expected = np.linalg.pinv(nuisance.T @ nuisance, rcond=1e-10)
        found = again.variances([((0,), queries)])
        np.testing.assert_allclose(found, np.einsum("ij,jk,ik->i", queries, expected, queries), rtol=1e-6)


def test_transform_is_the_pseudo_inverse_up_to_rotation(strategy):
    rows = measurable(strategy, 6)
    inverse = np.linalg.pinv(strategy_rows(strategy))
    image = strategy.transform(rows.reshape(2, 3, *strategy.shape))
    assert image.shape[:2] == (2, 3)
    assert image.shape[2] >= strategy.rank
    flat = image.reshape(6, -1)
    np.testing.assert_allclose(flat @ flat.T, rows @ inverse @ inverse.T @ rows.T, atol=1e-8)


def test_covary_multiplies_by_the_inverse_and_projects_if_rows_are_orthonormal(strategy):
    rows = np.random.default_rng(4).standard_normal((6, math.prod(strategy.shape)))
    matrix = strategy_rows(strategy)
    if is_line(strategy):  # which takes the part around it of any row, and leaves a table that sums to zero
        rows = rows - (rows @ strategy.centre)[:, None]
    inverse = np.linalg.pinv(matrix, rcond=1e-9)
    found = strategy.covary(rows.reshape(2, 3, *strategy.shape)).reshape(6, -1)
    expected, seen = rows @ inverse @ inverse.T, matrix.T if is_line(strategy) else np.eye(matrix.shape[1])
    np.testing.assert_allclose(found @ seen, expected @ seen, atol=1e-8)
    if is_line(strategy):
        np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-8)
        return  # orthonormal rows would stand around another centre
    inside = strategy.orthonormal().covary(rows.reshape(6, *strategy.shape)).reshape(6, -1)
    np.testing.assert_allclose(inside, rows @ inverse @ matrix, atol=1e-9)
    assert strategy.orthonormal().rank == strategy.rank


@pytest.mark.parametrize(
    "grouping",
    [[(0,), (1,), (2,)], [(0, 2), (1,)], [(1,), (0, 2)], [(2,), (0, 1)], [(0, 1, 2)], [(1, 2), (0,)]],
)
@pytest.mark.parametrize("name", ["dense", "diagonal", "fourier"])
def test_variances_of_products_of_rows_are_squared_lengths(name, grouping):
    strategy = EVERY[name]
    rng = np.random.default_rng(3)
    factors = [
        (
            axes,
            rng.standard_normal((2 + place, kron([INSIDE[a] for a in axes]).shape[0]))
            @ kron([INSIDE[a] for a in axes]),
        )
        for place, axes in enumerate(grouping)
    ]
    inverse = np.linalg.pinv(strategy_rows(strategy))
    found = strategy.variances(factors)
    assert found.shape == tuple(len(rows) for _, rows in factors)
    for place in np.ndindex(found.shape):
        tensor, order = np.ones(()), []
        for (axes, rows), row in zip(factors, place, strict=True):
            tensor = np.multiply.outer(tensor, rows[row].reshape([SHAPE[a] for a in axes]))
            order += axes
        query = tensor.transpose(np.argsort(order)).ravel()
        assert found[place] == pytest.approx(np.sum((query @ inverse) ** 2), rel=1e-9)
    assert strategy.contains(factors)


def test_variances_do_not_depend_on_the_size_of_the_chunks(monkeypatch):
    strategy = EVERY["dense"]
    factors = [((0,), INSIDE[0]), ((1, 2), kron(INSIDE[1:]))]
    whole = strategy.variances(factors)
    monkeypatch.setattr(module, "CHUNK", 1)
    np.testing.assert_allclose(strategy.variances(factors), whole, rtol=1e-12)


def test_a_strategy_contains_its_own_span(strategy):
    axes = tuple(range(len(strategy.shape)))
    assert strategy.contains([(axes, measurable(strategy, 5))])
    assert strategy.contains([(axes, 1e-9 * measurable(strategy, 5))])


@pytest.mark.parametrize(
    "name", [f"{kind}, deficient" for kind in ("dense", "diagonal", "fourier", "merged")]
)
def test_a_deficient_strategy_does_not_contain_the_rest(name):
    strategy = EVERY[name]
    outside = kron(INSIDE)[-1:]
    rows = strategy_rows(strategy)
    assert np.linalg.norm(outside - outside @ np.linalg.pinv(rows) @ rows) > 0.1
    assert not strategy.contains([((0, 1, 2), outside)])
    assert not strategy.contains([((0, 1, 2), np.concatenate([measurable(strategy, 2), outside]))])
    slightly = measurable(strategy, 1) + 1e-4 * outside
    assert not strategy.contains([((0, 1, 2), slightly)])
    factors = [((0,), INSIDE[0]), ((1,), INSIDE[1]), ((2,), INSIDE[2])]
    assert not strategy.contains(factors)


@pytest.mark.parametrize("family", [Identity, Prefix])
def test_few_rows_that_tell_all_values_apart_answer_every_family(family):
    rows = np.array([[1.0, 0, 0], [0, 1, -1], [1, 1, 1]])
    queries = family((3,)).matrix()
    expected = np.diag(queries @ np.linalg.inv(rows.T @ rows) @ queries.T)
    strategy = FewStrategy.of(rows[:2], rows, counted=True)
    np.testing.assert_allclose(strategy.whole_variances(family((3,))), expected)
    with pytest.raises(OutsideMeasuredSpaceError, match="only sums"):
        FewStrategy.of(rows[:1], rows[[0, 2]], counted=True).whole_variances(family((3,)))
