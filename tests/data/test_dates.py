"""Attributes of dates and stand-ins for missing values: the same counts from every engine."""

from __future__ import annotations

import csv
from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data.encoding import Encoder
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.schema import Schema

DAYS = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1), date(1969, 12, 31)]
DAY = Schema([Ordinal("day", DAYS)])
COLUMN = [*DAYS, DAYS[1], None, date(2024, 3, 2)]
COUNTS = [1, 2, 1, 1]


def midnights(values):
    return [None if v is None else datetime(v.year, v.month, v.day) for v in values]  # noqa: DTZ001


def texts(values):
    return [None if v is None else v.isoformat() for v in values]


def typed(kind, values=COLUMN):
    return pa.table({"day": pa.array(values, kind)})


def zoned(zone):
    """Midnights by the clock of a zone."""
    return pa.table({"day": pa.array(pd.to_datetime(texts(COLUMN)).tz_localize(zone))})


IN_MEMORY = {
    "date32": lambda: typed(pa.date32()),
    "date64": lambda: typed(pa.date64()),
    "seconds": lambda: typed(pa.timestamp("s"), midnights(COLUMN)),
    "nanoseconds": lambda: typed(pa.timestamp("ns"), midnights(COLUMN)),
    "paris": lambda: zoned("Europe/Paris"),
    "los angeles": lambda: zoned("America/Los_Angeles"),
    "texts": lambda: typed(pa.string(), texts(COLUMN)),
    "dictionary": lambda: pa.table({"day": pa.array(texts(COLUMN)).dictionary_encode()}),
    "pandas dates": lambda: pd.DataFrame({"day": COLUMN}),
    "pandas timestamps": lambda: pd.DataFrame({"day": pd.to_datetime(texts(COLUMN))}),
    "pandas texts": lambda: pd.DataFrame({"day": texts(COLUMN)}),
    "polars dates": lambda: pl.DataFrame({"day": COLUMN}),
    "polars datetimes": lambda: pl.DataFrame({"day": midnights(COLUMN)}).lazy(),
    "duckdb dates": lambda: duckdb.from_arrow(typed(pa.date32())),
    "duckdb timestamps": lambda: duckdb.from_arrow(typed(pa.timestamp("us"), midnights(COLUMN))),
}


def counts(schema, data, unknown="drop"):
    names = schema.names
    return [
        table.tolist() for table in open_table(schema, data, names, unknown).marginals([(n,) for n in names])
    ]


@pytest.mark.parametrize("make", IN_MEMORY.values(), ids=IN_MEMORY)
def test_dates_match_in_memory(make):
    assert counts(DAY, make()) == [COUNTS]
    with pytest.raises(DataError, match="attribute 'day'"):
        counts(DAY, make(), "refuse")


def test_dates_match_in_files(tmp_path):
    pq.write_table(typed(pa.date32()), tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["day"], *([text] for text in texts(COLUMN) if text)])
    for name in ("t.parquet", "t.csv"):
        assert counts(DAY, tmp_path / name) == [COUNTS]


def test_dates_match_in_spark(spark):
    for values, kind in ((COLUMN, "date"), (midnights(COLUMN), "timestamp"), (texts(COLUMN), "string")):
        frame = spark.createDataFrame([(value,) for value in values], schema=f"day {kind}")
        assert counts(DAY, frame) == [COUNTS]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(
    st.lists(
        st.tuples(st.sampled_from([*DAYS, date(2024, 3, 2)]), st.sampled_from([-1, 0, 0, 1])), max_size=8
    )
)
def test_only_midnight_is_a_date(unit, moments):
    """Against Python: a moment is a date of the domain, or nothing."""
    ticks = 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    numbers = [(day - date(1970, 1, 1)).days * 86_400 * ticks + off for day, off in moments]
    codes = Encoder(DAY["day"]).encode(pa.array(numbers, pa.int64()).cast(pa.timestamp(unit)))
    expected = [DAYS.index(day) if day in DAYS and off == 0 else len(DAYS) for day, off in moments]
    assert codes.tolist() == expected


@pytest.mark.parametrize(
    "text",
    ["2024-3-1", "20240301", " 2024-03-01", "2024-03-01 ", "2024-W09-5", "01.03.2024", "2024-03-01T00:00"],
)
def test_only_iso_texts_are_dates(text):
    assert counts(DAY, pa.table({"day": [text]})) == [[0, 0, 0, 0]]


def test_columns_that_hold_no_dates_are_refused():
    for column, found in (([1, 2], "int64"), ([True], "bool"), ([timedelta(1)], "duration")):
        with pytest.raises(DataError, match=f"attribute 'day': expected a column of dates, got {found}"):
            counts(DAY, pa.table({"day": column}))
    with pytest.raises(DataError, match="expected a column of strings, got date32"):
        counts(Schema([Categorical("day", ["x"])]), typed(pa.date32()))


# --- stand-ins for missing values ----------------------------------------------------------------

STANDING = Schema(
    [
        Categorical("race", ["A", "B", "unknown"], missing="unknown"),
        Ordinal("age", [0, 1, -9], missing=-9),
        Ordinal("day", DAYS, missing=DAYS[3]),
        Categorical("member", [True, False], missing=False),
        Binned("income", edges=[0, 10, 20], missing="[10, 20]"),
    ]
)
ROWS = [
    ("A", 0, DAYS[0], True, 5.0),
    (None, None, None, None, None),
    ("B", 1, DAYS[1], True, 15.0),
    ("X", 7, date(2020, 1, 1), False, -5.0),  # strangers stay strangers
    ("unknown", -9, DAYS[3], False, 10.0),
]
KINDS = (pa.string(), pa.int64(), pa.date32(), pa.bool_(), pa.float64())
KEPT = [[1, 1, 2], [1, 1, 2], [1, 1, 0, 2], [2, 2], [1, 3]]


def standing(rows=ROWS):
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), KINDS, strict=True)]
    return pa.table(columns, names=list(STANDING.names))


def standing_csv(folder):
    with (folder / "t.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [STANDING.names, *(["" if v is None else v for v in row] for row in ROWS)]
        )
    return folder / "t.csv"


def standing_parquet(folder):
    pq.write_table(standing(), folder / "t.parquet")
    return folder / "t.parquet"


STANDING_TABLES = {
    "arrow": lambda _: standing(),
    "pandas": lambda _: pd.DataFrame(ROWS, columns=STANDING.names),
    "pandas from arrow": lambda _: standing().to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda _: pl.from_arrow(standing()),
    "duckdb": lambda _: duckdb.from_arrow(standing()),
    "csv": standing_csv,
    "parquet": standing_parquet,
}


@pytest.mark.parametrize("make", STANDING_TABLES.values(), ids=STANDING_TABLES)
def test_missing_values_count_as_the_declared_one(make, tmp_path):
    assert counts(STANDING, make(tmp_path)) == KEPT
    for name in set(STANDING.names) - {"member"}:  # a stranger is refused for what it is
        with pytest.raises(DataError, match=f"attribute '{name}'"):
            open_table(STANDING, make(tmp_path), [name]).records()


def test_missing_values_count_as_the_declared_one_in_spark(spark):
    frame = spark.createDataFrame(ROWS, "race string, age int, day date, member boolean, income double")
    assert counts(STANDING, frame) == KEPT


def test_nan_is_missing():
    schema = Schema([Ordinal("x", [0.5, -1.0], missing=-1.0)])
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        column = pa.array(np.array([0.5, np.nan, 0.25], kind.to_pandas_dtype()))
        assert counts(schema, pa.table({"x": column})) == [[1, 1]]


def test_missing_in_a_dictionary_and_in_a_column_of_nothing():
    attribute = STANDING["race"]
    inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), pa.array(["A", None, "X"]))
    assert Encoder(attribute).encode(inside).tolist() == [0, 2, 2, 3]
    assert Encoder(attribute).encode(pa.nulls(2)).tolist() == [2, 2]


def test_values_of_the_wrong_form_are_dropped_although_missing_ones_stand_for_one():
    schema = Schema([Ordinal("x", [0.5, 1.5, -1.0], missing=-1.0)])
    assert counts(schema, pd.DataFrame({"x": ["0,5", "1,5", None]}, dtype=object)) == [[0, 0, 1]]


def test_only_an_empty_field_is_missing(tmp_path):
    (tmp_path / "t.csv").write_text('age\n0\n""\nabc\n1\n')
    schema = Schema([Ordinal("age", [0, 1, -9], missing=-9)])
    assert counts(schema, tmp_path / "t.csv") == [[1, 1, 1]]


def test_values_of_several_kinds_in_a_file_of_texts(tmp_path):
    schema = Schema([Ordinal("day", [*DAYS, "unknown"], missing="unknown")])
    (tmp_path / "t.csv").write_text("id,day\n1,2024-02-28\n2,\n3,unknown\n4,2024-3-1\n")
    assert counts(schema, tmp_path / "t.csv") == [[1, 0, 0, 0, 2]]


def test_objects_are_dates_one_by_one():
    noon = datetime(2024, 3, 1, 12)  # noqa: DTZ001
    column = [DAYS[0], pd.Timestamp(DAYS[1]), noon, "2024-03-01", np.datetime64("2024-02-29"), 3]
    for values in (column, column[::-1], [*column, None]):
        assert counts(DAY, pd.DataFrame({"day": pd.Series(values, dtype=object)})) == [[1, 2, 1, 0]]
