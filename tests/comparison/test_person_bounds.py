"""How many records of each person to count: against plans made for each bound, and against a table."""

import math

import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.errors import BudgetError, PlanError
from tests.builders import UNIFORM

SCHEMA = qs.Schema.of(a=3, b=2)
HISTOGRAM = {1: 50, 3: 20, 40: 2}


def plan_for(most=1, **options):
    budget = qs.zCDP(0.5, records_per_person=most, **options)
    return qs.plan(qs.marginals(SCHEMA, [0, 1, 2]), budget, **UNIFORM)


def test_errors_are_those_of_plans_for_each_bound():
    for start in (1, 5):
        found = qs.records_per_person(plan_for(start), HISTOGRAM)
        assert [row.records_per_person for row in found.rows] == [1, 2, 5, 10, 20, 50]
        for row in found.rows:
            plan = plan_for(row.records_per_person)
            assert row.std == pytest.approx(plan.rmse)
            std = math.sqrt(plan.variances(qs.marginals(SCHEMA, 0))[0])
            assert row.total_error == pytest.approx(math.hypot(row.left_out, std))


def test_what_is_left_out_is_what_is_not_counted():
    rows = [(f"{n}-{i}", 0, 0) for n, persons in HISTOGRAM.items() for i in range(persons) for _ in range(n)]
    table = pd.DataFrame(rows, columns=["id", "a", "b"])
    for row in qs.records_per_person(plan_for(), HISTOGRAM, [1, 3, 7, 40]).rows:
        k = row.records_per_person
        kept = table.groupby("id").head(k)
        assert row.left_out == len(table) - len(kept)
        assert row.share == pytest.approx(1 - len(kept) / len(table))


def test_as_a_table():
    found = qs.records_per_person(plan_for(), HISTOGRAM)
    assert repr(found).splitlines()[0].split("  ")[0] == "records per person"
    assert len(repr(found).splitlines()) == 7
    assert "62.1%" in found._repr_html_()
    frame = found.to_frame("pandas")
    assert list(frame.columns) == ["records_per_person", "left_out", "share", "std", "total_error"]
    assert frame.left_out.is_monotonic_decreasing
    assert frame["std"].is_monotonic_increasing
    lone = qs.plan(qs.where(SCHEMA, "a == 0 and b == 1"), qs.zCDP(0.5))
    assert math.isnan(qs.records_per_person(lone, HISTOGRAM).rows[0].total_error)
    assert "—" in repr(qs.records_per_person(lone, HISTOGRAM))


WRONG = [{}, {1: 0}, {0: 1}, {1: -1}, {1.5: 2}, {True: 2}, {1: math.inf}, [1, 2], {1: "2"}]


@pytest.mark.parametrize("wrong", WRONG)
def test_odd_histograms_are_refused(wrong, refuses):
    with refuses(BudgetError, ValueError, "histogram"):
        qs.records_per_person(plan_for(), wrong)


def test_odd_arguments_are_refused(refuses):
    for wrong in ([], [0], [1.5], [True]):
        with refuses(BudgetError, ValueError, "bounds"):
            qs.records_per_person(plan_for(), HISTOGRAM, wrong)
    with refuses(PlanError, ValueError, "plan"):
        qs.records_per_person(qs.zCDP(1), HISTOGRAM)
    with refuses(BudgetError, ValueError, "plan"):
        qs.records_per_person(plan_for(neighbours="replace_one"), HISTOGRAM)
