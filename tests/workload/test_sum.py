"""Sums and means as queries: rows by their definition, weights by unit, targets, words, and refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import SchemaError, WorkloadError
from querysmasher.workload.registry import workload_from_data, workload_to_data
from querysmasher.workload.sum import Sum

AGE = qs.Ordinal("age", [20, 30, 45], missing="missing")
INCOME = qs.Binned("income", edges=[0, 10, 30, 100])
PAY = qs.Number("pay", -10, 10, step=5, missing="missing")
SCHEMA = qs.Schema([AGE, INCOME, PAY, qs.Categorical("sex", ["F", "M"])])
NUMBERS = {"age": [20, 30, 45, None], "income": [5, 20, 65], "pay": [-10, -5, 0, 5, 10, None]}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("around", [0, 7.5, -4])
def test_the_row_of_a_sum_is_its_definition(name, around):
    row = [0 if number is None else number - around for number in NUMBERS[name]]
    family = Sum.on(SCHEMA[name], around)
    np.testing.assert_array_equal(family.matrix(), [row])
    assert family.rows == 1
    assert family.query_weights() == pytest.approx([1 / max(map(abs, row)) ** 2])


def test_by_name_and_by_function():
    by_name = qs.queries(SCHEMA, pay="sum", sex="identity")
    assert by_name == qs.sums(SCHEMA, "pay", by="sex")
    assert list(by_name.labels()) == ["sum of pay and sex == 'F'", "sum of pay and sex == 'M'"]
    assert qs.all_kway(SCHEMA, 1, {"pay": "sum"}).groups[2].families[0] == Sum.on(PAY)
    assert list(qs.sums(SCHEMA, "pay", around=5).labels()) == ["sum of (pay - 5)"]
    assert list(qs.sums(SCHEMA, "pay", around=-5).labels()) == ["sum of (pay + 5)"]
    assert list(qs.sums(SCHEMA, "income").labels()) == ["sum of mid-points of income"]
    assert list(qs.sums(SCHEMA, "income", around=5).labels()) == ["sum of (mid-points of income - 5)"]
    assert len(qs.sums(SCHEMA, "pay", by=["sex", "income"])) == 6


@given(st.sampled_from(sorted(NUMBERS)), st.sampled_from([None, "sex", ["sex"]]))
def test_workloads_with_sums_come_back_from_files(name, by):
    workload = 2 * qs.means(SCHEMA, name, by=by) + qs.sums(SCHEMA, name, by=by).within(5)
    assert workload_from_data(workload_to_data(workload)) == workload


def test_a_sum_weighs_as_much_as_a_count_whatever_its_unit():
    """Multiplying the unit by 1,000 changes no plan, and equal weights for tables keep this."""
    plans = []
    for unit in (1, 1000):
        schema = qs.Schema([qs.Number("pay", 0, 10 * unit, step=unit), qs.Ordinal("sex", range(2))])
        workload = qs.sums(schema, "pay", by="sex") + qs.marginals(schema, [1])
        for asked in (workload, workload.weighing("tables")):
            plan = qs.plan(asked, qs.PrivacyCost(1.0))
            scale = np.where(np.arange(len(asked)) < 2, unit, 1)
            plans.append(plan.variances(asked) / scale**2)
    np.testing.assert_allclose(plans[0], plans[2], rtol=1e-3)
    np.testing.assert_allclose(plans[1], plans[3], rtol=1e-3)
    assert [g.weight for g in workload.weighing("tables")] == pytest.approx([1 / 2, 1 / 11, 1 / 2])


def test_means_ask_for_sums_around_the_middle_and_counts_of_known_numbers():
    sums, counts = qs.means(SCHEMA, "pay", by="sex", weight=2).groups
    assert sums.families[0] == Sum.on(PAY, 0.0)
    np.testing.assert_array_equal(counts.families[0].matrix(), [[1, 1, 1, 1, 1, 0]])
    assert (sums.weight, counts.weight) == (2.0, 0.5)
    assert list(counts.labels(SCHEMA)) == [
        "pay != 'missing' and sex == 'F'",
        "pay != 'missing' and sex == 'M'",
    ]
    sums, counts = qs.means(SCHEMA, "income").groups
    assert sums.families[0] == Sum.on(INCOME, 35.0)
    assert counts.attributes == ()


@pytest.mark.parametrize("around", [None, -10, 3])
def test_targets_on_means_hold_for_groups_of_the_stated_size(around):
    """Whatever the mean of such a group, which is a number of the attribute."""
    schema = qs.Schema([qs.Number("pay", 0, 100), qs.Ordinal("sex", range(2))])
    within, size = 0.7, 200
    workload = qs.means(schema, "pay", by="sex", around=around, within=within, size=size)
    plan = qs.least_budget(workload)
    # the mean of records with the mean m errs by the error of Σ(v - m), divided by their number
    errors = [
        np.sqrt(plan.variances(qs.sums(schema, "pay", by="sex", around=mean))) / size for mean in range(101)
    ]
    assert np.max(errors) == pytest.approx(within, rel=1e-3)
    assert np.max(errors) <= within * (1 + 1e-6)
    release = qs.measure(plan, pd.DataFrame({"pay": [0] * size, "sex": [0] * size}), seed=1)
    assert release.mean("pay", by="sex").std[0] == pytest.approx(within, rel=0.05)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: qs.sums(SCHEMA, "sex"), ["'sex' is categorical", "expected a number"]),
        (lambda: qs.sums(SCHEMA, "pay", around="5"), ["around", "got '5'"]),
        (lambda: qs.sums(SCHEMA, "pay", around=float("nan")), ["around", "finite number"]),
        (lambda: qs.means(SCHEMA, "pay", within=3), ["size", "together with within"]),
        (lambda: qs.means(SCHEMA, "pay", size=3), ["size", "together with within"]),
        (lambda: qs.means(SCHEMA, "pay", within=3, size=0), ["size", "positive"]),
        (lambda: qs.means(SCHEMA, "pay", within=3, size=[5]), ["size", "expected one number"]),
        (lambda: qs.means(SCHEMA, "pay", within="3", size=5), ["within", "got '3'"]),
        (lambda: qs.queries(SCHEMA, pay="summ"), ["sum", "'summ'"]),
        (
            lambda: qs.sums(qs.Schema([qs.Ordinal("a", [3])]), "a", around=3),
            ["around", "another number than 3"],
        ),
        (
            lambda: qs.sums(qs.Schema([qs.Binned("a", edges=[0, 1, float("inf")])]), "a"),
            ["open-ended bin", "public cap"],
        ),
    ],
)
def test_what_has_no_sum_is_refused(build, words, refuses):
    with refuses(WorkloadError, ValueError, *words):
        build()


@pytest.mark.parametrize("ask", [qs.sums, qs.means])
@pytest.mark.parametrize(("by", "twice"), [("pay", "'pay'"), (["sex", "sex"], "'sex'")])
def test_groups_are_of_other_attributes_once_each(ask, by, twice, refuses):
    with refuses(SchemaError, ValueError, f"attribute {twice} is named more than once"):
        ask(SCHEMA, "pay", by=by)
