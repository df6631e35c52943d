"""`check` says what measuring would do, shows what does not fit, and is for the custodian only."""

from __future__ import annotations

import copy
import csv
import json
import pickle
from collections import Counter
from datetime import date, datetime

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.data.check import NOTICE, check
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError, SchemaError, UnknownAttributeError
from tests.data.mixed_table import (
    ARROW,
    SCHEMA,
    arrow,
    clean_rows,
    counted,
    duckdb_relation,
    pandas_nullable,
    polars_frame,
    position,
    unclean_rows,
    wild_values,
)
from tests.profiles import fewer


def by_hand(rows, name):
    """How many values are missing, and which match nothing, in the plainest way."""
    attribute = SCHEMA[name]
    values = [row[name] for row in rows]
    missing = [v is None or v != v for v in values]  # noqa: PLR0124 - NaN
    return sum(missing), Counter(
        v for v, gone in zip(values, missing, strict=True) if not gone and position(attribute, v) is None
    )


def accepts(data, unknown, names=SCHEMA.names):
    """The number of records that would be measured, or None."""
    try:
        return open_table(SCHEMA, data, names, unknown).records()
    except DataError:
        return None


def test_a_table_that_fits(engine):
    found = check(SCHEMA, engine(clean_rows()))
    assert found.ok
    assert (found.records, found.bad_records) == (60, 0)
    assert all(column.ok and not column.values for column in found)
    assert found.verdict() == "All 60 records fit."


def test_a_table_that_does_not(engine):
    rows = unclean_rows()
    data = engine(rows)
    found = check(SCHEMA, data)
    assert not found.ok
    assert found.readable
    assert found.records == len(rows)
    assert found.records - found.bad_records == accepts(data, "drop") == int(counted(SCHEMA, rows, [()])[0])
    for name in SCHEMA.names:
        missing, strange = by_hand(rows, name)
        assert (found[name].missing, found[name].unmatched) == (missing, sum(strange.values())), name
        assert sum(times for _, times in found[name].values) == sum(strange.values())
    assert dict(found["sex"].values) == {"'X'": 1, "'f'": 1}
    assert "do not fit" in found.verdict()


def test_an_empty_table(engine):
    found = check(SCHEMA, engine([]))
    assert found.ok
    assert found.records == 0


tame_values = {
    **{name: st.sampled_from(SCHEMA[name].values) for name in wild_values if name != "income"},
    "income": st.sampled_from([0.0, 10.0, 25.5]),
}


@fewer(75)
@given(
    st.lists(st.one_of(st.fixed_dictionaries(wild_values), st.fixed_dictionaries(tame_values)), max_size=8),
    st.lists(st.sampled_from(list(wild_values)), min_size=1, unique=True),
    st.sampled_from([arrow, polars_frame, pandas_nullable, duckdb_relation]),
)
def test_it_agrees_with_measuring(rows, names, make):
    """It says ok exactly where refusing accepts, and counts as bad exactly what dropping drops."""
    data = make([{**dict.fromkeys(ARROW.names), **row} for row in rows])
    found = check(SCHEMA, data, names)
    assert found.ok == (accepts(data, "refuse", names) is not None)
    assert found.records == len(rows)
    assert accepts(data, "drop", names) == found.records - found.bad_records
    for name in names:
        missing, strange = by_hand(rows, name)
        assert (found[name].missing, found[name].unmatched) == (missing, sum(strange.values()))


ODD = st.sampled_from([1, 2, 9, 2.5, True, "F", "M", "x", None, date(2024, 1, 1)])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(ODD, ODD), max_size=5), st.sampled_from(["sex", "age", "Sex", "other"]))
def test_it_agrees_with_measuring_whatever_the_columns_hold(rows, second):
    data = pd.DataFrame(rows, columns=["age", second], dtype=object)
    found = check(SCHEMA, data, ["age", "sex"])
    assert found.ok == (accepts(data, "refuse", ["age", "sex"]) is not None)
    kept = accepts(data, "drop", ["age", "sex"])
    assert found.readable == (kept is not None)
    if kept is not None:
        assert kept == found.records - found.bad_records


def test_all_columns_are_told_at_once():
    data = pd.DataFrame(
        [["F", "x", 0.5, 1, 5.0, "low", "M"]],
        columns=["Sex", "post-code", "score", "member", "income", "level", "level"],
    )
    found = check(SCHEMA, data)
    assert found["sex"].problem == "no such column; the nearest is 'Sex'"
    assert found["post code"].problem == "no such column; the nearest is 'post-code'"
    assert found["hour"].problem == "no such column"
    assert found["level"].problem == "2 columns have this name"
    assert found["member"].hint.startswith("expected a column of booleans, but none of its values is one")
    assert found["score"].ok
    assert "'sex', 'post code', 'age', 'hour', 'level'" in found.verdict()
    assert found.records == 1


def test_a_stand_in_for_missing_values_is_told():
    schema = qs.Schema([qs.Categorical("race", ["A", "?"], missing="?")])
    found = check(schema, pa.table({"race": ["A", None, None]}))
    assert found.ok
    assert found["race"].cells()[2] == "2 as '?'"
    assert found.bad_records == 0


def test_a_value_for_unlisted_ones_is_told():
    schema = qs.Schema([qs.Categorical("race", ["A"], other="other")])
    found = check(schema, pa.table({"race": ["A", "B", "B", "C"]}))
    assert found.ok
    assert found["race"].ok
    assert found["race"].cells()[3:] == ("3 as 'other'", "'B' × 2, 'C' × 1")
    found = check(schema, pa.table({"race": ["A", "B", None]}))
    assert not found.ok
    assert found.bad_records == 1


def test_values_are_shown_as_they_are_but_no_longer_and_without_control_characters():
    column = [" F", "\x1b[31mred", "x" * 500, "X", "X"]
    found = check(SCHEMA, pa.table({"sex": column}), ["sex"])
    (first, times), *others = found["sex"].values
    assert (first, times) == ("'X'", 2)
    assert {value for value, _ in others} == {"' F'", "'\\x1b[31mred'", "'" + "x" * 38 + "…"}
    assert "\x1b" not in repr(found)
    moments = check(
        qs.Schema([qs.Ordinal("day", [date(2024, 1, 1)])]),
        pa.table({"day": [datetime(2024, 1, 1, 12)]}),  # noqa: DTZ001
    )
    assert moments["day"].values == (("'2024-01-01 12:00:00'", 1),)
    lists = check(SCHEMA, pa.table({"sex": [["F"], ["F"]]}), ["sex"])
    assert lists["sex"].values == (("['F']", 2),)


def test_of_many_values_the_most_frequent_are_shown(monkeypatch):
    column = [value for place in range(8) for value in [f"v{place}"] * (place + 1)]
    found = check(SCHEMA, pa.table({"sex": column}), "sex")
    assert found["sex"].values == (("'v7'", 8), ("'v6'", 7), ("'v5'", 6), ("'v4'", 5), ("'v3'", 4))
    assert found["sex"].more_values == 3
    assert found["sex"].cells()[-1].endswith("3 other values")
    monkeypatch.setattr("querysmasher.data.check.MOST_VALUES", 2)
    assert check(SCHEMA, pa.table({"sex": column}), "sex")["sex"].unmatched == 36


def test_it_prints_whom_it_is_for_and_is_not_kept():
    found = check(SCHEMA, arrow(unclean_rows()))
    assert repr(found).splitlines()[0] == NOTICE
    assert found.to_json()["notice"] == NOTICE
    assert json.loads(json.dumps(found.to_json()))["columns"][0]["values"][0] == ["'X'", 1]
    for keep in (pickle.dumps, copy.copy):
        with pytest.raises(DataError, match="cannot be written to a file"):
            keep(found)
    with pytest.raises(AttributeError):
        found.records = 0
    assert not hasattr(found, "_repr_html_")  # which a notebook would save


def test_as_a_frame():
    frame = check(SCHEMA, arrow(unclean_rows())).to_frame("pandas")
    assert list(frame["name"]) == list(SCHEMA.names)
    assert frame.set_index("name")["unmatched"]["sex"] == 2
    assert isinstance(check(SCHEMA, arrow([])).to_frame("polars"), pl.DataFrame)


def test_too_many_records():
    found = check(SCHEMA, arrow(clean_rows(5)), max_records=4)
    assert not found.ok
    assert found.verdict() == "The table is refused: it has more records than max_records = 4."


def test_it_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.from_arrow(arrow(unclean_rows())).write_csv("t.csv")
    check(SCHEMA, "t.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_bad_arguments():
    with pytest.raises(DataError, match="schema: expected a Schema as first argument, got 'sex'"):
        check("sex", arrow([]))
    with pytest.raises(UnknownAttributeError, match="did you mean 'sex'"):
        check(SCHEMA, arrow([]), ["sexe"])
    with pytest.raises(SchemaError, match="more than once"):
        check(SCHEMA, arrow([]), ["sex", "sex"])
    with pytest.raises(DataError, match="data: expected the path"):
        check(SCHEMA, 3)
    with pytest.raises(DataError, match="no file at"):
        check(SCHEMA, "none.csv")
    with pytest.raises(DataError, match="name: expected one of 'sex', got 'age'"):
        check(SCHEMA, arrow([]), "sex")["age"]


def test_two_columns_of_one_name_are_named_as_such():
    twice = [["F", "M", 1]]
    tables = [
        pd.DataFrame(twice, columns=["sex", "sex", "age"]),
        pa.Table.from_arrays([pa.array([v]) for v in twice[0]], names=["sex", "sex", "age"]),
    ]
    for data in tables:
        for names in (["sex"], ["age", "sex"]):
            with pytest.raises(DataError, match=r"^data: the column 'sex' occurs more than once"):
                open_table(SCHEMA, data, names)
        assert open_table(SCHEMA, data, ["age"]).records() == 1  # what is not needed is no matter
        assert open_table(SCHEMA, data, []).records() == 1
    only = pd.DataFrame([["F", "M"]], columns=["sex", "sex"])
    assert open_table(SCHEMA, only, []).records() == 1
    relation = duckdb.sql("SELECT 'F' AS sex, 'M' AS sex, 1 AS age")
    with pytest.raises(DataError, match="the column 'sex' occurs more than once"):
        open_table(SCHEMA, relation, ["sex"])
    assert open_table(SCHEMA, relation, ["age"]).records() == 1


WORDS = st.sampled_from(
    ["F", "M", "f", "", "1", "2", "9", "2.0", "2,5", "nan", "abc", " 1", "true", "x,y", 'a"b']
)


@fewer(50)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=6))
def test_it_agrees_with_measuring_a_file_of_any_texts(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("texts") / "t.csv"
    names = ["sex", "age", "income"]
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([names, *rows])
    found = check(SCHEMA, path, names)
    assert found.ok == (accepts(path, "refuse", names) is not None)
    kept = accepts(path, "drop", names)
    assert found.readable == (kept is not None)
    assert kept is None or kept == found.records - found.bad_records


def test_values_of_several_kinds_and_decimal_commas_are_named_as_what_they_are(tmp_path):
    mixed = pd.DataFrame({"age": pd.Series([1, "two", 2.5, None], dtype=object)})
    with pytest.raises(DataError, match="attribute 'age': the data has a value of another kind"):
        open_table(SCHEMA, mixed, ["age"]).records()
    found = check(SCHEMA, mixed, "age")["age"]
    assert set(found.values) == {("'two'", 1), ("2.5", 1)}
    assert found.missing == 1
    (tmp_path / "t.csv").write_text("id;income\n1;5,5\n2;7,5\n")
    found = check(SCHEMA, tmp_path / "t.csv", "income")
    assert "decimal separator" in found["income"].hint
    assert found["income"].values == (("'5,5'", 1), ("'7,5'", 1))
    assert check(SCHEMA, qs.CSV(tmp_path / "t.csv", decimal=","), "income").ok
    (tmp_path / "t.csv").write_text("id;income\n1;5\n2;7;8\n")
    assert check(SCHEMA, tmp_path / "t.csv", "income")["income"].values == (("'�line 3: 3 fields'", 1),)


def test_impossible_combinations_do_not_fit():
    schema = qs.Schema([qs.Ordinal("a", range(3), missing=0), qs.Ordinal("b", range(2))])
    schema = schema.impossible("a == 0 and b == 1", "a == 2 and b == 0")
    data = pa.table({"a": [0, None, 1, 2, 7], "b": [0, 1, 1, 1, 0]})
    found = check(schema, data)
    assert (found.ok, found.bad_records) == (False, 2)
    assert found.impossible == (("a == 0 and b == 1", 1), ("a == 2 and b == 0", 0))
    assert "1 of them because a == 0 and b == 1 is impossible" in found.verdict()
    assert open_table(schema, data, ("a", "b"), "drop").records() == 3
    assert check(schema, data, ["b"]).ok
