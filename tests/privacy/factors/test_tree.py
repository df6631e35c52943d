"""Trees of integers: exact at sizes where 64 bits nearly overflow, and what they cost by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.errors import PrivacyError
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Tree
from querysmasher.privacy.integer_plan import IntegerStrategy
from tests.contracts import tree_integers
from tests.privacy.factors.drawn_factors import forests

SMALL = {
    "classes": np.array([0, 1, 2]),
    "parents": np.array([-1, 0, 0, 1, 1]),
    "multipliers": np.array([4, 0, 3, 5, 6]),
    "shift": np.array([1, 0, -2, 0, 1]),
}


@settings(max_examples=60)
@given(forests(9), st.data())
def test_hostile_sizes_against_python_integers(parents, data):
    """Multipliers and shifts up to 2^60, and tables so large that answers nearly fill a word."""
    leaves = np.setdiff1d(np.arange(len(parents)), parents)
    large = st.one_of(st.integers(1, 9), st.integers(2**40, 2**60), st.just(2**60))
    multipliers = np.array([data.draw(large) for _ in parents])
    shift = np.array([data.draw(large) * data.draw(st.sampled_from([-1, 0, 1])) for _ in parents])
    factor = Tree(np.arange(len(leaves)), parents, multipliers, shift)
    dense = tree_integers(factor)
    assert factor.squared_column() == max(sum(entry**2 for entry in column) for column in dense.T)
    bound = (2**62 - 1) // factor.largest
    counts = np.zeros((len(leaves), 2), dtype=np.int64)
    counts[data.draw(st.integers(0, len(leaves) - 1)), 0] = bound
    counts[:, 1] = bound // len(leaves)
    expected = dense @ counts.astype(object)
    assert factor.exact_answers(counts, bound).tolist() == expected.tolist()


def test_negative_tables_are_answered_exactly():
    """After another factor the tables may have any sign."""
    factor = Tree(**SMALL)
    tables = np.array([[2**58], [-(2**58)], [2**57]])
    assert factor.exact_answers(tables, 2**59).tolist() == [
        [(4 - 1) * 2**57],
        [3 * 2**58 + 2 * 2**57],
        [-5 * 2**58],
        [(6 - 1) * 2**57],
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"parents": np.array([-1, 0, 0, 2, 1])},
        {"parents": np.array([-1, 0, 0, 1, 5])},
        {"parents": np.array([0, 0, 0, 1, 1])},
        {"parents": np.array([-2, 0, 0, 1, 1])},
        {"parents": np.array([-1, 1, 1, 1, 1])},
        {"parents": np.array([], dtype=np.int64)},
        {"parents": np.array([-1.0, 0, 0, 1, 1])},
        {"classes": np.array([0, 1, 1])},
        {"classes": np.array([0, 1, 3])},
        {"classes": np.array([0, 1, 2**40])},
        {"classes": np.array([-1, 0, 1])},
        {"classes": np.array([[0, 1, 2]])},
        {"classes": [0, 1, 2]},
        {"multipliers": np.array([4, 0, 3, 5, 0])},
        {"multipliers": np.array([4, 0, -3, 5, 6])},
        {"multipliers": np.array([4, 0, 3, 5])},
        {"multipliers": np.array([4, 0, 3, 5, 2**62])},
        {"multipliers": np.array([4, 0, 3, 5, -(2**63)])},
        {"shift": np.array([1, 1, -2, 0, 1])},  # of a node that is not measured
        {"shift": np.array([1, 0, -2, 0])},
        {"shift": np.array([1.0, 0, -2, 0, 1])},
        {"shift": np.array([1, 0, -2, 0, -(2**63)])},
        {"shift": None},
    ],
)
def test_arrays_that_are_no_tree_are_refused(change, refuses):
    with refuses(PrivacyError, ValueError):
        Tree(**(SMALL | change))


def test_its_sensitivity_is_that_of_the_longest_path():
    """Less what is subtracted from all entries of a row, which every other value sees too."""
    plain = SMALL | {"shift": np.zeros(5, dtype=np.int64)}
    assert squared_sensitivity(IntegerStrategy((3,), (((0,), Tree(**plain)),))) == 16 + 36
    columns = [(3, 5, -1, 0), (3, 2, 5, -1), (3, 2, 0, 5)]
    assert squared_sensitivity(IntegerStrategy((3,), (((0,), Tree(**SMALL)),))) == max(
        sum(entry**2 for entry in column) for column in columns
    )


@pytest.mark.slow
def test_a_million_leaves_are_answered_by_sums():
    n = 10**6
    parents = np.concatenate([[-1], np.zeros(1000, np.int64), 1 + np.arange(n) // 1000])
    shift = np.zeros(len(parents), dtype=np.int64)
    factor = Tree(np.random.default_rng(0).permutation(n), parents, np.full(len(parents), 7), shift)
    counts = np.random.default_rng(1).integers(0, 20, (n, 1))
    answers = factor.exact_answers(counts, int(counts.sum()))
    assert answers[0, 0] == 7 * counts.sum()
    rounded = IntegerStrategy((n,), (((0,), factor),))
    strategy = strategy_of_integers(rounded)
    found = strategy.undone(rounded, answers[:, 0].astype(float))
    np.testing.assert_allclose(found + strategy.balance * counts.sum(), counts[:, 0], atol=1e-8)
