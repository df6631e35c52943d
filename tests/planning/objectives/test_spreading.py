"""Multipliers of merged families weigh every query as before, and sums weigh it by the sum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from querysmasher.planning.objectives.merging import merged_few
from querysmasher.planning.objectives.spreading import plus, spread

import querysmasher as qs
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes
from tests.builders import cube
from tests.profiles import fewer
from tests.reference import query_rows

SCHEMA = qs.Schema.of(a=3, b=4)
WORKLOAD = (
    qs.queries(SCHEMA, a="prefix", b="range") + qs.queries(SCHEMA, a="prefix") + qs.marginals(SCHEMA, 0)
)


def drawn(data, workload, scopes):
    """Any multipliers; those of fixed scopes are even."""
    amounts = st.floats(0.01, 1.0)
    even = Multipliers.even(workload, scopes)
    groups = np.array([data.draw(amounts) for _ in workload])
    rows = []
    for scope, u in zip(scopes.scopes, even.rows, strict=True):
        own = u if scope.fixed else np.array([data.draw(amounts) for _ in u])
        rows.append(own / own.sum())
    return replace(even, groups=groups, rows=tuple(rows))


def weights(multipliers):
    """The weight of every query, in order."""
    return query_rows(multipliers.weighted(np.ones(len(multipliers.groups))))[1]


@fewer(20)
@given(st.data())
def test_merged_families_weigh_every_query_as_before(data):
    multipliers = drawn(data, WORKLOAD, Scopes.of(WORKLOAD, own=True))
    merged = merged_few(WORKLOAD, public_total=False)
    assert [len(g.families) for g in merged] == [1, 1, 0]
    found = spread(multipliers, merged, Scopes.of(merged, own=True))
    np.testing.assert_allclose(weights(found), weights(multipliers), rtol=1e-9)


@fewer(20)
@given(st.data(), st.floats(0.01, 3.0))
def test_a_sum_of_multipliers_of_their_own_weighs_every_query_by_the_sum(data, part):
    merged = merged_few(WORKLOAD, public_total=False)
    scopes = Scopes.of(merged, own=True)
    one, other = drawn(data, merged, scopes), drawn(data, merged, scopes)
    total = plus(one, other, part)
    share = part * one.groups.sum() / other.groups.sum()
    np.testing.assert_allclose(weights(total), weights(one) + share * weights(other), rtol=1e-9)


@pytest.mark.parametrize(
    ("size", "family", "public_total"),
    [(12, "range", False), (21, "prefix", False), (36, "prefix", True), (20, "range", True)],
)
def test_families_of_many_cells_or_queries_are_not_merged(size, family, public_total):
    schema = qs.Schema.of(a=size, b=size)
    workload = qs.queries(schema, a=family, b=family)
    assert merged_few(workload, public_total=public_total) is workload


def test_few_groups_that_differ_are_merged_however_many_are_alike_if_the_total_is_public():
    alike = qs.all_kway(cube(24, 5), 2, "prefix")
    assert all(len(group.families) == 1 for group in merged_few(alike, public_total=True))
    differ = qs.all_kway(qs.Schema.of(a=24, b=25, c=26, d=27, e=28), 2, "prefix")
    assert merged_few(differ, public_total=True) is differ
