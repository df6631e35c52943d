"""The columns of attributes in tidy rows: which values a row counts."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.release.answers import Answers
from querysmasher.release.tidy import outwards
from tests.builders import UNIFORM
from tests.reference import query_rows
from tests.release.tables import random_counts, simulate

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
    import pandas as pd

    for row in pd.read_csv(tmp_path / "x.csv").itertuples():
        assert release.answer(row.query).values[0] == pytest.approx(row.value, abs=1e-6)


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e6) | st.just(0.0))
def test_ends_are_rounded_outwards(value, std):
    first, last = np.array([value - std]), np.array([value + std])
    low, high = outwards(first, last, np.array([std]))
    assert 0 <= first[0] - low[0] <= std / 1000
    assert 0 <= high[0] - last[0] <= std / 1000
