"""Factors, strategies and plans that are invalid are refused, one by one."""

import math
from fractions import Fraction

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Filter, Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from tests.privacy.hostile import OddBudget, OddFilter, OddFraction, OddInt, OddMatrix

KERNEL = Filter(np.array([10**6, -(10**6), 0]))
ROW = Matrix(np.array([[1, -1, 0]]))
ONE = Matrix(np.array([[1]]))


@pytest.mark.parametrize(
    "own",
    [
        (((), ONE), ((0,), KERNEL)),
        (((0,), KERNEL), ((), ONE)),
        (((), ONE), ((0,), ROW)),
        (((), KERNEL), ((0,), ROW)),
        (((0,), ROW), ((), ONE), ((), ONE)),
    ],
    ids=["before a filter", "after a filter", "before a matrix", "a filter on none", "two of them"],
)
def test_a_factor_without_axes_stands_beside_no_other(own, refuses):
    """It hid the filter from the accountant: a cost of 1 was accounted, and the true one was 2·10¹²."""
    with refuses(PrivacyError, ValueError, "without axes"):
        IntegerStrategy((3,), own)


def test_the_number_of_records_is_one_factor(refuses):
    total = IntegerStrategy((), (((), Matrix(np.array([[1024]]))),))
    assert squared_sensitivity(total) == 1024**2
    for own in ((), (((), ONE), ((), ONE))):
        with refuses(PrivacyError, ValueError, "one factor"):
            IntegerStrategy((), own)
    with refuses(PrivacyError, ValueError, "without multipliers"):
        IntegerStrategy((), (((), ONE),), np.array([2]))
    with refuses(PrivacyError, ValueError, "the cells of its axes"):
        IntegerStrategy((), (((), Filter(np.array(5))),))


@pytest.mark.parametrize(
    ("shape", "own", "words"),
    [
        ((0,), (((0,), ONE),), "positive"),
        ((-3, -1), (((0, 1), ROW),), "positive"),
        ((2**62,), (((0,), ROW),), "positive"),
        ([3], (((0,), ROW),), "tuple of integers"),
        ((3.0,), (((0,), ROW),), "tuple of integers"),
        ((np.int64(3),), (((0,), ROW),), "tuple of integers"),
        ((True,), (((0,), ONE),), "tuple of integers"),
        ((OddInt(9),), (((0,), ROW),), "tuple of integers"),
        ((1,) * 33, (((0,), ONE),), "at most 32"),
        ((3,), [((0,), ROW)], "pairs"),
        ((3,), (((0,), ROW, 1),), "pairs"),
        ((3,), (((0,),),), "pairs"),
        ((3,), (([0], ROW),), "tuple of integers"),
        ((3,), (((False,), ROW),), "tuple of integers"),
        ((3,), (((OddInt(4),), ROW),), "tuple of integers"),
        ((3, 3), (((0,), ROW), ((0,), ROW)), "once"),
        ((3, 3), (((0, 0), Matrix(np.ones((1, 9), dtype=np.int64))),), "once"),
        ((3, 3), (((0,), ROW), ((-1,), ROW)), "once"),
        ((3, 3), (((0,), KERNEL), ((1,), KERNEL)), "the only factor"),
        ((3,), (((0,), OddFilter(KERNEL.kernel)),), "integer matrix"),
        ((3,), (((0,), OddMatrix(ROW.entries)),), "integer matrix"),
        ((3,), (((0,), ROW.entries),), "integer matrix"),
        ((3,), (((0,), None),), "integer matrix"),
    ],
)
def test_odd_strategies_are_refused(shape, own, words, refuses):
    with refuses(PrivacyError, ValueError, words):
        IntegerStrategy(shape, own)


TOTAL = IntegerStrategy((), (((), ONE),))
THREE = IntegerStrategy((3,), (((0,), ROW),))


def plan_of(one=((0,), (((0,), 1),), Fraction(1)), **changes):
    given = {
        "schema": qs.Schema.of(a=3),
        "budget": qs.PrivacyCost(1.0),
        "strategies": (TOTAL, THREE),
        "measured": (IntegerMeasured(*one),),
        "max_records": 10,
    }
    return IntegerPlan(**(given | changes))


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (((0,), (((0,), 1), ((), 0)), Fraction(1)), "without attributes"),
        (((), (((), 0), ((), 0)), Fraction(1)), "without attributes"),
        (((0,), (((0,), 1),), 1), "Fraction"),
        (((0,), (((0,), 1),), 0.5), "Fraction"),
        (((0,), (((0,), 1),), math.inf), "Fraction"),
        (((0,), (((0,), 1),), OddFraction(1)), "Fraction"),
        (((0,), (((0,), True),), Fraction(1)), "integer"),
        (((0,), (((0,), 1.0),), Fraction(1)), "integer"),
        (((0,), [((0,), 1)], Fraction(1)), "pairs"),
        (((0,), (((0,), 1, 2),), Fraction(1)), "pairs"),
        (((False,), (((0,), 1),), Fraction(1)), "tuple of integers"),
        (([0], (((0,), 1),), Fraction(1)), "tuple of integers"),
        (((0,), (((False,), 1),), Fraction(1)), "tuple of integers"),
    ],
)
def test_odd_measurements_are_refused(measured, words, refuses):
    plan_of()
    with refuses(PrivacyError, ValueError, words):
        plan_of(measured)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_records": 0},
        {"max_records": -1},
        {"max_records": 2**62},
        {"max_records": math.nan},
        {"max_records": 10.0},
        {"max_records": True},
        {"max_records": None},
        {"budget": OddBudget(1.0)},
        {"budget": None},
        {"schema": None},
        {"strategies": [TOTAL, THREE]},
        {"strategies": (TOTAL, None)},
        {"measured": []},
        {"measured": (None,)},
    ],
    ids=repr,
)
def test_odd_plans_are_refused(changes, refuses):
    with refuses(PrivacyError, ValueError):
        plan_of(**changes)


def test_a_product_of_many_large_factors_is_exact_without_multipliers_and_refused_with(refuses):
    big = Matrix(np.array([[2**25]]))
    own = tuple(((a,), big) for a in range(32))
    assert squared_sensitivity(IntegerStrategy((1,) * 32, own)) == 2 ** (50 * 32)
    with refuses(PrivacyError, ValueError, "too large"):
        squared_sensitivity(IntegerStrategy((1,) * 24, own[:24], np.ones((1,) * 24, dtype=np.int64)))
