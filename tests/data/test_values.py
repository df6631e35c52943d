"""Which values a column has: the same in every engine and type, and counted once per person."""

import datetime as dt
import decimal
import math
from collections import Counter
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.data.counting import Limits
from querysmasher.data.framing import CSV
from querysmasher.data.values import key, label, open_values
from querysmasher.errors import DataError
from querysmasher.privacy.bound import Bound

KEY = bytes(32)
NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - a time of no zone
LATE = dt.datetime(2024, 1, 1, 23)  # noqa: DTZ001
TINY = Limits(read_rows=3, chunk_rows=4, keep_bytes=0, people_bytes=500)


def counts_of(data, most=None, limits=None, column="v"):
    found = open_values(column, data, None if most is None else Bound("p", most, KEY), limits)
    (counts,) = found.counter.marginals([(column,)])
    places = np.flatnonzero(counts)
    return [
        (value, type(value), int(counts[p])) for value, p in zip(found.labels(places), places, strict=True)
    ]


def plainly(values):
    counted = Counter((value, type(value)) for value in values)
    return sorted([(v, kind, n) for (v, kind), n in counted.items()], key=lambda row: key(row[0]))


MIXED = [
    ["b", "a", None, "b", "", "é\n'\"", "3"],
    [3, 1, 3, -7, 2**53 - 1, 0],
    [0.5, 1.0, -2.0, 1e-7, 0.5],
    [True, False, True],
    [dt.date(2024, 2, 29), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
]


def canonical(values):
    """Floats without a fraction are integers; a missing value is none."""
    return [int(v) if isinstance(v, float) and v.is_integer() else v for v in values if v is not None]


def pandas_of(table):
    return table.to_pandas()


def polars_of(table):
    return pl.from_arrow(table)


def duckdb_of(table):
    return duckdb.from_arrow(table)


def categories_of(table):
    return table.to_pandas().astype({"v": "category"})


@pytest.mark.parametrize("limits", [None, TINY], ids=["", "tiny"])
@pytest.mark.parametrize("make", [lambda t: t, pandas_of, polars_of, duckdb_of, categories_of])
@pytest.mark.parametrize("values", MIXED, ids=lambda v: type(v[0]).__name__)
def test_every_frame_has_the_same_values(values, make, limits):
    if make in (pandas_of, categories_of) and isinstance(values[0], dt.date):
        pytest.skip("pandas has no such days")
    assert counts_of(make(pa.table({"v": values})), limits=limits) == plainly(canonical(values))


def test_files(tmp_path):
    values = ["b", "a", "b", "x,y", "é", "12", "12"]
    table = pa.table({"v": values, "w": range(7)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    assert counts_of(tmp_path / "x.parquet") == plainly(values)
    table.to_pandas().to_csv(tmp_path / "x.csv", index=False)
    assert counts_of(tmp_path / "x.csv") == plainly(values)
    assert counts_of(tmp_path / "x.csv", column="w") == [(str(i), str, 1) for i in range(7)]  # text
    (tmp_path / "y.csv").write_bytes("v;w\nb;1\n;2\n\xe9;3\nb;4;5\nb\n".encode("latin-1"))
    assert counts_of(CSV(tmp_path / "y.csv", delimiter=";")) == [("b", str, 1)]  # unreadable ones are none
    (tmp_path / "v=q").mkdir()
    pq.write_table(pa.table({"w": [1, 2]}), tmp_path / "v=q" / "x.parquet")
    assert counts_of(tmp_path / "v=*" / "*.parquet") == [("q", str, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("values", MIXED[:4], ids=lambda v: type(v[0]).__name__)
def test_spark(spark, values):
    rows = [(f"p{i % 2}", v) for i, v in enumerate(values * 3)]
    table = pa.table({"p": [p for p, _ in rows], "v": [v for _, v in rows]})
    frame = spark.createDataFrame(table.to_pandas() if values[0] != "b" else table)
    for most in (None, 2):
        expected = counts_of(table, most)
        assert counts_of(frame, most) == expected
        assert counts_of(frame.repartition(5), most) == expected


@pytest.mark.slow
def test_spark_without_values(spark):
    assert counts_of(spark.createDataFrame([(None,)], "v string")) == []
    with pytest.raises(DataError, match="got array"):
        counts_of(spark.createDataFrame([([1],)], "v array<int>"))


@pytest.mark.parametrize("intruder", [None, "x", 2.5, True, math.nan, b"x", 2**70, NOON, 1j, UUID(int=1)])
@pytest.mark.parametrize(
    "values", [[1, 2, 2, 0], [True, False], ["a", "b"], [dt.date(2024, 1, 1)], [1.5, 2.0]]
)
def test_one_record_does_not_change_what_others_are(values, intruder):
    """Whatever pandas makes of the column, the counts change by that of the added value alone."""
    before, after = (counts_of(pd.DataFrame({"v": column})) for column in (values, [*values, intruder]))
    was, now = ({(v, kind): n for v, kind, n in found} for found in (before, after))
    change = {v: now.get(v, 0) - was.get(v, 0) for v in was | now}
    assert [n for n in change.values() if n] in ([], [1])
    if intruder in ("x", 2.5, True):
        assert change[intruder, type(intruder)] == 1


def test_numbers_are_the_same_in_every_type():
    numbers = [3, -1, 3]
    types = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(5, 2), pa.decimal256(60, 0)]
    for kind in types:
        given = [n for n in numbers if n > 0 or kind != pa.uint64()]
        column = np.array(given, np.float16) if kind == pa.float16() else given
        assert counts_of(pa.table({"v": pa.array(column, kind)})) == plainly(given)
    assert counts_of(pd.DataFrame({"v": np.array([3 + 0j, 2j])})) == [(3, int, 1)]
    assert counts_of(pd.DataFrame({"v": [decimal.Decimal("1.50"), decimal.Decimal(4)]})) == plainly([1.5, 4])


def test_what_is_no_value():
    for column in (
        pa.array([2**53, -(2**53), None], pa.int64()),
        pa.array([2**64 - 1], pa.uint64()),
        [math.nan, math.inf, -math.inf, 1e300],
        [NOON],
        pa.nulls(2),
        ["\ufffd"],
    ):
        assert counts_of(pa.table({"v": column})) == []
    objects = [b"x", ["a"], UUID(int=1), pd.NaT, pd.NA, "\ud800", np.datetime64("2024-01-01"), object()]
    assert counts_of(pd.DataFrame({"v": pd.Series(objects, dtype=object)})) == []
    noon = pa.array([LATE], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Etc/GMT-1"))
    assert counts_of(pa.table({"v": noon})) == [(dt.date(2024, 1, 2), dt.date, 1)]  # midnight there
    bad = pa.array([b"\xff", b"ok"], pa.binary()).view(pa.string())
    assert counts_of(pa.table({"v": bad})) == [("ok", str, 1)]


def test_columns_of_other_kinds_are_refused():
    for kind in (pa.list_(pa.int64()), pa.binary(), pa.struct([("secret", pa.int64())]), pa.duration("s")):
        with pytest.raises(
            DataError, match="expected a column of strings, numbers, booleans or dates"
        ) as error:
            counts_of(pa.table({"v": pa.nulls(1, kind)}))
        assert "secret" not in str(error.value)
    with pytest.raises(DataError, match="no column 'v'"):
        counts_of(pa.table({"w": [1]}))
    with pytest.raises(DataError, match="no column 'p' that says to whom"):
        counts_of(pa.table({"v": [1]}), most=1)


@given(
    st.one_of(
        st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False), st.booleans(), st.dates(), st.text()
    )
)
def test_a_key_states_its_value(value):
    text = key(value)
    if text is None:
        assert "\ufffd" in value if isinstance(value, str) else abs(value) >= 2**53
        return
    again = label(text)
    assert again == value
    assert type(again) is type(value) or (type(value) is float and value.is_integer())


holdings = st.lists(st.tuples(st.sampled_from(["p", "q", "r", None]), st.sampled_from("abcd")), max_size=16)


@given(holdings, st.integers(1, 3), st.booleans())
def test_persons_are_counted_once_for_each_of_at_most_k_values(rows, most, tiny):
    table = pa.table({"p": [p for p, _ in rows], "v": [v for _, v in rows]}, pa.schema(TYPES))
    found = {v: n for v, _, n in counts_of(table, most, TINY if tiny else None)}
    held = {p: {v for q, v in rows if q == p} for p in {p for p, _ in rows if p is not None}}
    assert sum(found.values()) == sum(min(most, len(values)) for values in held.values())
    for value, n in found.items():
        assert n <= sum(value in values for values in held.values())
    for who, own in held.items():
        less = [row for row in rows if row[0] != who]
        other = pa.table({"p": [p for p, _ in less], "v": [v for _, v in less]}, pa.schema(TYPES))
        rest = {v: n for v, _, n in counts_of(other, most)}
        assert sorted(
            found.get(v, 0) - rest.get(v, 0) for v in found | rest if found.get(v) != rest.get(v)
        ) == ([1] * min(most, len(own)))


TYPES = [("p", pa.string()), ("v", pa.string())]


def test_nothing_shows_values():
    found = open_values("v", pa.table({"v": ["Zebra77123"]}), None)
    assert "Zebra77123" not in f"{found!r} {found.counter!r} {found.counter.rows!r}"
