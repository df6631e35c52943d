"""Attributes that are not split: near the optimum where the total is public, and at 100,000 values."""

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.planning.limits import limited
from querysmasher.planning.objectives.objective import as_measured
from tests.builders import COST, SPLIT, as_lines


@pytest.mark.slow
@pytest.mark.parametrize("family", ["prefix", "range"])
def test_a_public_total_is_not_measured(family):
    """With replace-one neighbours everyone knows the total: the plan is as near the optimum as without."""
    workload = qs.queries(qs.Schema.of(a=150), a=family)
    budget = qs.PrivacyCost(1.0, neighbours="replace_one")
    dense = qs.plan(workload, budget)
    with as_lines(50), limited(**SPLIT):
        large = qs.plan(workload, budget)
    assert large.rmse <= 1.006 * dense.rmse
    assert large.rmse / (1 + large.gap) <= dense.rmse * (1 + 1e-6)
    assert large.gap < 0.01
    released = as_measured(large, 10**8).variances(workload)
    assert np.sqrt(released.mean()) <= 1.008 * dense.rmse


@pytest.mark.slow
def test_a_hundred_thousand_values_from_plan_to_answers():
    """Errors of disjoint ranges, in standard errors: false alarms once in a thousand seeds."""
    n = 100_000
    schema = qs.Schema.of(a=n)
    workload = qs.queries(schema, a="prefix")
    plan = qs.plan(workload, COST)
    assert plan.gap < 0.0025
    values = np.random.default_rng(5).integers(0, n, 20_000)
    release = qs.measure(plan, pd.DataFrame({"a": values}), seed=6)
    ends = np.arange(0, n, 100)
    answers = release.answer(qs.queries(schema, a=qs.ranges(schema, "a", ends[:-1] + 1, ends[1:])))
    truth = np.diff(np.bincount(values, minlength=n).cumsum()[ends])
    white = (answers.values - truth) / answers.std
    assert abs((white**2).mean() - 1) < 3.3 * np.sqrt(2 / white.size)
