"""Attributes with centres of their own: against dense least squares on the whole domain, on small cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import TooLargeError
from querysmasher.workload.families import Prefix
from querysmasher.workload.family import Family
from tests.builders import COST, LINE_SCHEMA, has_lines, plan_lines
from tests.profiles import fewer
from tests.reference import check_variances

families = st.sampled_from(["identity", "prefix", "range", "circular"])


@st.composite
def families_on(draw, name):
    """All queries of a kind about an attribute, or a few ranges, which may not distinguish all values."""
    if draw(st.booleans()):
        return draw(families)
    values = st.integers(0, LINE_SCHEMA[name].size - 1)
    ends = draw(st.lists(st.tuples(values, values), min_size=1, max_size=3))
    first, last = np.sort(ends, axis=1).T
    return qs.ranges(
        LINE_SCHEMA, name, first, last, draw(st.sampled_from([None, np.arange(1, 1 + len(ends))]))
    )


@st.composite
def workloads(draw, large=("a",), most=3):
    """Groups on small attributes, with or without one large attribute each."""
    groups = []
    for own in draw(st.lists(st.sampled_from(["", *large]), min_size=1, max_size=most)):
        names = [name for name in "bc" if draw(st.booleans())] + ([own] if own else [])
        if draw(st.booleans()):
            names.reverse()
        asked = {name: draw(families_on(name)) for name in names}
        groups.append(draw(st.sampled_from([1.0, 0.2, 7.0])) * qs.queries(LINE_SCHEMA, asked))
    large_one = qs.queries(LINE_SCHEMA, {large[0]: draw(families_on(large[0]))})
    return sum(groups, start=large_one)


@fewer(20)
@given(workloads())
def test_variances_are_those_of_least_squares(workload):
    plan = plan_lines(workload)
    check_variances(plan, workload)
    assert plan.privacy_cost == pytest.approx(1.0)
    assert has_lines(plan)


def test_two_large_attributes_together():
    workload = qs.queries(LINE_SCHEMA, a="prefix", d="range", b="identity") + qs.queries(
        LINE_SCHEMA, a="identity"
    )
    check_variances(plan_lines(workload, max_records=10**6), workload)


@pytest.mark.slow
@fewer(15)
@given(workloads(("a", "d"), most=4))
def test_the_bound_holds_against_the_dense_optimum(workload):
    """The gap bounds the error of every plan around these centres; the limit holds for any mechanism."""
    plan = plan_lines(workload, centering="uniform")
    reference = qs.plan(workload, COST, centering="uniform", tolerance=1e-4)
    below = plan.weighted_rmse / (1 + plan.gap)
    assert below <= reference.weighted_rmse * (1 + 1e-3)


def test_public_totals_leave_no_noise_on_the_total():
    plan = plan_lines(
        qs.queries(LINE_SCHEMA, a="prefix") + qs.queries(LINE_SCHEMA, d="prefix"),
        qs.PrivacyCost(1.0, neighbours="replace_one"),
    )
    for name in "ad":
        assert plan.variances(qs.queries(LINE_SCHEMA, {name: "prefix"}))[-1] == pytest.approx(0, abs=1e-12)


# --- hierarchies whose groups are ranges, with prefixes -----------------------------------------


def test_the_bound_is_below_the_optimum_and_the_plan_near_it():
    schema = qs.Schema.of(a=240)
    years = qs.hierarchy(schema, "a", np.arange(240) // 60, np.arange(240) // 12)
    workload = qs.queries(schema, a=years) + qs.queries(schema, a="prefix")
    dense = qs.plan(workload, COST)
    plan = plan_lines(workload, axis_values=6)
    assert plan.rmse <= 1.05 * dense.rmse
    assert plan.rmse / (1 + plan.gap) <= dense.rmse * (1 + 1e-6)
    assert plan.gap < 0.3


def test_groups_that_are_no_ranges_are_refused_with_prefixes():
    scattered = qs.hierarchy(LINE_SCHEMA, "a", [0, 1, 0, 1, 0, 1, 0])
    workload = qs.queries(LINE_SCHEMA, a=scattered) + qs.queries(LINE_SCHEMA, a="prefix")
    with pytest.raises(TooLargeError, match="some group is not a range of values"):
        plan_lines(workload, axis_values=6)
    assert (
        plan_lines(
            qs.queries(LINE_SCHEMA, a=scattered) + qs.queries(LINE_SCHEMA, a="identity"), axis_values=6
        ).gap
        < 0.01
    )


def test_sums_beside_prefixes_of_many_values_write_no_matrix_of_all_values(monkeypatch):
    """Neither in the search for centres, nor where rows measured whole are combined with prefixes."""
    schema = qs.Schema(
        [qs.Number("pay", 0, 2_000), qs.Ordinal("age", range(30)), qs.Ordinal("sex", range(2))]
    )
    workload = qs.means(schema, "pay", by="sex") + qs.all_kway(schema, 1) + qs.sums(schema, "age", by="sex")
    written = Family.gram

    def few_values(family):
        assert family.cells <= 1_500, "a matrix of all values"
        return written(family)

    for kind in (Family, Prefix):
        monkeypatch.setattr(kind, "gram", few_values)
    plan = qs.plan(workload, qs.PrivacyCost(1.0))
    assert plan.gap < 0.06
