"""The cost of replacing a record, against the maximum over all pairs of cells, written out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.privacy import pairs
from querysmasher.privacy.factors import filter as filters_module
from querysmasher.privacy.factors import tree as trees_module
from querysmasher.privacy.pairs import Pairs, Products
from tests.privacy.drawn_pairs import measurements
from tests.privacy.factors.drawn_factors import coarse, crossed, filters, matrices, merged, mirrored, trees
from tests.profiles import fewer
from tests.strategies import integer_arrays


def largest_written_out(sizes, measured, weights):
    """The largest cost over all pairs of cells of the whole domain."""
    cells = list(itertools.product(*map(range, sizes)))
    total = np.zeros((len(cells),) * 2)
    for parts, weight in zip(measured, weights, strict=True):
        product = np.ones_like(total)
        for on, products in parts:
            shape = [sizes[a] for a in on]
            index = [int(np.ravel_multi_index([cell[a] for a in on], shape)) for cell in cells]
            product *= products.gram[np.ix_(index, index)]
        total += weight * product
    squares = np.diagonal(total)
    return float((squares[:, None] + squares[None, :] - 2 * total).max())


@given(measurements(even=False, joint=True))
def test_the_maximum_over_pairs_is_exact_where_cells_are_few(case):
    sizes, measured, weights = case
    value, changes = Pairs(sizes, measured).largest(weights)
    exact = largest_written_out(sizes, measured, weights)
    assert exact * (1 - 1e-12) <= value <= exact + 1e-7 * weights.sum()
    assert weights @ changes == pytest.approx(exact, abs=1e-9 * weights.sum())


@given(integer_arrays((1, 7), -9, 9), st.sampled_from([0.0, 81.0, 100.0]))
def test_many_values_of_one_row_differ_most_at_its_ends(row, squared):
    written = Products.of(row.astype(float), squared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "MOST_CELLS", 2)
        found = Products.of(row.astype(float), squared)
    assert found.gram is None
    assert (found.least, found.farthest) == pytest.approx((written.least, written.farthest), abs=1e-12)


def bounded(sizes, measured, weights, states=10**6):
    """The largest cost and its changes as if cells were too many to write out, and states were limited."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "WRITTEN_OUT", -1)
        patch.setattr(pairs, "MOST_STATES", states)
        return Pairs(sizes, measured, weights).largest(weights)


@pytest.mark.parametrize("states", [10**6, 20, 1])
@given(case=measurements(even=False, joint=True))
def test_bounds_over_states_are_never_below_the_maximum(case, states):
    value, _ = bounded(*case, states)
    assert value >= largest_written_out(*case) * (1 - 1e-12)


@given(case=measurements(even=True, joint=False))
def test_one_even_strategy_for_every_attribute_is_bounded_exactly(case):
    value, changes = bounded(*case)
    exact, weights = largest_written_out(*case), case[2]
    assert value == pytest.approx(exact, abs=1e-7 * weights.sum())
    assert weights @ changes == pytest.approx(exact, abs=1e-7 * weights.sum())


def test_products_that_share_no_strategy_are_bounded_one_by_one():
    """No measurement is a product of the strategies that are commonest on its attributes."""
    a, b, c, d, e, f = (Products.of(np.eye(2) - 1 / 2) for _ in range(6))
    measured = [(((0,), a), ((1,), b), ((2,), c)), (((0,), d), ((2,), e)), (((1,), f), ((2,), e))]
    case = [2, 2, 2], measured, np.array([1.0, 2.0, 3.0])
    assert bounded(*case)[0] >= largest_written_out(*case) * (1 - 1e-12)


def alike(attributes, values, by_order):
    """All sets of so many attributes of as many values, the residuals of each, weighted by their order."""
    identity = Products.of(np.eye(values) - 1 / values)
    sets = [s for k in by_order for s in itertools.combinations(range(attributes), k)]
    measured = [tuple(((a,), identity) for a in chosen) for chosen in sets]
    return [values] * attributes, measured, np.array([by_order[len(chosen)] for chosen in sets])


@pytest.mark.parametrize(("attributes", "values"), [(5, 2), (4, 3), (3, 4)])
def test_attributes_that_are_alike_are_counted(attributes, values):
    case = alike(attributes, values, {1: 1.0, 2: 3.0, 3: 0.5})
    assert bounded(*case, states=10)[0] == pytest.approx(largest_written_out(*case), rel=1e-6)


def test_many_attributes_take_moments():
    """All pairs of 60 attributes: the cost depends on how many of them differ."""
    value, _ = bounded(*alike(60, 20, {1: 1.0, 2: 1.0}))
    c = -1 / 19
    of_numbers = [
        2 * k * (1 - c) + 2 * (math.comb(k, 2) * (1 - c**2) + k * (60 - k) * (1 - c)) for k in range(61)
    ]
    assert value == pytest.approx(max(of_numbers), rel=1e-6)


# --- what factors say of their columns ---

CASES = {
    "matrix": matrices(),
    "merged": merged(),
    "filter": filters(),
    "mirrored": mirrored(),
    "tree": trees(),
    "crossed": crossed(),
    "coarse": coarse(),
}


@pytest.mark.parametrize("kind", CASES)
@fewer(40)
@given(data=st.data())
def test_factors_bound_the_products_of_their_columns(kind, data):
    factor = data.draw(CASES[kind])
    matrix, squared = factor.written_out(), max(factor.squared_column(), 1)
    gram = matrix.T @ matrix / squared
    squares = np.diagonal(gram)
    distances = squares[:, None] + squares[None, :] - 2 * gram
    for most in (pairs.MOST_CELLS, 0):  # as if they were many
        with pytest.MonkeyPatch.context() as patch:
            for module in (pairs, filters_module, trees_module):
                patch.setattr(module, "MOST_CELLS", most)
            known = factor.column_products()
        assert known.least <= gram[distances > 1e-9].min(initial=1.0) + 1e-9
        assert known.farthest >= distances.max() - 1e-9
        if known.gram is not None:
            first, second = np.triu_indices(len(gram), 1)
            np.testing.assert_allclose(known.over(first, second)[2], gram[first, second], atol=1e-9)
        elif kind == "tree":
            assert known.farthest == pytest.approx(distances.max(), abs=1e-9)
