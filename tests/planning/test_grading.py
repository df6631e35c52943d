"""Roots of rows of very different length keep every scale."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.planning.grading import (
    FAR,
    are_far_apart,
    graded_decomposition,
    graded_root,
    is_graded,
    lengths,
)
from querysmasher.planning.solvers.design import Design
from tests import reference

# --- roots of rows ---------------------------------------------------------------------------------

HADAMARD = np.array([[1.0]])
for _ in range(3):
    HADAMARD = np.block([[HADAMARD, HADAMARD], [HADAMARD, -HADAMARD]])


def test_roots_of_few_long_rows_take_little_memory():
    rows = np.random.default_rng(0).integers(0, 2, (3, 20_000)) * np.array([[1.0], [1e6], [1e-6]])
    tracemalloc.start()
    root = graded_root(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6  # 20,000² numbers would take 3.2 GB
    some = slice(50)
    expected = rows[:, some].T @ rows[:, some]
    np.testing.assert_allclose(root[:, some].T @ root[:, some], expected, rtol=1e-9, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-12, 12), min_size=1, max_size=8), st.lists(st.integers(0, 7), max_size=6))
def test_roots_keep_every_scale(exponents, repeated):
    """Orthogonal rows of given lengths have these as singular values; dependent rows add no rank."""
    sizes = 10.0 ** np.array(exponents)
    rows = sizes[:, None] * HADAMARD[: len(sizes)] / math.sqrt(8)
    more = [1e-3 * rows[i % len(rows)] for i in repeated]
    root = graded_root(np.vstack([rows, *more])[::-1])
    assert root.shape == rows.shape
    times = 1 + 1e-6 * np.bincount([i % len(rows) for i in repeated], minlength=len(rows))
    expected = np.sort(sizes * np.sqrt(times))
    np.testing.assert_allclose(np.sort(lengths(root)), expected, rtol=1e-12)
    roots, image = graded_decomposition(root, np.full(8, 0.25))
    np.testing.assert_allclose(roots, expected / 2, rtol=1e-12)
    # the rows of the image span the rows, each in its own scale
    image, unit = image / lengths(image)[:, None], rows / sizes[:, None]
    coefficients = np.linalg.lstsq(image.T, unit.T, rcond=None)[0].T
    np.testing.assert_allclose(coefficients @ image, unit, atol=1e-12)


def test_designs_of_a_graded_root_are_those_of_the_scaled_problem():
    """Where the plain eigendecomposition is exact too, both agree."""
    generator = np.random.default_rng(0)
    root = generator.normal(size=(4, 7)) * np.array([1, 1, 1, 1e-7])[:, None]
    p = generator.uniform(0.1, 1, 7)
    assert is_graded(root)
    graded = Design.at(root, p)
    assert not is_graded(root[:3])
    plain = Design.at(root[:3], p)
    np.testing.assert_allclose(graded.roots[1:], plain.roots, rtol=1e-6)
    np.testing.assert_allclose(graded.leverages, plain.leverages, rtol=1e-4)
    filled, reached = graded.filled_strategy()
    assert (filled**2).sum(axis=0).max() == pytest.approx(1.0)
    assert reached <= graded.upper * (1 + 1e-12)
    assert reached**2 == pytest.approx(reference.loss(root.T @ root, filled), rel=1e-9)


def test_ordinary_rows_are_not_far_apart():
    assert not are_far_apart(np.array([[1.0, 0], [0, FAR / 2], [0, 0]]))
    assert are_far_apart(np.array([[1.0, 0], [0, FAR * 2]]))
    np.testing.assert_allclose(lengths(np.array([[3e-200, 4e-200], [0, 0]])), [5e-200, 0])
