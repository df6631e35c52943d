"""Strategies: one contract, against the pseudo-inverse of the rows written out."""

import math

import numpy as np
import pytest

from querysmasher.planning import strategy as module
from querysmasher.planning.strategy import DenseStrategy, DiagonalStrategy
from tests.reference import complement, kron, strategy_rows

SHAPE = (3, 2, 4)
INSIDE = [complement(np.full(n, 1.0 / n)) for n in SHAPE]
"""Bases of what strategies may ask: rows that sum to zero along every axis."""


def dense(rank, seed=0):
    rng = np.random.default_rng(seed)
    return DenseStrategy(SHAPE, rng.standard_normal((rank, 6)) @ kron(INSIDE))


def diagonal(deficient=False, seed=0):
    rng = np.random.default_rng(seed)
    bases = [rng.standard_normal((len(f), len(f))) @ f for f in INSIDE]
    if deficient:
        bases[2] = bases[2][:2]
    return DiagonalStrategy(tuple(bases), rng.uniform(0.2, 3.0, [len(b) for b in bases]))


EVERY = {
    "dense": dense(6),
    "dense, deficient": dense(4),
    "diagonal": diagonal(),
    "diagonal, deficient": diagonal(deficient=True),
}


@pytest.fixture(params=EVERY)
def strategy(request):
    return EVERY[request.param]


def measurable(strategy, count, seed=1):
    """Random queries in the span of the strategy."""
    rows = strategy_rows(strategy)
    return np.random.default_rng(seed).standard_normal((count, len(rows))) @ rows


def test_a_strategy_knows_its_shape_and_rank(strategy):
    assert strategy.shape == SHAPE
    assert strategy.rank == len(strategy_rows(strategy)) == np.linalg.matrix_rank(strategy_rows(strategy))


def test_transform_is_the_pseudo_inverse_up_to_rotation(strategy):
    rows = measurable(strategy, 6)
    inverse = np.linalg.pinv(strategy_rows(strategy))
    image = strategy.transform(rows.reshape(2, 3, *SHAPE))
    assert image.shape == (2, 3, strategy.rank)
    flat = image.reshape(6, -1)
    np.testing.assert_allclose(flat @ flat.T, rows @ inverse @ inverse.T @ rows.T, atol=1e-8)


@pytest.mark.parametrize(
    "grouping",
    [[(0,), (1,), (2,)], [(0, 2), (1,)], [(1,), (0, 2)], [(2,), (0, 1)], [(0, 1, 2)], [(1, 2), (0,)]],
)
@pytest.mark.parametrize("name", ["dense", "diagonal"])
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
    assert strategy.contains([((0, 1, 2), measurable(strategy, 5))])
    assert strategy.contains([((0, 1, 2), 1e-9 * measurable(strategy, 5))])


@pytest.mark.parametrize("name", ["dense, deficient", "diagonal, deficient"])
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


def test_the_inverses_are_pseudo_inverses():
    np.testing.assert_allclose(EVERY["dense"].inverse, np.linalg.pinv(EVERY["dense"].matrix), atol=1e-9)
    deficient = EVERY["dense, deficient"]
    np.testing.assert_allclose(deficient.inverse, np.linalg.pinv(deficient.matrix), atol=1e-9)
    for basis, inverse in zip(EVERY["diagonal"].bases, EVERY["diagonal"].inverses, strict=True):
        np.testing.assert_allclose(inverse, np.linalg.pinv(basis), atol=1e-9)


def test_rank_counts_the_residual_space():
    assert EVERY["dense"].rank == math.prod(n - 1 for n in SHAPE)
    assert EVERY["diagonal, deficient"].rank == 2 * 1 * 2
