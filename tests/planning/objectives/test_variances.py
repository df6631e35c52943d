"""Variances as sums of products, against variances written out; fronts and peaks, against all rows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import querysmasher as qs
from querysmasher.planning.objectives.multipliers import (
    Multipliers,
    Scopes,
    class_losses,
    expectations,
)
from querysmasher.planning.objectives.reallocation import Reallocation
from querysmasher.planning.objectives.variances import VarianceTable, extremes, front
from tests.builders import COST, cps, plan_uniform
from tests.reference import query_rows, variances
from tests.strategies import schemas, workloads

tables = arrays.arrays(
    float, st.tuples(st.integers(1, 9), st.just(3)), elements=st.sampled_from([0, 0.5, 1, 2, 3.5])
)
small = st.builds(workloads, schemas(max_attributes=3, max_size=4, max_cells=24)).flatmap(lambda w: w)


@given(tables, st.lists(st.sampled_from([0.0, 0.1, 1, 5]), min_size=3, max_size=3))
def test_the_maximum_of_every_increasing_sum_is_on_the_front(table, coefficients):
    values = table @ np.array(coefficients)
    assert values[front(table)].max() == pytest.approx(values.max(), rel=1e-9, abs=1e-15)


@settings(max_examples=30)
@given(small)
def test_expected_and_largest_variances_are_those_of_the_queries_written_out(workload):
    if not np.abs(query_rows(workload)[0]).any():
        return
    plan = plan_uniform(workload, COST, mechanism="querysmasher")
    scopes = Scopes.of(workload)
    table = VarianceTable(plan, scopes.of_group)
    exact = np.split(variances(plan, workload), np.cumsum([g.rows for g in workload])[:-1])
    even = Multipliers.even(workload, scopes, np.full(len(workload.groups), 1 / len(workload.groups)))
    expected = table.coefficients(expectations(table, even.rows)) @ table.variances
    for number, entry in enumerate(table.entries):
        for member in entry.members:
            assert expected[number] == pytest.approx(exact[member].mean(), rel=1e-6, abs=1e-12)
            assert table.largest(number, table.variances)[0] == pytest.approx(
                exact[member].max(), rel=1e-6, abs=1e-12
            )
    for one, own_variances, group in zip(extremes(plan), exact, workload, strict=True):
        place = np.ravel_multi_index(one.rows, group.shape) if group.families else 0
        assert own_variances[place] == pytest.approx(one.std**2, rel=1e-6, abs=1e-12)
        assert own_variances.mean() == pytest.approx(one.rms**2, rel=1e-6, abs=1e-12)
    assert one.query(workload.schema) == list(group.labels(workload.schema))[place]


@settings(max_examples=30)
@given(small, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_peaks_are_the_largest_variances_of_the_rows_of_one_cluster(workload, most, seed):
    """At any noise."""
    if not np.abs(query_rows(workload)[0]).any():
        return
    table = VarianceTable(plan_uniform(workload, COST), Scopes.of(workload).of_group)
    noise = table.variances * np.exp(np.random.default_rng(seed).normal(size=len(table.variances)))

    def check(number, values, queries):
        sizes = [1] * (queries.shape[1] - 1)
        for cluster, column in enumerate(table.entries[number].terms[0][1]):
            sizes[cluster] = len(table.columns[column])
        each = np.stack(np.meshgrid([number], *map(np.arange, sizes), indexing="ij"), axis=-1)
        found, every = (
            table.terms(q) @ np.append(noise, 0.0)[table.classes[number]]
            for q in (queries, each.reshape(-1, queries.shape[1]))
        )
        np.testing.assert_allclose(values, found, rtol=1e-9)
        assert values[0] == pytest.approx(every.max(), rel=1e-9)

    for number, entry in enumerate(table.entries):
        if not entry.clusters:
            continue
        values, queries = table.peaks(number, noise, 0.0, most)
        check(number, values, queries)
        fewer, _ = table.peaks(number, noise, float(values[-1]) * (1 - 1e-9), most)
        np.testing.assert_allclose(fewer, values, rtol=1e-9)
        assert not len(table.peaks(number, noise, float(values[0]) * (1 + 1e-6) + 1e-300, most)[0])


def test_reallocating_lowers_the_largest_variance_within_the_budget():
    workload = qs.all_kway(cps(), [1, 2])
    plan = plan_uniform(workload, COST)
    table = VarianceTable(plan, Scopes.of(workload).of_group)
    even = np.array([column.mean() for column in table.columns])
    reallocation = Reallocation(table, np.ones(len(table.entries)), 1.0, even)
    x, largest = reallocation.least_largest()
    assert largest < 0.85 * reallocation.largest(table.variances)
    assert math.fsum(table.spent / x) == pytest.approx(1)
    assert largest == pytest.approx(reallocation.largest(x))


def test_reallocating_within_targets_loses_least_where_all_are_met():
    """At fixed strategies the loss is convex in log x: no point nearby is better and meets all targets."""
    workload = qs.all_kway(qs.Schema.of(a=5, b=4, c=3), [1, 2], "prefix")
    plan = plan_uniform(workload, COST)
    scopes = Scopes.of(workload)
    table = VarianceTable(plan, scopes.of_group)
    losses = class_losses(workload, table, scopes)
    ones = np.ones(len(table.entries))
    even = np.array([column.mean() for column in table.columns])
    worst = math.sqrt(Reallocation(table, ones, 1.0, even).least_largest()[1])
    free = math.sqrt(Reallocation(table, ones, 1.0, even).largest(table.variances))
    reallocation = Reallocation(table, ones * (0.5 * worst + 0.5 * free), 1.0, even)
    x = reallocation.least_loss(losses)
    assert reallocation.largest(x) <= 1
    assert math.fsum(table.spent / x) == pytest.approx(1)
    generator = np.random.default_rng(0)
    for _ in range(200):
        other = x * np.exp(0.02 * generator.standard_normal(len(x)))
        other *= math.fsum(table.spent / other)
        assert reallocation.largest(other) > 1 or losses @ other >= losses @ x * (1 - 1e-4)
    assert Reallocation(table, ones * (0.99 * worst), 1.0, even).least_loss(losses) is None
