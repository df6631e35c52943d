"""Whole measurements beside residual ones: the variances of dense generalised least squares."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.estimator.whole import CombinedEstimator, Whole
from querysmasher.planning.solution import Measured
from tests.builders import plan_split
from tests.profiles import fewer
from tests.reference import marginal_map, query_rows
from tests.strategies import matrices, workloads


def residual_rows(plan):
    """The rows of all residual measurements over the whole domain, and their noise variances."""
    rows, noise = [], []
    for m in plan.measured:
        own = np.ones((1, 1))
        order = []
        for axes, number in m.blocks:
            own = np.kron(own, plan.solutions[number].strategy.written_out())
            order += axes
        sizes = [plan.workload.schema.sizes[m.attributes[a]] for a in order]
        tensor = own.reshape(-1, *sizes).transpose(0, *(1 + np.argsort(order)))
        rows.append(tensor.reshape(len(tensor), -1) @ marginal_map(plan.workload.schema, m.attributes))
        noise.append(np.full(len(tensor), m.variance))
    return np.concatenate(rows), np.concatenate(noise)


def over_cells(whole):
    """The rows over the cells of their attributes."""
    tensor = whole.rows
    for axis, own in enumerate(whole.maps, start=1):
        tensor = tensor.take(own, axis=axis)
    return tensor


def whole_rows(schema, whole):
    """The rows of a whole measurement over the whole domain."""
    return over_cells(whole).reshape(len(whole.rows), -1) @ marginal_map(schema, whole.attributes)


def best_variances(queries, rows, noise):
    """The variances of the best linear unbiased estimates, or None where a query is not in the span."""
    scaled = rows / np.sqrt(noise)[:, None]
    inverse = np.linalg.pinv(scaled, rcond=1e-11)
    image = queries @ inverse
    if np.abs(image @ scaled - queries).max() > 1e-7 * np.abs(queries).max():
        return None
    return (image**2).sum(axis=1)


def whole(attributes, maps, rows, variance=1.0):
    """Rows that are measured as they are, with noise of one variance."""
    return Whole(attributes, tuple(maps), rows, (Measured(attributes, (), variance, 0.0),))


@st.composite
def wholes(draw, schema):
    """Random rows on random attributes, whose values fall into random classes."""
    count = len(schema)
    places = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=min(3, count)).map(sorted))
    maps = []
    for place in places:
        n = schema.sizes[place]
        labels = draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n))
        maps.append(np.unique(labels, return_inverse=True)[1])
    classes = [int(own.max()) + 1 for own in maps]
    rows = draw(matrices(draw(st.integers(1, 3)), int(np.prod(classes))))
    assume(rows.any(axis=1).all())
    return whole(tuple(places), maps, rows.reshape(-1, *classes), draw(st.floats(0.1, 10)))


@fewer(30)
@given(st.data())
def test_variances_are_those_of_dense_generalised_least_squares(data):
    workload = data.draw(workloads(max_groups=2))
    schema = workload.schema
    assume(np.prod(schema.sizes) <= 60)
    asked = query_rows(workload)[0]
    assume(asked.any())
    plan = plan_split(workload, centering=data.draw(st.sampled_from(["uniform", "optimized"])))
    own = [data.draw(wholes(schema)) for _ in range(data.draw(st.integers(1, 2)))]
    combination = CombinedEstimator(plan.estimator, own)
    rows, noise = residual_rows(plan)
    rows = np.concatenate([rows, *(whole_rows(schema, one) for one in own)])
    noise = np.concatenate([noise, *(np.full(len(one.rows), one.variance) for one in own)])
    # what was planned, and what only the whole measurements know
    for one in own:
        names = [schema.names[a] for a in one.attributes]
        later = qs.linear(schema, names, over_cells(one).reshape(len(one.rows), -1))
        for group in itertools.chain(workload, later):
            queries = query_rows(qs.Workload(schema, (group,)))[0]
            expected = best_variances(queries, rows, noise)
            assert expected is not None
            found = combination.variances(group).ravel()
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())


def test_what_nobody_measured_is_refused():
    schema = qs.Schema.of(a=3, b=4)
    plan = plan_split(qs.queries(schema, a="identity"))
    one = whole((0, 1), (np.array([0, 1, 1]), np.array([0, 0, 1, 1])), np.eye(2)[None])
    combination = CombinedEstimator(plan.estimator, [one])
    (known,) = qs.linear(schema, ("a", "b"), np.eye(2)[[0, 1, 1]][:, [0, 0, 1, 1]].reshape(1, -1))
    assert combination.variances(known) < 1
    for asked in (qs.queries(schema, b="identity"), qs.where(schema, "a == 0 and b == 0")):
        with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
            combination.variances(asked.groups[0])


def test_measuring_again_never_hurts():
    schema = qs.Schema.of(a=6, b=5)
    workload = qs.all_kway(schema, [1, 2], "prefix")
    plan = plan_split(workload)
    rows = np.zeros((1, 6, 5))
    rows[0, :3, :2] = 1
    (asked,) = qs.linear(schema, ("a", "b"), rows.reshape(1, -1))
    one = whole((0, 1), (np.arange(6), np.arange(5)), rows)
    combination = CombinedEstimator(plan.estimator, [one])
    for group in workload:
        assert np.all(combination.variances(group) <= plan.estimator.variances(group) * (1 + 1e-12))
    alone = plan.estimator.variances(asked).item()
    assert combination.variances(asked).item() == pytest.approx(1 / (1 + 1 / alone))


def test_rows_that_are_known_already_are_only_measured_again():
    """The base measures one row of each set: nothing of the same row is unknown, up to rounding errors."""
    schema = qs.Schema.of(a=5, b=4)
    rows = np.zeros((1, 5, 4))
    rows[0, 1:3, :3] = 0.1
    workload = qs.linear(schema, ("a", "b"), rows.reshape(1, -1))
    plan = plan_split(workload)
    one = whole((0, 1), (np.arange(5), np.arange(4)), rows, 0.04)
    (found,) = CombinedEstimator(plan.estimator, [one]).variances(workload.groups[0])
    (alone,) = plan.variances(workload)
    assert found == pytest.approx(1 / (1 / 0.04 + 1 / alone), rel=1e-6)
