"""Whole queries: the optimum over all mechanisms, measured in as many numbers as there are queries."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError, PlanError, TooLargeError
from querysmasher.planning.limits import limited
from tests.builders import COST, boxes
from tests.profiles import fewer
from tests.reference import optimal_loss, query_rows
from tests.release.tables import check_simulated, random_counts
from tests.strategies import schemas, workloads


def plan_whole(workload, budget=COST, **options):
    return qs.plan(workload, budget, mechanism="whole", **options)


@fewer(25)
@given(workloads(schemas(max_attributes=3, max_size=4, max_cells=24), max_groups=3))
def test_it_is_the_optimum_of_any_mechanism(workload):
    rows, weights = query_rows(workload)
    assume(rows.any())
    plan = plan_whole(workload, tolerance=1e-5)
    gram = (rows.T * weights) @ rows
    values, vectors = np.linalg.eigh(gram)
    inside = vectors[:, values > 1e-10 * values[-1]].T
    best = optimal_loss(gram, inside)
    assert plan.weighted_loss == pytest.approx(best, rel=1e-4)
    assert plan.weighted_loss / (1 + plan.gap) ** 2 <= best * (1 + 1e-6)
    assert plan.measurements <= len(rows)
    variances = plan.variances(workload)
    assert weights @ variances == pytest.approx(plan.weighted_loss, rel=1e-6)
    assert plan.worst_std == pytest.approx(math.sqrt(variances.max()))
    assert plan.privacy_cost == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(workloads(schemas(max_attributes=2, max_size=4, max_cells=16), max_groups=2))
def test_one_square_root_is_certified(workload):
    """Large queries of full rank are not decomposed twice if the first decomposition comes close enough."""
    workload = workload + qs.marginals(workload.schema, len(workload.schema))
    rows, weights = query_rows(workload)
    with limited(light_cells=0):
        plan = plan_whole(workload, tolerance=0.5)
    best = optimal_loss((rows.T * weights) @ rows, np.eye(rows.shape[1]))
    assert weights @ plan.variances(workload) == pytest.approx(plan.weighted_loss, rel=1e-6)
    assert plan.weighted_loss / (1 + plan.gap) ** 2 <= best * (1 + 1e-6)
    assert best <= plan.weighted_loss * (1 + 1e-6)
    assert plan.privacy_cost == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((10, 10, 1, 1), "a + b <= 8"),
        ((10, 10, 1, 1), "a < 3 or b < 3"),
        ((10, 10, 10, 10), "a + b <= 8 or c + d <= 8"),
    ],
)
def test_one_query_is_measured_itself(sizes, words):
    schema = qs.Schema.of(**dict(zip("abcd", sizes, strict=True)))
    plan = plan_whole(qs.where(schema, words))
    assert plan.rmse == pytest.approx(1.0, rel=1e-6)
    assert plan.measurements == 1


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most"), [(20, 1.46), (100, 2.08)])
def test_predicates_are_answered_near_the_best_of_any_mechanism(count, most):
    plan = plan_whole(boxes(count))
    assert plan.rmse <= most
    assert plan.gap <= 1e-3
    assert plan.measurements <= count


def test_a_release_answers_what_was_planned_and_what_follows(tmp_path):
    workload = boxes(6, (8, 6, 3))
    schema = workload.schema
    rng = np.random.default_rng(1)
    table = pd.DataFrame({a.name: rng.integers(0, a.size, 400) for a in schema})
    plan = plan_whole(workload, qs.PrivacyCost(1e4))
    plan.save(tmp_path / "plan")
    plan = qs.Plan.load(tmp_path / "plan")
    release = qs.measure(plan, table, seed=3)
    release.save(tmp_path / "release")
    release = qs.Release.load(tmp_path / "release")
    answers = release.answer(workload)
    truth = (
        query_rows(workload)[0]
        @ np.histogramdd(table.to_numpy(), [np.arange(n + 1) for n in schema.sizes])[0].ravel()
    )
    assert np.all(np.abs(answers.values - truth) <= 6 * answers.std)
    np.testing.assert_allclose(answers.std, np.sqrt(plan.variances(workload)), rtol=0.01)
    np.testing.assert_allclose(np.diagonal(release.covariance(workload)), answers.std**2, rtol=1e-9)
    together = qs.linear(schema, schema.names, query_rows(workload)[0][:2].sum(axis=0, keepdims=True))
    (value,) = release.answer(together).values
    assert value == pytest.approx(answers.values[:2].sum())
    for asked in (qs.marginals(schema, 1), qs.where(schema, "a == 0")):
        with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
            release.answer(asked)
    with pytest.raises(OutsideMeasuredSpaceError, match="cannot be"):
        release.marginal("a")


def test_many_predicates_are_answered_together_as_one_by_one():
    workload = boxes(30)
    data = pd.DataFrame({"a": [1, 7], "b": [2, 3], "d": [0, 1]})
    release = qs.measure(plan_whole(workload), data, seed=1)
    one_by_one = [release.answer(qs.Workload(workload.schema, (group,))).std[0] for group in workload]
    assert release.answer(workload).std == pytest.approx(one_by_one, rel=1e-9)
    with pytest.raises(OutsideMeasuredSpaceError):
        release.answer(workload + qs.where(workload.schema, "a == 3 and b == 2 and d == 1"))


def test_marginals_come_back_where_they_are_measured():
    schema = qs.Schema.of(a=3, b=4)
    table = pd.DataFrame({"a": [0, 1, 2, 2], "b": [0, 3, 3, 1]})
    release = qs.measure(plan_whole(qs.marginals(schema, 1), qs.PrivacyCost(1e6)), table, seed=1)
    np.testing.assert_allclose(release.marginal("a"), [1, 1, 2], atol=0.1)
    np.testing.assert_allclose(release.marginal("b"), [1, 1, 0, 2], atol=0.1)
    with pytest.raises(OutsideMeasuredSpaceError):
        release.marginal("a", "b")


@pytest.mark.slow
def test_releases_have_the_planned_mean_and_variance():
    workload = boxes(6, (6, 5, 2), seed=5)
    check_simulated(plan_whole(workload), workload, random_counts(workload.schema, 5, records=60), 300)


def test_what_is_too_much_or_nothing_is_refused(limit_planning):
    schema = qs.Schema.of(a=20, b=20)
    with pytest.raises(PlanError, match="nothing to measure"):
        plan_whole(qs.where(schema, "a < 0"))
    limit_planning(merged_rows=100, merged_entries=0)
    with pytest.raises(TooLargeError, match=r"400 queries are too many.* about 100 queries"):
        plan_whole(qs.marginals(schema, 2))


def test_many_values_with_few_thresholds():
    schema = qs.Schema.of(zip=100_000, sex=2)
    workload = qs.where(schema, "zip < 1000 and sex == 1") + qs.where(schema, "zip >= 50000")
    plan = plan_whole(workload)
    assert plan.measurements == 2
    assert plan.rmse == pytest.approx(1.0, rel=1e-3)


@pytest.mark.slow
def test_queries_about_a_number_of_a_million_values_follow_from_what_is_whole():
    """Sums over all values, and means over them, are kept apart by no more than rounding errors."""
    schema = qs.Schema([qs.Number("pay", 0, 999_999), qs.Ordinal("a", range(6)), qs.Ordinal("b", range(2))])
    high = qs.where(schema, "pay >= 500_000") + qs.where(schema, "pay >= 500_000 and b == 1")
    budget = qs.zCDP(0.5, neighbours="replace_one", records_per_person=3)
    plan = qs.plan(qs.sums(schema, "pay", by="a") + high, budget)
    assert plan.whole
    assert np.isfinite(plan.rmse)
