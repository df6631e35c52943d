"""Roots of rows of very different length keep every scale."""

import math
import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.planning.grading import (
    graded_decomposition,
    graded_root,
    lengths,
)

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
