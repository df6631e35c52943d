"""Workloads: joining, weighting, counting, saying; and what is no workload."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import SchemaError, UnknownAttributeError, WorkloadError
from querysmasher.workload.families import Identity, Prefix
from querysmasher.workload.joint import Affine
from querysmasher.workload.registry import workload_from_data, workload_to_data
from querysmasher.workload.workload import Group
from tests.profiles import fewer
from tests.reference import query_rows
from tests.strategies import schemas, workloads

SCHEMA = qs.Schema.of(a=3, b=2)


@given(workloads())
def test_len_counts_the_rows_and_every_query_has_words(workload):
    rows, weights = query_rows(workload)
    assert len(workload) == workload.query_count == len(rows) == len(weights)
    assert len(list(workload.labels())) == len(workload)
    for group in workload:
        for names, family in group.parts():
            attributes = [workload.schema[name] for name in names]
            labels = [family.label_of(attributes, row) for row in range(family.rows)]
            assert labels == family.labels(attributes)
    assert workload


@fewer(50)
@given(st.data())
def test_adding_asks_the_queries_of_both_in_order(data):
    schema = data.draw(schemas())
    one, two = data.draw(workloads(schema)), data.draw(workloads(schema))
    rows, weights = query_rows(one + two)
    for place, both in ((0, rows), (1, weights)):
        np.testing.assert_array_equal(both, np.concatenate([query_rows(one)[place], query_rows(two)[place]]))
    assert len(one + two) == len(one) + len(two)
    assert list((one + two).labels()) == [*one.labels(), *two.labels()]


@fewer(50)
@given(workloads())
def test_a_number_times_a_workload_scales_every_weight_and_nothing_else(workload):
    rows, weights = query_rows(workload)
    for scaled in (2.5 * workload, workload * 2.5, np.float64(2.5) * workload):
        assert isinstance(scaled, qs.Workload)
        again, more = query_rows(scaled)
        np.testing.assert_array_equal(again, rows)
        np.testing.assert_allclose(more, 2.5 * weights, rtol=1e-15)
    np.testing.assert_array_equal(query_rows(workload)[1], weights)


@given(workloads())
def test_a_workload_comes_back_from_plain_data_equal_in_every_query(workload):
    again = workload_from_data(workload_to_data(workload))
    assert again == workload
    for mine, theirs in zip(query_rows(again), query_rows(workload), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert list(again.labels()) == list(workload.labels())


def test_words_join_with_and_and_the_last_family_moves_fastest():
    workload = qs.queries(SCHEMA, b="identity", a="prefix") + qs.marginals(SCHEMA, 0)
    assert list(workload.labels()) == [
        "b == 0 and a <= 0",
        "b == 0 and a <= 1",
        "b == 0 and a <= 2",
        "b == 1 and a <= 0",
        "b == 1 and a <= 1",
        "b == 1 and a <= 2",
        "total",
    ]


def test_groups_describe_themselves():
    workload = (
        qs.queries(SCHEMA, b="identity", a="prefix") + qs.affine(SCHEMA, "a", "b") + qs.marginals(SCHEMA, 0)
    )
    assert [g.describe() for g in workload] == ["b (identity) × a (prefix)", "a, b (affine)", "total"]
    assert repr(workload) == "Workload(11 queries in 3 groups: 1 on no attribute, 2 on 2 attributes)"
    single = qs.where(workload.schema, "a == 0").within(5)
    assert repr(single) == "Workload(1 query in 1 group: 1 on 1 attribute; 1 with a target)"


def test_a_workload_beyond_what_len_can_say_is_still_counted():
    schema = qs.Schema.of({f"a{i}": 1000 for i in range(4)})
    assert qs.all_kway(schema, 4, "circular").query_count == 10**24


def test_a_workload_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        qs.marginals(SCHEMA, 1).groups = ()


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf, -0.0])
def test_a_factor_that_is_no_weight_is_refused(factor, refuses):
    with refuses(WorkloadError, ValueError, "weight"):
        factor * qs.marginals(SCHEMA, 1)


def test_weights_that_overflow_are_refused(refuses):
    with refuses(WorkloadError, ValueError, "weight", "inf"):
        1e200 * (1e200 * qs.marginals(SCHEMA, 1))


def test_only_workloads_are_added_and_only_numbers_multiply():
    workload = qs.marginals(SCHEMA, 1)
    for use in (
        lambda: workload + 1,
        lambda: 1 + workload,
        lambda: "2" * workload,
        lambda: workload * workload,
    ):
        with pytest.raises(TypeError):
            use()


def test_workloads_on_different_schemas_do_not_add(refuses):
    with refuses(WorkloadError, ValueError, "different schemas"):
        qs.marginals(SCHEMA, 1) + qs.marginals(qs.Schema.of(a=3, b=3), 1)


@pytest.mark.parametrize(
    ("groups", "error", "builtin", "words"),
    [
        ((), WorkloadError, ValueError, ["at least one query"]),
        ((Group(("z",), (Identity((3,)),)),), UnknownAttributeError, KeyError, ["'z'"]),
        ((Group(("a", "a"), (Identity((3,)),) * 2),), SchemaError, ValueError, ["'a'", "more than once"]),
        ((Group(("a",), (Prefix((2,)),)),), WorkloadError, ValueError, ["(2,)", "'a'"]),
        ((Group(("a", "b"), (Affine((2, 3)),)),), WorkloadError, ValueError, ["(2, 3)"]),
        ((Group(("a", "b"), (Identity((3,)),)),), WorkloadError, ValueError, ["(3,)"]),
        ((Group(("a",), (Identity((3,)),), 0.0),), WorkloadError, ValueError, ["weight"]),
        ((Group(("a",), (Identity((3,)),), math.nan),), WorkloadError, ValueError, ["weight"]),
    ],
)
def test_groups_that_make_no_workload_are_refused(groups, error, builtin, words, refuses):
    with refuses(error, builtin, *words):
        qs.Workload(SCHEMA, groups)


def test_sum_joins_a_list_of_workloads():
    schema = qs.Schema.of(a=3, b=2)
    joined = sum([qs.marginals(schema, 1), qs.affine(schema, "a", "b")])
    assert len(joined) == 5 + 4
