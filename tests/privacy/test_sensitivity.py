"""The sensitivity of a strategy: exact for one factor, a tight upper bound for several."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy
from tests.profiles import fewer
from tests.strategies import integer_arrays


def brute_sensitivity(strategy):
    """max over cells of Σ over rows of (entry)² / multiplier, entry by entry."""
    matrices = [factor.entries for _, factor in strategy.factors]
    sizes = [m.shape[1] for m in matrices]
    best = Fraction(0)
    for cell in itertools.product(*map(range, sizes)):
        total = Fraction(0)
        for row in itertools.product(*map(range, strategy.rows)):
            entry = math.prod(int(m[k, j]) for m, k, j in zip(matrices, row, cell, strict=True))
            share = 1 if strategy.multipliers is None else int(strategy.multipliers[row])
            total += Fraction(entry**2, share)
        best = max(best, total)
    return best


@st.composite
def strategies(draw, factors, bits):
    shape = tuple(draw(st.integers(1, 4)) for _ in range(factors))
    largest = 2 ** draw(st.integers(1, bits)) - 1
    rows = [draw(st.integers(1, 4)) for _ in range(factors)]
    matrices = [
        ((i,), Matrix(draw(integer_arrays((r, n), -largest, largest))))
        for i, (r, n) in enumerate(zip(rows, shape, strict=True))
    ]
    multipliers = None
    if draw(st.booleans()):
        multipliers = draw(integer_arrays(rows, 1, 2 ** draw(st.integers(1, 50)) - 1))
    return IntegerStrategy(shape, tuple(matrices), multipliers)


@fewer(50)
@given(strategies(1, 61))
def test_the_sensitivity_of_one_factor_is_exact(strategy):
    if strategy.multipliers is not None:
        strategy = dataclasses.replace(strategy, multipliers=None)
    assert squared_sensitivity(strategy) == brute_sensitivity(strategy)


@given(st.one_of(strategies(1, 26), strategies(2, 26), strategies(3, 20)))
def test_the_sensitivity_of_several_factors_is_a_tight_upper_bound(strategy):
    exact = brute_sensitivity(strategy)
    found = squared_sensitivity(strategy)
    assert exact <= found <= exact * (1 + Fraction(1, 10**6))


def test_many_rows_with_many_small_shares_still_bound_from_above():
    """Where rounding errors pile up: sums of thousands of fractions like 1/3."""
    rows = np.full((5000, 1), 2**25 + 1, dtype=np.int64)
    multipliers = np.full((5000, 3), 3**20, dtype=np.int64)
    factors = (((0,), Matrix(rows)), ((1,), Matrix(np.array([[3], [5], [7]]))))
    strategy = IntegerStrategy((1, 1), factors, multipliers)
    exact = Fraction(5000 * (2**25 + 1) ** 2 * (9 + 25 + 49), 3**20)
    assert exact <= squared_sensitivity(strategy) <= exact * (1 + Fraction(1, 10**8))


def test_factors_too_large_for_the_bound_are_refused(refuses):
    big = np.array([[2**26, 0]])
    for matrix in (big, -big):
        factors = (((0,), Matrix(matrix)), ((1,), Matrix(np.array([[1, -1]]))))
        strategy = IntegerStrategy((2, 2), factors, np.array([[1]]))
        with refuses(PrivacyError, ValueError, "too large"):
            squared_sensitivity(strategy)


@pytest.mark.parametrize("entry", [-(2**63), 2**63 - 1, 2**62, -(2**62)])
def test_entries_at_the_end_of_a_word_cannot_hide(entry, refuses):
    """|-2^63| is -2^63 in a word, and its square is 0: such a row would seem to cost nothing."""
    with refuses(PrivacyError, ValueError, "integer"):
        Matrix(np.array([[entry, 1]], dtype=np.int64))


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, -1.0]]),
        np.array([[1, -1]], dtype=np.int32),
        np.array([[1, 1]], dtype=np.uint64),
        np.array([[1, -1]], dtype=object),
        np.array([[1, -1]], dtype=">i8"),
        np.array([1, -1]),
        np.zeros((0, 2), dtype=np.int64),
        np.array([[1, -1, 0]]),
        np.ma.array([[1, -1]], mask=[[True, False]]),  # its sums leave entries out
        np.array([[1, -1]]).view(type("Odd", (np.ndarray,), {})),  # whose squares and sums could be anything
    ],
    ids=lambda m: f"{type(m).__name__} {m.dtype} {m.shape}",
)
def test_what_is_no_matrix_of_whole_numbers_is_refused(matrix, refuses):
    with refuses(PrivacyError, ValueError, "integer"):
        IntegerStrategy((2,), (((0,), Matrix(matrix)),))


@pytest.mark.parametrize(
    "multipliers",
    [
        np.array([0, 1]),
        np.array([-1, 1]),
        np.array([1]),
        np.array([1.0, 1.0]),
        np.array([[1, 1]]),
        np.ma.array([1, 1], mask=[True, False]),
    ],
    ids=repr,
)
def test_multipliers_are_positive_whole_numbers(multipliers, refuses):
    with refuses(PrivacyError, ValueError, "multipliers"):
        IntegerStrategy((2,), (((0,), Matrix(np.array([[1, -1], [2, -2]]))),), multipliers)
