"""Errors of the estimate of a plan made in advance: measured under its budget, recorded, verified, stored."""

from fractions import Fraction

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.release.provenance import spent
from tests.estimate.tables import people
from tests.exploring.people import frame, true_error

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
