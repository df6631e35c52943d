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
    ("call", "error", "builtin", "words"),
    [
        # unknown and repeated attributes
        (lambda: qs.queries(SCHEMA, z="prefix"), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.affine(SCHEMA, "a", "z"), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.abs_difference(SCHEMA, "z", "a"), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.linear(SCHEMA, ("a", "z"), [[1]]), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.random_queries(SCHEMA, ("z",), 3), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.hierarchy(SCHEMA, "z"), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.where(SCHEMA, "z == 1"), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.all_kway(SCHEMA, 1, {"z": "range"}), UnknownAttributeError, KeyError, ["'z'"]),
        (lambda: qs.queries(SCHEMA, {3: "range"}), UnknownAttributeError, KeyError, ["3"]),
        (lambda: qs.affine(SCHEMA, "a", "a"), SchemaError, ValueError, ["'a'", "more than once"]),
        (lambda: qs.abs_difference(SCHEMA, "a", "a"), SchemaError, ValueError, ["more than once"]),
        (lambda: qs.linear(SCHEMA, ("a", "a"), np.eye(9)), SchemaError, ValueError, ["more than once"]),
        (lambda: qs.random_queries(SCHEMA, ("a", "a"), 3), SchemaError, ValueError, ["more than once"]),
        (lambda: qs.linear(SCHEMA, 5, np.eye(3)), WorkloadError, ValueError, ["attributes", "5"]),
        (lambda: qs.random_queries(SCHEMA, None, 3), WorkloadError, ValueError, ["attributes", "None"]),
        # k
        (lambda: qs.marginals(SCHEMA, 5), WorkloadError, ValueError, ["k:", "0 to 4", "5"]),
        (lambda: qs.marginals(SCHEMA, [1, 5]), WorkloadError, ValueError, ["k:", "5"]),
        (lambda: qs.marginals(SCHEMA, -1), WorkloadError, ValueError, ["k:", "-1"]),
        (lambda: qs.marginals(SCHEMA, 1.0), WorkloadError, ValueError, ["k:", "1.0"]),
        (lambda: qs.marginals(SCHEMA, "2"), WorkloadError, ValueError, ["k:", "'2'"]),
        (lambda: qs.marginals(SCHEMA, True), WorkloadError, ValueError, ["k:", "True"]),
        (lambda: qs.marginals(SCHEMA, None), WorkloadError, ValueError, ["k:", "None"]),
        (lambda: qs.marginals(SCHEMA, []), WorkloadError, ValueError, ["k:", "at least one"]),
        # families and matrices
        (lambda: qs.all_kway(SCHEMA, 1, "suffix"), WorkloadError, ValueError, ["'suffix'", "prefix"]),
        (lambda: qs.queries(SCHEMA, a="suffix"), WorkloadError, ValueError, ["'a'", "'suffix'"]),
        (lambda: qs.queries(SCHEMA, a=[[1, 0]]), WorkloadError, ValueError, ["expected 3 columns", "got 2"]),
        (lambda: qs.queries(SCHEMA, a=[[1, 0], [1]]), WorkloadError, ValueError, ["matrix"]),
        (lambda: qs.queries(SCHEMA, a=[1, 0, 0]), WorkloadError, ValueError, ["matrix", "2 dimensions"]),
        (lambda: qs.queries(SCHEMA, a=7), WorkloadError, ValueError, ["matrix"]),
        (lambda: qs.queries(SCHEMA, a=object()), WorkloadError, ValueError, ["matrix of rows", "an object"]),
        (
            lambda: qs.queries(SCHEMA, c=qs.hierarchy(SCHEMA, "a")),
            WorkloadError,
            ValueError,
            ["'c'", "(3,)", "4 values"],
        ),
        (lambda: qs.queries(SCHEMA, [("a", "prefix")]), WorkloadError, ValueError, ["mapping"]),
        (lambda: qs.linear(SCHEMA, ("a", "b"), np.eye(5)), WorkloadError, ValueError, ["6 columns", "got 5"]),
        (lambda: qs.linear(SCHEMA, ("a",), [[1, 2], [3]]), WorkloadError, ValueError, ["matrix"]),
        (lambda: qs.linear(SCHEMA, ("a",), [[1, 2, np.nan]]), WorkloadError, ValueError, ["finite"]),
        (lambda: qs.linear(SCHEMA, ("a",), []), WorkloadError, ValueError, ["matrix"]),
        (
            lambda: qs.linear(SCHEMA, ("a",), np.zeros((0, 3))),
            WorkloadError,
            ValueError,
            ["at least one row"],
        ),
        # weights
        (lambda: qs.marginals(SCHEMA, 1, weight=0), WorkloadError, ValueError, ["weight", "positive"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=-2), WorkloadError, ValueError, ["weight", "-2"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=math.nan), WorkloadError, ValueError, ["weight", "nan"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=[1.0, 2.0]), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.marginals(SCHEMA, 1, weight="heavy"), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.marginals(SCHEMA, 1, weight=None), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.all_kway(SCHEMA, 1, weight=math.inf), WorkloadError, ValueError, ["weight", "inf"]),
        (lambda: qs.queries(SCHEMA, a="prefix", weight=-1), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.affine(SCHEMA, "a", "c", weight=0), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.abs_difference(SCHEMA, "a", "c", weight=0), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.random_queries(SCHEMA, "a", 1, weight=0), WorkloadError, ValueError, ["weight"]),
        (lambda: qs.where(SCHEMA, "a == 1", weight=0), WorkloadError, ValueError, ["weight"]),
        (
            lambda: qs.linear(SCHEMA, "a", np.eye(3), weights=[1, 0, 1]),
            WorkloadError,
            ValueError,
            ["weights"],
        ),
        (
            lambda: qs.linear(SCHEMA, "a", np.eye(3), weights=[1, 1]),
            WorkloadError,
            ValueError,
            ["expected 3"],
        ),
        (lambda: qs.linear(SCHEMA, "a", np.eye(3), weights=2), WorkloadError, ValueError, ["weights"]),
        (
            lambda: qs.linear(SCHEMA, "a", np.eye(2, 3), weights=[[1], [1, 2]]),
            WorkloadError,
            ValueError,
            ["weights"],
        ),
        (lambda: qs.linear(SCHEMA, "a", np.eye(3), labels=["p"]), WorkloadError, ValueError, ["labels"]),
        # random queries
        (lambda: qs.random_queries(SCHEMA, "a", 0), WorkloadError, ValueError, ["count", "0"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2.0), WorkloadError, ValueError, ["count", "2.0"]),
        (lambda: qs.random_queries(SCHEMA, "a", True), WorkloadError, ValueError, ["count"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=0), WorkloadError, ValueError, ["p:", "0"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=1.5), WorkloadError, ValueError, ["p:", "1.5"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=math.nan), WorkloadError, ValueError, ["p:", "nan"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p="x"), WorkloadError, ValueError, ["p:", "'x'"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, p=None), WorkloadError, ValueError, ["p:", "None"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, seed=-1), WorkloadError, ValueError, ["seed", "-1"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, seed=0.5), WorkloadError, ValueError, ["seed", "0.5"]),
        (lambda: qs.random_queries(SCHEMA, "a", 2, seed=None), WorkloadError, ValueError, ["seed", "None"]),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(call, error, builtin, words, refuses):
    with refuses(error, builtin, *words):
        call()
