"""Merging cells: against all queries written out over all cells, and without writing anything large."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning import cells as module
from querysmasher.planning.cells import merge, work_of
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms import solve_whole
from querysmasher.privacy.factors import Partition
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group
from tests.builders import boxes
from tests.profiles import fewer
from tests.reference import query_rows
from tests.strategies import integer_arrays, weights, workloads


@st.composite
def cases(draw):
    """A workload, fractional rows among it, and attributes that include those of its groups."""
    workload = draw(workloads())
    if draw(st.booleans()):
        schema = workload.schema
        names = draw(st.permutations(schema.names))[: draw(st.integers(1, 2))]
        shape = schema.shape(names)
        rows = draw(integer_arrays((draw(st.integers(1, 3)), int(np.prod(shape)))))
        rows = rows / draw(st.sampled_from([-1.0, 3.0, 7.0, 10.0, 1e-9]))
        first = Group(tuple(names), (Rows(shape, rows),), draw(weights))
        workload = qs.Workload(schema, (first, *workload.groups))
    used = {workload.schema.position(name) for group in workload for name in group.attributes}
    more = draw(st.sets(st.integers(0, len(workload.schema) - 1)))
    return workload, tuple(sorted(used | more))


def written_out(workload, attributes):
    """The queries over the cells of the attributes, on which they all depend; zeros have no sign."""
    rows, own = query_rows(workload)
    tensor = rows.reshape(len(rows), *workload.schema.sizes) + 0.0
    for place in reversed(range(len(workload.schema))):
        if place not in attributes:
            tensor = tensor.take(0, axis=1 + place)
    return tensor.reshape(len(rows), -1), own


def check_exact(merged, workload, attributes):
    dense, own = written_out(workload, attributes)
    assert merged.attributes == attributes
    assert merged.shape == tuple(workload.schema.sizes[a] for a in attributes)
    of_cells = Partition(merged.maps, merged.labels).of_cells() if attributes else np.zeros(1, dtype=int)
    assert len(np.unique(dense, axis=1).T) == merged.rows.shape[1] == of_cells.max() + 1
    if len(merged.rows) == len(dense):
        assert np.array_equal(merged.rows[:, of_cells], dense)
        np.testing.assert_allclose(merged.weights, own, rtol=1e-14)
        assert merged.spanning is merged.rows
    else:  # families with more queries than cells have as many rows as cells
        assert any(family.rows > family.cells for group in workload for family in group.families)
        rows = (np.sqrt(merged.weights)[:, None] * merged.rows)[:, of_cells]
        gram = dense.T * own @ dense
        np.testing.assert_allclose(rows.T @ rows, gram, atol=1e-13 * np.abs(gram).max())
        stacked = np.concatenate([merged.spanning[:, of_cells], dense])
        assert len({np.linalg.matrix_rank(m) for m in (stacked, dense, merged.spanning)}) == 1
    _, firsts = np.unique(merged.labels.ravel(), return_index=True)
    assert np.array_equal(firsts, np.sort(firsts))  # numbered by first appearance
    arrays = (*merged.maps, merged.labels, merged.rows, merged.weights, merged.spanning)
    assert not any(array.flags.writeable for array in arrays)


@fewer(75)
@given(case=cases(), chunk=st.sampled_from([1, 30, 1 << 20]))
def test_cells_share_a_label_if_and_only_if_their_columns_are_equal(case, chunk):
    workload, attributes = case
    assume(len(workload) <= limits().merged_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        check_exact(merge(workload.schema, workload.groups, attributes), workload, attributes)


@pytest.mark.parametrize(("count", "most"), [(20, 100), (100, 1000)])
def test_predicates_leave_few_columns(count, most):
    workload = boxes(count)
    merged = merge(workload.schema, workload.groups, (0, 1, 2))
    check_exact(merged, workload, (0, 1, 2))
    assert merged.rows.shape[1] < most


@pytest.mark.parametrize(
    "asked",
    [
        lambda s: qs.where(s, "a < 3 or b < 3"),
        lambda s: qs.affine(s, "b", "a"),
        lambda s: qs.abs_difference(s, "a", "b") + qs.queries(s, b="prefix", a="range"),
        lambda s: qs.all_kway(s, [0, 1, 2], "range"),
        lambda s: qs.linear(s, ("b", "a"), [[0.1 * 3] * 20 + [0.3] * 20]),  # not the same number
        lambda s: qs.linear(s, ("b", "a"), [[0.0] * 20 + [-0.0] * 19 + [1.0]]),
    ],
)
def test_named_queries(asked):
    workload = asked(qs.Schema.of(a=8, b=5))
    check_exact(merge(workload.schema, workload.groups, (0, 1)), workload, (0, 1))


@given(integer_arrays((2, 5)), integer_arrays((1, 4)), integer_arrays((3, 3)))
def test_products_whose_scales_make_up_for_each_other_share_a_column(first, second, third):
    schema = qs.Schema.of(a=5, b=4, c=3)
    families = tuple(Rows((rows.shape[1],), rows.astype(float)) for rows in (first, second, third))
    assume(all(rows.any() for rows in (first, second, third)))
    workload = qs.Workload(schema, (Group(("a", "b", "c"), families, 1.0),))
    check_exact(merge(schema, workload.groups, (0, 1, 2)), workload, (0, 1, 2))


def test_nothing_large_is_written_out():
    """Three thresholds leave four of 100,000 values; 100,000 × 1,000 × 10 cells would be 8 GB of numbers."""
    schema = qs.Schema.of(a=100_000, b=1_000, c=10)
    texts = ("a < 10 and b < 300", "a < 5000", "a < 70000 and c == 3", "b >= 200 and c == 3")
    workload = sum((qs.where(schema, text) for text in texts[1:]), qs.where(schema, texts[0]))
    tracemalloc.start()
    merged = merge(schema, workload.groups, (0, 1, 2))
    assert tracemalloc.get_traced_memory()[1] < 2e7
    tracemalloc.stop()
    assert merged.labels.shape == (4, 3, 2)
    assert np.bincount(merged.maps[0]).tolist() == [10, 4990, 65_000, 30_000]
    assert merged.rows.shape[0] == 4


def test_what_is_too_large_is_not_merged(limit_planning):
    schema = qs.Schema.of(a=60, b=60, c=400)
    ranges, prefixes = qs.queries(schema, a="range"), qs.queries(schema, a="prefix")
    both = qs.queries(schema, a="identity") + qs.queries(schema, b="identity")
    assert merge(schema, ranges.groups, (0,)).rows.shape == (60, 60)  # 1,830 queries, with as few rows
    three = both + qs.queries(schema, c="identity")
    assert merge(schema, three.groups, (0, 1, 2)) is None  # 1,440,000 cells
    given = qs.linear(schema, ("a",), ranges.groups[0].families[0].matrix())
    for workload, attributes, most, others in (
        (prefixes, (0,), 60 * 60, {"merged_rows": 59}),
        (given, (0,), 1830 * 60, {"merged_rows": 1829}),
        (both, (0, 1), 120 * 3600, {"merged_cells": 3600}),
    ):
        limit_planning(merged_entries=most, **others)
        assert merge(schema, workload.groups, attributes) is not None
        limit_planning(merged_entries=most - 1, **others)
        assert merge(schema, workload.groups, attributes) is None
    limit_planning(merged_rows=4_000, merged_cells=3599, merged_entries=200_000_000)
    assert merge(schema, both.groups, (0, 1)) is None


def test_queries_that_take_too_much_work_are_refused_before_they_are_written_out():
    schema = qs.Schema.of(a=100, b=60)
    groups = qs.queries(schema, a="prefix", b="prefix").groups
    queries = 100 * 60
    tracemalloc.start()
    assert merge(schema, groups, [0, 1], work_of(queries, queries) - 1) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < queries**2 * 8 / 2


@given(
    families=st.tuples(*map(st.sampled_from, [["sum", None], ["sum", "prefix", None], ["identity", None]])),
    size=st.integers(1, 2),
    around=st.sampled_from([0, 1.5, 20]),
    pairs=st.booleans(),
)
def test_what_is_best_for_corners_is_best_for_all_columns(families, size, around, pairs):
    """If classes are numbered in another order, nothing is straight, and the optimum is the same."""
    numbers = [qs.Number("a", 0, 3, missing="none"), qs.Number("b", -1, size)]
    schema = qs.Schema([*numbers, qs.Ordinal("c", range(2))])
    asked = {name: family for name, family in zip("abc", families, strict=True) if family}
    workload = qs.queries(schema, asked) + qs.means(schema, "a", by="c", around=around)
    merged = merge(schema, workload.groups, (0, 1, 2))
    order = [np.argsort(np.arange(n) % 2, kind="stable") for n in merged.labels.shape]
    maps = tuple(np.argsort(numbers)[classes] for numbers, classes in zip(order, merged.maps, strict=True))
    shuffled = replace(merged, maps=maps, labels=merged.labels[np.ix_(*order)])
    straight, mixed = (solve_whole(each, 1e-4, pairs=pairs) for each in (merged, shuffled))
    assert merged.corner_count < shuffled.corner_count
    assert straight.bound == pytest.approx(mixed.reached, rel=1e-3)
    assert straight.reached == pytest.approx(mixed.reached, rel=1e-3)
