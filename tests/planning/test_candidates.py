"""Which queries are measured as they are: the default plan against the optimum over all mechanisms."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.limits import limited
from tests.builders import COST, cps, plan_split
from tests.profiles import fewer
from tests.reference import (
    estimates,
    marginal_map,
    measured_rows,
    query_rows,
    root_bounds,
    split_map,
    subsets,
)
from tests.strategies import schemas, workloads


def least_loss(rows, weights, steps=2_000):
    """A lower bound on the loss of any mechanism, and nearly the optimum."""
    return root_bounds(rows * np.sqrt(weights)[:, None], steps, 5e-8)[0] ** 2


@fewer(30)
@given(st.data())
def test_the_default_is_within_two_percent_of_any_mechanism(data):
    workload = data.draw(workloads(schemas(max_attributes=3, max_size=5, max_cells=60), max_groups=3))
    scales = [10.0 ** data.draw(st.integers(-4, 4)) for _ in workload.groups]
    parts = [qs.Workload(workload.schema, (g,)) for g in workload]
    workload = sum(scale * part for scale, part in zip(scales, parts, strict=True))
    rows, weights = query_rows(workload)
    assume(rows.any())
    try:
        plan = qs.plan(workload, COST)
    except qs.PlanError:  # cannot be measured in integers: too far apart
        assume(False)
    least = least_loss(rows, weights)
    assert least <= plan.weighted_loss * (1 + 1e-6)
    assert plan.weighted_loss <= 1.04 * least
    assert weights @ plan.variances(workload) == pytest.approx(plan.weighted_loss, rel=1e-6)
    assert plan.privacy_cost == pytest.approx(1.0)


def test_tables_are_split_where_nothing_is_gained():
    schema = qs.Schema.of(a=10, b=4, c=3)
    plan = qs.plan(qs.all_kway(schema, [1, 2], "prefix"), COST)
    assert len(plan.measured) == 7
    assert not any(s.strategy.whole for s in plan.solutions)
    with limited(worthwhile=1.0):
        whole = qs.plan(plan.workload, COST)
    assert len(whole.measured) == 1
    assert 0.99 * plan.weighted_loss < whole.weighted_loss < plan.weighted_loss


def test_any_number_of_given_queries_is_whole():
    """More queries than cells: still the optimum over all mechanisms, by as many numbers as cells."""
    workload = qs.random_queries(qs.Schema.of(a=9, b=10), ("a", "b"), 5_000)
    plan = qs.plan(workload, COST)
    assert plan.whole == (0,)
    assert plan.weighted_loss <= 1.002 * least_loss(*query_rows(workload), steps=50)
    assert plan.weighted_loss < 0.999 * qs.plan(workload, COST, centering="uniform").weighted_loss
    assert plan.solutions[0].strategy.rank == 90


@pytest.mark.slow
def test_tables_beside_given_queries_reach_the_optimum(limit_planning):
    """On few cells both kinds are measured whole, if measuring the given queries beside tables is worse."""
    schema = qs.Schema.of(a=4, b=3, c=9)
    given = 0.3 * qs.random_queries(schema, ("a", "b", "c"), 40, seed=4)
    workload = given + 0.05 * qs.queries(schema, b="range", c="range")
    limit_planning(light_work=0)
    plan = qs.plan(workload, COST)
    assert plan.whole == (0, 1)
    rows, weights = query_rows(workload)
    assert plan.weighted_loss <= 1.002 * least_loss(rows, weights, steps=100)
    assert weights @ plan.variances(workload) == pytest.approx(plan.weighted_loss, rel=1e-9)
    limit_planning(whole_work=0)
    beside = qs.plan(workload, COST)
    assert beside.whole == (0,)
    assert beside.weighted_loss > 1.02 * plan.weighted_loss


@pytest.mark.parametrize("seed", [2, 6, 14, 20, 27, 43, 50, 58])
def test_the_certificate_of_combined_answers_is_that_of_answers_from_own_measurements(seed, limit_planning):
    """Combined answers are better by up to a half: the bound is none on their loss."""
    random = np.random.default_rng(seed)
    schema = qs.Schema.of({f"a{i}": int(n) for i, n in enumerate(random.integers(2, 5, 3))})
    workload = qs.all_kway(schema, [1, 2], random.choice(["identity", "prefix"]))
    for _ in range(random.integers(1, 4)):
        names = random.choice(schema.names, random.integers(2, 4), replace=False).tolist()
        rows = random.integers(0, 2, (int(random.integers(1, 5)), math.prod(schema.shape(names))))
        workload += float(10 ** random.uniform(-1, 1.5)) * qs.linear(schema, names, rows + not_any(rows))
    limit_planning(light_work=0, whole_work=0)
    plan = qs.plan(workload, COST)
    certificate, (low, high) = plan.certificate, bounds_apart(plan)
    assert low * (1 - 1e-6) <= certificate.value <= high * (1 + plan.gap) ** 2 * (1 + 1e-6)
    assert certificate.bound <= high * (1 + 1e-6)
    assert plan.gap <= 1e-3
    queries, weights = query_rows(workload)
    assert least_loss(queries, weights, 200) <= plan.weighted_loss <= certificate.value * (1 + 1e-9)
    assert weights @ plan.variances(workload) == pytest.approx(plan.weighted_loss, rel=1e-6)
    assert "plan of this kind that answers every group from its own measurement" in repr(plan)


def not_any(rows):
    """One in the first place if all rows are zero."""
    return np.arange(rows.size).reshape(rows.shape) == (-1 if rows.any() else 0)


def bounds_apart(plan):
    """Bounds of the least loss if every group is answered from its own measurement, and the total."""
    schema, (queries, weights) = plan.workload.schema, query_rows(plan.workload)
    of_group = np.repeat(range(len(plan.workload.groups)), [g.rows for g in plan.workload])
    queries, total, found = queries * np.sqrt(weights)[:, None], 0.0, []
    split = queries[~np.isin(of_group, plan.whole)]
    for kept in subsets(range(len(schema))):
        part = split @ split_map(schema, plan.centres, kept)
        total += (part**2).sum() * (not kept)
        found += [root_bounds(part)] if kept and np.abs(part).max() > 1e-9 else []
    for m in (m for m in plan.measured if m.whole):
        own = queries[np.isin(of_group, m.whole)]
        known = measured_rows(plan, m) @ marginal_map(schema, m.attributes)
        means = np.zeros(len(own))
        if estimates(own, known) is None:  # they use the total
            means = estimates(own, np.concatenate([known, np.ones((1, known.shape[1]))]))[:, -1]
        total += (means**2).sum()
        found.append(root_bounds(own - means[:, None]))
    return [(sum(each) + math.sqrt(total)) ** 2 for each in zip(*found, strict=True)]


def test_predicates_are_measured_beside_tables():
    schema = cps()
    tables = qs.all_kway(schema, [1, 2])
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(20):
        ends = [np.sort(rng.integers(0, n, 2)) for n in (7, 50, 100)]
        inside = [
            (np.arange(n) >= low) & (np.arange(n) <= high)
            for n, (low, high) in zip((7, 50, 100), ends, strict=True)
        ]
        rows.append(np.einsum("i,j,k->ijk", *inside).ravel())
    few = qs.linear(schema, ("c7", "n50", "n100"), np.array(rows, dtype=float))
    workload = tables + len(tables) / len(few) * few
    plan = qs.plan(workload, COST)
    kinds = [any(plan.solutions[number].strategy.whole for _, number in m.blocks) for m in plan.measured]
    assert kinds == [False] * 16 + [True]
    assert plan.weighted_loss <= 411_000
    assert plan.rmse**2 * len(workload) == pytest.approx(plan.variances(workload).sum())


def test_the_tables_of_the_paper_are_never_whole():
    schema = qs.Schema.of(a=10, b=10)
    plan = qs.plan(qs.affine(schema, "a", "b"), COST, centering="uniform")
    assert not any(s.strategy.whole for s in plan.solutions)
    assert plan.rmse == pytest.approx(2.2151, rel=1e-3)


@pytest.mark.slow
def test_pairs_of_many_attributes_are_no_worse_than_split():
    """Pairs that are measured whole one by one would be far worse; clusters of pairs are not."""
    schema = qs.Schema.of({f"x{i}": 5 for i in range(12)})
    names = schema.names
    workload = sum(qs.affine(schema, a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    plan = qs.plan(workload, COST)
    assert plan.weighted_loss <= plan_split(workload).weighted_loss * (1 + 1e-6)
    assert len([m for m in plan.measured if m.whole]) < 12


@pytest.mark.slow
def test_few_attribute_sets_may_be_whole_beside_each_other():
    """Together they distinguish too many cells, so some are measured together beside others and the total."""
    schema = qs.Schema.of(a=4, b=4, c=4, d=4, e=4, f=4)
    rng = np.random.default_rng(1)
    sets = [("a", "b", "c"), ("c", "d", "e"), ("d", "e", "f")]
    workload = sum(qs.linear(schema, names, (rng.random((2, 64)) < 0.5).astype(float)) for names in sets)
    with limited(merged_cells=1_000):
        plan = qs.plan(workload, COST)
    assert [len(m.attributes) for m in plan.measured] == [0, 3, 4]
    assert plan.whole == (0, 1, 2)
    assert plan.variances(workload).sum() == pytest.approx(plan.weighted_loss, rel=1e-6)


# --- few queries beside tables -----------------------------------------------------------------

LARGE = {"whole_work": 0}
"""Limits under which small workloads are planned as large ones are."""


def comparisons(seed):
    """Tables, and comparisons or conjunctions on most pairs of a few attributes, of any weight."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, rng.integers(3, 5)).tolist()
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(sizes)})
    tables = qs.all_kway(schema, [1], rng.choice(["prefix", "identity", "range"]))

    def below(schema, a, b):
        return qs.where(schema, f"{a} <= {rng.integers(sizes[int(a[1:])])} and {b} >= 1")

    ask = rng.choice([qs.affine, qs.abs_difference, below])
    names = [(a, b) for a in schema.names for b in schema.names if a < b]
    chosen = rng.permutation(names)[: max(2, len(names) - 1)].tolist()
    return tables + float(10 ** rng.uniform(-1, 1)) * sum(ask(schema, a, b) for a, b in chosen)


def plan_large(workload, budget, **changes):
    with limited(**LARGE, **changes):
        return qs.plan(workload, budget)


@pytest.mark.parametrize("seed", [38, 34, 29])
def test_queries_that_split_well_are_split(seed):
    workload, budget = comparisons(seed), qs.zCDP(0.5, neighbours="replace_one")
    plan = plan_large(workload, budget)
    assert not plan.whole
    whole = plan_large(workload, budget, threaded_cells=-1)
    assert len(whole.whole) == sum(len(group.attributes) == 2 for group in workload)
    assert whole.weighted_loss > 1.1 * plan.weighted_loss


@pytest.mark.slow
@fewer(6)
@given(st.integers(0, 10_000), st.sampled_from(["add_remove", "replace_one"]))
def test_queries_are_whole_only_where_splitting_is_not_much_better(seed, neighbours):
    workload, budget = comparisons(seed), qs.zCDP(0.5, neighbours=neighbours)
    plan = plan_large(workload, budget)
    assert plan.weighted_loss <= 1.2 * plan_split(workload, budget).weighted_loss


def test_the_work_of_combining_queries_with_tables_is_limited():
    schema = qs.Schema.of(a=5, b=4, c=3)
    few = sum(qs.where(schema, f"a + b + c < {i}") for i in (2, 4, 6))
    workload = qs.all_kway(schema, [1, 2]) + 100 * few
    assert len(plan_large(workload, COST).whole) == 3
    assert not plan_large(workload, COST, beside_work=100).whole


@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_plans_for_sums_do_not_depend_on_how_fine_a_number_is(objective):
    """Sums are straight lines between the ends, so that only these matter."""
    groups = [qs.Categorical("a", list("uvw")), qs.Categorical("b", list("xy")), qs.Ordinal("c", range(9))]
    reached = []
    for high in (1_000, 60_000):
        schema = qs.Schema([qs.Number("pay", 0, high), *groups])
        means = qs.means(schema, "pay", by=["a", "b"]) + qs.means(schema, "pay")
        plan = qs.plan(means + qs.queries(schema, a="identity", c="prefix"), COST, objective=objective)
        reached.append(plan.weighted_rmse if objective == "mean" else plan.worst_std / high)
        assert plan.gap <= 2e-3
        assert plan.certificate.value >= plan.certificate.bound * (1 - 1e-9)
    assert reached[0] == pytest.approx(reached[1], rel=2e-3)
