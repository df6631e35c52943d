"""Queries given one by one are planned as one family, and families of products are merged into one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.limits import limited
from querysmasher.planning.objectives.multipliers import Joined, Multipliers, Scopes, merged
from querysmasher.workload.workload import Group
from tests.builders import COST, plan_uniform
from tests.planning.drawn import drawn
from tests.reference import query_rows, variances
from tests.strategies import matrices, schemas, weights

AIMS = st.none() | st.sampled_from([0.5, 1.0, 3.0, 8.0, 1e5])


@st.composite
def single_queries(draw):
    """Queries on the first attributes, one or two at a time, each with its own weight and target."""
    schema = draw(schemas(max_attributes=2, max_size=4, max_cells=12))
    parts = [qs.all_kway(schema, [1])]
    for _ in range(draw(st.integers(2, 5))):
        names = draw(st.sampled_from([schema.names[:1], schema.names]))
        rows = draw(matrices(draw(st.integers(1, 2)), int(np.prod(schema.shape(names)))))
        part, aim = draw(weights) * qs.linear(schema, names, rows), draw(AIMS)
        parts.append(part if aim is None else part.within(aim))
    return sum(draw(st.permutations(parts)), 0)


@settings(max_examples=30)
@given(single_queries())
def test_joined_queries_have_the_same_loss_and_ratios(workload):
    joined = Joined.of(workload)
    assert sorted(p for own in joined.members for p in own) == list(range(len(workload.groups)))
    plan = joined.restored(plan_uniform(_without_targets(joined.workload), COST))
    assert plan.workload is workload
    _, own = query_rows(workload)
    assert plan.weighted_loss == pytest.approx(own @ variances(plan, workload), rel=1e-6)
    for one, group in zip(joined.workload, joined.members, strict=True):
        ratio = np.sqrt(plan.variances(qs.Workload(workload.schema, (one,))).max()) / _aim(one)
        asked = [workload.groups[p] for p in group]
        each = [np.sqrt(plan.variances(qs.Workload(workload.schema, (g,))).max()) / _aim(g) for g in asked]
        assert ratio == pytest.approx(max(each), rel=1e-9)


@pytest.mark.parametrize("seed", [2_100_016, *range(20)])
def test_a_multiple_of_all_weights_is_planned_with_the_same_weights(seed):
    """Of seed 2,100,016, every third multiple once had other weights in the 13th digit."""
    workload, _ = drawn(seed)
    weights = _weights(workload)
    own = [index for members in Joined.of(workload).members for index in members]
    given = np.concatenate([workload.groups[i].query_weights() for i in own])
    np.testing.assert_allclose(weights, given / max(g.weight for g in workload), rtol=1e-10)
    for factor in 10 ** np.random.default_rng(seed).uniform(-8, 8, 30):
        np.testing.assert_array_equal(_weights(float(factor) * workload), weights)


def _weights(workload):
    return np.concatenate([group.query_weights() for group in Joined.of(workload).workload])


def _aim(group):
    return 1.0 if group.target is None else group.target.std


def _without_targets(workload):
    groups = (Group(g.attributes, g.families, g.weight) for g in workload)
    return qs.Workload(workload.schema, tuple(groups))


def test_a_plan_of_joined_queries_says_which_groups_are_whole():
    schema = qs.Schema.of(a=5, b=4, c=3, d=6)
    few = [qs.where(schema, f"a < {i} or b + c < {i + 2}") for i in range(1, 5)]
    workload = 10 * few[0] + qs.all_kway(schema, [1, 2], "prefix") + 10 * sum(few[1:])
    assert len(Joined.of(workload).workload.groups) == len(workload.groups) - 3
    with limited(whole_work=0, threaded_cells=-1):
        plan = qs.plan(workload, COST)
    last = len(workload.groups)
    assert plan.whole == (0, last - 3, last - 2, last - 1)


def test_merging_keeps_the_queries_and_their_weights():
    schema = qs.Schema.of(a=3, b=4, c=2)
    workload = 2 * qs.queries(schema, a="prefix", c="identity", b="prefix") + qs.queries(schema, b="prefix")
    again = merged(workload)
    assert [len(g.families) for g in workload] == [3, 1]
    assert [len(g.families) for g in again] == [2, 1]
    for mine, theirs in zip(query_rows(again), query_rows(workload), strict=True):
        assert sorted(map(tuple, np.atleast_2d(mine.T).T.tolist())) == sorted(
            map(tuple, np.atleast_2d(theirs.T).T.tolist())
        )


def test_multipliers_are_added_in_the_same_group_if_they_vary_along_one_family():
    """A copy would be measured by itself beside a group that is measured whole."""
    schema = qs.Schema.of(a=3, b=2)
    workload = 2 * qs.queries(schema, a="prefix", b="identity") + 3 * qs.queries(schema, b="identity")
    scopes = Scopes.of(workload, added=True)
    even = Multipliers.even(workload, scopes, np.array([6.0, 8.0]))
    rows = tuple(np.arange(1, len(u) + 1) / 6 if len(u) == 3 else u for u in even.rows)
    weighted = replace(even, rows=rows).weighted(np.array([4.0, 1.0]), added=True)
    expected = np.concatenate([np.repeat(2 + 6 / 4 / 2 * np.array([1, 2, 3]) / 6, 2), [3 + 4, 3 + 4]])
    assert len(weighted.groups) == 2
    np.testing.assert_allclose(query_rows(weighted)[1], expected)
