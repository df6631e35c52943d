"""What is measured beside a plan, under its budget: errors of the estimate, the number of records."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.planning.plan_file import plan_from_data, plan_to_data
from querysmasher.release.comparing import sha256
from querysmasher.release.provenance import spent
from querysmasher.release.verify import (
    FAILED,
    OK,
    check_plan,
    exploration_summary,
    planned_summary,
    summary_of,
)
from tests.estimate.tables import frame, people, true_error
from tests.release.folders import summarised

BUDGET = qs.ApproxDP(1.0, 1e-6)


def measured(plan, schema, records, **more):
    return qs.measure(plan, frame(schema, records), **{"seed": 1, "error_share": 0.05, **more})


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_both_phases_together_spend_the_budget_and_no_more(neighbours):
    schema, records = people(600)
    budget = qs.ApproxDP(1.0, 1e-6, neighbours=neighbours)
    plan = qs.plan(qs.marginals(schema, 2), budget)
    release = measured(plan, schema, records)
    allowed = Fraction(release.noise.distribution.allowed_cost(budget))
    cost = spent(release.plan, release.exploration)
    assert allowed * Fraction(999, 1000) < cost <= allowed
    errors = release.exploration.errors
    assert float(errors.cost(release.plan) / allowed) == pytest.approx(0.05, rel=1e-3)
    assert release.public_total == (600 if neighbours == "replace_one" else None)


@pytest.mark.slow
def test_intervals_cover_true_errors_of_tables_that_were_never_measured():
    schema, records = people(3000)
    workload = qs.marginals(schema, 3)
    plan = qs.plan(workload, BUDGET, purpose="estimate", records=3000)
    inside = []
    for seed in range(12):
        estimate = measured(plan, schema, records, seed=seed).estimate()
        for one in estimate.errors().each:
            assert one.kind == "measured"
            low, high = one.interval()
            inside.append(low <= true_error(estimate, records, one.tables[0]) <= high)
    # 120 intervals: fewer than 105 would happen by chance about once in 10,000 runs
    assert sum(inside) >= 105


@pytest.mark.slow
def test_a_file_has_the_same_errors_and_verifies(tmp_path):
    schema, records = people(600)
    plan = qs.plan(qs.marginals(schema, 2), BUDGET)
    ledger = qs.Ledger(tmp_path / "people.ledger", limit=BUDGET)
    table = frame(schema, records)
    release = qs.measure(plan, table, error_share=0.1, ledger=ledger)
    release.save(tmp_path / "release.qs")
    loaded = qs.Release.load(tmp_path / "release.qs")
    assert str(loaded.estimate().error()) == str(release.estimate().error())
    assert loaded.estimate().answer().values == pytest.approx(release.estimate().answer().values)
    assert qs.verify(tmp_path / "release.qs", ledger).ok
    with pytest.raises(qs.QuerySmasherError, match="leaves rho = 0 of"):
        qs.measure(plan, table, error_share=0.1, ledger=ledger)


def test_without_a_share_nothing_changes():
    schema, records = people(300)
    plan = qs.plan(qs.marginals(schema, 2), BUDGET)
    plain = qs.measure(plan, frame(schema, records), seed=3)
    assert plain.exploration is None
    assert np.array_equal(
        plain.answer().values, measured(plan, schema, records, seed=3, error_share=0).answer().values
    )


@pytest.mark.parametrize("share", [-0.1, 0.6, True, "0.1", float("nan"), 1e-30])
def test_other_shares_are_refused(share):
    schema, records = people(50)
    plan = qs.plan(qs.marginals(schema, 1), BUDGET)
    with pytest.raises(qs.QuerySmasherError, match="error_share"):
        measured(plan, schema, records, error_share=share)


def test_a_workload_without_tables_is_refused():
    schema, records = people(50)
    plan = qs.plan(qs.marginals(schema, 0), BUDGET)
    with pytest.raises(qs.QuerySmasherError, match="error_share"):
        measured(plan, schema, records)


SCHEMA = qs.Schema.of(a=4, b=3, c=2)
WORKLOAD = qs.marginals(SCHEMA, 3)


def sized_people(records):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, records)
    return pd.DataFrame({"a": a, "b": np.minimum(a, rng.integers(0, 3, records)), "c": a % 2})


def shares(release):
    """Return what each attribute set cost, as a share of the privacy cost that was allowed."""
    plan, found = release.plan, {}
    allowed = release.noise.distribution.allowed_cost(plan.budget)
    for i, m in enumerate(plan.measured):
        own = replace(plan, measured=plan.measured[i : i + 1])
        found[plan.names(m)] = found.get(plan.names(m), 0.0) + float(spent(own, None)) / allowed
    return found


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("noise", "error_share"), [("rounded", 0.0), ("discrete", 0.1)])
def test_the_size_has_its_share_and_all_phases_cost_the_budget(neighbours, noise, error_share):
    budget = qs.ApproxDP(1.0, 1e-6, neighbours=neighbours)
    plan = qs.plan(WORKLOAD, budget, purpose="estimate")
    release = qs.measure(plan, sized_people(500), seed=1, noise=noise, error_share=error_share)
    allowed = Fraction(release.noise.distribution.allowed_cost(budget))
    assert allowed * Fraction(999, 1000) < spent(release.plan, release.exploration) <= allowed
    costs = {p.name: float(p.cost(release.plan) / allowed) for p in release.exploration.phases}
    size = [] if neighbours == "replace_one" else ["number of records"]
    errors = ["errors of the estimate"] if error_share else []
    assert list(costs) == [*size, "parts of tables", *errors]
    if size:
        assert costs["number of records"] == pytest.approx(0.01 * (1 - error_share), rel=1e-3)
    assert release.public_total == (None if size else 500)
    kind = "measured" if errors else "model-based"
    assert release.estimate().error().kind == kind


@pytest.mark.parametrize("records", [30, 3_000, 300_000])
def test_the_rest_is_shared_as_if_the_size_had_been_stated(records):
    budget = qs.zCDP(0.02)
    release = qs.measure(qs.plan(WORKLOAD, budget, purpose="estimate"), sized_people(records), seed=2)
    stated = qs.plan(WORKLOAD, budget, purpose="estimate", records=max(1, round(_size(release))))
    assert not stated.sizes_first
    assert qs.measure(stated, sized_people(10), seed=0).exploration is None
    found = shares(release)
    for names, share in stated.budget_shares().items():
        assert found[names] == pytest.approx(0.99 * share + 0.01 * (not names), rel=0.01, abs=1e-4)
    assert _size(release) == pytest.approx(records, abs=6 * (0.04 * 0.01) ** -0.5)  # 6 standard errors


def _size(release):
    """Return the size that the second phase was planned for."""
    first = replace(release.plan, measured=release.plan.measured[:1])
    return replace(release, plan=first, exploration=None).estimate().total


def test_few_and_many_records_are_measured_differently():
    plan = qs.plan(WORKLOAD, qs.zCDP(0.002), purpose="estimate")
    few, many = (shares(qs.measure(plan, sized_people(n), seed=0)) for n in (100, 100_000))
    assert few.get(("a", "b", "c"), 0.0) < 0.2 * many["a", "b", "c"]
    assert few["a",] > 1.3 * many["a",]


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_a_folder_with_its_plan_verifies_and_another_plan_is_found(tmp_path, neighbours):
    budget = qs.zCDP(0.05, neighbours=neighbours)
    qs.plan(WORKLOAD, budget, purpose="estimate").save(tmp_path / "plan.qs")
    plan = qs.Plan.load(tmp_path / "plan.qs")
    assert plan.sizes_first
    ledger = qs.Ledger(tmp_path / "people.ledger", limit=budget)
    release = qs.measure(plan, sized_people(400), ledger=ledger, error_share=0.05)
    ledger_file = (tmp_path / "people.ledger").read_bytes()
    (tmp_path / "people.ledger").unlink()
    release.described(plan_digest=sha256(tmp_path / "plan.qs")).save(tmp_path / "release.qs")
    release = qs.Release.load(tmp_path / "release.qs")
    summary = {**summary_of(release), **exploration_summary(release), **planned_summary(plan, release)}
    assert "expected_error" not in summary  # nobody knew it in advance
    summarised(tmp_path, summary)
    verdict = qs.verify(tmp_path)
    assert verdict.ok
    assert {found.name: found.status for found in verdict.findings}["plan.qs"] == OK
    release = release.described(plan_digest=None)
    qs.plan(WORKLOAD, budget, purpose="estimate", records=400).save(tmp_path / "other.qs")
    assert check_plan(release, tmp_path / "other.qs")[1].status == FAILED
    first, second, *rest = release.plan.measured
    moved = replace(release.plan, measured=(first, replace(second, variance=second.variance * 2), *rest))
    assert "other integers" in check_plan(replace(release, plan=moved), tmp_path / "plan.qs")[1].text
    (tmp_path / "people.ledger").write_bytes(ledger_file)
    with pytest.raises(qs.QuerySmasherError, match="leaves rho = 0 of"):
        qs.measure(plan, sized_people(400), ledger=qs.Ledger(tmp_path / "people.ledger"))


@pytest.mark.parametrize("seed", range(4))
def test_an_empty_table_and_noise_that_makes_it_negative(seed):
    plan = qs.plan(WORKLOAD, qs.zCDP(1e-6), purpose="estimate")
    estimate = qs.measure(plan, sized_people(0), seed=seed).estimate()
    values = estimate.answer().values
    assert np.isfinite(values).all()
    assert values.min() >= 0
    assert values.sum() == pytest.approx(estimate.total, rel=1e-6, abs=1e-6)


def test_where_there_is_nothing_to_share_the_size_is_not_measured_first():
    schema = qs.Schema.of(a=1, b=1)
    for workload in (qs.marginals(schema, 2), qs.marginals(SCHEMA, 0)):
        plan = qs.plan(workload, qs.zCDP(1), purpose="estimate")
        assert not plan.sizes_first
        names = workload.schema.names
        release = qs.measure(plan, pd.DataFrame(dict.fromkeys(names, [0] * 50)), seed=0)
        assert release.estimate().total == pytest.approx(50, abs=10)


def test_a_budget_too_small_for_both_phases_is_refused_before_the_table_is_opened():
    plan = qs.plan(WORKLOAD, qs.PrivacyCost(1e-13), purpose="estimate", max_records=100)
    with pytest.raises(qs.BudgetError, match="state a rough number of records"):
        qs.measure(plan, "nowhere.csv", max_records=100)


def test_a_file_cannot_say_that_another_plan_learns_the_size():
    data = plan_to_data(qs.plan(WORKLOAD, qs.zCDP(1)))
    with pytest.raises(qs.QuerySmasherError, match="only a plan for estimates"):
        plan_from_data({**data, "sizes_first": True})


@pytest.mark.slow
def test_the_plan_and_its_page_say_so(tmp_path):
    plan = qs.plan(WORKLOAD, qs.zCDP(1), purpose="estimate")
    words = "measured first, with 1% of the budget"
    assert words in str(plan)
    page = plan.report(tmp_path / "plan.html").read_text()
    assert words in page
    assert "known in advance, for 30,000 records" in page
    stated = qs.plan(WORKLOAD, qs.zCDP(1), purpose="estimate", records=10).report(tmp_path / "other.html")
    assert words not in stated.read_text()
    assert "an estimate of 24 queries" in stated.read_text()
