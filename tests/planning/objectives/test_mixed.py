"""Objectives where some queries are measured as they are beside tables that are split."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.estimator.whole import CombinedEstimator
from querysmasher.planning.limits import limited
from tests.builders import COST, ROWS_WHOLE
from tests.reference import privacy_cost, query_rows, variances
from tests.strategies import aimed, matrices, schemas

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
@settings(max_examples=5, deadline=None)
@given(mixtures(), st.sampled_from([{}, {"neighbours": "replace_one"}]))
def test_a_plan_for_the_worst_case_knows_the_errors_of_its_combined_answers(workload, unit):
    budget = qs.PrivacyCost(1.0, **unit)
    rows, weights = query_rows(workload)
    assume(np.ptp(rows[-2:], axis=1).all())
    with limited(**ROWS_WHOLE):
        plan = qs.plan(workload, budget, objective="worst")
    expected = variances(plan, workload)
    aims = [1.0 if g.target is None else g.target.std for g in workload]
    ratios = np.sqrt(expected) / np.repeat(aims, [g.rows for g in workload])
    assert plan.worst == pytest.approx(ratios.max(), rel=1e-6)
    assert plan.weighted_loss == pytest.approx(weights @ expected, rel=1e-6)
    assert privacy_cost(plan) <= 1 + 1e-9


@pytest.mark.slow
def test_the_certificate_of_a_mixture_is_within_one_percent():
    workload = qs.all_kway(SCHEMA, [1, 2], "prefix") + predicates()
    with limited(**ROWS_WHOLE):
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
    with limited(**ROWS_WHOLE):
        free = qs.plan(tables + few, COST)
        std = np.sqrt(free.variances(few)).max()
        plan = qs.plan(tables + few.within(0.8 * std), COST)
    assert isinstance(plan.estimator, CombinedEstimator)
    assert np.sqrt(variances(plan, few)).max() <= 0.8 * std * (1 + 1e-6)
    assert free.rmse < plan.rmse < 1.2 * free.rmse
    _, weights = query_rows(plan.workload)
    assert plan.weighted_loss == pytest.approx(weights @ variances(plan, plan.workload), rel=1e-6)
    assert plan.gap <= 0.01
