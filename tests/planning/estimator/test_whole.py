"""Whole measurements, several or beside residual ones: the variances and answers of dense least squares."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.whole import CombinedEstimator, Whole
from querysmasher.planning.solution import Measured
from querysmasher.privacy.unit import Known
from tests.builders import plan_split
from tests.profiles import fewer
from tests.reference import PUBLIC, estimates, known_rows, marginal_map, query_rows
from tests.strategies import matrices, schemas, workloads


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


def asked_of(schema, one):
    """The rows of a whole measurement, as queries."""
    tensor = one.rows
    for axis, own in enumerate(one.maps, start=1):
        tensor = tensor.take(own, axis=axis)
    return qs.linear(schema, [schema.names[a] for a in one.attributes], tensor.reshape(len(one.rows), -1))


def rows_of(schema, one):
    """The rows of a whole measurement over the whole domain, of noise variance one."""
    return query_rows(asked_of(schema, one))[0] / math.sqrt(one.variance)


@fewer(30)
@given(st.data())
def test_variances_beside_residual_measurements_are_those_of_dense_least_squares(data):
    workload = data.draw(workloads(max_groups=2))
    schema = workload.schema
    assume(np.prod(schema.sizes) <= 60)
    assume(query_rows(workload)[0].any())
    plan = plan_split(workload, centering=data.draw(st.sampled_from(["uniform", "optimized"])))
    own = [data.draw(wholes(schema)) for _ in range(data.draw(st.integers(1, 2)))]
    combination = CombinedEstimator(plan.estimator, own)
    rows = np.concatenate([known_rows(plan), *(rows_of(schema, one) for one in own)])
    # what was planned, and what only the whole measurements know
    for group in itertools.chain(workload, *(asked_of(schema, one) for one in own)):
        best = estimates(query_rows(qs.Workload(schema, (group,)))[0], rows)
        expected = (best**2).sum(axis=1)
        found = combination.variances(group).ravel()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())


def beside_total(schema, own, total, public=False):
    """Whole measurements, and the total: unknown, measured or public."""
    measured = {} if total is None else {(): (Measured((), (), total, 1.0),)}
    known = Known((frozenset(),) if public else ())
    return CombinedEstimator(Estimator(schema, uniform(schema), [], measured, known), own)


@fewer(40)
@given(st.data())
def test_answers_are_those_of_dense_generalised_least_squares(data):
    schema = data.draw(schemas(max_attributes=3, max_size=4, max_cells=36))
    own = data.draw(st.lists(wholes(schema), min_size=1, max_size=3))
    total, public = data.draw(st.sampled_from([(None, False), (0.7, False), (None, True)]))
    estimator = beside_total(schema, own, total, public)
    rows = [rows_of(schema, one) for one in own]
    noise = np.concatenate([np.full(len(one.rows), one.variance) for one in own])
    if total is not None or public:
        noise = np.append(noise, PUBLIC if public else total)
        rows.append(np.full((1, math.prod(schema.sizes)), 1 / math.sqrt(noise[-1])))
    rows, private = np.concatenate(rows), noise != PUBLIC
    answers, whole_count = np.arange(1.0, len(rows) + 1), sum(len(one.rows) for one in own)
    known = total is not None or public

    def residuals(attributes):  # nothing but the total, the last answer, if that is known
        return np.array(answers[-1]) if known and not attributes else None

    later = asked_of(schema, data.draw(st.sampled_from(own)))
    for group in itertools.chain(later, data.draw(workloads(st.just(schema), max_groups=1))):
        queries = query_rows(qs.Workload(schema, (group,)))[0]
        assume(queries.any())
        best = estimates(queries, rows)
        if best is None:
            with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
                estimator.variances(group)
            continue
        expected = (best[:, private] ** 2).sum(axis=1)
        found = estimator.variances(group).ravel()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * noise.max())
        places = tuple(sorted(schema.positions(group.attributes)))
        table = estimator.table(places, residuals, lambda: answers[:whole_count])
        marginal = np.linalg.lstsq(marginal_map(schema, places).T, queries.T, rcond=None)[0].T
        best = best / np.sqrt(noise)
        scale = np.abs(best) @ answers + 1
        assert np.abs(marginal @ table.ravel() - best @ answers).max() <= 1e-5 * scale.max()


def test_rare_combinations_are_seen_beside_the_total():
    """One cell of 10^12 is a query of its own, and not the total's."""
    schema = qs.Schema.of(a=1_000, b=1_000, c=1_000, d=1_000)
    maps = (np.arange(1_000) == 3).astype(int)
    rows = np.full((1, 2, 2, 2, 2), -0.5)
    rows[0, 1, 1, 1, 1] = 0.5
    estimator = beside_total(schema, [whole((0, 1, 2, 3), (maps,) * 4, rows)], 4.0)
    (asked,) = qs.where(schema, "a == 3 and b == 3 and c == 3 and d == 3")
    assert estimator.variances(asked).item() == pytest.approx(1 + 4 / 4)
    for words in ("a == 3 and b == 3 and c == 3 and d == 4", "a == 3 and b == 3 and c == 3"):
        with pytest.raises(OutsideMeasuredSpaceError):
            estimator.variances(qs.where(schema, words).groups[0])


@pytest.mark.parametrize(("scale", "variance"), [(1.0, 1.0), (0.1, 0.04)])
def test_rows_that_are_known_already_are_only_measured_again(scale, variance):
    """Of a row that the base measures nothing is unknown, up to rounding errors; no other answer is worse."""
    schema = qs.Schema.of(a=5, b=4)
    rows = np.zeros((1, 5, 4))
    rows[0, 1:3, :3] = scale
    asked = qs.linear(schema, ("a", "b"), rows.reshape(1, -1))
    for workload in (asked, qs.all_kway(schema, [1, 2], "prefix")):
        plan = plan_split(workload)
        one = whole((0, 1), (np.arange(5), np.arange(4)), rows, variance)
        combination = CombinedEstimator(plan.estimator, [one])
        (found,), (alone,) = combination.variances(asked.groups[0]), plan.variances(asked)
        assert found == pytest.approx(1 / (1 / variance + 1 / alone), rel=1e-6)
        for group in workload:
            assert np.all(combination.variances(group) <= plan.estimator.variances(group) * (1 + 1e-12))


def test_the_total_of_all_ranges_is_known_without_writing_them_out(monkeypatch):
    """All ranges of 1,320 values would take 9 GB."""
    schema = qs.Schema.of(a=30, b=3)
    workload = qs.queries(schema, a="range", b="identity")
    rows = np.zeros((1, 30, 3))
    rows[0, :10, 1] = 1.0
    one = whole((0, 1), (np.arange(30), np.arange(3)), rows)
    (group,), plan = workload, plan_split(workload)
    expected = CombinedEstimator(plan.estimator, [one]).variances(group).sum()

    def written_out(family):
        raise AssertionError(f"{family} is written out")

    monkeypatch.setattr(type(group.families[0]), "matrix", written_out)
    combination = CombinedEstimator(plan_split(workload).estimator, [one])
    assert combination.total(group) == pytest.approx(expected, rel=1e-9)
    assert combination.total(group) < plan.estimator.total(group)


def test_totals_of_many_queries_measured_whole_take_no_more_rows_than_cells(monkeypatch):
    schema = qs.Schema.of(a=5, b=6, c=3)
    ranges = qs.queries(schema, a="range", b="circular", c="identity")
    sums = qs.linear(schema, ("a", "b"), np.random.default_rng(0).integers(0, 5, (40, 30)))
    workload = ranges + 30 * qs.marginals(schema, [1, 2]) + 20 * sums
    plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"), mechanism="whole")
    assert isinstance(plan.estimator, CombinedEstimator)
    sizes, variances = [], CombinedEstimator.variances
    expected = [plan.estimator.variances(group).sum() for group in workload]

    def counted(estimator, group):
        sizes.append(group.rows)
        return variances(estimator, group)

    monkeypatch.setattr(CombinedEstimator, "variances", counted)
    assert [plan.estimator.total(group) for group in workload] == pytest.approx(expected, rel=1e-9)
    assert max(sizes) == 5 * 6 * 3 < max(group.rows for group in workload)


def test_ranges_of_few_ends_beside_a_whole_query_are_answered():
    """Rounding errors of long queries are small beside the queries, not beside their means over all cells."""
    schema = qs.Schema.of(a=309, b=254, c=11)
    first, last = np.sort(np.random.default_rng(0).integers(0, 309, (2, 20)), axis=0)
    workload = qs.queries(schema, a=qs.ranges(schema, "a", first, last), b="range")
    workload += 1.5 * qs.queries(schema, a="prefix", c="range") + 3 * qs.queries(schema, c="prefix")
    plan = qs.plan(workload + 4 * qs.where(schema, "a < 103 and c == 1"), qs.PrivacyCost(1.0))
    assert plan.whole == (3,)
    assert plan.rmse == pytest.approx(math.sqrt(plan.variances(plan.workload).mean()), rel=1e-9)
