"""Merged matrices: their cost over all neighbours, exact answers near 64 bits, and hostile input."""

import tracemalloc
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Merged, factor_from_data
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.privacy.pairs import Products
from tests.contracts import integer_rows
from tests.privacy.factors.drawn_factors import merged

MAPS = (np.array([0, 1, 1, 0]), np.array([1, 0, 2]))
LABELS = np.array([[0, 2, 1], [1, 1, 0]])
MATRIX = np.array([[3, -1, 2], [0, 4, 5]])


@settings(max_examples=50, deadline=None)
@given(factor=merged(), data=st.data())
def test_the_sensitivity_with_noise_multipliers_is_bounded_tightly(factor, data):
    dense = integer_rows(factor)
    multipliers = np.array(data.draw(st.lists(st.integers(1, 9), min_size=len(dense), max_size=len(dense))))
    shape = tuple(map(len, factor.maps))
    strategy = IntegerStrategy(shape, ((tuple(range(len(shape))), factor),), multipliers)
    exact = max(
        sum(Fraction(int(b) ** 2, int(m)) for b, m in zip(column, multipliers, strict=True))
        for column in dense.T
    )
    assert exact <= squared_sensitivity(strategy) <= exact * (1 + Fraction(1, 2**29))


def test_entries_and_answers_near_64_bits_are_exact():
    big = 2**61 - 1
    factor = Merged(MAPS, LABELS, np.array([[big, 0, -big], [1, big, -1]]))
    assert factor.squared_column() == big**2 + 1
    cells = factor.partition.of_cells()
    one, other = np.flatnonzero(cells == 2)[0], np.flatnonzero(cells == 1)[-1]
    table = np.zeros((12, 1), dtype=np.int64)
    table[one], table[other] = 1, -1
    expected = factor.matrix.astype(object)[:, 2] - factor.matrix.astype(object)[:, 1]
    assert factor.exact_answers(table, 2).ravel().tolist() == expected.tolist()
    many = Merged(MAPS, LABELS, MATRIX)
    table = np.full((12, 1), 2**53 + 1, dtype=np.int64)  # no double holds a count, nor their sum
    sums = [int((cells == c).sum()) * (2**53 + 1) for c in range(3)]
    expected = MATRIX.astype(object) @ np.array(sums, dtype=object)
    assert many.exact_answers(table, 12 * (2**53 + 1)).ravel().tolist() == expected.tolist()


def test_a_large_domain_is_measured_without_its_matrix():
    """200 rows over 100,000 × 12 cells would be 1.9 GB of numbers."""
    rng = np.random.default_rng(0)
    maps = (rng.permutation(np.arange(100_000) % 4), np.arange(12))
    labels = rng.permutation(np.arange(48) % 40).reshape(4, 12)
    factor = Merged(maps, labels, rng.integers(-50, 50, (200, 40)))
    table = rng.integers(0, 9, (100_000 * 12, 1))
    tracemalloc.start()
    found = factor.exact_answers(table, int(table.sum()))
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()
    sums = np.bincount(labels[maps[0]].ravel(), table.ravel())
    assert np.array_equal(found.ravel(), factor.matrix @ sums.astype(np.int64))


@pytest.mark.parametrize(
    ("maps", "labels", "matrix"),
    [
        ((), np.zeros((), dtype=np.int64), MATRIX[:, :1]),
        (list(MAPS), LABELS, MATRIX),
        (MAPS[:1], LABELS, MATRIX),
        ((*MAPS, MAPS[0]), LABELS, MATRIX),
        ((MAPS[0], MAPS[1] * 2), LABELS, MATRIX),  # a class without values
        ((MAPS[0], MAPS[1] - 1), LABELS, MATRIX),
        ((MAPS[0] * 2**40, MAPS[1]), LABELS, MATRIX),
        ((MAPS[0].astype(np.int32), MAPS[1]), LABELS, MATRIX),
        ((MAPS[0].astype(float), MAPS[1]), LABELS, MATRIX),
        ((MAPS[0].reshape(2, 2), MAPS[1]), LABELS, MATRIX),
        ((MAPS[0].tolist(), MAPS[1]), LABELS, MATRIX),
        ((np.zeros(0, dtype=np.int64), MAPS[1]), LABELS, MATRIX),
        (MAPS, LABELS.T, MATRIX),
        (MAPS, LABELS.ravel(), MATRIX),
        (MAPS, LABELS - 1, MATRIX),  # would mean the last column
        (MAPS, LABELS + 1, MATRIX),
        (MAPS, np.where(LABELS == 2, 3, LABELS), np.pad(MATRIX, ((0, 0), (0, 1)))),  # a column of no cell
        (MAPS, np.where(LABELS == 2, 2**61, LABELS), MATRIX),
        (MAPS, np.where(LABELS == 2, -(2**63), LABELS), MATRIX),
        (MAPS, LABELS.astype(np.uint64), MATRIX),
        (MAPS, LABELS, MATRIX[:, :2]),
        (MAPS, LABELS, np.pad(MATRIX, ((0, 0), (0, 1)))),
        (MAPS, LABELS, MATRIX[0]),
        (MAPS, LABELS, MATRIX.astype(float)),
        (MAPS, LABELS, np.full_like(MATRIX, 2**62)),
        (MAPS, LABELS, np.full_like(MATRIX, -(2**63))),
        (MAPS, LABELS, np.ma.array(MATRIX)),
        (MAPS, np.ma.array(LABELS), MATRIX),
        (None, LABELS, MATRIX),
    ],
)
def test_what_is_no_merged_matrix_is_refused(maps, labels, matrix, refuses):
    with refuses(PrivacyError, ValueError):
        Merged(maps, labels, matrix)


def test_a_file_must_list_the_maps(refuses):
    data = Merged(MAPS, LABELS, MATRIX).to_data()
    assert type(factor_from_data("merged", data)) is Merged
    for maps in (MAPS[0], "maps", None, 3, {0: MAPS[0], 1: MAPS[1]}, MAPS, [*MAPS, None], []):
        with refuses(PrivacyError, ValueError):
            factor_from_data("merged", {**data, "maps": maps})


def test_its_axes_are_as_long_as_its_maps(refuses):
    factor = Merged(MAPS, LABELS, MATRIX)
    assert factor.fits((4, 3))
    assert not factor.fits((3, 4))
    assert not factor.fits((12,))
    assert not factor.fits((2, 2, 3))
    with refuses(PrivacyError, ValueError, "not a known kind of integer matrix"):
        IntegerStrategy((12,), (((0,), factor),))
    with refuses(PrivacyError, ValueError, "not a known kind of integer matrix"):
        IntegerStrategy((4, 3), (((1, 0), factor),))


@given(st.integers(0, 2**32), st.integers(-3, 4))
def test_what_lies_between_corners_is_never_farther(seed, bent):
    """Rows that are straight along axes, perhaps with one entry that is not: against all pairs of columns."""
    rng = np.random.default_rng(seed)
    grids = [
        np.append(np.arange(n) * 3 - n, 5 * k) for n, k in zip((6, 7), rng.integers(0, 2, 2), strict=True)
    ]
    rows = [a * grids[0][:, None] + b * grids[1] + c for a, b, c in rng.integers(-4, 5, (3, 3))]
    matrix = np.array(rows).reshape(3, -1)
    matrix[0, rng.integers(matrix.shape[1])] += bent
    factor = Merged((np.arange(7), np.arange(8)), np.arange(56).reshape(7, 8), matrix)
    every = Products.of(matrix.astype(float), float(max(1, np.square(matrix).sum(axis=0).max())))
    with mock.patch("querysmasher.privacy.factors.matrix.MOST_CELLS", 10):
        found = factor.column_products()
    assert found.gram is None
    assert (found.least, found.farthest) == pytest.approx((every.least, every.farthest), abs=1e-12)


def test_steps_that_wrap_around_64_bits_are_not_equal():
    """In 64 bits, the second difference is -2⁶³, whose absolute value is negative."""
    far = 2**62 - 1
    row = np.array([[far, -far, 2 - far, 0]])
    partition = Merged((np.arange(4),), np.arange(4), row).partition
    (kept,) = partition.corners(row)
    assert kept.tolist() == [0, 1, 2, 3]
