"""Distances of marginals from integers: sensitivity by brute force over neighbours, exact sums, refusals."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import DataError, PrivacyError
from querysmasher.privacy.accounting import LARGEST, Distance, Distances, distances_cost
from querysmasher.privacy.measurement import exact_distance, measure_distances
from tests.profiles import fewer
from tests.release.tables import TableCounter, Telltale, marginal
from tests.strategies import integer_arrays

SCHEMA = qs.Schema.of(a=2, b=3)


def asked(*distances, budget=None, schema=SCHEMA, max_records=1000):
    return Distances(schema, budget or qs.PrivacyCost(1e30), tuple(distances), max_records)


def measured(distances, targets, counts):
    """What measuring hands out without noise, and the variance of the noise of each."""
    counter = TableCounter(distances.schema, counts)
    exact = measure_distances(distances, targets.__getitem__, counter, Telltale(0))
    return exact.tolist()


def neighbours(counts, unit):
    """All tables that differ from one by all records of a person."""
    cells = list(np.ndindex(*counts.shape))
    for added in itertools.combinations_with_replacement(cells, unit.records_per_person):
        other = counts.copy()
        for cell in added:
            other[cell] += 1
        if not unit.total_is_public:
            yield other
            continue
        for removed in itertools.combinations_with_replacement(cells, unit.records_per_person):
            less = other.copy()
            for cell in removed:
                less[cell] -= 1
            if less.min() >= 0:
                yield less


@st.composite
def cases(draw):
    """Distances of the marginals of a small table from any integers, for any unit of privacy."""
    unit = {
        "neighbours": draw(st.sampled_from(["add_remove", "replace_one"])),
        "records_per_person": draw(st.integers(1, 2)),
    }
    multiple = draw(st.integers(1, 5))
    sets = draw(st.lists(st.sampled_from([(0,), (1,), (0, 1)]), min_size=1, max_size=4))
    variances = [Fraction(draw(st.integers(1, 9)), draw(st.integers(1, 3))) for _ in sets]
    targets = [
        draw(integer_arrays(tuple(SCHEMA.sizes[a] for a in own), -3, 4 * multiple)).astype(np.int64)
        for own in sets
    ]
    own = tuple(Distance(a, multiple, v) for a, v in zip(sets, variances, strict=True))
    counts = draw(integer_arrays(SCHEMA.sizes, 0, 4)).astype(np.int64)
    return asked(*own, budget=qs.PrivacyCost(1e30, **unit)), targets, counts


@fewer(50)
@given(cases())
def test_the_cost_bounds_the_change_over_all_neighbours(case):
    distances, targets, counts = case
    first = measured(distances, targets, counts)
    bound = distances_cost(distances)
    reach = distances.budget.unit.change() * distances.queries[0].multiple ** 2
    for other in neighbours(counts, distances.budget.unit):
        second = measured(distances, targets, other)
        changes = [Fraction((a - b) ** 2) for a, b in zip(first, second, strict=True)]
        assert max(changes) <= reach
        total = sum(c / one.variance for c, one in zip(changes, distances.queries, strict=True))
        assert total <= bound


@given(integer_arrays(SCHEMA.sizes, 0, 4), integer_arrays(SCHEMA.sizes, 0, 4))
def test_one_record_changes_a_distance_from_integers_by_exactly_one(counts, target):
    one = Distance((0, 1), 1, Fraction(1))
    before = exact_distance(one, counts.astype(np.int64), target.astype(np.int64))
    for other in neighbours(counts.astype(np.int64), qs.PrivacyCost(1.0).unit):
        assert abs(exact_distance(one, other, target.astype(np.int64)) - before) == 1


def test_replacing_a_record_changes_a_distance_by_two():
    """The bound for replace-one neighbours is reached: no smaller sensitivity would do."""
    one = Distance((0,), 1, Fraction(1))
    target = np.array([5, 5])
    assert exact_distance(one, np.array([6, 4]), target) - exact_distance(one, np.array([5, 5]), target) == 2
    replace = asked(one, budget=qs.PrivacyCost(1e30, neighbours="replace_one"))
    assert distances_cost(replace) == 4


def test_costs_add_up_and_grow_with_the_unit():
    one = Distance((0, 1), 3, Fraction(18))
    assert distances_cost(asked(one)) == Fraction(1, 2)
    assert distances_cost(asked(one, one)) == 1
    assert distances_cost(asked(one, budget=qs.zCDP(1e9, records_per_person=4))) == 8


def test_distances_are_those_of_the_marginals():
    counts = np.array([[5, 0, 2], [1, 1, 7]])
    targets = [np.array([10, 3, 1]), np.array([[1, 1, 1], [1, 1, 1]]), np.array([14, 18])]
    own = [Distance((1,), 1, Fraction(9)), Distance((0, 1), 4, Fraction(9)), Distance((0,), 2, Fraction(9))]
    expected = [
        int(np.abs(one.multiple * marginal(SCHEMA, counts, asked(one).names(one)) - target).sum())
        for one, target in zip(own, targets, strict=True)
    ]
    assert measured(asked(*own), targets, counts) == expected


def test_distances_that_cost_more_than_their_budget_are_refused_before_counting():
    class Untouched:
        def records(self):
            raise AssertionError

        marginals = records

    over = asked(Distance((0,), 1, Fraction(1)), budget=qs.PrivacyCost(0.999))
    with pytest.raises(PrivacyError, match=r"they cost 1, more than the 0\.999"):
        measure_distances(over, lambda _: np.zeros(2, np.int64), Untouched(), Telltale(0))


def test_a_table_with_too_many_records_is_refused():
    small = asked(Distance((0,), 1, Fraction(1)), max_records=3)
    counter = TableCounter(SCHEMA, np.ones((2, 3), dtype=np.int64))
    with pytest.raises(DataError, match="more records than max_records = 3"):
        measure_distances(small, lambda _: np.zeros(2, np.int64), counter, Telltale(0))


@pytest.mark.parametrize(
    "target",
    [np.zeros(3, np.int64), np.zeros(2), np.zeros(2, np.int32), [0, 0], np.array([LARGEST, 0])],
    ids=["shape", "floats", "narrow", "list", "too large"],
)
def test_targets_that_do_not_fit_are_refused(target):
    with pytest.raises(PrivacyError, match="targets"):
        exact_distance(Distance((0,), 1, Fraction(1)), np.array([1, 2]), target)


@pytest.mark.parametrize(
    "one",
    [
        Distance((), 1, Fraction(1)),
        Distance((1, 0), 1, Fraction(1)),
        Distance((0, 0), 1, Fraction(1)),
        Distance((2,), 1, Fraction(1)),
        Distance((-1,), 1, Fraction(1)),
        Distance((0,), 0, Fraction(1)),
        Distance((0,), 2**60, Fraction(1)),
        Distance((0,), True, Fraction(1)),
        Distance((0,), 1, Fraction(0)),
        Distance((0,), 1, Fraction(-1)),
        Distance((0,), 1, 1.0),
        Distance([0], 1, Fraction(1)),
    ],
)
def test_invalid_distances_are_refused(one):
    with pytest.raises(PrivacyError, match="distances: "):
        asked(one)


def test_every_distance_has_noise_of_its_own_variance():
    class Marked(Telltale):
        def draw(self, variance, size):  # the variance itself, and the index of the draw
            return np.arange(size) + int(variance)

    counter = TableCounter(SCHEMA, np.zeros((2, 3), dtype=np.int64))
    own = [Distance((0,), 1, Fraction(v)) for v in (100, 500, 100, 500, 900)]
    values = measure_distances(asked(*own), lambda _: np.zeros(2, np.int64), counter, Marked(0))
    assert values.tolist() == [100, 500, 101, 501, 900]


def test_the_cost_of_equal_distances_is_that_of_each():
    own = [
        Distance((0,), 3, Fraction(7, 11)),
        Distance((1,), 3, Fraction(7, 11)),
        Distance((1,), 2, Fraction(13)),
    ]
    assert distances_cost(asked(*own)) == sum(distances_cost(asked(one)) for one in own)
