"""Cross-tables, frames and marginals as people see them."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher.errors import SchemaError, TooLargeError, UnknownQueryError, WorkloadError
from querysmasher.release.tidy import column_names
from querysmasher.statistics import selection, tables
from querysmasher.statistics.reliability import Rules, coefficients
from tests.builders import UNIFORM
from tests.release.tables import random_counts, simulate
from tests.statistics.dense import Dense

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", [20, 30, 40])])
COUNTS = np.array([1000.0, 400, 16, 900, 300, 4])
COLUMNS = ["sex", "age", "value", "std", "low", "high", "cv", "flag"]


@pytest.fixture
def release():
    return Dense(SCHEMA, COUNTS, 16 * np.eye(6))


def test_a_printed_table(release):
    assert repr(release.table("sex", "age")).splitlines() == [
        "Count by sex, age (value ± standard error)",
        "sex \\ age             20           30          40          Total",
        "F          1,000.0 ± 4.0  400.0 ± 4.0  16.0 ± 4.0  1,416.0 ± 6.9",
        "M            900.0 ± 4.0  300.0 ± 4.0   4.0 ± 4.0  1,204.0 ± 6.9",
        "Total      1,900.0 ± 5.7  700.0 ± 5.7  20.0 ± 5.7  2,620.0 ± 9.8",
    ]
    shown = repr(release.table("sex", "age", suppress=0.3, percent="row"))
    assert "·: suppressed" in shown
    assert "biased" in shown
    assert "0.76% ± 0.21" in shown
    one = repr(release.table("age")).splitlines()
    assert one[1:] == [
        "age            count",
        "20     1,900.0 ± 5.7",
        "30       700.0 ± 5.7",
        "40        20.0 ± 5.7",
        "Total  2,620.0 ± 9.8",
    ]
    html = release.table("sex", "age")._repr_html_()
    assert "<td>F</td>" in html
    assert ">16.0 ± 4.0</td>" in html


def test_long_frames(release):
    table = release.table("sex", "age").to_frame()
    assert table.column_names == COLUMNS
    rows = table.to_pylist()
    assert len(rows) == 12
    assert rows[2] == {
        "sex": "F", "age": 40, "value": 16, "std": 4, "low": pytest.approx(16 - 7.84, abs=0.01),
        "high": pytest.approx(16 + 7.84, abs=0.01), "cv": 0.25, "flag": "<=30%",
    }  # fmt: skip
    assert rows[3]["age"] is None, "null means all"
    assert rows[-1]["sex"] is None
    assert rows[-1]["value"] == 2620
    pandas = release.table("sex", "age").to_frame("pandas")
    assert isinstance(pandas, pd.DataFrame)
    assert pandas["age"].dtype == "Int64", "integers remain integers beside nulls"
    assert isinstance(release.table("sex", "age").to_frame("polars"), pl.DataFrame)
    wide = release.table("sex", "age").to_frame("pandas", level=0.9)
    assert (wide["high"] < pandas["high"]).all()
    together = release.table("sex", "age").to_frame("pandas", simultaneous=True)
    assert (together["high"] > pandas["high"]).all()


def test_wide_frames(release):
    wide = release.table("sex", "age").to_frame(wide=True).to_pylist()
    assert wide[0] == {"sex": "F", "20": 1000, "30": 400, "40": 16, "Total": 1416}
    assert wide[2] == {"sex": None, "20": 1900, "30": 700, "40": 20, "Total": 2620}
    cv = release.table("sex", "age", totals=False).to_frame(wide=True, column="cv").to_pylist()
    assert cv[1] == {"sex": "M", "20": pytest.approx(4 / 900), "30": pytest.approx(4 / 300), "40": 1.0}
    assert release.table("age").to_frame(wide=True).to_pylist()[-1] == {"age": None, "value": 2620}
    with pytest.raises(WorkloadError, match="column"):
        release.table("sex", "age").to_frame(wide=True, column="flag")
    with pytest.raises(WorkloadError, match="backend"):
        release.table("sex", "age").to_frame("nothing")


def test_cells_by_value(release):
    table = release.table("sex", "age")
    assert float(table["F", 40]) == 16
    assert table["M", None].value == 1204
    assert table[None, None].about == {"sex": None, "age": None}
    assert len(table) == 12
    assert [cell.value for cell in table][:3] == [1000, 400, 16]
    for key, error in ((("F",), WorkloadError), (("X", 20), SchemaError)):
        with pytest.raises(error):
            table[key]
    with pytest.raises(WorkloadError, match="totals"):
        release.table("sex", "age", totals=False)["F", None]


def test_flags_and_suppression(release):
    assert release.table("sex", "age", totals=False).flags.tolist() == [
        ["<=10%", "<=10%", "<=30%"],
        ["<=10%", "<=10%", ">30%"],
    ]
    coarse = release.table("sex", "age", totals=False, thresholds=[0.25]).flags.tolist()
    assert coarse == [["<=25%"] * 3, ["<=25%", "<=25%", ">25%"]]
    hidden = release.table("sex", "age", suppress=0.2).to_frame().to_pylist()
    assert [row["flag"] for row in hidden].count("suppressed") == 3
    assert hidden[2] == {
        "sex": "F",
        "age": 40,
        **dict.fromkeys(["value", "std", "low", "high", "cv"]),
        "flag": "suppressed",
    }
    assert Rules(()).flags(np.array([0.5])).tolist() == [""]
    np.testing.assert_array_equal(
        coefficients(np.array([0, 0, -4.0]), np.array([0, 1, 1.0])), [0, np.inf, 0.25]
    )


def test_names_of_columns_do_not_collide():
    schema = qs.Schema([qs.Ordinal("value", range(2)), qs.Categorical("value_", ["a", "b"])])
    release = Dense(schema, np.full(4, 9.0), np.eye(4))
    names = release.table("value", "value_").to_frame().column_names
    assert names == ["value__", "value_", *COLUMNS[2:]]
    assert column_names(["a", "b"]) == ["a", "b"]


def test_kinds_of_values():
    day = dt.date(2024, 3, 1)
    schema = qs.Schema(
        [
            qs.Categorical("d", [day, dt.date(2024, 3, 2)]),
            qs.Categorical("m", [1, "x"]),
            qs.Ordinal("f", [0.5, 1]),
        ]
    )
    frame = Dense(schema, np.full(8, 9.0), np.eye(8)).table("d", "m", "f").to_frame()
    assert [frame.schema.field(i).type for i in range(3)] == [pa.date32(), pa.string(), pa.float64()]
    assert frame["d"][0].as_py() == day


@pytest.mark.slow
def test_large_tables_are_cut_when_printed():
    release = Dense(qs.Schema.of(a=60, b=20), np.arange(1200.0), np.eye(1200))
    shown = repr(release.table("a", "b"))
    assert len(shown.splitlines()) < 50
    assert "to_frame() returns all" in shown


def test_attributes_with_very_many_values(refuses, monkeypatch):
    """A table without totals is no larger than itself; others are refused before memory runs out."""
    monkeypatch.setattr(tables, "MAX_VALUES", 4)
    release = Dense(qs.Schema.of(zip=5, sex=2), np.arange(10), np.eye(10))
    assert release.table("zip", totals=False).values.tolist() == [1, 5, 9, 13, 17]
    assert release.table("zip", totals=False).figures.covariance().tolist() == (2 * np.eye(5)).tolist()
    assert release.mean("zip").std[0] > 0
    several = {"where": "zip >= 0"}  # the condition writes the queries on zip out
    before = release.quantile("zip", 0.5, **several).values, release.mean("sex", by="zip", **several).values
    after = release.quantile("zip", 0.5).values, release.mean("sex", by="zip").values
    np.testing.assert_allclose(np.concatenate(after), np.concatenate(before))
    monkeypatch.setattr(selection, "WRITTEN_OUT", 4)
    with refuses(TooLargeError, ValueError, "very many values"):
        release.quantile("zip", 0.5, **several)
    for call in (
        lambda: release.table("zip"),
        lambda: release.table("zip", totals=False, percent="total"),
    ):
        with refuses(TooLargeError, ValueError, "5 values"):
            call()


def test_hostile_labels_are_harmless():
    schema = qs.Schema(
        [qs.Categorical("<b>\x1b[2J", ["<script>", "\x1b[31m"]), qs.Categorical("c", ["x", "y"])]
    )
    release = Dense(schema, np.full(4, 9.0), np.eye(4))
    for found in (release.table("<b>\x1b[2J", "c"), release.share("c == 'x'", by="<b>\x1b[2J")):
        assert "\x1b" not in repr(found)
        assert "<script>" not in found._repr_html_()


@pytest.fixture(scope="module")
def measured():
    plan = qs.plan(qs.all_kway(SCHEMA, [1, 2], "identity"), qs.zCDP(0.5), **UNIFORM)
    return simulate(plan, random_counts(SCHEMA, 2), 7)


def test_predicates_are_answered(measured):
    expected = measured.answer(qs.where(SCHEMA, "age < 30"))
    found = measured.answer("age < 30")
    assert found.values.tolist() == expected.values.tolist()
    both = measured.answer(["age < 30", "sex == 'F'"])
    assert [a.query for a in both] == ["age < 30", "sex == 'F'"]
    with pytest.raises(WorkloadError):
        measured.answer("age <")
    with pytest.raises(WorkloadError, match="got 3"):
        measured.answer(["age < 30", 3])


def test_answers_by_index_and_in_words(measured):
    answers = measured.answer()
    listed = list(answers)
    assert [a.value for a in listed] == answers.values.tolist()
    assert [a.query for a in listed] == list(measured.workload.labels())
    assert answers[2] == listed[2]
    assert answers[-1] == listed[-1]
    assert answers[1:3] == listed[1:3]
    assert answers["age == 30"] == next(a for a in listed if a.query == "age == 30")
    low, high = answers.interval(0.9)
    assert answers[3].interval(0.9) == pytest.approx((low[3], high[3]))
    assert float(answers[0]) == answers.values[0]
    with pytest.raises(IndexError):
        answers[len(answers)]
    with pytest.raises(WorkloadError, match=r"expected an integer, got 1\.5"):
        answers[1.5]
    with pytest.raises(UnknownQueryError, match="ask release"):
        answers["age == 31"]


def test_a_marginal_is_an_array_with_labels(measured):
    both = measured.marginal("age", "sex")
    assert isinstance(both, np.ndarray)
    assert both.shape == (3, 2)
    frame = both.to_frame("pandas")
    assert frame.columns.tolist() == ["age", "sex", *COLUMNS[2:]]
    np.testing.assert_allclose(frame["value"], both.ravel())
    np.testing.assert_allclose(both.sum(axis=1), measured.marginal("age"), rtol=1e-9)
    (total,) = measured.marginal().to_frame().to_pylist()
    assert total["value"] == pytest.approx(float(measured.marginal()))
    for made in (both[0], both * 2, both.sum(axis=0)):
        with pytest.raises(WorkloadError, match="labels"):
            made.to_frame()
