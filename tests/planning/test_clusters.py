"""Predicates on many attribute sets: in clusters, centred, at a small loss, and answered consistently."""

import math

import numpy as np
import pandas as pd
import pytest
from benchmarks.cliff_workloads import adult
from hypothesis import assume, given

import querysmasher as qs
from querysmasher.planning.candidates import Cluster, RowGroups, grown, total_multiples
from querysmasher.planning.cells import distinct_columns, merge
from querysmasher.planning.centre import uniform
from querysmasher.planning.limits import limited
from querysmasher.planning.mechanisms import solve_whole
from querysmasher.planning.solvers.bounds import least_root
from tests.builders import COST, plan_split
from tests.profiles import fewer
from tests.reference import query_rows
from tests.release.tables import check_simulated, random_counts
from tests.strategies import schemas, workloads


def predicates(count, sizes, seed=0, most=3):
    """Conjunctions on random attribute sets."""
    rng = np.random.default_rng(seed)
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(sizes)})
    words = []
    for _ in range(count):
        names = rng.choice(schema.names, rng.integers(1, most + 1), replace=False)
        words.append(
            " and ".join(_condition(rng, name, schema.sizes[schema.position(name)]) for name in names)
        )
    return sum(qs.where(schema, one) for one in words)


def _condition(rng, name, n):
    low, high = sorted(rng.integers(0, n, 2).tolist())
    return rng.choice([f"{name} == {low}", f"{name} <= {high}", f"{low} <= {name} <= {high}"])


def own_clusters(workload):
    return grown(workload.schema, workload.groups, distinct_columns(workload.groups))


@fewer(30)
@given(workloads(schemas(max_attributes=3, max_size=4, max_cells=36), max_groups=3))
def test_no_split_plan_around_uniform_centres_is_below_the_bound(workload):
    assume(query_rows(workload)[0].any())
    plan = plan_split(workload, centering="uniform")
    every = RowGroups(workload, range(len(workload.groups)), COST.unit, centred=False)
    bound = math.fsum(every.split(uniform(workload.schema)).values())
    assert bound <= math.sqrt(plan.weighted_loss) * (1 + 1e-9)
    assert bound >= math.sqrt(plan.weighted_loss) / 3


def bound_and_reached(workload):
    """The lower bound of all clusters' root losses, and what their optimal strategies reach."""
    schema, groups = workload.schema, workload.groups
    bound = reached = 0.0
    for own in grown(schema, groups, distinct_columns(groups)):
        names = {name for place in own for name in groups[place].attributes}
        merged = merge(schema, [groups[place] for place in own], sorted(schema.positions(names)))
        if merged is None:
            continue
        cluster = Cluster(tuple(own), merged, total_multiples(merged), replaced=False)
        if cluster.shifted.rows.any():
            bound += least_root(cluster.root)
            reached += solve_whole(cluster.shifted, 1e-4).reached
    return bound, reached


@fewer(30)
@given(workloads(schemas(max_attributes=4, max_size=4, max_cells=100), max_groups=5))
def test_no_strategy_of_clusters_is_below_the_bound(workload):
    with limited(merged_cells=30):
        bound, reached = bound_and_reached(workload)
    assert bound <= reached * (1 + 1e-9) + 1e-9


def test_the_bound_of_clusters_is_close_where_queries_ask_alike_about_all_cells():
    schema = qs.Schema.of(dict.fromkeys("abcde", 4))
    pairs = [(a, b) for a in schema.names for b in schema.names if a < b]
    workload = sum(qs.random_queries(schema, pair, 30, p=0.3, seed=i) for i, pair in enumerate(pairs))
    with limited(merged_cells=64):
        bound, reached = bound_and_reached(workload)
    assert 0.85 * reached <= bound <= reached


def test_clusters_do_not_need_larger_tables_than_can_be_counted():
    workload = predicates(6, (4, 5, 3, 6), most=2)
    assert len(own_clusters(workload)) == 1
    with limited(structured_cells=90):
        found = own_clusters(workload)
    assert 1 < len(found) < 6
    for own in found:
        names = {name for place in own for name in workload.groups[place].attributes}
        assert math.prod(workload.schema.sizes[a] for a in workload.schema.positions(names)) <= 90


@pytest.mark.slow
@pytest.mark.parametrize("budget", [COST, qs.PrivacyCost(1.0, neighbours="replace_one")])
def test_clusters_are_near_the_optimum_and_better_than_split(budget):
    """Where all queries can be solved together, one can see how much clusters lose."""
    workload = predicates(12, (5, 4, 3, 4))
    together = qs.plan(workload, budget)
    with limited(merged_cells=60):
        plan = qs.plan(workload, budget)
    assert len([m for m in plan.measured if m.attributes]) > 1
    assert plan.whole == tuple(range(len(workload.groups)))
    assert plan.measurements <= len(workload) + 1
    assert plan.rmse <= 1.25 * together.rmse
    assert plan.rmse < 0.9 * plan_split(workload, budget, centering="uniform").rmse
    assert plan.variances(workload).sum() == pytest.approx(plan.weighted_loss, rel=1e-9)
    assert plan.privacy_cost == pytest.approx(1.0)


@pytest.mark.slow
def test_a_domain_that_no_table_could_hold(tmp_path):
    """30 predicates on sets of 9 attributes that distinguish 10^8 combinations, of 10^11 cells."""
    workload = predicates(30, (30, 15, 5, 5, 2, 100, 30, 50, 8))
    plan = qs.plan(workload, qs.zCDP(0.5))
    assert plan.measurements <= 31
    assert len(plan.measured) < 12
    rng = np.random.default_rng(0)
    schema = workload.schema
    data = pd.DataFrame(
        {n: rng.integers(0, k, 2_000) for n, k in zip(schema.names, schema.sizes, strict=True)}
    )
    release = qs.measure(plan, data, seed=1)
    release.save(tmp_path / "release.qs")
    answers, again = release.answer(), qs.Release.load(tmp_path / "release.qs").answer()
    np.testing.assert_array_equal(answers.values, again.values)
    np.testing.assert_allclose(again.std, np.sqrt(plan.variances(workload)), rtol=0.05)
    covariance = release.covariance(workload)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), answers.std, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_releases_have_the_planned_mean_and_variance(neighbours):
    workload = predicates(8, (4, 3, 3, 4))
    with limited(merged_cells=30):
        plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours=neighbours))
    assert len(plan.measured) > 2
    check_simulated(plan, workload, random_counts(workload.schema, 0, records=200), 300, 0.02)


def test_groups_too_large_for_clusters_are_split_around_centres_that_weigh_all_values():
    """Rows measured whole are compared in the mean over centres, which must see all values."""
    workload = predicates(8, (4, 3, 3, 4))
    with limited(merged_cells=10):
        plan = qs.plan(workload, COST)
    attributes = {a for m in plan.measured if m.whole for a in m.attributes}
    assert len(plan.whole) < len(workload.groups)
    assert all(plan.centres[a].weights.min() > 0 for a in attributes)
    release = qs.measure(plan, pd.DataFrame({name: [0, 1] for name in workload.schema.names}), seed=0)
    np.testing.assert_allclose(release.answer(workload).std ** 2, plan.variances(workload), rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_worst_errors_and_targets_are_planned_in_clusters_too(neighbours):
    workload = predicates(8, (4, 3, 4, 3))
    budget = qs.PrivacyCost(1.0, neighbours=neighbours)
    with limited(merged_cells=40):
        mean = qs.plan(workload, budget)
        worst = qs.plan(workload, budget, objective="worst")
        least = qs.least_budget(workload.within(3.0), neighbours=neighbours)
    assert len([m for m in worst.measured if m.attributes]) > 1
    assert worst.whole == tuple(range(8))
    assert worst.worst < mean.worst
    assert worst.gap < (0.01 if neighbours == "add_remove" else 1.0)  # for cells drawn independently
    assert math.sqrt(least.variances(workload).max()) <= 3.0 * (1 + 1e-6)
    assert least.budget.privacy_cost == pytest.approx((worst.worst / 3) ** 2, rel=0.02)


def test_one_cluster_with_a_public_total():
    """Queries that could be solved together, were it not for a limit on the work."""
    workload = predicates(8, (4, 3, 4, 3))
    with limited(whole_work=1.0):
        plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert plan.variances(workload).sum() == pytest.approx(plan.weighted_loss, rel=1e-9)


def test_predicates_on_many_sets_beside_tables():
    """They are measured whole in clusters, less what the tables say of the total, and combined with these."""
    workload = predicates(10, (6, 5, 4, 5, 4), most=3)
    tables = qs.all_kway(workload.schema, [1, 2], "prefix")
    asked = tables + len(tables) / 10 * workload
    with limited(merged_cells=120, threaded_cells=-1):
        plan = qs.plan(asked, COST)
    assert len([m for m in plan.measured if m.whole]) > 1
    assert plan.whole == tuple(range(len(tables.groups), len(asked.groups)))
    loss = sum(float(group.query_weights() @ plan.estimator.variances(group).ravel()) for group in asked)
    assert loss == pytest.approx(plan.weighted_loss, rel=1e-9)
    assert plan.weighted_loss < plan_split(asked, centering="uniform").weighted_loss
    assert plan.gap < 0.01


def test_every_planned_query_beside_many_tables_has_a_variance():
    workload = adult(20)
    plan = qs.plan(workload, COST)
    assert len(plan.whole) == 20
    for group in workload.groups[-20:]:
        assert 0 < plan.estimator.variances(group).item() < 200
