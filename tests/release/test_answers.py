"""Answers as a person sees them: intervals, tables, words, and which values a row counts."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import querysmasher as qs
from querysmasher.errors import WorkloadError
from querysmasher.release import answers as answers_module
from querysmasher.release.answers import Answers
from querysmasher.release.tidy import outwards
from tests.builders import UNIFORM
from tests.reference import query_rows
from tests.release.tables import random_counts, simulate

PEOPLE = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", [10, 20, 30])])
WORKLOAD = qs.queries(PEOPLE, sex="identity", age="prefix") + qs.where(PEOPLE, "age >= 20 and sex == 'F'")


@pytest.fixture
def answers():
    return Answers(WORKLOAD, np.arange(7.0) * 100, np.arange(7.0) + 1)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99, 1e-6, 1 - 1e-12])
def test_intervals_reach_as_far_as_the_normal_distribution_says(answers, level):
    low, high = answers.interval(level)
    reach = stats.norm.isf((1 - level) / 2) * answers.std
    np.testing.assert_allclose(high - answers.values, reach, rtol=1e-3)
    np.testing.assert_allclose(answers.values - low, reach, rtol=1e-3)


def test_the_usual_interval(answers):
    low, high = answers.interval()
    np.testing.assert_allclose(high - low, 2 * 1.959964 * answers.std, rtol=1e-6)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 95, True, "0.95", None, float("nan"), float("inf")])
def test_levels_that_cannot_be(answers, level, refuses):
    with refuses(WorkloadError, ValueError, "level"):
        answers.interval(level)
    with refuses(WorkloadError, ValueError, "level"):
        answers.to_frame(level=level)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table), (None, pa.Table)],
)
def test_frames(answers, backend, kind):
    made = answers.to_frame(level=0.9) if backend is None else answers.to_frame(backend, 0.9)
    assert isinstance(made, kind)
    columns = made.to_pydict() if isinstance(made, pa.Table) else {n: made[n].to_list() for n in made.columns}
    names = ["table", "kind", "query", "sex", "age", "age_from", "age_to"]
    names += ["value", "std", "low", "high", "cv", "flag"]
    assert list(columns) == names
    assert columns["query"][0] == "sex == 'F' and age <= 10"
    assert columns["query"][5] == "sex == 'M' and age <= 30"
    assert columns["query"] == list(WORKLOAD.predicates())
    assert columns["table"] == ["sex × age"] * 7
    assert columns["kind"] == ["identity × prefix"] * 6 + ["where"]
    assert columns["sex"][:6] == ["F"] * 3 + ["M"] * 3
    assert columns["age"][:6] == ["10", "10..20", "10..30"] * 2
    assert columns["age_to"][:6] == [10, 20, 30] * 2
    assert (columns["sex"][6], columns["age"][6], columns["age_from"][6]) == ("F", "20..30", 20)
    assert columns["flag"] == [">30%", *["<=10%"] * 6]
    assert columns["cv"][1] == 0.02
    assert columns["value"] == answers.values.tolist()
    assert columns["std"] == answers.std.tolist()
    low, high = answers.interval(0.9)
    assert columns["low"] == low.tolist()
    assert columns["high"] == high.tolist()


@pytest.mark.parametrize("backend", ["excel", "", 7, None, pd.DataFrame])
def test_backends_that_cannot_be(answers, backend, refuses):
    with refuses(WorkloadError, ValueError, "backend"):
        answers.to_frame(backend)


def test_a_frame_too_large_is_refused_with_a_remedy(answers, monkeypatch, refuses):
    monkeypatch.setattr(answers_module, "MAX_LABELS", 6)
    with refuses(WorkloadError, ValueError, "release.write"):
        answers.to_frame()


def test_words(answers):
    assert len(answers) == 7
    shown = repr(answers).splitlines()
    assert shown[0] == "Answers to 7 queries (value ± standard error)"
    assert shown[2] == "  sex == 'F' and age <= 20: 100.0 ± 2.0"
    assert shown[-1] == "  … 2 more"
    short = Answers(qs.marginals(PEOPLE, 0), np.array([5.0]), np.array([0.0]))
    assert repr(short).splitlines()[1:] == ["  total: 5.0 ± 0.0"]


SCHEMA = qs.Schema(
    [
        qs.Categorical("sex", [1, 2], value_labels={1: "Female", 2: "Male"}),
        qs.Ordinal("age", [-2, 0, 5, 9]),
        qs.Binned("income", edges=[0, 10, 25.5, 100]),
        qs.Cyclic("hour", ["a", "b", "c"]),
    ]
)


def rows(workload):
    n = len(workload)
    return Answers(workload, np.ones(n), np.ones(n)).to_frame().to_pylist()


def test_single_values_keep_their_type():
    found = rows(qs.queries(SCHEMA, sex="identity", age="identity") + qs.where(SCHEMA, "age == 5"))
    assert [r["age"] for r in found] == [-2, 0, 5, 9] * 2 + [5]
    assert [(r["sex"], r["sex_label"]) for r in found[3:5]] == [(1, "Female"), (2, "Male")]
    assert "age_from" not in found[0]
    assert found[-1]["sex"] is None
    assert [r["age"] for r in rows(qs.queries(SCHEMA, age="prefix"))] == [-2, 0, 5, 9]


def test_ranges_have_ends():
    found = rows(qs.queries(SCHEMA, age="range", hour="circular"))
    own = [(r["age"], r["age_from"], r["age_to"]) for r in found[::9]]
    assert own[:5] == [("-2", -2, -2), ("-2..0", -2, 0), ("-2..5", -2, 5), ("-2..9", -2, 9), ("0", 0, 0)]
    assert [(r["hour"], r["hour_from"], r["hour_to"]) for r in found[3:6]] == [
        ("b", "b", "b"),
        ("b..c", "b", "c"),
        ("b..a", "b", "a"),
    ]


def test_bins_have_edges_as_numbers():
    found = rows(qs.queries(SCHEMA, income="identity"))
    assert [(r["income"], r["income_from"], r["income_to"]) for r in found] == [
        ("[0, 10)", 0, 10),
        ("[10, 25.5)", 10, 25.5),
        ("[25.5, 100]", 25.5, 100),
    ]


def test_groups_lists_and_ties():
    levels = qs.hierarchy(SCHEMA, "age", {-2: "young", 0: "young", 5: "old", 9: "old"})
    found = rows(qs.queries(SCHEMA, age=levels))
    assert [(r["age"], r["age_from"], r["age_to"]) for r in found[:3]] == [
        ("young", -2, 0),
        ("old", 5, 9),
        ("-2", -2, -2),
    ]
    lists = qs.queries(SCHEMA, age=[[1, 0, 1, 0], [0, 1, 1, 0], [0.5, 1, 0, 0]])
    assert [(r["age"], r["age_from"]) for r in rows(lists)] == [
        ("[-2, 5]", None),
        ("0..5", 0),
        ("query 2 on age", None),
    ]
    (tie,) = rows(qs.where(SCHEMA, "age > 0 or hour == 'a'"))
    assert (tie["age"], tie["hour"], tie["age_from"]) == ("(query)", "(query)", None)
    (product,) = rows(qs.where(SCHEMA, "age > 0 and sex == 2"))
    assert (product["age"], product["sex"], product["sex_label"]) == ("5..9", 2, "Male")
    (named,) = rows(qs.where(SCHEMA, "sex in [1, 2] and age <= 0"))
    assert (named["sex"], named["sex_label"]) == ("[1, 2]", "[1, 2]")


FAMILIES = ["identity", "prefix", "range", "circular", [[1, 0, 1, 0], [0, 1, 1, 1]]]


@given(st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=3))
def test_ends_say_exactly_what_is_counted(families):
    """What `age_from` and `age_to` state is the row of the query; null if and only if it is no range."""
    schema = qs.Schema([SCHEMA["age"]])
    workload = sum((qs.queries(schema, age=f) for f in families[1:]), qs.queries(schema, age=families[0]))
    values = list(SCHEMA["age"].values)
    for said, row in zip(rows(workload), query_rows(workload)[0], strict=True):
        assert said["age"] is not None
        if "age_from" not in said:
            assert row[values.index(said["age"])] == 1
        elif said["age_from"] is None:
            assert said["age"].startswith("[")
        else:
            first, last = values.index(said["age_from"]), values.index(said["age_to"])
            inside = [(i - first) % 4 <= (last - first) % 4 for i in range(4)]
            assert row.tolist() == inside


def test_names_of_columns_are_distinct(tmp_path):
    schema = qs.Schema(
        [qs.Binned("x", edges=[0, 1, 2]), qs.Ordinal("x_from", [1, 2]), qs.Ordinal("value", [1])]
    )
    workload = qs.all_kway(schema, [1, 2], "range")
    release = simulate(qs.plan(workload, qs.zCDP(0.5), **UNIFORM), random_counts(schema, 2), 7)
    release.write(workload, tmp_path / "x.parquet")
    names = pq.read_table(tmp_path / "x.parquet").column_names
    assert len(set(names)) == len(names)
    fields = json.loads((tmp_path / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]
    assert [f["name"] for f in fields] == names
    assert all(f["description"] for f in fields)


def test_negative_values_are_valid_predicates_in_a_csv_file(tmp_path):
    schema = qs.Schema([SCHEMA["age"], qs.Ordinal("b", [0, 1])])
    workload = qs.all_kway(schema, [0, 1, 2], "range") + qs.abs_difference(schema, "b", "age")
    release = simulate(qs.plan(workload, qs.zCDP(0.5), **UNIFORM), random_counts(schema, 2), 7)
    release.write(workload, tmp_path / "x.csv")
    for row in pd.read_csv(tmp_path / "x.csv").itertuples():
        assert release.answer(row.query).values[0] == pytest.approx(row.value, abs=1e-6)


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e6) | st.just(0.0))
def test_ends_are_rounded_outwards(value, std):
    first, last = np.array([value - std]), np.array([value + std])
    low, high = outwards(first, last, np.array([std]))
    assert 0 <= first[0] - low[0] <= std / 1000
    assert 0 <= high[0] - last[0] <= std / 1000
