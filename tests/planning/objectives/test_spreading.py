"""Multipliers of merged families weigh every query as before; few groups are merged."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes, merged, spread
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
    groups = np.array([data.draw(amounts) for _ in workload])
    even = Multipliers.even(workload, scopes, groups)
    rows = []
    for scope, u in zip(scopes.scopes, even.rows, strict=True):
        own = u if scope.fixed else np.array([data.draw(amounts) for _ in u])
        rows.append(own / own.sum())
    return replace(even, rows=tuple(rows))


def weights(multipliers):
    """The weight of every query, in order."""
    return query_rows(multipliers.weighted(np.ones(len(multipliers.groups))))[1]


@fewer(20)
@given(st.data())
def test_merged_families_weigh_every_query_as_before(data):
    multipliers = drawn(data, WORKLOAD, Scopes.of(WORKLOAD))
    finer = merged(WORKLOAD)
    assert [len(g.families) for g in finer] == [1, 1, 0]
    found = spread(multipliers, Multipliers.even(finer, Scopes.of(finer), multipliers.groups))
    np.testing.assert_allclose(weights(found), weights(multipliers), rtol=1e-9)


@fewer(20)
@given(st.data())
def test_multipliers_of_groups_with_targets_are_theirs_among_others(data):
    """The others have none."""
    aimed = WORKLOAD.within(2)
    multipliers = drawn(data, aimed, Scopes.of(aimed))
    every = qs.marginals(SCHEMA, 1) + aimed
    found = spread(multipliers, Multipliers.even(every, Scopes.of(every), np.ones(len(every.groups))))
    others = len(every.groups) - len(aimed.groups)
    assert not found.groups[:others].any()
    own = weights(replace(found, groups=np.maximum(found.groups, 1e-30)))
    np.testing.assert_allclose(own[-len(aimed) :], weights(multipliers), rtol=1e-9)


@pytest.mark.parametrize(("size", "family"), [(36, "prefix"), (30, "range")])
def test_families_of_many_cells_are_not_merged(size, family):
    schema = qs.Schema.of(a=size, b=size)
    workload = qs.queries(schema, a=family, b=family)
    assert merged(workload) is workload


def test_few_groups_that_differ_are_merged_however_many_are_alike():
    alike = qs.all_kway(cube(24, 5), 2, "prefix")
    assert all(len(group.families) == 1 for group in merged(alike))
    schema = qs.Schema.of({f"a{size}": size for size in range(12, 26)})
    pairs = ({f"a{size}": "prefix", f"a{wide}": "range"} for size in range(12, 24) for wide in (24, 25))
    differ = sum((qs.queries(schema, **pair) for pair in pairs), 0)
    assert merged(differ) is differ
