"""A centre is a value: weights that sum to one, with integers in the same ratios."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.errors import PlanError
from querysmasher.planning.centre import Centre

integers = st.lists(st.integers(-9, 99), min_size=1, max_size=8).filter(lambda k: sum(k) > 0)


@given(integers)
def test_a_ratio_keeps_its_integers_in_lowest_terms_and_sums_to_one(k):
    centre = Centre.ratio(np.array(k))
    assert np.gcd.reduce(centre.exact) == 1
    np.testing.assert_array_equal(centre.exact * np.gcd.reduce(k), k)
    np.testing.assert_allclose(centre.weights, np.array(k) / sum(k), rtol=1e-15)
    assert centre.is_uniform == (len(set(k)) == 1)
    assert len(centre) == len(k)


@given(integers, integers)
def test_centres_are_equal_if_their_weights_are(one, two):
    same = [Fraction(k, sum(one)) for k in one] == [Fraction(k, sum(two)) for k in two]
    first, second = Centre.ratio(np.array(one)), Centre.ratio(np.array(two))
    assert (first == second) == same
    assert first == Centre.ratio(3 * np.array(one) if max(map(abs, one)) < 86 else np.array(one))
    assert hash(first) == hash(Centre(first.weights.copy()))
    assert first == Centre(first.weights.copy())
    assert first != "centre"


def test_a_centre_cannot_be_changed():
    centre = Centre.uniform(3)
    for array in (centre.weights, centre.exact):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Centre(np.array([0.5, 0.6])), "sum to one"),
        (lambda: Centre(np.array([np.nan, 1.0])), "finite"),
        (lambda: Centre(np.array([[0.5, 0.5]])), "one finite number per value"),
        (lambda: Centre.ratio(np.array([1, -1])), "positive sum"),
        (lambda: Centre.ratio(np.array([1, 257])), "at most 256"),
        (lambda: Centre(np.array([0.3, 0.7])).exact, "exact measurement"),
    ],
)
def test_a_centre_that_is_none_is_refused(make, word, refuses):
    with refuses(PlanError, ValueError, "centre", word):
        make()


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=12), st.sampled_from([16, 64, 256]))
def test_rounded_centres_are_near(weights, fineness):
    """At least as near as the weights scaled to the largest integer allowed, and exact where they can be."""
    weights = np.array(weights) / np.sum(weights)
    found = Centre.near(weights, fineness)
    assert np.abs(found.exact).max() <= fineness
    plain = np.round(weights * (fineness / weights.max()))
    distance = np.linalg.norm(found.weights - weights)
    assert distance <= np.linalg.norm(plain / plain.sum() - weights) + 1e-15


def test_a_finer_multiple_is_not_always_nearer():
    assert Centre.near(np.array([3, 3, 5]) / 11, 16).exact.tolist() == [3, 3, 5]


def test_a_centre_made_positive_weighs_all_values_and_hardly_changes():
    centre = Centre.ratio(np.array([3, 0, 1]))
    weights = centre.positive().weights
    assert weights.min() > 0
    assert weights[0] > weights[2] > weights[1]
    assert Centre.uniform(3).positive() == Centre.uniform(3)
