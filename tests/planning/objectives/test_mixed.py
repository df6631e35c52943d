"""Objectives where some queries are measured as they are beside tables that are split."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from querysmasher.planning.objectives.apart import ApartTable, CombinedTable, is_mixed
from querysmasher.planning.objectives.extremes import own_table

import querysmasher as qs
from querysmasher.planning.limits import limited
from tests.builders import COST
from tests.planning.objectives.targets import aimed
from tests.planning.test_mixture import BESIDE, mixed
from tests.reference import privacy_cost, query_rows, variances
from tests.strategies import matrices, schemas

pytestmark = pytest.mark.filterwarnings("ignore::querysmasher.errors.QuerySmasherWarning")
"""Random tables ask any family of any attribute."""

SCHEMA = qs.Schema.of(a=6, b=5, c=3, d=2)
RULES = [f"(a >= {i} or b <= {i % 4}) and c != {i % 3}" for i in range(1, 6)]


def predicates():
    return sum((qs.where(SCHEMA, rule) for rule in RULES), 0)


@st.composite
def mixtures(draw):
    """Tables, and rows on a few attributes."""
    schema = draw(schemas(min_attributes=2, max_attributes=3, max_size=4, max_cells=24))
    ways = draw(st.sampled_from([1, 2, [1, 2], [0, 1]]))
    tables = qs.all_kway(schema, ways, draw(st.sampled_from(["prefix", "identity", "range"])))
    names = draw(st.permutations(schema.names))[:2]
    rows = draw(matrices(2, math.prod(schema.shape(names))))
    return draw(aimed(st.just(tables))) + draw(aimed(st.just(qs.linear(schema, names, rows))))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(mixtures(), st.sampled_from([{}, {"neighbours": "replace_one"}]))
def test_a_plan_for_the_worst_case_knows_the_errors_of_its_combined_answers(workload, unit):
    budget = qs.PrivacyCost(1.0, **unit)
    rows, weights = query_rows(workload)
    assume(np.ptp(rows[-2:], axis=1).all())
    with limited(**BESIDE):
        plan = qs.plan(workload, budget, objective="worst")
    expected = variances(plan, workload)
    aims = [1.0 if g.target is None else g.target.std for g in workload]
    ratios = np.sqrt(expected) / np.repeat(aims, [g.rows for g in workload])
    assert plan.worst == pytest.approx(ratios.max(), rel=1e-6)
    assert plan.weighted_loss == pytest.approx(weights @ expected, rel=1e-6)
    assert privacy_cost(plan) <= 1 + 1e-9


def test_tables_of_variances_apart_and_combined():
    with limited(**BESIDE):
        plan = qs.plan(mixed(), COST)
    assert is_mixed(plan)
    scopes = [(0,) * len(g.families) for g in plan.workload]
    together, true = CombinedTable(plan, scopes), own_table(plan)
    for number, entry in enumerate(together.entries):
        largest = together.largest(number, together.variances)[0]
        assert largest == pytest.approx(plan.variances(_alone(plan.workload, entry.group)).max(), rel=1e-9)
    x = together.variances * np.linspace(0.5, 2, len(together.variances))
    measured = (replace(m, variance=v) for m, v in zip(plan.measured, x.tolist(), strict=True))
    other = replace(plan, measured=tuple(measured))
    for number, entry in enumerate(together.entries):  # estimators for other noise are no better
        most = other.variances(_alone(plan.workload, entry.group)).max()
        assert together.largest(number, x)[0] >= most * (1 - 1e-9)
    apart = ApartTable(plan, scopes)
    bounds = {entry.members[0]: apart.largest(n, apart.variances)[0] for n, entry in enumerate(apart.entries)}
    for number, entry in enumerate(true.entries):
        assert true.largest(number, true.variances)[0] <= bounds.get(entry.members[0], math.inf) * (1 + 1e-9)


def _alone(workload, group):
    return qs.Workload(workload.schema, (group,))


@pytest.mark.slow
def test_the_certificate_of_a_mixture_is_within_one_percent():
    workload = qs.all_kway(SCHEMA, [1, 2], "prefix") + predicates()
    with limited(**BESIDE):
        plan = qs.plan(workload, COST, objective="worst")
        targeted = qs.plan(
            qs.all_kway(SCHEMA, [1, 2], "prefix").within(5) + predicates().within(2), COST, objective="worst"
        )
    for one in (plan, targeted):
        assert len(one.whole) == len(RULES)
        assert one.gap <= 0.01
    assert plan.worst == pytest.approx(np.sqrt(variances(plan, workload)).max(), rel=1e-6)


@pytest.mark.slow
def test_targets_are_met_by_combined_answers():
    tables, few = qs.all_kway(SCHEMA, [1, 2], "prefix"), predicates()
    with limited(**BESIDE):
        free = qs.plan(tables + few, COST)
        std = np.sqrt(free.variances(few)).max()
        plan = qs.plan(tables + few.within(0.8 * std), COST)
    assert is_mixed(plan)
    assert np.sqrt(variances(plan, few)).max() <= 0.8 * std * (1 + 1e-6)
    assert free.rmse < plan.rmse < 1.2 * free.rmse
    _, weights = query_rows(plan.workload)
    assert plan.weighted_loss == pytest.approx(weights @ variances(plan, plan.workload), rel=1e-6)
    assert plan.gap <= 0.01
