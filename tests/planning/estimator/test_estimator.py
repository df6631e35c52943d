"""The estimator of plans of every kind: variances, coefficients and tables of dense least squares."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError, PlanError, TooLargeError
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.limits import limited
from querysmasher.privacy.measurement import exact_answers
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.release.release import Release
from tests.builders import SPLIT, as_lines, has_lines
from tests.planning.lines.test_forest import trees
from tests.profiles import fewer
from tests.reference import estimates, known_rows, query_rows, variances
from tests.strategies import schemas, workloads

pytestmark = pytest.mark.filterwarnings("ignore::querysmasher.errors.QuerySmasherWarning")  # any family

COUNT = 1000
"""Maximum number of records."""


FAMILIES = ["prefix", "range", "identity", "circular", "halves", "tree", "level", "nested ranges", "ranges"]


@st.composite
def families(draw, schema, name):
    """A family that lines and trees are planned for: also trees of any levels and weights, and one level."""
    n, kind = schema[name].size, draw(st.sampled_from(FAMILIES))
    if kind == "halves":
        return qs.hierarchy(schema, name, [i // 2 for i in range(n)])
    if kind in ("tree", "level"):
        tree = draw(trees(n, leaves=True, least=n))
        return tree if kind == "tree" else qs.hierarchy(schema, name, *(g.tolist() for g in tree.groups[:1]))
    if kind == "nested ranges":
        fine = np.cumsum([0, *(draw(st.booleans()) for _ in range(n - 1))])
        return qs.hierarchy(schema, name, fine // 2, fine, weights=draw(st.sampled_from([None, (3, 1, 2)])))
    if kind == "ranges":
        ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(sorted)
        drawn = [(0, 0), *draw(st.lists(ends, max_size=2))]
        return qs.ranges(schema, name, *zip(*drawn, strict=True))
    return kind


@st.composite
def products(draw, schema):
    """Groups of the families that lines and trees are planned for, each on one attribute."""
    names = draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=3, unique=True))
    asked = {name: draw(families(schema, name)) for name in names}
    return qs.queries(schema, asked, weight=draw(st.sampled_from([1.0, 0.2, 7.0])))


@st.composite
def plans(draw):
    """Plans of every kind: split, whole or both, with lines and trees or without, of public totals or not."""
    schema = draw(schemas(max_attributes=3, max_size=6, max_cells=90))
    asked = draw(products(schema))
    for _ in range(draw(st.integers(0, 2))):
        asked += draw(st.one_of(products(schema), products(schema), workloads(schema, max_groups=1)))
    assume(query_rows(asked)[0].any())
    budget = qs.PrivacyCost(1.0, neighbours=draw(st.sampled_from(["add_remove", "replace_one"])))
    values = draw(st.sampled_from([2, 2, 3, 50]))
    with as_lines(values, line_matrix=draw(MATRIX)), limited(**(SPLIT if draw(st.booleans()) else {})):
        try:
            centering = draw(st.sampled_from(["optimized", "uniform"]))
            return qs.plan(asked, budget, centering=centering, tolerance=1e-2, max_records=COUNT)
        except (PlanError, TooLargeError):  # nothing to measure, or hierarchies that do not nest
            assume(False)


MATRIX = st.sampled_from([0, 50])
"""Up to which size lines are written out."""


def asked_of(plan, data):
    """The planned groups, and others."""
    others = data.draw(workloads(plan.workload.schema, max_groups=2))
    for group in itertools.chain(plan.workload, others):
        queries = query_rows(qs.Workload(plan.workload.schema, (group,)))[0]
        if queries.any():
            yield group, queries


@pytest.mark.slow
@fewer(250)
@given(plans(), st.data())
def test_variances_are_those_of_dense_least_squares(plan, data):
    rows = known_rows(plan)
    private = len(rows) - plan.budget.unit.total_is_public
    largest = max(m.variance for m in plan.measured)
    for group, queries in asked_of(plan, data):
        best = estimates(queries, rows)
        if best is None:
            with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
                plan.estimator.variances(group)
            continue
        best = best[:, :private]
        expected = (best**2).sum(axis=1)
        found = plan.estimator.variances(group)
        assert found.shape == group.shape
        close = {"rtol": 1e-5, "atol": 1e-7 * largest}
        np.testing.assert_allclose(found.ravel(), expected, **close)
        assert plan.estimator.total(group) == pytest.approx(expected.sum(), rel=1e-5, abs=1e-6)
        covariance = sum(
            m.variance * image @ image.T for m, image in plan.estimator.images(group)
        ) + np.zeros((len(queries), len(queries)))
        np.testing.assert_allclose(covariance, best @ best.T, **close)
    plan.estimator.check(plan.workload.groups[0])
    found, (_, weights) = plan.variances(plan.workload), query_rows(plan.workload)
    assert weights @ found == pytest.approx(plan.weighted_loss, rel=1e-6)
    assert np.sqrt(found.mean()) == pytest.approx(plan.rmse, rel=1e-6)
    assert plan.privacy_cost == pytest.approx(1.0)


def exact_release(plan, table, most=10**6):
    """A release without noise, of a table of all counts."""
    whole = integer_plan(plan, plan.budget.privacy_cost, most)
    store = MemoryStore()
    for number, measured in enumerate(whole.measured):
        others = tuple(a for a in range(table.ndim) if a not in measured.attributes)
        store.put(number, exact_answers(whole, measured, table.sum(axis=others)))
    total = int(table.sum()) if plan.budget.unit.total_is_public else None
    return Release(whole, plan.workload, plan.centres, NoiseRecord("rounded", "", True), store, total)


@pytest.mark.slow
@fewer(150)
@given(plans(), st.data())
def test_releases_are_unbiased_and_know_their_errors(plan, data):
    """Without noise every answer is exact; errors are those of the plan, up to rounding; files keep both."""
    schema = plan.workload.schema
    cells = st.lists(st.integers(0, math.prod(schema.sizes) - 1), min_size=1, max_size=8)
    table = np.bincount(data.draw(cells), minlength=math.prod(schema.sizes)).reshape(schema.sizes) * 100
    release = exact_release(plan, table, COUNT)
    for group, queries in asked_of(plan, data):
        try:
            planned = plan.estimator.variances(group)
        except OutsideMeasuredSpaceError:
            with pytest.raises(OutsideMeasuredSpaceError):
                release.answer_group(group)
            continue
        values, std = release.answer_group(group)
        scale = np.abs(queries).max() * table.sum()
        np.testing.assert_allclose(values.ravel(), queries @ table.ravel(), rtol=1e-6, atol=1e-6 * scale)
        np.testing.assert_allclose(std**2, planned, rtol=0.05, atol=1e-6 * planned.max())
        covariance = release.covariance(qs.Workload(schema, (group,)))
        np.testing.assert_allclose(np.diag(covariance), std.ravel() ** 2, rtol=1e-6, atol=1e-9)


def test_the_plans_above_are_of_every_kind():
    """Lines beside whole queries, trees beside lines, two lines in one group: each comes up by itself."""
    schema = qs.Schema.of(a=6, b=5, c=2)
    tree = qs.hierarchy(schema, "b", [0, 0, 1, 1, 1])
    tables = qs.queries(schema, a="prefix", c="identity") + qs.queries(schema, a="range")
    for more in (
        qs.queries(schema, a="range", b="prefix", c="identity"),
        qs.queries(schema, b=tree) + qs.queries(schema, a="prefix", b=tree),
    ):
        with as_lines(3, line_matrix=0), limited(**SPLIT):
            plan = qs.plan(tables + more, qs.PrivacyCost(1.0), max_records=COUNT)
        assert has_lines(plan)
        np.testing.assert_allclose(plan.variances(plan.workload), variances(plan, plan.workload), rtol=1e-6)
