"""Chosen ranges: their queries, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import WorkloadError
from querysmasher.workload.families import Circular, Range
from querysmasher.workload.registry import workload_from_data, workload_to_data

SCHEMA = qs.Schema.of(age=9, sex=2)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=9), st.booleans())
def test_answers_are_those_of_the_rows(pairs, weighted):
    first, last = np.sort(np.array(pairs), axis=1).T
    weights = np.arange(1.0, len(pairs) + 1) if weighted else None
    family = qs.ranges(SCHEMA, "age", first, last, weights)
    table = np.arange(18.0).reshape(9, 2) ** 2
    np.testing.assert_allclose(family.answers(table), family.matrix() @ table)
    assert [tuple(np.flatnonzero(row)[[0, -1]]) for row in family.matrix()] == list(
        zip(first.tolist(), last.tolist(), strict=True)
    )
    workload = qs.queries(SCHEMA, age=family, sex="identity")
    again = workload_from_data(workload_to_data(workload))
    assert again == workload
    labels = list(workload.labels())
    assert labels[0] == f"{first[0]} <= age <= {last[0]} and sex == 0"


@pytest.mark.parametrize("family", [Range((5,)), Circular((5,))])
def test_answers_of_all_ranges_are_those_of_the_rows(family):
    table = np.arange(10.0).reshape(5, 2) ** 3
    np.testing.assert_allclose(family.answers(table), family.matrix() @ table)


def test_one_end_for_all():
    assert qs.ranges(SCHEMA, "age", 0, [3, 5]).matrix().sum(axis=1).tolist() == [4, 6]


@pytest.mark.parametrize(
    ("first", "last", "weights", "why"),
    [
        ([0, 1], [1, 2, 3], None, "as many"),
        ([3], [2], None, "first <= last"),
        ([0], [9], None, "0 to 8"),
        ([-1], [3], None, "0 to 8"),
        ([0.5], [3], None, "integers"),
        (["a"], [3], None, "integers"),
        ([[0]], [3], None, "integers"),
        ([], [], None, "expected"),
        ([0], [3], [0.0], "positive"),
        ([0], [3], [1.0, 2.0], "one per range"),
    ],
)
def test_bad_ranges_are_refused(first, last, weights, why):
    with pytest.raises(WorkloadError, match=why):
        qs.ranges(SCHEMA, "age", first, last, weights)


def test_small_plans_take_weighted_ranges():
    family = qs.ranges(SCHEMA, "age", 0, np.arange(9), np.arange(1.0, 10.0))
    workload = qs.queries(SCHEMA, age=family)
    rows = qs.linear(SCHEMA, ["age"], np.tri(9), weights=np.arange(1.0, 10.0))
    budget = qs.PrivacyCost(1.0)
    assert qs.plan(workload, budget).weighted_loss == pytest.approx(
        qs.plan(rows, budget).weighted_loss, rel=1e-3
    )
