"""Triangles: exact products and lengths of columns at hostile sizes, and what a forged one can do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import largest_change

from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Triangle
from querysmasher.privacy.integer_plan import IntegerStrategy

NO_RANKS = np.zeros(0, dtype=np.int64)
NO_FAR = np.zeros((4, 0), dtype=np.int64)
NEAR = np.tri(4, dtype=np.int64)


def built(n, width, levels, ranks, near_bits, left_bits, right_bits, seed):
    rng = np.random.default_rng(seed)
    near = rng.integers(-(2**near_bits) + 1, 2**near_bits, (n, width))
    place = np.arange(n)
    near[place[:, None] % width < np.arange(width)] = 0
    near[place, place % width] = 2**near_bits - 1
    far = np.zeros((n, 0), dtype=np.int64)
    for level in range(levels):
        first = place // (width << level) % 2 == 0
        bits = np.where(first, right_bits, left_bits)[:, None]
        far = np.append(far, rng.integers(-(2**bits) + 1, 2**bits, (n, ranks)), axis=1)
    return Triangle(near, far, np.full(levels, ranks))


def exact_row(factor, i):
    """One row, in Python's integers."""
    near, far, ranks = factor.triangle
    width, row = near.shape[1], []
    for j in range(len(near)):
        level = (i // width ^ j // width).bit_length() - 1
        if j > i:
            row.append(0)
        elif level < 0:
            row.append(int(near[i, j % width]))
        else:
            own = slice(int(ranks[:level].sum()), int(ranks[: level + 1].sum()))
            row.append(sum(y * z for y, z in zip(far[i, own].tolist(), far[j, own].tolist(), strict=True)))
    return row


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_answers_and_columns_are_exact_at_the_limits_of_64_bits(data):
    width, levels = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 5))
    most = width << levels
    n = data.draw(st.integers(most // 2 + 1, most))
    bits = [data.draw(st.integers(1, most)) for most in (26, 10, 20)]
    factor = built(n, width, levels, data.draw(st.integers(0, 3)), *bits, data.draw(st.integers(0, 9)))
    rows = [exact_row(factor, i) for i in range(n)]
    assert factor.largest >= max(abs(entry) for row in rows for entry in row)
    assert factor.squares.tolist() == [sum(row[j] ** 2 for row in rows) for j in range(n)]
    bound = (2**62 - 1) // factor.largest
    table = np.zeros((n, 3), dtype=np.int64)
    table[data.draw(st.integers(0, n - 1)), 0] = bound
    table[:, 1] = bound // n
    table[::2, 2], table[1::2, 2] = bound // n, -(bound // n)
    answers = factor.exact_answers(table, bound)
    for column in range(3):
        x = table[:, column].tolist()
        expected = [sum(b * y for b, y in zip(row, x, strict=True)) for row in rows]
        assert answers[:, column].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_neighbour_moves_the_answers_by_more_than_is_charged(data):
    """Adding one record anywhere changes B·x by a column: the largest squared change is what is charged."""
    width, levels = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    n = data.draw(st.integers((width << levels) // 2 + 1, width << levels))
    factor = built(n, width, levels, data.draw(st.integers(0, 2)), 4, 3, 3, data.draw(st.integers(0, 99)))
    assert squared_sensitivity(IntegerStrategy((n,), (((0,), factor),))) == largest_change(factor, n)


def test_columns_that_might_pass_64_bits_are_refused():
    """Y has many large rows: the square of their length would wrap around."""
    factor = built(64, 2, 5, 2, 4, 30, 30, 0)
    with pytest.raises(PrivacyError, match="too large"):
        factor.squared_column()


@pytest.mark.parametrize(
    ("near", "far", "ranks"),
    [
        (NEAR.astype(float), NO_FAR, NO_RANKS),
        (NEAR[:, :3], NO_FAR, NO_RANKS),
        (NEAR, NO_FAR, np.array([0])),
        (NEAR[:, :1], NO_FAR, np.array([0])),
        (np.ones((4, 4), dtype=np.int64), NO_FAR, NO_RANKS),
        (NEAR * 0, NO_FAR, NO_RANKS),
        (-NEAR, NO_FAR, NO_RANKS),
        (NEAR * 2**31, NO_FAR, NO_RANKS),
        (NEAR, np.ones((4, 1), dtype=np.int64), NO_RANKS),
        (NEAR, NO_FAR.astype(float), NO_RANKS),
        (NEAR, NO_FAR[:3], NO_RANKS),
        (NEAR, NO_FAR, None),
        (NEAR, None, NO_RANKS),
        (NEAR, NO_FAR, NO_RANKS.astype(float)),
        (np.ones((4, 1), dtype=np.int64), np.ones((4, 2), dtype=np.int64), np.array([1, 2])),
        (np.ones((4, 1), dtype=np.int64), np.ones((4, 2), dtype=np.int64), np.array([3, -1])),
        (np.ones((4, 1), dtype=np.int64), np.full((4, 2), 2**31), np.array([1, 1])),
        (np.ones((4, 1), dtype=np.int64), np.ones((4, 130), dtype=np.int64), np.array([65, 65])),
        (np.ones((1, 1), dtype=np.int64), np.ones((1, 0), dtype=np.int64), np.zeros(100, dtype=np.int64)),
    ],
)
def test_forged_triangles_are_refused(near, far, ranks):
    with pytest.raises(PrivacyError):
        Triangle(near, far, ranks)


def test_arrays_are_copied_and_cannot_be_changed():
    near = NEAR.copy()
    factor = Triangle(near, NO_FAR, NO_RANKS)
    before = factor.squared_column()
    near[:] = 9
    assert factor.squared_column() == before
    for kept in (factor.near, factor.far, factor.ranks):
        assert not kept.flags.writeable or not kept.size


@pytest.mark.parametrize("width", [2, 4, 16, 64])
def test_columns_whose_squared_length_would_overflow_are_refused(width):
    """The sum of 2^62 over four or more entries wraps around, to a small sensitivity."""
    factor = Triangle(np.tri(width, dtype=np.int64) * (2**31 - 1), np.zeros((width, 0), np.int64), NO_RANKS)
    with pytest.raises(PrivacyError, match="too large"):
        factor.squared_column()
