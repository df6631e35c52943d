"""Estimates honour exact counts: their tables, integers and synthetic records have these margins."""

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import BudgetError
from tests.release.tables import frame, random_counts

SCHEMA = qs.Schema.of(state=4, sex=2, age=6, race=3)
TABLE = random_counts(SCHEMA, 3, 3_000)
EXACT = TABLE.sum(axis=(2, 3))
WORKLOAD = qs.marginals(SCHEMA, [1, 2])


def release(rho=0.02, seed=1, **options):
    plan = qs.plan(WORKLOAD, qs.zCDP(rho), exact=qs.marginals(SCHEMA, ["state", "sex"]), **options)
    return qs.measure(plan, frame(SCHEMA, TABLE), seed=seed)


@pytest.mark.parametrize(
    "options",
    [{}, {"centering": "uniform"}, {"purpose": "estimate"}, {"purpose": "estimate", "records": 3_000}],
)
def test_estimated_tables_have_the_exact_margins(options):
    estimate = release(**options).estimate()
    np.testing.assert_array_equal(estimate.marginal("state", "sex"), EXACT)
    np.testing.assert_array_equal(estimate.marginal("sex"), EXACT.sum(axis=0))
    np.testing.assert_allclose(estimate.marginal("state", "age").sum(axis=1), EXACT.sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(estimate.marginal("state", "sex", "age").sum(axis=2), EXACT, rtol=1e-3, atol=1)
    assert estimate.marginal("age", "race").min() >= 0


def test_integers_have_the_exact_margins():
    integers = release().estimate().integers(seed=1)
    np.testing.assert_array_equal(integers.marginal("state", "sex"), EXACT)
    np.testing.assert_array_equal(integers.marginal("state", "age").sum(axis=1), EXACT.sum(axis=1))


def test_errors_of_estimates_are_measured_beside_exact_counts():
    plan = qs.plan(WORKLOAD, qs.zCDP(0.05), exact=qs.marginals(SCHEMA, ["state"]))
    made = qs.measure(plan, frame(SCHEMA, TABLE), seed=1, error_share=0.1)
    assert made.estimate().error() is not None
    np.testing.assert_array_equal(made.marginal("state"), TABLE.sum(axis=(1, 2, 3)))


def test_an_exploration_refuses_exact_counts():
    budget = qs.zCDP(0.1, neighbours="replace_one", exact=(("state",),))
    with pytest.raises(BudgetError, match="budget: expected one without exact counts"):
        qs.explore(WORKLOAD, frame(SCHEMA, TABLE), budget, seed=1)
