"""Filters: exact answers against plain sums, and their sensitivity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import fewer
from tests.strategies import integer_arrays

import querysmasher as qs
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Filter
from querysmasher.privacy.integer_plan import IntegerStrategy


def written_out(kernel):
    """The filter as a matrix: column c is the kernel shifted by c."""
    axes = tuple(range(kernel.ndim))
    columns = [np.roll(kernel, cell, axes).ravel() for cell in np.ndindex(kernel.shape)]
    return np.array(columns, dtype=object).T


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
    assert np.array_equal(answers, (written_out(kernel) @ table.astype(object)).astype(np.int64))


def test_answers_are_exact_for_a_large_table_at_the_cap():
    rng = np.random.default_rng(0)
    kernel = rng.integers(-(2**13), 2**13, (40, 30))
    table = np.zeros((1200, 1), dtype=np.int64)
    table[[5, 700]] = [[2**34], [2**35 - 3]]
    answers = Filter(kernel).exact_answers(table, 2**36)
    expected = sum(np.roll(kernel, divmod(c, 30), (0, 1)) * int(table[c, 0]) for c in (5, 700))
    assert np.array_equal(answers.ravel(), expected.ravel())


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_sensitivity_is_the_length_of_every_column(case):
    kernel, _, _ = case
    strategy = IntegerStrategy(kernel.shape, ((tuple(range(kernel.ndim)), Filter(kernel)),))
    columns = (written_out(kernel) ** 2).sum(axis=0)
    assert set(columns) == {int(squared_sensitivity(strategy))}


@pytest.mark.parametrize("kernel", [np.ones(3), np.zeros(0, dtype=np.int64), [1, 2]])
def test_kernels_must_be_whole_numbers(kernel):
    with pytest.raises(qs.PrivacyError, match="64-bit integers"):
        Filter(kernel)


def test_a_filter_stands_alone_and_fits():
    kernel = np.ones(4, dtype=np.int64)
    with pytest.raises(qs.PrivacyError, match="the cells of its axes"):
        IntegerStrategy((5,), (((0,), Filter(kernel)),))
    with pytest.raises(qs.PrivacyError, match="the only factor"):
        IntegerStrategy((4,), (((0,), Filter(kernel)),), np.ones(4, dtype=np.int64))
    with pytest.raises(qs.PrivacyError, match="the only factor"):
        IntegerStrategy((2, 2), (((1, 0), Filter(kernel.reshape(2, 2))),))
    with pytest.raises(qs.PrivacyError, match="too large"):
        Filter(kernel * 2**62)


def test_answers_are_exact_for_two_million_cells():
    table = np.zeros((2**21, 1), dtype=np.int64)
    table[[0, 77, -1], 0] = 2**38, 3, 2**39 + 1
    answers = Filter(np.ones(2**21, dtype=np.int64)).exact_answers(table, 2**40)
    assert set(answers.ravel().tolist()) == {2**38 + 3 + 2**39 + 1}
