"""The estimator of plans of every kind: variances, coefficients and tables of dense least squares."""

import itertools
import math
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError, PlanError, TooLargeError
from querysmasher.planning.limits import limited
from querysmasher.workload.families import Identity, Prefix, Range
from querysmasher.workload.joint import AbsDifference, Affine, Rows
from querysmasher.workload.workload import Group
from tests.builders import COST, SPLIT, as_lines, has_lines, plan_split, plan_uniform
from tests.profiles import fewer
from tests.reference import estimates, known_rows, mechanism, query_rows, split_variances, variances
from tests.release.tables import exact_release
from tests.strategies import groups, matrix, schemas, trees, workloads

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
        drawn = draw(st.lists(ends, min_size=1, max_size=3))
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
@fewer(150)
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


@pytest.mark.slow
@fewer(100)
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


# --- queries asked later -------------------------------------------------------------------------


SCHEMA = qs.Schema.of(d=4, a=3, c=2, b=3)


def joint(attributes, *families, weight=1.0):
    return qs.Workload(SCHEMA, (Group(tuple(attributes), families, weight),))


def agrees(plan, workload):
    np.testing.assert_allclose(plan.variances(workload), variances(plan, workload), rtol=1e-6, atol=1e-9)


PLANS = {
    "prefix": lambda: plan_uniform(qs.all_kway(SCHEMA, [1, 2, 3], "prefix"), COST),
    "mixed": lambda: plan_uniform(qs.all_kway(SCHEMA, 3, "range") + qs.marginals(SCHEMA, 3), COST),
    "structured": lambda: plan_uniform(
        qs.all_kway(SCHEMA, 3, "range") + qs.marginals(SCHEMA, 3), COST, solver="structured"
    ),
    "marginals": lambda: plan_uniform(qs.marginals(SCHEMA, 3), COST),
    "tied": lambda: (
        plan_uniform(  # {a, b} and {c, d} are measured jointly, every triple as a pair and a single
            qs.marginals(SCHEMA, [1, 2])
            + qs.linear(SCHEMA, ("a", "b"), matrix(12, 9, seed=3))
            + joint("abc", Rows((3, 3), matrix(12, 9, seed=3)), Identity((2,)))
            + joint("cda", Rows((2, 4), matrix(10, 8, seed=4)), Prefix((3,)))
            + qs.marginals(SCHEMA, 3),
            COST,
        )
    ),
    "joint": lambda: plan_uniform(joint("bac", Rows((3, 3), matrix(12, 9, seed=5)), Range((2,))), COST),
}


@cache
def planned(name):
    return PLANS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prefix", "mixed", "structured", "marginals", "tied"])
@pytest.mark.parametrize(
    "workload",
    [
        qs.all_kway(SCHEMA, [0, 1, 2, 3], "range"),
        qs.all_kway(SCHEMA, [1, 2], "circular"),
        qs.where(SCHEMA, "a + b <= 2 and d > 1"),
        qs.where(SCHEMA, "a == 1 or b == 2 or c == 0"),
        qs.affine(SCHEMA, "a", "b"),
        qs.affine(SCHEMA, "b", "d"),
        qs.affine(SCHEMA, "d", "b"),
        qs.abs_difference(SCHEMA, "c", "d"),
        qs.linear(SCHEMA, ("b", "d", "a"), matrix(3, 36, seed=1)),
        qs.linear(SCHEMA, ("a", "b", "d"), matrix(40, 36, seed=2)),
        joint("bda", Affine((3, 4)), Prefix((3,))),
        joint("adb", Prefix((3,)), Affine((4, 3))),
        joint("cba", Range((2,)), AbsDifference((3, 3))),
        joint("bca", Identity((3,)), Rows((2, 3), matrix(4, 6, seed=6))),
        joint("cab", Rows((2,), [[1, -1], [1, 1]]), Rows((3, 3), matrix(3, 9, seed=7))),
    ],
    ids=lambda w: "; ".join(g.describe() for g in w)[:50],
)
def test_queries_asked_later_have_the_variance_of_the_best_estimate(name, workload):
    agrees(planned(name), workload)


def test_a_joint_family_may_straddle_what_is_measured_jointly():
    tied, joint_only = planned("tied"), planned("joint")
    shapes = {tuple(axes for axes, _ in m.blocks) for m in tied.measured if len(m.attributes) == 3}
    assert any(len(axes) == 2 for blocks in shapes for axes in blocks), "something is measured jointly"
    agrees(tied, qs.linear(SCHEMA, ("a", "c"), matrix(3, 6, seed=8)))
    for order in itertools.permutations("abc"):  # families (x, y) and (z), across the blocks (a, b) and (c)
        shape = [SCHEMA[n].size for n in order]
        rows = Rows(tuple(shape[:2]), matrix(3, shape[0] * shape[1], seed=9))
        agrees(joint_only, joint(order, rows, Identity((shape[2],))))


@pytest.mark.filterwarnings("ignore::querysmasher.errors.QuerySmasherWarning")  # any family of any attribute
@fewer(40)
@given(st.data())
def test_random_queries_of_any_kind_agree_with_the_best_estimate(data):
    schema = data.draw(schemas(max_attributes=3, max_size=4, max_cells=40))
    ways = range(len(schema) + 1)
    asked = data.draw(st.sampled_from(["identity", "prefix", "range", "mixed"]))
    workload = qs.marginals(schema, ways) if asked == "mixed" else qs.all_kway(schema, ways, asked)
    for group in data.draw(st.lists(groups(schema), max_size=2)):
        workload += qs.Workload(schema, (group,))
    solver = data.draw(st.sampled_from(["optimal", "structured"]))
    plan = plan_uniform(workload, COST, solver=solver)
    later = qs.Workload(schema, tuple(data.draw(st.lists(groups(schema), min_size=1, max_size=3))))
    agrees(plan, later)


@settings(max_examples=40)
@given(st.data())
def test_images_give_variances_and_covariances(data):
    """q B† for all queries: scalar products, times the noise, are the covariances of the answers."""
    workload = qs.Workload(SCHEMA, (data.draw(groups(SCHEMA)),))
    assume(len(workload) <= 200)
    plan = planned(data.draw(st.sampled_from(["prefix", "mixed", "structured", "tied"])))
    images = list(plan.estimator.images(workload.groups[0]))
    found = sum((m.variance * image @ image.T for m, image in images), np.zeros((len(workload),) * 2))
    rows, _ = query_rows(workload)
    image = rows @ np.linalg.pinv(mechanism(plan), rcond=1e-10)
    np.testing.assert_allclose(found, image @ image.T, atol=1e-6 * (image**2).sum(axis=1).max() + 1e-12)
    np.testing.assert_allclose(np.diag(found), plan.variances(workload), rtol=1e-8, atol=1e-9)


def test_later_weights_do_not_change_variances():
    plan = planned("prefix")
    workload = qs.linear(SCHEMA, ("a", "b"), np.eye(9))
    heavy = qs.linear(SCHEMA, ("a", "b"), np.eye(9), weights=np.arange(1.0, 10.0))
    np.testing.assert_array_equal(plan.variances(workload), plan.variances(5.0 * heavy))


def test_what_one_group_taught_is_right_for_the_next():
    """The estimator caches by content: attributes of equal size, other indexes, other orders."""
    schema = qs.Schema.of(a=3, b=3, c=3)
    plan = plan_uniform(
        qs.queries(schema, a="prefix", b=[[1, 0, 0], [0, 1, 0]], c="range")
        + qs.marginals(schema, 3, weight=0.1)
        + 5.0 * qs.queries(schema, a="identity", c="prefix"),
        COST,
    )
    rows = matrix(2, 9, seed=11)
    for pair in itertools.permutations("abc", 2):
        workload = qs.linear(schema, pair, rows)
        agrees(plan, workload)
        agrees(plan, qs.queries(schema, {pair[0]: "prefix", pair[1]: "range"}))


def test_attributes_of_the_same_size_with_different_centres_are_kept_apart():
    schema = qs.Schema.of(a=5, b=5)
    workload = (
        qs.queries(schema, a="prefix") + qs.queries(schema, b=np.tri(5)[:, ::-1]) + qs.marginals(schema, 2)
    )
    plan = plan_split(workload)
    assert np.abs(plan.centres[0].weights - plan.centres[1].weights).max() > 0.01
    later = qs.all_kway(schema, [1, 2], "range") + qs.affine(schema, "a", "b") + qs.affine(schema, "b", "a")
    np.testing.assert_allclose(plan.variances(later), split_variances(plan, later), rtol=1e-7)


# --- outside -----------------------------------------------------------------------------------


def test_missing_attribute_sets_are_all_named(refuses):
    plan = plan_uniform(qs.marginals(SCHEMA, 1), COST)
    with refuses(OutsideMeasuredSpaceError, ValueError, "(a, b)", "a and b were not planned together") as _:
        plan.variances(qs.queries(SCHEMA, a="prefix", b="prefix"))
    with pytest.raises(OutsideMeasuredSpaceError) as caught:
        plan.variances(qs.queries(SCHEMA, b="prefix", d="prefix", a="prefix"))
    named = set(re.findall(r"[:;] ([^;:]*) were not planned together", str(caught.value)))
    assert named == {"d and a", "d and b", "a and b", "d, a and b"}


def test_only_what_a_query_really_needs_must_be_measured():
    plan = plan_uniform(qs.marginals(SCHEMA, 1), COST)
    agrees(plan, qs.linear(SCHEMA, ("a", "c"), [[1, 1, 2, 2, 0, 0]]))  # does not depend on c
    contrast = plan_uniform(qs.queries(SCHEMA, a=[[1, -1, 0], [0, 1, -1]]), COST)
    agrees(contrast, qs.queries(SCHEMA, a=[[2, -1, -1]]))
    with pytest.raises(OutsideMeasuredSpaceError, match="the total was not planned"):
        contrast.variances(qs.queries(SCHEMA, a=[[1, 0, 0]]))  # needs the total, which is not measured


@pytest.mark.parametrize("solver", ["optimal", "structured"])
def test_queries_outside_a_deficient_span_are_refused(solver, refuses):
    schema = qs.Schema.of(a=5, b=4)
    plan = plan_uniform(
        qs.queries(schema, a=[[1, 1, 0, 0, 0], [0, 0, 0, 1, 1]], b="prefix"), COST, solver=solver
    )
    agrees(plan, qs.queries(schema, a=[[1, 1, 0, 0, 0], [1, 1, 0, -2, -2], [1, 1, 0, 1, 1]], b="range"))
    for rows in ([[1, 0, 0, 0, 0]], [[1, 1, 0, 0, 0], [0, 0, 0, 1, 0]], [[1, 1.001, 0, 0, 0]]):
        with refuses(OutsideMeasuredSpaceError, ValueError, "only for other queries", "(a"):
            plan.variances(qs.queries(schema, a=rows, b="range"))
    with refuses(OutsideMeasuredSpaceError, ValueError, "only for other queries"):
        plan.variances(qs.queries(schema, a="identity"))


def test_combinations_of_affine_queries_are_inside_and_marginals_are_not(refuses):
    schema = qs.Schema.of(a=5, b=4)
    plan = plan_uniform(qs.affine(schema, "a", "b"), COST)
    agrees(plan, qs.affine(schema, "a", "b"))
    exactly = np.diff(Affine((5, 4)).matrix(), axis=0)  # a + b == c
    agrees(plan, qs.linear(schema, ("a", "b"), exactly))
    for workload in (
        qs.marginals(schema, 2),
        qs.abs_difference(schema, "a", "b"),
        qs.linear(schema, ("a", "b"), np.eye(20)[3:4]),
    ):
        with refuses(OutsideMeasuredSpaceError, ValueError, "only for other queries"):
            plan.variances(workload)


def test_a_joint_query_across_deficient_blocks_is_refused(refuses):
    schema = qs.Schema.of(a=4, b=3)
    plan = plan_uniform(qs.queries(schema, a=[[1, 1, 0, 0], [1, 0, 0, 0]], b="prefix"), COST)
    inside = np.kron([[1, 1, 0, 0], [2, 0, 0, 0]], [[1, 0, 2]]) + np.kron([[1, 0, 0, 0]], [[0, 1, 0]])
    agrees(plan, qs.linear(schema, ("a", "b"), inside))
    with refuses(OutsideMeasuredSpaceError, ValueError, "only for other queries"):
        plan.variances(qs.linear(schema, ("a", "b"), np.eye(12)[7:8]))


def test_workloads_on_other_schemas_are_refused(refuses):
    plan = planned("prefix")
    with refuses(OutsideMeasuredSpaceError, ValueError, "differs from that of the plan"):
        plan.variances(qs.marginals(qs.Schema.of(a=3), 1))
    with refuses(OutsideMeasuredSpaceError, ValueError, "expected a Workload", "'a'"):
        plan.variances("a")
    with refuses(OutsideMeasuredSpaceError, ValueError, "differs from that of the plan"):
        list(plan.summary(qs.marginals(qs.Schema.of(a=3), 1)))


def test_results_too_large_to_hold_are_refused(limit_planning, refuses):
    plan = planned("prefix")
    with limited(variances=10), refuses(TooLargeError, ValueError, "12 variances"):
        plan.variances(qs.linear(SCHEMA, "a", matrix(12, 3, seed=0)))
    fresh = plan_uniform(qs.all_kway(SCHEMA, 2, "prefix"), COST)
    limit_planning(merged_entries=10)
    with refuses(TooLargeError, ValueError, "(a, b)", "5 queries", "9 cells"):
        fresh.variances(qs.affine(SCHEMA, "a", "b"))


# --- a public number of records ----------------------------------------------------------------


def test_a_public_total_costs_nothing_and_is_known():
    budget = qs.PrivacyCost(1.0, neighbours="replace_one")
    plan = plan_uniform(qs.marginals(SCHEMA, [0, 1]), budget)
    assert () not in {m.attributes for m in plan.measured}
    np.testing.assert_array_equal(plan.variances(qs.marginals(SCHEMA, 0)), [0.0])
    np.testing.assert_allclose(plan.variances(qs.linear(SCHEMA, "a", [[1, 1, 1]])), [0.0])
    assert plan.variances(qs.marginals(SCHEMA, 1)).min() > 0
