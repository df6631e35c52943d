"""Controlled rounding: integers next to the numbers, that add up, with the right expectation."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.integers import IntegerModel, within_margins
from querysmasher.estimate.table_model import Model
from tests.estimate.tables import estimated, evidence
from tests.profiles import fewer

BUDGET = qs.zCDP(0.02)


def test_rounding_within_margins_has_the_expectation_of_the_table():
    table = np.array([[0.5, 1.25, 0.25], [0.3, 0.2, 0.5], [1.2, 0.55, 2.25]])
    rng = np.random.default_rng(0)
    drawn = np.array([within_margins(table, rng) for _ in range(2000)])
    # each mean has a standard error below 0.012: 6 of them fail with a probability below 1e-7
    assert drawn.mean(axis=0) == pytest.approx(table, abs=6 * 0.5 / np.sqrt(2000))
    assert set(drawn.sum(axis=1).ravel()) <= {2.0, 3.0}


def test_integer_tables_add_up_to_each_other():
    estimate = estimated(1500, BUDGET)
    integers = estimate.integers(seed=1)
    names = integers.schema.names
    total = int(integers.marginal())
    assert abs(total - estimate.total) < 1
    for order in (1, 2, 3):
        for some in itertools.combinations(names, order):
            table = np.asarray(integers.marginal(*some))
            assert table.dtype == np.int64
            assert table.min() >= 0
            assert table.sum() == total
            if order > 1:
                assert table.sum(axis=-1).tolist() == np.asarray(integers.marginal(*some[:-1])).tolist()
            if order == 2:
                assert table.sum(axis=0).tolist() == np.asarray(integers.marginal(some[1])).tolist()


def test_integers_have_the_expectation_of_the_estimate():
    estimate = estimated(1500, BUDGET)
    exact = np.asarray(estimate.marginal("a", "b"))
    triple = np.asarray(estimate.marginal("a", "c", "e"))
    draws = [estimate.integers(seed=s) for s in range(100)]
    pairs = np.array([np.asarray(one.marginal("a", "b")) for one in draws])
    triples = np.array([np.asarray(one.marginal("a", "c", "e")) for one in draws])
    # a cell moves by less than two, so that a mean of 100 has a standard error below 0.12
    assert np.abs(pairs.mean(axis=0) - exact).max() < 0.6
    assert np.abs(triples.mean(axis=0) - triple).max() < 0.7
    assert np.abs(pairs - exact).max() < 2


def test_the_same_seed_gives_the_same_integers_in_any_order(tmp_path):
    estimate = estimated(1500, BUDGET)
    first, second = estimate.integers(seed=3), estimate.integers(seed=3)
    late = np.asarray(second.marginal("c", "e"))
    assert (
        np.asarray(first.marginal("a", "b", "c")).tolist()
        == np.asarray(second.marginal("a", "b", "c")).tolist()
    )
    assert np.asarray(first.marginal("c", "e")).tolist() == late.tolist()
    first.save(tmp_path / "i.estimate")
    loaded = Estimate.load(tmp_path / "i.estimate")
    assert np.asarray(loaded.marginal("c", "e")).tolist() == late.tolist()
    assert "rounded to integers" in loaded.note
    with pytest.raises(qs.WorkloadError, match="seed"):
        estimate.integers(seed=-1)


def test_answers_are_sums_of_the_integers():
    integers = estimated(1500, BUDGET).integers(seed=0)
    workload = qs.all_kway(integers.schema, 2, "prefix")
    values = integers.answer(workload).values
    assert values.tolist() == np.round(values).tolist()
    assert integers.answer("a <= 7").values.tolist() == [int(integers.marginal())]


def test_impossible_cells_stay_empty():
    integers = estimated(1500, BUDGET, ("a < 2 and c == 3",)).integers(seed=0)
    assert not np.asarray(integers.marginal("a", "c"))[:2, 3].any()
    assert not np.asarray(integers.marginal("a", "c", "e"))[:2, 3].any()


@fewer(40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)), max_size=12),
    st.sampled_from([0.01, 1.0, 50.0]),
    st.sampled_from([(), ("a == 0 and b == 0",), ("a < 2 and b == 1", "b == 0 and c == 1")]),
    st.integers(0, 3),
)
@example([(0, 0, 0), (1, 0, 1), (2, 1, 0), (0, 0, 1), (2, 1, 1)], 50.0, (), 2)
def test_integers_of_tiny_tables_add_up_whatever_the_noise_and_the_zeros(records, variance, stated, seed):
    schema = qs.Schema.of(a=3, b=2, c=2).impossible(*stated)
    people = np.array(records, dtype=int).reshape(-1, 3)
    found = IntegerModel(Model(evidence(schema, people, 3, variance, seed)), seed)
    total = found.total
    for order in (1, 2, 3):
        for place in itertools.combinations(range(3), order):
            table = found.table(place)
            assert table.min() >= 0
            assert (table == np.round(table)).all()
            assert table.sum() == total
            if order == 3:
                assert table.sum(axis=2).tolist() == found.table(place[:2]).tolist()
            if order == 2 and not stated:
                assert table.sum(axis=1).tolist() == found.table(place[:1]).tolist()
                assert table.sum(axis=0).tolist() == found.table(place[1:]).tolist()
