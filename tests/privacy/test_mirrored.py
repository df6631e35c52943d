"""Mirrored filters: exact products and norms at hostile sizes, and what a forged one can do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import largest_change

from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Mirrored, Reflection
from querysmasher.privacy.factors.filter import exact_product
from querysmasher.privacy.factors.reflection import NAMES
from querysmasher.privacy.integer_plan import IntegerStrategy

NONE = np.zeros((0, 4), dtype=np.int64)


def unshifted(ends, kernel, diagonal, extra):
    """A mirrored filter whose rows are not shifted."""
    return Mirrored(ends, kernel, diagonal, extra, np.zeros(len(diagonal) + len(extra), dtype=np.int64))


def exact_row(reflection, kernel, table, place):
    """One entry of the product, in Python's integers."""
    lags = [int(t) for t in reflection.lags(kernel)]
    total = 0
    for j, x in enumerate(table.tolist()):
        entry = lags[abs(place - j)]
        if reflection.sign:
            entry += reflection.sign * lags[place + j + reflection.shift]
        total += entry * x
    return total


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(1, 3_000),
    st.integers(1, 29),
    st.integers(1, 30),
    st.sampled_from(["even", "first", "last", "alternating"]),
)
def test_products_are_exact_at_the_limits_of_64_bits(name, n, kernel_bits, table_bits, pattern):
    reflection = Reflection(name, n)
    rng = np.random.default_rng(kernel_bits)
    kernel = rng.integers(-(2**kernel_bits) + 1, 2**kernel_bits, reflection.free)
    kernel[0] = 2**kernel_bits - 1
    bound = min(2**table_bits * n, 2 ** (61 - kernel_bits))
    table = np.zeros((1, n), dtype=np.int64)
    if pattern == "even":
        table[:] = bound // n
    elif pattern == "alternating":
        table[0, ::2], table[0, 1::2] = bound // n, -(bound // n)
    else:
        table[0, 0 if pattern == "first" else -1] = bound
    found = exact_product(reflection, kernel, table, bound)[0]
    for place in {0, n - 1, n // 2, n // 3}:
        assert int(found[place]) == exact_row(reflection, kernel, table[0], place)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prefix", "range"])
def test_products_are_exact_at_a_hundred_thousand_values(name):
    n = 100_000
    reflection = Reflection(name, n)
    kernel = np.rint(2.0**20 / np.sqrt(1 + np.arange(reflection.free))).astype(np.int64)
    shift = np.random.default_rng(0).integers(-(2**31), 2**31, n)
    factor = Mirrored(name, kernel, np.full(n, 4_095), np.zeros((0, n), dtype=np.int64), shift)
    table = np.zeros((n, 1), dtype=np.int64)
    table[::3, 0] = 2_997
    answers = factor.exact_answers(table, 10**8)
    scaled = (table[:, 0] * 4_095).astype(object)
    lags, place = reflection.lags(kernel), np.arange(n)
    for i in (0, 1, n // 2, n - 1):
        row = lags[np.abs(i - place)] + reflection.sign * lags[i + place + reflection.shift]
        exact = int(sum(row.astype(object) * scaled)) - int(shift[i]) * int(table.sum())
        assert int(answers[i, 0]) == exact
        assert int(factor.squares[i]) == sum(int(t) ** 2 for t in row.tolist())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 6), st.data())
def test_no_neighbour_moves_the_answers_by_more_than_is_charged(name, n, data):
    """Adding one record anywhere changes B·x by a column: the largest squared change is what is charged."""
    reflection = Reflection(name, n)
    numbers = st.integers(-9, 9)
    kernel = np.array(data.draw(st.lists(numbers, min_size=reflection.free, max_size=reflection.free)))
    diagonal = np.array(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)))
    rows = data.draw(st.integers(0, 2))
    extra = np.array(data.draw(st.lists(numbers, min_size=rows * n, max_size=rows * n)), dtype=np.int64)
    shift = np.array(data.draw(st.lists(st.integers(-99, 99), min_size=n + rows, max_size=n + rows)))
    factor = Mirrored(name, kernel, diagonal, extra.reshape(rows, n), shift)
    assert squared_sensitivity(IntegerStrategy((n,), (((0,), factor),))) == largest_change(factor, n)


@pytest.mark.parametrize(
    ("ends", "kernel", "diagonal", "extra"),
    [
        ("surprise", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), NONE),
        ("prefix", np.ones(4, dtype=np.int64), np.ones(4, dtype=np.int64), NONE),
        ("prefix", np.ones(5), np.ones(4, dtype=np.int64), NONE),
        ("prefix", np.ones(5, dtype=np.int64), np.zeros(4, dtype=np.int64), NONE),
        ("prefix", np.full(5, 2**30), np.ones(4, dtype=np.int64), NONE),
        ("prefix", np.ones(5, dtype=np.int64), np.full(4, 2**30), NONE),
        ("prefix", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), np.ones((1, 3), dtype=np.int64)),
        ("prefix", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), np.full((1, 4), 2**30)),
        ("prefix", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), np.ones((65, 4), dtype=np.int64)),
        ("prefix", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), [[1, 1, 1, 1]]),
        ("prefix", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), None),
    ],
)
def test_forged_filters_are_refused(ends, kernel, diagonal, extra):
    for rows in (4, 5, 69):
        with pytest.raises(PrivacyError):
            Mirrored(ends, kernel, diagonal, extra, np.zeros(rows, dtype=np.int64))


@pytest.mark.parametrize(
    "shift",
    [
        np.zeros(3, dtype=np.int64),
        np.zeros(5, dtype=np.int64),
        np.zeros((1, 4), dtype=np.int64),
        np.zeros(4),
        [0, 0, 0, 0],
        None,
        np.full(4, 2**60),
        np.full(4, -(2**63)),
    ],
)
def test_forged_shifts_are_refused(shift):
    with pytest.raises(PrivacyError):
        Mirrored("prefix", np.ones(5, dtype=np.int64), np.ones(4, dtype=np.int64), NONE, shift)


def test_shifts_too_large_for_an_exact_cost_are_refused():
    shift = np.full(4, 2**58)
    factor = Mirrored("prefix", np.full(5, 2**29), np.ones(4, dtype=np.int64), NONE, shift)
    with pytest.raises(PrivacyError, match="shift"):
        factor.squared_column()


def test_arrays_are_copied_and_cannot_be_changed():
    kernel, diagonal = np.arange(1, 6), np.ones(4, dtype=np.int64)
    factor = unshifted("prefix", kernel, diagonal, NONE)
    before = factor.squared_column()
    kernel[:] = 9
    assert factor.squared_column() == before
    with pytest.raises(ValueError, match="read-only"):
        factor.diagonal[0] = 5
