"""Dates as values, and the value that stands for missing ones: what is taken, refused and kept."""

import json
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.attributes import attribute_from_json
from querysmasher.errors import SchemaError

DAYS = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]


@pytest.mark.parametrize(
    "given_days",
    [
        DAYS,
        [datetime(2024, 2, 28), datetime(2024, 2, 29), datetime(2024, 3, 1)],  # noqa: DTZ001
        pd.date_range("2024-02-28", "2024-03-01"),
        np.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]"),
        np.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]").astype("datetime64[ns]"),
    ],
)
def test_dates_are_values_however_they_are_given(given_days):
    attribute = qs.Ordinal("day", given_days)
    assert attribute.values == tuple(DAYS)
    assert {type(v) for v in attribute.values} == {date}
    assert attribute.labels == ("2024-02-28", "2024-02-29", "2024-03-01")
    assert attribute.literals == ("'2024-02-28'", "'2024-02-29'", "'2024-03-01'")
    assert attribute.position(date(2024, 3, 1)) == 2


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2024, 3, 1, 12),  # noqa: DTZ001
        datetime(2024, 3, 1, tzinfo=UTC),
        pd.Timestamp("2024-03-01 00:00:00.000000001"),
        pd.Timestamp("2024-03-01", tz="Europe/Paris"),
        pd.NaT,
        np.datetime64("NaT"),
        np.datetime64("2024-03-01T00:00:00.000000001"),
    ],
)
def test_moments_that_are_no_dates_are_refused(moment, refuses):
    with refuses(SchemaError, ValueError, "'day'", "without time or time zone"):
        qs.Ordinal("day", [moment])


def test_a_date_and_its_text_are_one_value(refuses):
    with refuses(SchemaError, ValueError, "'2024-03-01' is given both as a date and as a string"):
        qs.Ordinal("day", [date(2024, 3, 1), "2024-03-01"])
    with refuses(SchemaError, ValueError, "'2024-03-01' is given more than once"):
        qs.Ordinal("day", [date(2024, 3, 1), datetime(2024, 3, 1)])  # noqa: DTZ001
    with refuses(SchemaError, ValueError, "has no value '2024-03-02'"):
        qs.Ordinal("day", DAYS).position(date(2024, 3, 2))
    with refuses(SchemaError, ValueError, "finite numbers"):
        qs.Binned("day", edges=DAYS)


@pytest.mark.parametrize(
    ("attribute", "missing"),
    [
        (qs.Categorical("race", ["A", "B", "unknown"], missing="unknown"), "unknown"),
        (qs.Ordinal("age", [0, 1, 2, -1], missing=-1.0), -1),
        (qs.Cyclic("hour", range(24), missing=np.int64(3)), 3),
        (qs.Ordinal("day", [*DAYS, "unknown"], missing="unknown"), "unknown"),
        (qs.Ordinal("day", DAYS, missing=pd.Timestamp("2024-03-01")), DAYS[2]),
        (qs.Binned("income", edges=[0, 10, 20], missing="[0, 10)"), "[0, 10)"),
    ],
)
def test_a_declared_value_stands_for_missing_ones(attribute, missing):
    assert attribute.missing == missing
    assert type(attribute.missing) is type(missing)
    assert attribute_from_json(json.loads(json.dumps(attribute.to_json()))) == attribute


@pytest.mark.parametrize("missing", ["unknwon", 7, float("nan"), [1], date(2024, 3, 1)])
def test_a_stand_in_that_is_no_value_is_refused(missing, refuses):
    with refuses(SchemaError, ValueError, "missing of attribute 'race'", "'A', 'B'", "got"):
        qs.Categorical("race", ["A", "B"], missing=missing)


def test_a_schema_without_a_stand_in_is_stored_as_before():
    assert qs.Ordinal("a", [1, 2]).to_json() == {"kind": "ordinal", "name": "a", "values": [1, 2]}
    assert qs.Ordinal("a", [1, 2]) != qs.Ordinal("a", [1, 2], missing=1)


@pytest.mark.parametrize("odd", [{"date": "2024-13-01"}, {"date": 3}, {"day": "2024-01-01"}])
def test_a_damaged_date_is_refused(odd, refuses):
    with refuses(SchemaError, ValueError):
        attribute_from_json({"kind": "ordinal", "name": "a", "values": [odd]})


labels = st.one_of(st.text(max_size=3), st.integers(-5, 5), st.booleans(), st.dates())


@given(st.lists(labels, min_size=1, max_size=6, unique_by=lambda v: (isinstance(v, date), str(v))), st.data())
def test_attributes_come_back_from_json(values, data):
    values = list(dict.fromkeys(values))  # True is 1
    missing = data.draw(st.sampled_from([None, *values]))
    attribute = qs.Ordinal("a", values, missing=missing)
    again = attribute_from_json(json.loads(json.dumps(attribute.to_json())))
    assert again == attribute
    assert [type(v) for v in again.values] == [type(v) for v in attribute.values]


def test_plans_and_releases_keep_dates_and_stand_ins(tmp_path):
    schema = qs.Schema(
        [qs.Ordinal("day", [*DAYS, "unknown"], missing="unknown"), qs.Categorical("s", ["F", "M"])]
    )
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(1.0))
    plan.save(tmp_path / "plan")
    assert qs.Plan.load(tmp_path / "plan").workload == plan.workload
    release = qs.measure(plan, pd.DataFrame({"day": [*DAYS, None], "s": list("FMFM")}))
    release.save(tmp_path / "release")
    again = qs.Release.load(tmp_path / "release")
    assert again.plan.schema == schema
    assert next(iter(release.answer().workload.labels())) == "day <= '2024-02-28'"
    page = release.report(tmp_path / "page.html").read_text()
    assert "2024-02-29" in page
    assert "missing values count as unknown" in page
