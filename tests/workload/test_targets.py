"""Accuracy targets and weighing: what they set, what they leave alone, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import querysmasher as qs
from querysmasher.errors import WorkloadError
from querysmasher.workload.registry import workload_from_data, workload_to_data
from querysmasher.workload.sum import Sum
from tests.profiles import fewer
from tests.reference import query_rows
from tests.strategies import workloads

SCHEMA = qs.Schema.of(a=3, b=2)
HUGE = pytest.param(10**400, id="huge")


def test_a_target_is_a_standard_error_or_the_half_width_of_an_interval():
    (group,) = qs.queries(SCHEMA, a="prefix").within(50)
    assert group.target.std == 50
    (group,) = qs.queries(SCHEMA, a="prefix").within(50, level=0.95)
    assert group.target.std == pytest.approx(50 / norm.ppf(0.975), rel=1e-12)
    assert str(group.target) == "± 50.0 at 95%"


def test_parts_keep_their_own_targets_when_they_are_joined():
    joined = qs.marginals(SCHEMA, 1).within(5) + qs.marginals(SCHEMA, 2) + qs.marginals(SCHEMA, 0).within(2)
    assert [None if g.target is None else g.target.std for g in joined] == [5, 5, None, 2]
    assert joined.has_targets
    assert not qs.marginals(SCHEMA, 1).has_targets
    assert repr(joined).endswith("2 attributes; 3 with targets)")
    assert "± 5.00" in joined._repr_html_()
    assert "target" not in qs.marginals(SCHEMA, 1)._repr_html_()


@fewer(40)
@given(workloads())
def test_targets_survive_weights_and_change_no_query(workload):
    aimed = 3 * workload.within(7, level=0.9)
    assert all(
        g.target == qs.Workload(workload.schema, (g,)).within(7, level=0.9).groups[0].target for g in aimed
    )
    rows, weights = query_rows(workload)
    np.testing.assert_array_equal(query_rows(aimed)[0], rows)
    np.testing.assert_allclose(query_rows(aimed)[1], 3 * weights, rtol=1e-15)


@given(workloads(), st.floats(1e-3, 1e6), st.none() | st.floats(0.01, 0.99))
def test_targets_come_back_from_plain_data(workload, amount, level):
    aimed = workload.within(amount, level=level) + workload
    assert workload_from_data(workload_to_data(aimed)) == aimed


def test_data_from_before_there_were_targets_is_read():
    data = workload_to_data(qs.marginals(SCHEMA, [1, 2]))
    del data["group_targets"], data["group_levels"]
    assert workload_from_data(data) == qs.marginals(SCHEMA, [1, 2])


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), True, "5", None, [5], 1e-13, 1j, HUGE])
def test_a_target_that_is_not_positive_is_refused(amount):
    with pytest.raises(WorkloadError, match="within: expected a positive number"):
        qs.marginals(SCHEMA, 1).within(amount)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, "0.95", True, float("nan"), 1j, HUGE])
def test_a_level_outside_zero_and_one_is_refused(level):
    with pytest.raises(WorkloadError, match="level: expected a number between 0 and 1"):
        qs.marginals(SCHEMA, 1).within(5, level=level)


@pytest.mark.parametrize("level", [1e-9, 1e-4, 0.3, 0.49999, 0.5, 0.95, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53])
def test_the_half_width_is_exact_at_every_level(level):
    """The standard normal quantile, also where one minus the level is lost in rounding."""
    (group,) = qs.marginals(SCHEMA, 0).within(50, level=level)
    reach = 50 / group.target.std
    assert 2 * norm.sf(reach) == pytest.approx(1 - level, rel=1e-9)
    assert 2 * (norm.cdf(reach) - 0.5) == pytest.approx(level, rel=1e-7)


@pytest.mark.parametrize(("amount", "level"), [(5, 1e-300), (1e30, 0.5), (1.5e-12, 0.95)])
def test_a_half_width_beyond_all_standard_errors_is_refused(amount, level):
    with pytest.raises(WorkloadError, match=r"within: .* a standard error from 1e-12 to 1e\+30, got "):
        qs.marginals(SCHEMA, 1).within(amount, level=level)


@given(workloads())
def test_weighing_by_tables_gives_every_group_the_same_sum_of_weights(workload):
    weighed = workload.weighing("tables")
    for group in weighed:
        _, weights = query_rows(qs.Workload(workload.schema, (group,)))
        unit = math.prod(f.query_weights().sum() for f in group.families if isinstance(f, Sum))
        assert weights.sum() == pytest.approx(unit, rel=1e-12)
    assert all(g.weight == 1 for g in weighed.weighing("queries"))


def test_an_unknown_weighing_is_refused():
    with pytest.raises(WorkloadError, match="weighing: expected 'tables' or 'queries', got 'cells'"):
        qs.marginals(SCHEMA, 1).weighing("cells")


def test_weighing_by_tables_makes_totals_and_small_tables_more_accurate():
    """The issue's example: one huge table no longer outweighs the headline figures."""
    schema = qs.Schema.of(a=100, b=90, c=2, d=3)
    workload = qs.marginals(schema, [0, 1, 2])
    budget = qs.PrivacyCost(1.0)
    even, by_table = (
        qs.plan(w, budget, centering="uniform") for w in (workload, workload.weighing("tables"))
    )
    small = qs.marginals(schema, 0) + qs.queries(schema, c="identity") + qs.queries(schema, d="identity")
    assert (by_table.variances(small) < 0.5 * even.variances(small)).all()
    assert even.rmse < by_table.rmse < 2 * even.rmse
