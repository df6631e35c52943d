"""Persons in every engine: the same records are kept, whatever the engine, the order and the memory."""

from __future__ import annotations

import decimal
import uuid

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.data import people as module
from querysmasher.data import spark as on_spark
from querysmasher.data.check import check
from querysmasher.data.counting import Limits
from querysmasher.data.framing import CSV
from querysmasher.data.people import bounded_in_order
from querysmasher.data.rows import RowEncoder
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.privacy.bound import Bound
from querysmasher.schema import Schema

SCHEMA = Schema.of(a=3, b=2, c=40)
SETS = [("a", "b", "c"), ("a",), ()]
KEY = bytes(32)
TINY = Limits(read_rows=7, chunk_rows=10, keep_bytes=0, batch_cells=200, people_bytes=1500)


def records(sizes, seed=0, name="p{}".format):
    """Records in random order, person i with sizes[i] of them, many identical."""
    generator = np.random.default_rng(seed)
    rows = [
        {"id": name(i), "a": int(generator.integers(3)), "b": 0, "c": int(generator.integers(2)), "note": "x"}
        for i, size in enumerate(sizes)
        for _ in range(size)
    ]
    return [rows[i] for i in generator.permutation(len(rows))]


def in_csvs(rows, folder):
    for number in range(3):
        pd.DataFrame(rows[number::3]).to_csv(folder / f"part{number}.csv", index=False)
    return str(folder / "part*.csv")


def in_folders(rows, folder):
    """The persons are in the names of folders, which hold Parquet files."""
    for name in {row["id"] for row in rows}:
        own = [{k: v for k, v in row.items() if k != "id"} for row in rows if row["id"] == name]
        (folder / "all" / f"id={name}").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(own), folder / "all" / f"id={name}" / "x.parquet")
    return folder / "all"


def in_csv(rows, folder):
    pd.DataFrame(rows).to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def in_parquet(rows, folder):
    pq.write_table(pa.Table.from_pylist(rows), folder / "x.parquet", row_group_size=5)
    return folder / "x.parquet"


IN_MEMORY = {
    "pandas": lambda rows, _: pd.DataFrame(rows),
    "polars": lambda rows, _: pl.DataFrame(rows),
    "arrow": lambda rows, _: pa.Table.from_pylist(rows),
    "duckdb": lambda rows, _: duckdb.from_arrow(pa.Table.from_pylist(rows)),
}
ENGINES = IN_MEMORY | {
    "pandas categories": lambda rows, _: pd.DataFrame(rows).astype({"id": "category"}),
    "polars lazy": lambda rows, _: pl.LazyFrame(rows),
    **{make.__name__: make for make in (in_csv, in_csvs, in_parquet, in_folders)},
}


def counted(data, most=2, limits=None, unknown="refuse", key=KEY, names=SCHEMA.names):
    table = open_table(SCHEMA, data, names, unknown, limits, Bound("id", most, key))
    sets = SETS if names == SCHEMA.names else [tuple(names)]
    found = list(table.marginals(sets))
    assert table.records() == found[0].sum()
    return found


def reference(rows, most=2, key=KEY):
    """Choose person by person, in memory, from a table that has nobody else."""
    total = np.zeros(SCHEMA.sizes, np.int64)
    for name in {row["id"] for row in rows}:
        own = pa.Table.from_pylist([row for row in rows if row["id"] == name])
        total += counted(own, most, key=key)[0]
    return total


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("limits", [None, TINY], ids=["", "tiny"])
def test_every_engine_keeps_the_same_records(engine, limits, tmp_path):
    rows = records([1, 2, 3, 9, 25, 0, 2])
    whole, one, total = counted(engine(rows, tmp_path), limits=limits)
    expected = reference(rows)
    assert expected.sum() == 1 + 2 * 5 == total
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(one, expected.sum(axis=(1, 2)))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_neighbours_that_lack_all_records_of_a_person(engine, tmp_path):
    """Brute force: whoever leaves, however many records they had, at most k counts change, all downwards."""
    rows = records([1, 2, 7, 12])
    whole = counted(engine(rows, tmp_path), limits=TINY)[0]
    for name in {row["id"] for row in rows}:
        folder = tmp_path / name
        folder.mkdir()
        rest = [row for row in rows if row["id"] != name]
        own = [row for row in rows if row["id"] == name]
        change = whole - counted(engine(rest, folder))[0]
        assert change.min() >= 0
        assert change.sum() == min(2, len(own))


def some_unknown(rows):
    """The same records, every fourth with a value outside the domain."""
    return [{**row, "a": 9} if place % 4 == 0 else row for place, row in enumerate(rows)]


def lacking(rows, most=2):
    """Persons by how many of their records are not counted, one by one."""
    bins = [0] * 7
    for name in {row["id"] for row in rows if row["id"] is not None}:
        own = [row for row in rows if row["id"] == name]
        left = len(own) - min(most, sum(row["a"] < 3 for row in own))
        if left:
            bins[next((i for i in range(6) if left <= (2 ** (i + 1) - 1) * most), 6)] += 1
    return bins


def left_out(data, most=2, limits=None):
    bound = None if most is None else Bound("id", most, KEY)
    return open_table(SCHEMA, data, SCHEMA.names, "drop", limits, bound).left_out().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("limits", [None, TINY], ids=["", "tiny"])
def test_every_engine_bins_whole_persons(engine, limits, tmp_path):
    """Neighbours included: whoever leaves, one bin changes by one, however the table is cut into parts."""
    rows = some_unknown(records([1, 2, 3, 9, 25, 0, 2, 40]))
    whole = left_out(engine(rows, tmp_path), limits=limits)
    assert whole == lacking(rows)
    assert sum(whole) == 4
    (tmp_path / "all records").mkdir()
    assert left_out(engine(rows, tmp_path / "all records"), None, limits) == [-(-len(rows) // 4)]
    for name in ("p0", "p3", "p7"):
        folder = tmp_path / name
        folder.mkdir()
        rest = [row for row in rows if row["id"] != name]
        change = np.array(whole) - left_out(engine(rest, folder), limits=limits)
        assert change.min() >= 0
        assert change.sum() == (lacking([row for row in rows if row["id"] == name]) != [0] * 7)


def test_a_table_in_which_no_record_is_counted():
    rows = [{**row, "c": 99} for row in records([1, 5, 9])]
    for limits in (None, TINY):
        data = pa.Table.from_pylist(rows)
        table = open_table(SCHEMA, data, SCHEMA.names, "drop", limits, Bound("id", 2, KEY))
        assert table.left_out().tolist() == [1, 1, 1, 0, 0, 0, 0]
        assert table.records() == 0


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_sorted_chunks_bin_whole_persons(size):
    """As on Spark: a person whose records stand in several chunks is in one bin."""
    rows = sorted(some_unknown(records([1, 2, 3, 9, 25, 0, 2, 40])), key=lambda row: row["id"])
    encoder = RowEncoder(SCHEMA, SCHEMA.names, "drop", Bound("id", 2, KEY))
    chunks = encoder.chunks(pa.Table.from_pylist(rows).to_batches(max_chunksize=size), 1)
    found = list(bounded_in_order(encoder.bound, chunks))
    assert module.joined(found).out.tolist() == lacking(rows)
    assert sum(codes.rows for codes in found) == reference([row for row in rows if row["a"] < 3]).sum()


def test_nothing_left_out_is_zero():
    rows = records([1, 2, 2])
    assert left_out(pa.Table.from_pylist(rows)) == [0] * 7
    assert left_out(pa.Table.from_pylist(rows), None) == [0]


@pytest.mark.slow
def test_spark_bins_whole_persons(spark, monkeypatch):
    monkeypatch.setattr(on_spark, "ENCODING_TASKS", 1)
    rows = some_unknown(records([1, 2, 3, 9, 25, 0, 2, 40]))
    rows += [{**row, "id": None} for row in rows[:9]]
    kind = "id string, a int, b int, c int, note string"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], kind).repartition(5)
    whole = left_out(frame, limits=Limits(read_rows=7, chunk_rows=10))
    assert whole == left_out(frame) == lacking(rows)
    assert left_out(frame, None) == [sum(row["a"] == 9 for row in rows)]
    for name in ("p3", "p7"):
        own = [row for row in rows if row["id"] == name]
        change = np.array(whole) - left_out(frame.where(f"id IS NULL OR id != '{name}'"))
        assert change.tolist() == lacking(own)
    assert left_out(frame.where("a = 9")) == lacking([row for row in rows if row["a"] == 9])
    table = open_table(SCHEMA, frame, SCHEMA.names, "drop", None, Bound("id", 2, KEY))
    assert table.records() == next(iter(table.marginals([()]))).item()


@pytest.mark.slow
def test_spark(spark, monkeypatch):
    monkeypatch.setattr(on_spark, "ENCODING_TASKS", 1)  # per core, of which there are two
    rows = records([1, 2, 3, 9, 25, 0, 2])
    kinds = {
        "string": lambda i: f"p{i}",
        "binary": lambda i: bytes([i, 0, 255 - i]),
        "decimal(10,0)": decimal.Decimal,
    }
    for kind, name in kinds.items():
        given_rows = [{**row, "id": name(int(row["id"][1:]))} for row in rows]
        frame = spark.createDataFrame(
            [tuple(row.values()) for row in given_rows], f"id {kind}, a int, b int, c int, note string"
        ).repartition(5)
        whole = counted(frame)[0]
        np.testing.assert_array_equal(whole, reference(given_rows), err_msg=kind)
    for leaves, size in ((0, 1), (3, 9), (4, 25)):
        change = whole - counted(frame.where(f"id != {leaves}"))[0]
        assert change.min() >= 0
        assert change.sum() == min(2, size)
    assert counted(frame, names=())[0].sum() == 11
    for column in ("CAST(id AS DOUBLE)", "array(id)", "CAST(id AS DECIMAL(10,2))"):
        with pytest.raises(DataError, match="person: expected a column of integers, strings or binary"):
            counted(frame.selectExpr(f"{column} AS id", "a", "b", "c"))
    nulls = frame.selectExpr("CASE WHEN a = 0 THEN NULL ELSE id END AS id", "a", "b", "c")
    with pytest.raises(DataError, match="so its person is unknown"):
        counted(nulls)
    assert counted(nulls, unknown="drop")[0].sum() > 0
    with pytest.raises(DataError, match="no column 'id' that says to whom a record belongs"):
        counted(frame.drop("id"))


@settings(max_examples=10)
@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 4), st.sampled_from([300, 1000, 2**20]))
def test_memory_does_not_matter(sizes, most, people_bytes):
    rows = records(sizes)
    limits = Limits(read_rows=5, chunk_rows=8, people_bytes=people_bytes)
    empty = pa.table({name: pa.array([], pa.int64()) for name in ("id", *SCHEMA.names)})
    data = pa.Table.from_pylist(rows) if rows else empty
    np.testing.assert_array_equal(counted(data, most, limits)[0], reference(rows, most))
    assert left_out(data, most, limits) == lacking(rows, most)


def test_a_large_table_is_read_several_times_with_bounded_memory(monkeypatch):
    rows = records([5] * 60)
    held = []
    real = module.chosen
    monkeypatch.setattr(module, "chosen", lambda bound, codes: held.append(codes.rows) or real(bound, codes))
    limits = Limits(chunk_rows=10, read_rows=10, people_bytes=4000)
    found = counted(pa.Table.from_pylist(rows), 2, limits)[0]
    assert found.sum() == 120
    assert sum(held) == 300
    assert len(held) > 3
    assert max(held) < 150


NAMES = {
    "int8": pa.array([1, 1, 2], pa.int8()),
    "uint32": pa.array([1, 1, 2], pa.uint32()),
    "int64": pa.array([-(2**62), -(2**62), 2**62]),
    "uint64": pa.array([2**64 - 1, 2**64 - 1, 1], pa.uint64()),
    "float": pa.array([1.0, 1.0, 2.0]),
    "decimal": pa.array([decimal.Decimal(1), decimal.Decimal(1), decimal.Decimal(2)]),
    "string": pa.array(["1", "1", "01"]),
    "large string": pa.array(["1", "1", "1 "], pa.large_string()),
    "dictionary": pa.array(["x", "x", "X"]).dictionary_encode(),
    "binary": pa.array([b"\x00", b"\x00", b""]),
    "fixed": pa.array([b"ab", b"ab", b"ac"], pa.binary(2)),
    "objects": np.array(["x", "x", "y"], object),
    "integers as objects": np.array([1, np.int64(1), 2.0], object),
    "uuid": np.array([uuid.UUID(int=1), uuid.UUID(int=1), uuid.UUID(int=2)], object),
    "bytes as objects": np.array([b"x", b"x", b"y"], object),
}


def with_ids(column):
    """A table with these persons, and different values of a."""
    rest = {"a": list(range(len(column))), "b": [0] * len(column), "c": [0] * len(column)}
    make = pd.DataFrame if isinstance(column, np.ndarray) else pa.table
    return make({"id": column, **rest})


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_compared_exactly(kind):
    whole = counted(with_ids(NAMES[kind]), 1)[0]
    assert whole.sum() == 2
    assert whole[2].sum() == 1  # the one who has one


def test_widths_of_integers_do_not_make_two_persons(tmp_path):
    for number, kind in enumerate([pa.int8(), pa.int64(), pa.uint16(), pa.float32()]):
        table = pa.table({"id": pa.array([7], kind), "a": [number % 3], "b": [0], "c": [0]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    assert counted(tmp_path, 1)[0].sum() == 1


def test_two_kinds_of_names_are_refused(tmp_path):
    for number, column in enumerate([pa.array([7]), pa.array(["7"])]):
        pq.write_table(pa.table({"id": column, "a": [0], "b": [0], "c": [0]}), tmp_path / f"{number}.parquet")
    with pytest.raises(DataError, match="both integers and strings"):
        counted(tmp_path)
    mixed = pd.DataFrame({"id": np.array([7, "7"], object), "a": 0, "b": 0, "c": 0})
    with pytest.raises(DataError, match="of several kinds"):
        counted(mixed)


SECRET = 77123


@pytest.mark.parametrize(
    "column",
    [
        pa.array([SECRET + 0.5]),
        pa.array([float(2**53)]),
        pa.array([float("inf")]),
        pa.array([decimal.Decimal("77123.5")]),
        pa.array([True]),
        pa.array([[SECRET]]),
        pa.array([SECRET], pa.timestamp("s")),
        np.array([2**70 + SECRET], object),
        np.array([SECRET + 0.5], object),
        np.array([{SECRET}], object),
        np.array([True], object),
    ],
    ids=str,
)
def test_odd_names_are_refused_without_showing_them(column):
    with pytest.raises(DataError, match="expected a column of integers, strings or bytes in 'id'") as caught:
        counted(with_ids(column))
    assert str(SECRET) not in str(caught.value)
    assert caught.value.__context__ is None


NULLS = {
    "arrow": pa.table({"id": ["x", None, "x"], "a": [0, 1, 2], "b": [0] * 3, "c": [0] * 3}),
    "all": pa.table({"id": pa.nulls(3), "a": [0, 1, 2], "b": [0] * 3, "c": [0] * 3}),
    "nan": pd.DataFrame({"id": [1.0, np.nan, 1.0], "a": [0, 1, 2], "b": 0, "c": 0}),
    "object": pd.DataFrame({"id": np.array(["x", None, "x"], object), "a": [0, 1, 2], "b": 0, "c": 0}),
    "narrow nan": pd.DataFrame(
        {"id": np.array([1, np.float32("nan"), 1], object), "a": [0, 1, 2], "b": 0, "c": 0}
    ),
    "na": pd.DataFrame({"id": np.array([1, pd.NA, 1], object), "a": [0, 1, 2], "b": 0, "c": 0}),
    "polars": pl.DataFrame({"id": ["x", None, "x"], "a": [0, 1, 2], "b": 0, "c": 0}),
}


@pytest.mark.parametrize("kind", NULLS)
def test_a_record_of_nobody_is_refused_or_dropped(kind):
    with pytest.raises(DataError, match="a record has no value in 'id', so its person is unknown"):
        counted(NULLS[kind])
    kept = counted(NULLS[kind], unknown="drop")[0]
    assert kept.sum() == (0 if kind == "all" else 2)
    assert kept[1].sum() == 0


def test_an_empty_field_of_a_file_is_nobody(tmp_path):
    (tmp_path / "x.csv").write_text('id,a,b,c\n1,0,0,0\n,1,0,0\n"",2,0,0\n')
    with pytest.raises(DataError, match="its person is unknown"):
        counted(tmp_path / "x.csv")
    assert counted(CSV(tmp_path / "x.csv"), unknown="drop")[0].sum() == 1


def test_dropping_comes_before_choosing():
    """A record outside the domain takes nobody's place."""
    data = pa.table({"id": [1] * 6, "a": [0, 9, 9, 9, 9, 9], "b": [0] * 6, "c": [0] * 6})
    for number in range(20):
        assert counted(data, 1, unknown="drop", key=bytes([number] * 16))[0].sum() == 1


def test_the_person_may_be_an_attribute():
    data = pa.table({"id": [0, 0, 1], "a": [0, 1, 2]})
    schema = Schema.of(id=2, a=3)
    (table,) = open_table(schema, data, ["id", "a"], bound=Bound("id", 1, KEY)).marginals([("id",)])
    assert table.tolist() == [1, 1]


def test_a_missing_column_is_named(tmp_path):
    for data in (pa.table({"a": [0]}), in_csv([{"a": 0}], tmp_path), in_parquet([{"a": 0}], tmp_path)):
        with pytest.raises(DataError, match="no column 'id' that says to whom a record belongs"):
            open_table(SCHEMA, data, ["a"], bound=Bound("id", 1, KEY))


def test_what_is_not_sorted_is_refused():
    """On Spark, a person's records must come one after the other."""
    encoder = RowEncoder(SCHEMA, SCHEMA.names, "refuse", Bound("id", 1, KEY))
    for size in (1, 3):
        chunks = encoder.chunks(with_ids(pa.array([2, 1, 2])).to_batches(max_chunksize=size), 1)
        with pytest.raises(DataError, match="did not sort"):
            list(bounded_in_order(encoder.bound, chunks))


def test_check_tells_the_custodian_to_whom_records_do_not_belong():
    fine = with_ids(pa.array([1, 1, 2]))
    assert check(SCHEMA, fine, person="id").ok
    for table, words in (
        (fine.drop(["id"]), "no column 'id' that says to whom"),
        (
            NULLS["arrow"],
            "1 of 3 records does not fit, 1 of them without a value in 'id': the table is refused",
        ),
        (with_ids(pa.array([0.5, 1, 2])), "expected a column of integers, strings or bytes"),
    ):
        found = check(SCHEMA, table, person="id")
        assert not found.ok
        assert words in found.verdict()


IDS = st.sampled_from(["p", "q", None])
ROWS = st.lists(st.tuples(IDS, st.sampled_from([0, 2, 9, None])), max_size=9)


@settings(deadline=None, max_examples=60)
@given(
    ROWS,
    st.sampled_from([*IN_MEMORY]),
    st.sampled_from(["refuse", "drop"]),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_check_says_what_measuring_does(rows, make, unknown, most, max_records):
    """Whether the table is refused, and how many records are dropped, left out and counted."""
    names = ["a"]
    columns = pa.schema([("id", pa.string()), ("a", pa.int64())])
    table = pa.Table.from_pylist([{"id": name, "a": a} for name, a in rows], columns)
    data = IN_MEMORY[make](table.to_pylist(), None) if rows and make != "arrow" else table
    options = {"max_records": max_records, "unknown": unknown, "person": "id", "records_per_person": most}
    found = check(SCHEMA, data, names, **options)
    try:
        kept = open_table(SCHEMA, data, names, unknown, bound=Bound("id", most, KEY)).records()
    except DataError:
        kept = None
    assert found.ok == (kept is not None and kept <= max_records)
    assert kept is None or found.counted == kept
    assert found.nameless == sum(name is None for name, _ in rows) or not found.readable
    assert ("refused" in found.verdict()) == (not found.ok)
    if found.ok and found.bad_records:
        assert f"{found.bad_records} of {len(rows)} record" in found.verdict()
        assert f"Counted: {kept}." in found.verdict()


@pytest.mark.slow
def test_check_counts_records_without_a_person_in_spark(spark):
    rows = [("p", 0), ("p", 1), ("p", 2), (None, 1), ("q", 9), (None, 9)]
    found = check(
        SCHEMA,
        spark.createDataFrame(rows, "id string, a long"),
        ["a"],
        unknown="drop",
        person="id",
        records_per_person=2,
    )
    assert (found.records, found.bad_records, found.nameless, found.crowded, found.counted) == (6, 3, 2, 1, 2)
    assert found.ok
