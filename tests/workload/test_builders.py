"""Builders: what each asks, in which order, and everything that cannot be asked."""

import itertools
import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import SchemaError, UnknownAttributeError, WorkloadError
from tests.reference import query_rows
from tests.strategies import schemas

SCHEMA = qs.Schema(
    [
        qs.Ordinal("a", range(3)),
        qs.Categorical("b", ["x", "y"]),
        qs.Cyclic("c", range(4)),
        qs.Binned("d", edges=[0, 1, 2]),
    ]
)
SIZES = dict(zip(SCHEMA.names, SCHEMA.sizes, strict=True))


@given(schemas(), st.data())
def test_all_kway_asks_one_group_per_attribute_set_in_schema_order(schema, data):
    k = data.draw(st.integers(0, len(schema)))
    workload = qs.marginals(schema, k)
    assert [g.attributes for g in workload] == list(itertools.combinations(schema.names, k))
    assert len(workload) == sum(math.prod(s) for s in itertools.combinations(schema.sizes, k))


def test_marginals_count_the_cells_of_every_marginal():
    rows, weights = query_rows(qs.marginals(SCHEMA, [0, 2], weight=2.5))
    assert (weights == 2.5).all()
    expected = [np.ones(48)]
    cells = list(itertools.product(*map(range, SCHEMA.sizes)))
    for i, j in itertools.combinations(range(4), 2):
        for u, v in itertools.product(range(SCHEMA.sizes[i]), range(SCHEMA.sizes[j])):
            expected.append([float(c[i] == u and c[j] == v) for c in cells])
    np.testing.assert_array_equal(rows, expected)


def test_families_follow_the_kind_or_the_mapping_or_the_name():
    def names(workload):
        return [tuple(f.name for f in g.families) for g in workload]

    assert names(qs.all_kway(SCHEMA, 1)) == [("prefix",), ("identity",), ("circular",), ("prefix",)]
    with pytest.warns(qs.QuerySmasherWarning, match="of 'b'"):
        assert names(qs.all_kway(SCHEMA, 1, "range")) == [("range",)] * 4
    mixed = qs.all_kway(SCHEMA, [1], {"a": "range", "b": [[1, 0]]})
    assert names(mixed) == [("range",), ("rows",), ("circular",), ("prefix",)]


def test_sets_of_some_attributes_only():
    some = qs.all_kway(SCHEMA, [0, 1, 2], attributes=["d", "a", "b"])
    assert [g.attributes for g in some] == [
        (),
        *(("a",), ("b",), ("d",)),
        *(("a", "b"), ("a", "d"), ("b", "d")),
    ]
    assert some.groups == tuple(g for g in qs.all_kway(SCHEMA, [0, 1, 2]) if "c" not in g.attributes)
    assert qs.marginals(SCHEMA, 2, attributes=["a", "d"]) == qs.marginals(SCHEMA, ["a", "d"])


def test_several_ks_are_asked_in_their_order_and_once():
    ways = [len(g.attributes) for g in qs.marginals(SCHEMA, [2, 0, 2, np.int64(1)])]
    assert ways == [2] * 6 + [0] + [1] * 4
    assert [len(g.attributes) for g in qs.marginals(SCHEMA, range(2))] == [0, 1, 1, 1, 1]


def test_a_product_group_keeps_the_order_of_the_user():
    workload = qs.queries(SCHEMA, c="range", a=[[1, 0, 2]])
    (group,) = workload.groups
    assert group.attributes == ("c", "a")
    assert group.shape == (10, 1)
    rows, _ = query_rows(workload)
    cells = list(itertools.product(*map(range, SCHEMA.sizes)))
    ranges = [(low, high) for low in range(4) for high in range(low, 4)]
    expected = [[(low <= c[2] <= high) * [1, 0, 2][c[0]] for c in cells] for low, high in ranges]
    np.testing.assert_array_equal(rows, expected)


def test_names_that_are_no_identifiers_go_in_a_mapping():
    schema = qs.Schema.of({"hours per week": 3, "weight": 2})
    workload = qs.queries(schema, {"hours per week": "prefix", "weight": "identity"}, weight=2.0)
    assert len(workload) == 6
    assert workload.groups[0].weight == 2.0
    assert next(workload.labels()) == "hours per week <= 0 and weight == 0"


def test_linear_rows_run_over_the_marginal_in_row_major_order():
    rows = np.arange(12.0).reshape(2, 6)
    workload = qs.linear(SCHEMA, ("a", "b"), rows, weights=[1, 3], labels=["p", "q"])
    full, weights = query_rows(workload)
    cells = list(itertools.product(*map(range, SCHEMA.sizes)))
    np.testing.assert_array_equal(full, [[row[2 * c[0] + c[1]] for c in cells] for row in rows])
    np.testing.assert_array_equal(weights, [1, 3])
    assert list(workload.labels()) == ["p", "q"]
    swapped, _ = query_rows(qs.linear(SCHEMA, ("b", "a"), rows))
    np.testing.assert_array_equal(swapped, [[row[3 * c[1] + c[0]] for c in cells] for row in rows])
    assert len(qs.linear(SCHEMA, "a", np.eye(3))) == 3


def test_five_billion_circular_queries_are_stated_at_once_and_in_no_memory():
    schema = qs.Schema.of({f"a{i}": 50 for i in range(40)})
    tracemalloc.start()
    start = time.perf_counter()
    workload = 2.0 * qs.all_kway(schema, [1, 2], "circular")
    count = len(workload)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 4_875_100_000  # the paper's count
    assert seconds < 1
    assert peak < 2_000_000
    assert "4,875,100,000 queries" in repr(workload)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: qs.queries(SCHEMA, z="prefix"), ["'z'"]),
        (lambda: qs.affine(SCHEMA, "a", "z"), ["'z'"]),
        (lambda: qs.abs_difference(SCHEMA, "z", "a"), ["'z'"]),
        (lambda: qs.linear(SCHEMA, ("a", "z"), [[1]]), ["'z'"]),
        (lambda: qs.random_queries(SCHEMA, ("z",), 3), ["'z'"]),
        (lambda: qs.hierarchy(SCHEMA, "z"), ["'z'"]),
        (lambda: qs.where(SCHEMA, "z == 1"), ["'z'"]),
        (lambda: qs.all_kway(SCHEMA, 1, {"z": "range"}), ["'z'"]),
        (lambda: qs.all_kway(SCHEMA, 1, attributes=["a", "z"]), ["'z'"]),
        (lambda: qs.queries(SCHEMA, {3: "range"}), ["3"]),
    ],
)
def test_unknown_attributes_are_refused_by_name(call, words, refuses):
    with refuses(UnknownAttributeError, KeyError, *words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: qs.affine(SCHEMA, "a", "a"), ["'a'", "more than once"]),
        (lambda: qs.abs_difference(SCHEMA, "a", "a"), ["more than once"]),
        (lambda: qs.linear(SCHEMA, ("a", "a"), np.eye(9)), ["more than once"]),
        (lambda: qs.random_queries(SCHEMA, ("a", "a"), 3), ["more than once"]),
    ],
)
def test_repeated_attributes_are_refused_by_name(call, words, refuses):
    with refuses(SchemaError, ValueError, *words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: qs.linear(SCHEMA, 5, np.eye(3)), ["attributes", "5"]),
        (lambda: qs.random_queries(SCHEMA, None, 3), ["attributes", "None"]),
        (lambda: qs.marginals(SCHEMA, 5), ["k:", "0 to 4", "5"]),
        (lambda: qs.marginals(SCHEMA, [1, 5]), ["k:", "5"]),
        (lambda: qs.marginals(SCHEMA, -1), ["k:", "-1"]),
        (lambda: qs.marginals(SCHEMA, 1.0), ["k:", "1.0"]),
        (lambda: qs.marginals(SCHEMA, "2"), ["k:", "'2'"]),
        (lambda: qs.marginals(SCHEMA, True), ["k:", "True"]),
        (lambda: qs.marginals(SCHEMA, None), ["k:", "None"]),
        (lambda: qs.marginals(SCHEMA, []), ["k:", "at least one"]),
        (lambda: qs.all_kway(SCHEMA, 1, "suffix"), ["'suffix'", "prefix"]),
        (lambda: qs.all_kway(SCHEMA, 1, attributes="a"), ["attributes", "['a']"]),
        (lambda: qs.all_kway(SCHEMA, 3, attributes=["a", "b"]), ["k: ", "from 0 to 2", "got 3"]),
        (lambda: qs.marginals(SCHEMA, ["a"], attributes=["a", "b"]), ["attributes", "None"]),
        (lambda: qs.queries(SCHEMA, a="suffix"), ["'a'", "'suffix'"]),
        (lambda: qs.queries(SCHEMA, a=[[1, 0]]), ["expected 3 columns", "got 2"]),
        (lambda: qs.queries(SCHEMA, a=[[1, 0], [1]]), ["matrix"]),
        (lambda: qs.queries(SCHEMA, a=[1, 0, 0]), ["matrix", "2 dimensions"]),
        (lambda: qs.queries(SCHEMA, a=7), ["matrix"]),
        (lambda: qs.queries(SCHEMA, a=object()), ["matrix of rows", "an object"]),
        (lambda: qs.queries(SCHEMA, c=qs.hierarchy(SCHEMA, "a")), ["'c'", "(3,)", "4 values"]),
        (lambda: qs.queries(SCHEMA, [("a", "prefix")]), ["mapping"]),
        (lambda: qs.linear(SCHEMA, ("a", "b"), np.eye(5)), ["6 columns", "got 5"]),
        (lambda: qs.linear(SCHEMA, ("a",), [[1, 2], [3]]), ["matrix"]),
        (lambda: qs.linear(SCHEMA, ("a",), [[1, 2, np.nan]]), ["finite"]),
        (lambda: qs.linear(SCHEMA, ("a",), []), ["matrix"]),
        (lambda: qs.linear(SCHEMA, ("a",), np.zeros((0, 3))), ["at least one row"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=0), ["weight", "positive"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=-2), ["weight", "-2"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=math.nan), ["weight", "nan"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=[1.0, 2.0]), ["weight"]),
        (lambda: qs.marginals(SCHEMA, 1, weight="heavy"), ["weight"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=None), ["weight"]),
        (lambda: qs.all_kway(SCHEMA, 1, weight=math.inf), ["weight", "inf"]),
        (lambda: qs.queries(SCHEMA, a="prefix", weight=-1), ["weight"]),
        (lambda: qs.affine(SCHEMA, "a", "c", weight=0), ["weight"]),
        (lambda: qs.abs_difference(SCHEMA, "a", "c", weight=0), ["weight"]),
        (lambda: qs.random_queries(SCHEMA, "a", 1, weight=0), ["weight"]),
        (lambda: qs.where(SCHEMA, "a == 1", weight=0), ["weight"]),
        (lambda: qs.linear(SCHEMA, "a", np.eye(3), weights=[1, 0, 1]), ["weights"]),
        (lambda: qs.linear(SCHEMA, "a", np.eye(3), weights=[1, 1]), ["expected 3"]),
        (lambda: qs.linear(SCHEMA, "a", np.eye(3), weights=2), ["weights"]),
        (lambda: qs.linear(SCHEMA, "a", np.eye(2, 3), weights=[[1], [1, 2]]), ["weights"]),
        (lambda: qs.linear(SCHEMA, "a", np.eye(3), labels=["p"]), ["labels"]),
        (lambda: qs.random_queries(SCHEMA, "a", 0), ["count", "0"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2.0), ["count", "2.0"]),
        (lambda: qs.random_queries(SCHEMA, "a", True), ["count"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=0), ["p:", "0"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=1.5), ["p:", "1.5"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=math.nan), ["p:", "nan"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p="x"), ["p:", "'x'"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=None), ["p:", "None"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, seed=-1), ["seed", "-1"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, seed=0.5), ["seed", "0.5"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, seed=None), ["seed", "None"]),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(call, words, refuses):
    with refuses(WorkloadError, ValueError, *words):
        call()
