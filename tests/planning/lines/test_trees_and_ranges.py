"""Hierarchies whose groups are ranges, with prefixes and ranges of the same attribute that is not split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import TooLargeError
from querysmasher.planning.limits import limited
from tests.builders import COST, SPLIT, as_lines
from tests.planning.estimator.test_estimator import exact_release
from tests.planning.lines.test_splitting import SCHEMA, check_variances
from tests.profiles import fewer
from tests.reference import group_rows


def planned(workload, budget=COST, **options):
    """Plan without matrices."""
    with as_lines(5, axis_values=6), limited(**SPLIT):
        return qs.plan(workload, budget, **options)


@st.composite
def mixed(draw):
    """A hierarchy of ranges, with other queries about the same attribute and perhaps another one."""
    fine = np.cumsum([0, *(draw(st.booleans()) for _ in range(6))])
    coarse = fine // 2
    weights = draw(st.sampled_from([None, (3.0, 1.0, 2.0)]))
    tree = qs.hierarchy(SCHEMA, "a", coarse, fine, weights=weights)
    other = draw(st.sampled_from(["prefix", "range", "circular", qs.ranges(SCHEMA, "a", [1, 2], [3, 6])]))
    beside = {"b": "identity"} if draw(st.booleans()) else {}
    return qs.queries(SCHEMA, {"a": tree, **beside}) + draw(st.sampled_from([1.0, 5.0])) * qs.queries(
        SCHEMA, {"a": other}
    )


@pytest.mark.slow
@fewer(15)
@given(mixed(), st.booleans())
def test_variances_and_answers_are_those_of_least_squares(workload, public):
    budget = qs.PrivacyCost(1.0, neighbours="replace_one") if public else COST
    plan = planned(workload, budget)
    check_variances(plan, workload)
    table = np.random.default_rng(1).integers(0, 50, SCHEMA.sizes)
    release = exact_release(plan, table)
    for group in workload:
        values, _ = release.answer_group(group)
        expected = (group_rows(group, SCHEMA)[0] @ table.ravel()).reshape(values.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-5)


def test_the_bound_is_below_the_optimum_and_the_plan_near_it():
    schema = qs.Schema.of(a=240)
    years = qs.hierarchy(schema, "a", np.arange(240) // 60, np.arange(240) // 12)
    workload = qs.queries(schema, a=years) + qs.queries(schema, a="prefix")
    dense = qs.plan(workload, COST)
    plan = planned(workload)
    assert plan.rmse <= 1.05 * dense.rmse
    assert plan.rmse / (1 + plan.gap) <= dense.rmse * (1 + 1e-6)
    assert plan.gap < 0.3


def test_groups_that_are_no_ranges_are_refused_with_prefixes():
    scattered = qs.hierarchy(SCHEMA, "a", [0, 1, 0, 1, 0, 1, 0])
    workload = qs.queries(SCHEMA, a=scattered) + qs.queries(SCHEMA, a="prefix")
    with pytest.raises(TooLargeError, match="some group is not a range of values"):
        planned(workload)
    assert planned(qs.queries(SCHEMA, a=scattered) + qs.queries(SCHEMA, a="identity")).gap < 0.01
