"""Queries measured as they are, beside tables that are split: one consistent, best combination."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import FileError, OutsideMeasuredSpaceError
from querysmasher.files import write_archive
from querysmasher.planning.limits import limited
from querysmasher.planning.plan_file import plan_to_data
from tests.builders import COST, ROWS_WHOLE, plan_split
from tests.profiles import fewer
from tests.reference import privacy_cost, query_rows, variances
from tests.release.tables import check_simulated, random_counts
from tests.strategies import workloads


def plan_beside(workload, budget=COST, **options):
    with limited(**ROWS_WHOLE):
        return qs.plan(workload, budget, **options)


def mixed():
    """Tables of pairs, and predicates on three attributes."""
    schema = qs.Schema.of(a=5, b=4, c=3, d=6)
    few = [qs.where(schema, f"a < {i} or b + c < {i + 2}") for i in range(1, 5)]
    return qs.all_kway(schema, [1, 2], "prefix") + 10 * sum(few)


@fewer(20)
@given(workloads(max_groups=3), workloads(max_groups=2), st.floats(0.01, 100))
def test_a_plan_is_the_best_combination_of_what_it_measures(workload, other, weight):
    schema = workload.schema
    assume(np.prod(schema.sizes) <= 80)
    rng = np.random.default_rng(len(other))
    names = schema.names[: min(3, len(schema))]
    cells = int(np.prod([schema.sizes[schema.position(name)] for name in names]))
    few = qs.linear(schema, names, rng.integers(-2, 3, (2, cells)))
    tables = [g for g in workload if all(f.closed_form for f in g.families)]
    assume(tables)
    asked = qs.Workload(schema, tuple(tables)) + weight * few
    rows, weights = query_rows(asked)
    assume(rows[-2:].any())
    plan = plan_beside(asked)
    assume(plan.whole)
    expected = variances(plan, asked)
    np.testing.assert_allclose(plan.variances(asked), expected, rtol=1e-6, atol=1e-9 * expected.max())
    assert plan.weighted_loss == pytest.approx(weights @ expected, rel=1e-6)
    assert plan.rmse == pytest.approx(np.sqrt(expected.mean()), rel=1e-6)
    assert plan.worst_std == pytest.approx(np.sqrt(expected.max()), rel=1e-6)
    assert plan.privacy_cost == pytest.approx(1.0)
    assert privacy_cost(plan) <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_a_release_is_unbiased_consistent_and_as_noisy_as_it_says(neighbours, tmp_path):
    workload = mixed()
    schema = workload.schema
    plan = plan_beside(workload, qs.zCDP(0.5, neighbours=neighbours))
    assert len(plan.whole) == 4
    release = check_simulated(plan, workload, random_counts(schema, 0, records=500), 200, 0.01)
    answers = release.answer(workload)
    # consistent, and the same from a file
    both = release.marginal("a", "b")
    np.testing.assert_allclose(both.sum(axis=1), release.marginal("a"), atol=1e-8)
    np.testing.assert_allclose(both.sum(), release.marginal().sum(), atol=1e-8)
    release.save(tmp_path / "release")
    again = qs.Release.load(tmp_path / "release").answer(workload)
    assert np.array_equal(again.values, answers.values)
    assert np.array_equal(again.std, answers.std)


@pytest.mark.slow
def test_combining_is_better_than_either_alone():
    workload = mixed()
    plan = plan_beside(workload)
    alone = sum(
        np.sqrt(qs.plan(own, COST).weighted_loss)
        for own in (_part(workload, plan.whole, keep) for keep in (True, False))
    )
    assert plan.weighted_loss < 0.99 * alone**2
    assert plan.weighted_loss < 1.02 * plan_split(workload).weighted_loss


def _part(workload, places, keep):
    return qs.Workload(workload.schema, tuple(g for i, g in enumerate(workload) if (i in places) == keep))


def test_queries_asked_later():
    workload = mixed()
    schema = workload.schema
    plan = plan_beside(workload)
    later = qs.queries(schema, a="range", d="identity") + qs.where(schema, "a < 2 or b + c < 4")
    np.testing.assert_allclose(plan.variances(later), variances(plan, later), rtol=1e-6)
    table = pd.DataFrame({name: [0] * 50 for name in schema.names})
    release = qs.measure(plan, table, seed=0)
    assert np.abs(release.answer(later).values).max() < 200
    with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
        plan.variances(qs.where(schema, "a == 1 and b == 1 and c == 1"))
    with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
        release.marginal("a", "b", "c")


def test_a_plan_on_disk(tmp_path):
    plan = plan_beside(mixed())
    plan.save(tmp_path / "plan")
    again = qs.Plan.load(tmp_path / "plan")
    assert again.whole == plan.whole
    assert again.weighted_loss == plan.weighted_loss
    assert np.array_equal(again.variances(plan.workload), plan.variances(plan.workload))
    for change in ({"weighted_loss": plan.weighted_loss * 2}, {"weighted_loss": plan.weighted_loss / 2}):
        write_archive(tmp_path / "other", "plan", plan_to_data(plan) | change)
        with pytest.raises(FileError):
            qs.Plan.load(tmp_path / "other")


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_plan_on_disk_predicts_the_same_bits(tmp_path, seed):
    schema = qs.Schema.of(a=7, b=8)
    rows = np.random.default_rng(seed).integers(-2, 3, (3 + seed, 56))
    plan = qs.plan(qs.linear(schema, ("a", "b"), rows) + qs.affine(schema, "b", "a"), COST)
    assert len(plan.whole) == 2
    plan.save(tmp_path / "plan")
    again = qs.Plan.load(tmp_path / "plan")
    assert np.array_equal(again.variances(plan.workload), plan.variances(plan.workload))


def test_a_plan_says_what_is_whole():
    plan = plan_beside(mixed())
    assert "of the best possible plan of this kind" in repr(plan)
    shares = [row.budget_share for row in plan.summary()]
    assert sum(shares[-4:]) == pytest.approx(1 / plan.measured[-1].variance)
    whole = qs.plan(_part(plan.workload, plan.whole, True), COST)
    assert "the best possible matrix mechanism" in repr(whole)
    assert whole.limit().excess == pytest.approx(whole.gap)


def test_a_query_for_all_records_is_exactly_known_with_a_public_total():
    schema = qs.Schema.of(b=1, d=2)
    workload = qs.all_kway(schema, 1, "prefix") + qs.linear(schema, ("b", "d"), [[1, 1], [0, 0]])
    with limited(**ROWS_WHOLE):
        plan = qs.plan(workload, qs.PrivacyCost(1.0, neighbours="replace_one"))
    assert not plan.whole
    np.testing.assert_allclose(plan.variances(workload)[[0, 2, 3, 4]], 0.0, atol=1e-12)
