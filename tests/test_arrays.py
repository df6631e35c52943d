"""Triangular systems, against scipy."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher import arrays
from querysmasher.arrays import solve_cholesky, solve_upper, triangle_of

ENTRIES = st.integers(-16, 16).map(lambda k: k / 4)
SIZES = st.integers(1, 9)


@st.composite
def systems(draw):
    """A triangle with a diagonal over many magnitudes, and a vector or a matrix to its right."""
    n = draw(SIZES)
    triangle = np.triu(np.array(draw(st.lists(ENTRIES, min_size=n * n, max_size=n * n))).reshape(n, n), 1)
    diagonal = draw(st.lists(st.sampled_from([1e-6, 0.5, 1.0, -2.0, 1e4]), min_size=n, max_size=n))
    columns = draw(st.sampled_from([(), (1,), (3,)]))
    count = n * int(np.prod(columns))
    right = np.array(draw(st.lists(ENTRIES, min_size=count, max_size=count))).reshape(n, *columns)
    return triangle + np.diag(diagonal), right


@settings(max_examples=100)
@given(systems(), st.sampled_from([1, 2, 64]))
def test_upper_triangles(system, small):
    triangle, right = system
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "SMALL_TRIANGLE", small)
        found = solve_upper(triangle, right)
    known = scipy.linalg.solve_triangular(triangle, right)
    assert found.shape == right.shape
    size = np.abs(known).max(axis=0)
    # substitution is stable backwards: residuals are small beside |triangle| · |solution|
    bound = 1e-14 * len(triangle) * (np.abs(triangle) @ np.abs(found)) + 1e-300
    assert np.all(np.abs(triangle @ found - right) <= bound)
    if np.linalg.cond(triangle) < 1e6:
        assert np.all(np.abs(found - known) <= 1e-9 * size)


@settings(max_examples=100)
@given(systems(), st.sampled_from([1, 2, 64]))
def test_cholesky_factors(system, small):
    triangle, right = system
    matrix = triangle.T @ triangle + np.eye(len(triangle))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "SMALL_TRIANGLE", small)
        found = solve_cholesky(np.linalg.cholesky(matrix), right)
    known = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), right)
    assert np.all(
        np.abs(found - known) <= 1e-14 * np.linalg.cond(matrix) * np.linalg.norm(known, axis=0) * 10
    )


@settings(max_examples=100)
@given(st.data(), SIZES, st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_the_triangle_of_pieces_is_that_of_the_whole(data, columns, heights):
    pieces = [
        np.array(data.draw(st.lists(ENTRIES, min_size=n * columns, max_size=n * columns))).reshape(n, columns)
        for n in heights
    ]
    triangle, whole = triangle_of(iter(pieces), columns), np.concatenate(pieces)
    assert triangle.shape == (min(whole.shape), columns)
    assert not np.tril(triangle, -1).any()
    np.testing.assert_allclose(triangle.T @ triangle, whole.T @ whole, atol=1e-12 * (1 + (whole**2).sum()))


def test_large_systems():
    rng = np.random.default_rng(0)
    triangle = np.triu(rng.normal(size=(300, 300))) + 30 * np.eye(300)
    right = rng.normal(size=(300, 7))
    np.testing.assert_allclose(
        solve_upper(triangle, right), scipy.linalg.solve_triangular(triangle, right), rtol=1e-9, atol=1e-12
    )


def test_a_singular_triangle_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        solve_upper(np.triu(np.ones((3, 3)), 1), np.ones(3))


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 30), power=st.floats(0, 5), seed=st.integers(0, 2**16))
def test_roots_of_tame_matrices(size, power, seed):
    """Every clearly well-conditioned matrix has a root, and no ill-conditioned one."""
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    gram = (turn * np.logspace(0, 2 * power, size)) @ turn.T
    root = arrays.tame_root((gram + gram.T) / 2)
    condition = 10**power if size > 1 else 1.0
    if root is None:
        assert condition > arrays.TAME / 4
    else:
        assert condition <= arrays.TAME
        np.testing.assert_allclose(root.T @ root, gram, atol=1e-9 * gram.max())
        assert np.array_equal(root, np.triu(root))


def test_no_root_of_a_singular_matrix():
    assert arrays.tame_root(np.ones((3, 3))) is None
    assert arrays.tame_root(np.array([[1.0, 2.0], [2.0, 1.0]])) is None


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=SIZES, columns=SIZES, zero=st.booleans())
def test_pivots(data, rows, columns, zero):
    """Against scipy: the rests have the same lengths, and come in an order that gives them."""
    entries = st.just(0.0) if zero else ENTRIES
    matrix = np.array(data.draw(st.lists(entries, min_size=rows * columns, max_size=rows * columns)))
    matrix = matrix.reshape(rows, columns)
    sizes, order = arrays.pivoted(matrix)
    triangle = scipy.linalg.qr(matrix[:, order], mode="r")[0]
    np.testing.assert_allclose(sizes, np.abs(np.diagonal(triangle)), atol=1e-12)
    assert sorted(order) == list(range(columns))
    assert np.all(np.diff(sizes) <= 1e-12)
    if len(sizes):
        np.testing.assert_allclose(sizes[0], np.linalg.norm(matrix, axis=0).max())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "SMALL_PIVOTS", 0)
        np.testing.assert_allclose(np.prod(arrays.pivoted(matrix)[0]), np.prod(sizes), atol=1e-9)
