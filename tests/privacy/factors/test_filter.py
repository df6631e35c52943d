"""Filters, mirrored or not: exact answers at hostile sizes, and what a forged one can do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors import Filter, Mirrored, Reflection
from querysmasher.privacy.factors.factor import exact_sum, sum_of_squares
from querysmasher.privacy.factors.filter import exact_product
from querysmasher.privacy.factors.reflection import NAMES
from querysmasher.privacy.integer_plan import IntegerStrategy
from tests.contracts import filter_integers
from tests.profiles import fewer
from tests.strategies import integer_arrays


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    bits = draw(st.integers(1, 16))
    kernel = draw(integer_arrays(shape, -(2**bits), 2**bits))
    records = 2 ** draw(st.integers(0, 40))
    columns = draw(st.integers(1, 3))
    table = draw(integer_arrays((kernel.size, columns), 0, records // kernel.size))
    table[draw(st.integers(0, kernel.size - 1))] += records - table.sum(axis=0)  # up to the cap
    return kernel, table, records


@fewer(120)
@given(case=cases())
def test_answers_are_exact(case):
    kernel, table, records = case
    answers = Filter(kernel).exact_answers(table, records)
    assert answers.dtype == np.int64
    assert np.array_equal(answers, (filter_integers(Filter(kernel)) @ table.astype(object)).astype(np.int64))


def test_answers_are_exact_for_a_large_table_at_the_cap():
    rng = np.random.default_rng(0)
    kernel = rng.integers(-(2**13), 2**13, (40, 30))
    table = np.zeros((1200, 1), dtype=np.int64)
    table[[5, 700]] = [[2**34], [2**35 - 3]]
    answers = Filter(kernel).exact_answers(table, 2**36)
    expected = sum(np.roll(kernel, divmod(c, 30), (0, 1)) * int(table[c, 0]) for c in (5, 700))
    assert np.array_equal(answers.ravel(), expected.ravel())


@pytest.mark.parametrize("kernel", [np.ones(3), np.zeros(0, dtype=np.int64), [1, 2]])
def test_kernels_must_be_whole_numbers(kernel):
    with pytest.raises(PrivacyError, match="64-bit integers"):
        Filter(kernel)


def test_a_filter_stands_alone_and_fits():
    kernel = np.ones(4, dtype=np.int64)
    with pytest.raises(PrivacyError, match="the cells of its axes"):
        IntegerStrategy((5,), (((0,), Filter(kernel)),))
    with pytest.raises(PrivacyError, match="the only factor"):
        IntegerStrategy((4,), (((0,), Filter(kernel)),), np.ones(4, dtype=np.int64))
    with pytest.raises(PrivacyError, match="the only factor"):
        IntegerStrategy((2, 2), (((1, 0), Filter(kernel.reshape(2, 2))),))
    with pytest.raises(PrivacyError, match="too large"):
        Filter(kernel * 2**62)


def test_answers_are_exact_for_two_million_cells():
    table = np.zeros((2**21, 1), dtype=np.int64)
    table[[0, 77, -1], 0] = 2**38, 3, 2**39 + 1
    answers = Filter(np.ones(2**21, dtype=np.int64)).exact_answers(table, 2**40)
    assert set(answers.ravel().tolist()) == {2**38 + 3 + 2**39 + 1}


# --- mirrored filters --------------------------------------------------------------------------

NONE = np.zeros((0, 4), dtype=np.int64)


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
    digits = exact_product(reflection, kernel, table, bound, int(np.abs(table).max()))[0]
    np.testing.assert_array_equal(digits, found)


@given(st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1), st.integers(1, 50))
def test_sums_of_integers_and_of_their_squares_are_exact(entries, times):
    array = np.array(entries * times)
    assert exact_sum(array) == times * sum(entries)
    assert sum_of_squares(array) == times * sum(entry**2 for entry in entries)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 13, 33, 96, 136, 503])  # whose periods may have large prime factors
def test_eigenvalues_determine_the_lags_and_are_those_of_the_matrix(name, n):
    reflection = Reflection(name, n)
    spectrum = np.random.default_rng(n).uniform(1, 2, reflection.frequencies)
    kernel = reflection.kernel(spectrum)
    np.testing.assert_allclose(reflection.eigenvalues(kernel), spectrum, rtol=1e-12)
    for k in {0, reflection.frequencies // 2, reflection.frequencies - 1}:
        for wave in reflection.waves(k):
            np.testing.assert_allclose(reflection.apply(kernel, wave), spectrum[k] * wave, atol=1e-12)


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
