"""Extreme cases of a plan and its own workload: long ranges, and queries that are zero."""

import inspect

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning.integer import MAX_RECORDS, integer_plan
from querysmasher.planning.objectives import replan
from querysmasher.report import expectations
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family
from tests import reference
from tests.builders import COST, UNIFORM

# --- sums of variances need no rows ------------------------------------------------------------------


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
def test_sums_of_variances_are_those_of_the_single_queries(centering):
    schema = qs.Schema.of(a=6, b=4, one=1)
    names = list(ONE_ATTRIBUTE)
    workload = 5 * qs.queries(schema, a="range")
    for weight, one, two in zip((1, 3, 0.2, 7), names, names[::-1], strict=True):
        workload += weight * qs.queries(schema, a=one, b=two, one=one)
    plan = qs.plan(workload, COST, centering=centering)
    variances = plan.variances(workload)
    assert plan.rmse == pytest.approx(np.sqrt(variances.mean()), rel=1e-10)
    np.testing.assert_allclose(variances, reference.split_variances(plan, workload), rtol=1e-8)
    start = 0
    for summary in plan.summary():
        own = variances[start : start + summary.queries]
        assert summary.rmse == pytest.approx(np.sqrt(own.mean()), rel=1e-10)
        start += summary.queries


@pytest.mark.parametrize("family", ["range", "circular"])
def test_weighted_ranges_are_summed_without_writing_them_out(family, monkeypatch):
    """On 900 values (740 for circular ranges) the rows would not fit in memory: none is written out."""
    schema = qs.Schema.of(a=40)
    workload = qs.all_kway(schema, 1, family) + 3 * qs.marginals(schema, 1)
    plan = qs.plan(workload, COST, **UNIFORM)
    expected = np.sqrt(plan.variances(workload).mean())

    def refuse(_: Family):
        msg = "rows are not needed"
        raise AssertionError(msg)

    monkeypatch.setattr(Family, "matrix", refuse)
    monkeypatch.setattr(expectations, "MOST_ENTRIES", 1_000)
    fresh = qs.plan(workload, COST, **UNIFORM)
    assert fresh.rmse == pytest.approx(expected, rel=1e-10)
    assert "expected error" in repr(fresh)


# --- queries that are zero, or the number of records ------------------------------------------------

NEVER = ["b < 0 and a < 3", "b < 0", "b < 0 and a < 0", "b < 0 or a < 0", "a < 0 and b == 1 and c == 0"]
ALWAYS = ["b < 9", "b < 9 and a < 9", "a < 9 or b < 0", "a < 9 and b < 9 and c < 9"]
SCHEMA = qs.Schema.of(a=5, b=4, c=3)


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize("predicate", NEVER)
def test_predicates_that_no_record_meets(predicate, centering, refuses):
    nothing = qs.where(SCHEMA, predicate)
    with refuses(PlanError, ValueError, "workload", "all its queries are zero"):
        qs.plan(nothing, COST, centering=centering)
    both = nothing + qs.all_kway(SCHEMA, [1, 2], "prefix")
    plan = qs.plan(both, COST, centering=centering)
    variances = plan.variances(both)
    assert variances[0] == 0
    assert plan.rmse == pytest.approx(np.sqrt(variances.mean()))
    integer_plan(plan, 1.0, 10**8)


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize("predicate", ALWAYS)
def test_predicates_that_every_record_meets_ask_for_their_number(predicate, centering, refuses):
    total = qs.where(SCHEMA, predicate)
    plan = qs.plan(total, COST, centering=centering)
    assert [m.attributes for m in plan.measured] == [()]
    assert plan.variances(total) == pytest.approx(1.0)
    with refuses(PlanError, ValueError, "only for the number of records"):
        qs.plan(total, qs.PrivacyCost(1.0, neighbours="replace_one"), centering=centering)


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
def test_zero_rows(centering, refuses):
    for rows in ([[0, 0, 0, 0, 0]], [[0.0] * 5, [-0.0] * 5]):
        with refuses(PlanError, ValueError, "all its queries are zero"):
            qs.plan(qs.linear(SCHEMA, ["a"], rows), COST, centering=centering)
    workload = qs.linear(SCHEMA, ["a"], [[0] * 5, [1, 0, 1, 0, 0], [1e-8, 0, 0, 0, 0]])
    plan = qs.plan(workload, COST, centering=centering)
    variances = plan.variances(workload)
    assert variances[0] == 0
    assert np.all(variances[1:] > 0)
    np.testing.assert_allclose(variances, reference.planned_variances(plan, workload), rtol=1e-6)


# --- refused when planned ------------------------------------------------------------------------------


def test_the_cap_of_planning_is_the_one_of_measuring(refuses):
    assert inspect.signature(qs.measure).parameters["max_records"].default == MAX_RECORDS
    assert inspect.signature(qs.plan).parameters["max_records"].default == MAX_RECORDS
    for wrong in (0, -1, 2**41, 1.5, True, "many"):
        with refuses(PlanError, ValueError, "max_records", repr(wrong)):
            qs.plan(qs.marginals(SCHEMA, 1), COST, max_records=wrong)


@pytest.mark.slow
def test_fractions_on_many_cells_are_measured_where_they_are_ratios_of_integers(refuses):
    """Sevenths, or tenths of a third, in rows of any size; the planner refuses rows without such ratios."""
    schema = qs.Schema.of(a=70, b=50)
    generator = np.random.default_rng(0)
    whole = generator.integers(-3, 8, (3, 3500))
    for scale in ([[1 / 7], [1e-7 / 3], [0.3]], [[1e5 / 9], [1.0], [np.pi]]):
        workload = qs.linear(schema, ["a", "b"], whole * np.array(scale))
        plan = qs.plan(workload, COST, **UNIFORM)
        integer_plan(plan, 1.0, 10**8)
    with refuses(PlanError, ValueError, "3,500 cells", "integers"):
        qs.plan(qs.linear(schema, ["a", "b"], generator.normal(size=(3, 3500))), COST, **UNIFORM)


def test_centres_that_cannot_be_measured_give_way_to_uniform_ones(monkeypatch):
    """The search may find centres whose rows need too many bits."""
    real = replan.refusal

    def refusal(plan, cap):
        if all(c.is_uniform for c in plan.centres):
            return real(plan, cap)
        return PlanError("max_records: too few bits")

    monkeypatch.setattr(replan, "refusal", refusal)
    plan = qs.plan(qs.all_kway(qs.Schema.of(a=8, b=5), [1, 2], "prefix"), COST)
    assert all(c.is_uniform for c in plan.centres)
