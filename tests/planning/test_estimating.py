"""Plans meant for estimates: what they measure, what they cost, what they refuse."""

import itertools
import math

import numpy as np
import pytest

import querysmasher as qs
from tests.builders import COST, cube
from tests.estimate.tables import counted, people


def frame(schema, records):
    pa = pytest.importorskip("pyarrow")
    return pa.table({name: records[:, i] for i, name in enumerate(schema.names)})


def test_a_plan_for_estimates_measures_pairs_at_most_if_there_are_few_records():
    schema = cube(6, 5)
    plan = qs.plan(qs.marginals(schema, 3), qs.zCDP(0.01), purpose="estimate", records=300)
    assert {len(m.attributes) for m in plan.measured} == {0, 1, 2}
    assert plan.purpose == "estimate"
    assert len(plan.asked) == 10 * 216
    assert plan.privacy_cost == pytest.approx(0.02)
    assert plan.privacy_cost <= 0.02


@pytest.mark.parametrize("k", [3, 4])
def test_a_plan_for_estimates_measures_the_tables_themselves_if_there_are_many_records(k):
    schema = cube(6, 5)
    plan = qs.plan(qs.marginals(schema, k), qs.zCDP(1), purpose="estimate", records=3_000_000)
    assert {len(m.attributes) for m in plan.measured} == set(range(k + 1))


@pytest.mark.parametrize("k", [0, 1, 2, [1, 2], 4])
def test_only_what_the_workload_needs_is_measured(k):
    schema = cube(3, 4)
    workload = qs.marginals(schema, k)
    plan = qs.plan(workload, COST, purpose="estimate")
    most = max(k) if isinstance(k, list) else k
    assert max(len(m.attributes) for m in plan.measured) <= most
    assert plan.privacy_cost <= 1 + 1e-9


def test_attributes_and_pairs_share_the_budget_so_that_their_weighted_errors_are_least():
    schema = qs.Schema.of(a=2, b=5, c=30, d=9, e=1)
    groups = [group.weighted(i + 1) for i, group in enumerate(qs.marginals(schema, 3))]
    workload = qs.Workload(schema, tuple(groups))
    plan = qs.plan(workload, qs.zCDP(0.001), purpose="estimate", records=300)
    again = qs.plan(7.0 * workload, qs.zCDP(0.001), purpose="estimate", records=300)
    assert plan.budget_shares() == pytest.approx(again.budget_shares())
    assert {len(m.attributes) for m in plan.measured} == {0, 1, 2}
    rng = np.random.default_rng(0)
    for order in (1, 2):
        names = list(itertools.combinations("abcd", order))
        shares = np.array([plan.budget_shares()[place] for place in names])
        weights = [sum(g.weight for g in groups if set(place) <= set(g.attributes)) for place in names]
        sizes = [math.prod(schema[name].size - 1 for name in place) for place in names]
        scale = np.multiply(weights, np.power(sizes, 1 / order))
        for _ in range(50):
            others = shares * rng.uniform(0.8, 1.2, len(shares))
            others *= shares.sum() / others.sum()
            assert (scale / np.sqrt(others)).sum() >= (scale / np.sqrt(shares)).sum()


def test_with_ever_more_records_the_plan_becomes_that_of_least_error():
    schema = cube(4, 4)
    workload = qs.marginals(schema, 3)
    best = qs.plan(workload, COST, centering="uniform")
    gaps = []
    for records in (10**2, 10**4, 10**9):
        plan = qs.plan(workload, COST, purpose="estimate", records=records)
        shares = plan.budget_shares()
        gaps.append(sum(abs(share - shares.get(place, 0)) for place, share in best.budget_shares().items()))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == pytest.approx(0, abs=1e-6)


def test_the_gap_is_that_of_the_unbiased_answers():
    plan = qs.plan(qs.marginals(cube(4, 3), 2), COST, purpose="estimate")
    best = qs.plan(plan.workload, COST)
    assert plan.weighted_rmse == pytest.approx(best.weighted_rmse * (1 + plan.gap), rel=0.01)
    values = plan.variances(plan.workload)
    assert math.sqrt(values.mean()) == pytest.approx(plan.rmse)


def test_the_number_of_records_is_not_measured_if_it_is_public():
    budget = qs.zCDP(1, neighbours="replace_one")
    plan = qs.plan(qs.marginals(cube(4, 3), 2), budget, purpose="estimate")
    assert all(m.attributes for m in plan.measured)
    assert plan.privacy_cost == pytest.approx(budget.privacy_cost)


def test_a_plan_for_estimates_is_saved_and_its_release_estimates_what_was_asked(tmp_path):
    schema, records = people()
    workload = qs.marginals(schema, 3)
    qs.plan(workload, qs.zCDP(0.05), purpose="estimate", records=4000).save(tmp_path / "p.plan")
    plan = qs.Plan.load(tmp_path / "p.plan")
    assert plan.purpose == "estimate"
    assert len(plan.asked) == len(workload)
    release = qs.measure(plan, frame(schema, records), seed=0)
    release.save(tmp_path / "r.release")
    release = qs.Release.load(tmp_path / "r.release")
    answers = release.estimate().answer()
    assert len(answers) == len(workload)
    exact = np.concatenate(
        [counted(schema, records, schema.positions(g.attributes)).ravel() for g in workload]
    )
    unbiased = qs.measure(qs.plan(workload, qs.zCDP(0.05)), frame(schema, records), seed=0).answer(workload)
    assert np.mean((answers.values - exact) ** 2) < 0.4 * np.mean((unbiased.values - exact) ** 2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"purpose": "guess"}, "purpose: expected one of answers, estimate, got 'guess'"),
        ({"purpose": "estimate", "records": 0}, "records: expected a rough number"),
        ({"purpose": "estimate", "records": True}, "records: expected a rough number"),
        ({"records": 100}, "records: allowed only with purpose='estimate'"),
        ({"purpose": "estimate", "objective": "worst"}, "purpose: 'estimate' supports only"),
        ({"purpose": "estimate", "mechanism": "residual"}, "purpose: 'estimate' supports only"),
    ],
)
def test_invalid_options_are_refused(options, problem):
    with pytest.raises(qs.PlanError, match=problem):
        qs.plan(qs.marginals(cube(3, 2), 2), COST, **options)


def test_other_queries_than_marginals_are_refused():
    schema = cube(3, 2)
    for workload in (qs.all_kway(schema, 2, "prefix"), qs.marginals(schema, 1).within(5)):
        with pytest.raises(qs.PlanError, match="purpose='estimate' plans marginals without targets"):
            qs.plan(workload, COST, purpose="estimate")
