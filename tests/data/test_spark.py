"""What is particular to Spark; the contract in test_engines runs on it as well."""

from __future__ import annotations

import gc
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.attributes import Categorical, Ordinal
from querysmasher.data import spark as engine
from querysmasher.data.counting import Limits, Tally
from querysmasher.data.rows import RowEncoder
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.schema import Schema
from tests.builders import python
from tests.data.mixed_table import SCHEMA, SETS, clean_rows, counted, spark_frame


@pytest.mark.parametrize("direct", [1, 4])
def test_many_partitions_and_slabs(spark, monkeypatch, direct):
    """More partitions than tasks, several of which count, and tables in several slabs."""
    monkeypatch.setattr(engine, "TASK_RECORDS", 1000)
    monkeypatch.setattr(engine, "DIRECT_TASKS", direct)
    monkeypatch.setattr(engine, "SUMMED_CELLS", 2**17)
    schema = Schema.of(a=600, b=500)
    frame = spark.range(5000).selectExpr("id % 600 AS a", "id % 500 AS b").repartition(19)
    table = open_table(schema, frame, ["a", "b"])
    (found,) = table.marginals([("a", "b")])
    assert found.size > 2 * engine.SLAB_CELLS
    expected = np.zeros((600, 500), np.int64)
    np.add.at(expected, (np.arange(5000) % 600, np.arange(5000) % 500), 1)
    assert np.array_equal(found, expected)


def encoded_batches(rows, spark):
    limits = Limits(chunk_rows=7)
    encoder = open_table(SCHEMA, spark_frame(rows, spark), SCHEMA.names, limits=limits).rows
    batches = [b.select(SCHEMA.names) for b in spark_frame(rows, spark).toArrow().to_batches()]
    encoded = engine.EncodedRows(encoder)
    return encoded, list(encoded.encode(iter(batches)))


def test_only_tables_leave_the_tasks_that_count(spark):
    rows = clean_rows(40)
    encoded, codes = encoded_batches(rows, spark)
    slabs = list(engine.count_partition(encoded, partial(Tally, SCHEMA, SETS), iter(codes)))
    sent = pa.schema({"failure": pa.string(), "slab": pa.int32(), "width": pa.int32(), "counts": pa.binary()})
    assert [batch.schema for batch in slabs] == [sent] * len(slabs)
    flat = np.concatenate([t.ravel() for t in counted(SCHEMA, rows, SETS)])
    assert np.array_equal(joined(slabs, len(flat)), flat)
    assert np.array_equal(joined(engine.sum_partition(iter(slabs * 3)), len(flat)), 3 * flat)


def joined(batches, cells):
    flat = np.zeros(cells, np.int64)
    for batch in batches:
        for slab, counts in engine.read_slabs(batch):
            flat[slab * engine.SLAB_CELLS :][: engine.SLAB_CELLS] += counts
    return flat


@given(
    st.lists(st.sampled_from([(), (3,), (2, 4), (40, 50), (300, 200)]), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 2**40)), max_size=8),
)
def test_slabs_hold_tables_of_any_size_and_counts_of_any_width(shapes, entries):
    tables = [np.zeros(shape, np.int64) for shape in shapes]
    for place, count in entries:
        table = tables[place % len(tables)]
        table.reshape(-1)[place % table.size] = count
    flat = np.concatenate([table.reshape(-1) for table in tables])
    slabs = np.split(flat, range(engine.SLAB_CELLS, len(flat), engine.SLAB_CELLS))
    batches = list(engine.send_slabs(iter(enumerate(slabs))))
    assert np.array_equal(joined(batches, len(flat)), flat)
    sent = sum(len(counts.as_py()) for batch in batches for counts in batch.column("counts"))
    filled = [c for c in slabs if c.any()]
    widths = [next(w for w in (1, 2, 4, 8) if c.max() < 256**w) for c in filled]
    assert sent == sum(w * len(c) for w, c in zip(widths, filled, strict=True))


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from([1, 9, 254, 255, 256, 300, 65_535, 65_536]), max_size=4).map(
        lambda sizes: {f"x{i}": n for i, n in enumerate(sizes)}
    ),
    st.lists(st.integers(0, 2**32), max_size=40),
    st.integers(1, 12),
    st.integers(1, 64),
)
def test_codes_survive_the_way_through_the_encoded_frame(sizes, drawn, batch_rows, piece_bytes):
    schema = Schema.of({**sizes, "last": 3})
    names = tuple(sizes)
    encoded = engine.EncodedRows(RowEncoder(schema, names, limits=Limits(read_rows=7)))
    columns = {name: [(value >> place) % sizes[name] for value in drawn] for place, name in enumerate(names)}
    table = pa.table(columns if names else {"other": drawn})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "PIECE_BYTES", piece_bytes)
        sent = list(encoded.encode(table.to_batches(max_chunksize=batch_rows)))
    received = [encoded.decode(part) for part in sent]
    assert sum(codes.rows for codes in received) == len(drawn)
    for name in names:
        assert [int(code) for codes in received for code in codes.columns[name]] == columns[name]
    width = sum(np.min_scalar_type(size).itemsize for size in sizes.values())
    first = 2 + len(encoded.left_out)  # before the codes
    for part in sent:
        rows = zip(*part.columns[first:], strict=True)
        most = max((sum(len(cell.as_py()) for cell in row) for row in rows), default=0)
        assert most <= max(width, piece_bytes)


def test_a_refusal_goes_all_the_way_as_a_message(spark):
    rows = clean_rows(5)
    rows[3]["sex"] = "SENTINEL77"
    encoded, codes = encoded_batches(rows, spark)
    (slabs,) = engine.count_partition(encoded, partial(Tally, SCHEMA, [("sex",)]), iter(codes))
    (summed,) = engine.sum_partition(iter([slabs]))
    for sent in (*codes, slabs, summed):
        assert "SENTINEL77" not in str(sent.to_pylist())
    with pytest.raises(DataError, match="attribute 'sex': the data has"):
        list(engine.read_slabs(summed))


def test_the_frame_is_computed_once_and_its_codes_are_released(spark, tmp_path):
    log = tmp_path / "log"

    def computed(parts):
        with log.open("a") as file:
            file.write("x")
        yield from parts

    frame = (
        spark.range(90)
        .selectExpr("id % 9 AS a", "id % 5 AS b")
        .repartition(3)
        .mapInArrow(computed, "a long, b long")
    )
    table = open_table(Schema.of(a=9, b=5), frame, ["a", "b"], limits=Limits(batch_cells=10))
    before = stored(spark)
    assert table.records() == 90
    assert [counts.sum() for counts in table.marginals([("a",), ("b",), ("a", "b")])] == [90] * 3
    assert log.read_text() == "xxx"
    assert stored(spark) == sorted([*before, (True, False)])
    del table
    assert stored(spark) == before


def stored(spark):
    """Whether each frame that Spark keeps is in memory, and whether it is on disk, sorted."""
    levels = [kept.getStorageLevel() for kept in spark.sparkContext._jsc.getPersistentRDDs().values()]
    return sorted((level.useMemory(), level.useDisk()) for level in levels)


def test_codes_of_a_refused_table_are_released(spark):
    before = len(stored(spark))
    table = open_table(Schema.of(a=2), spark.range(9).selectExpr("id AS a"), ["a"])
    with pytest.raises(DataError, match="attribute 'a'"):
        table.records()
    assert len(stored(spark)) == before + 1
    del table
    assert len(stored(spark)) == before


def test_names_that_need_quotes(spark):
    frame = spark.createDataFrame([(1, "x"), (0, "y")], schema="`a.b` int, `c``d` string")
    schema = Schema([Ordinal("a.b", [0, 1]), Categorical("c`d", ["x", "y"])])
    (found,) = open_table(schema, frame, schema.names).marginals([schema.names])
    assert found.tolist() == [[0, 1], [1, 0]]


def test_decimal_and_wrong_type(spark):
    frame = spark.createDataFrame([("1",)], schema="a string").selectExpr(
        "a", "cast(1.0 AS decimal(5, 2)) AS b"
    )
    schema = Schema.of(a=2, b=2)
    assert [t.tolist() for t in open_table(schema, frame, ["b"]).marginals([("b",)])] == [[0, 1]]
    assert open_table(schema, frame, ["a"]).records() == 1
    for rows in (0, 1):  # a type is public, and refused without records too
        for kind in ("binary", "date", "array<int>", "boolean"):
            typed = spark.range(rows).selectExpr(f"CAST(NULL AS {kind}) AS a")
            found = kind.split("<")[0].replace("date", "date32").replace("boolean", "bool")
            with pytest.raises(DataError, match=f"attribute 'a': expected a column of numbers, got {found}"):
                open_table(schema, typed, ["a"], "drop").records()


def test_failure_inside_spark_is_not_quoted(spark):
    frame = spark.createDataFrame([("SENTINEL77",)], schema="a string").selectExpr("cast(a AS int) AS a")
    with pytest.raises(DataError, match="counting in Spark failed with") as caught:
        open_table(Schema.of(a=2), frame, ["a"]).records()
    assert "SENTINEL77" not in str(caught.value)
    assert caught.value.__context__ is None


BLIND = """
import sys
class Blind:
    def find_spec(self, name, path=None, target=None):
        if name == "querysmasher":
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Blind())
"""


@pytest.fixture
def blind_python(tmp_path):
    """A Python that has everything but this library."""
    (tmp_path / "sitecustomize.py").write_text(BLIND)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("python", ["blind", "/no/such/python"])
def test_executors_whose_python_cannot_count_are_told_this_one(python, spark, monkeypatch, request):
    if python == "blind":
        python = request.getfixturevalue("blind_python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    with pytest.raises(DataError) as caught:
        open_table(Schema.of(a=2), spark.range(2).selectExpr("id AS a"), ["a"]).records()
    assert f"PYSPARK_PYTHON to this process's Python, {sys.executable!r}" in str(caught.value)
    assert caught.value.__context__ is None


def test_executors_elsewhere_are_not_told_a_path_of_this_machine():
    class Frame:
        class sparkSession:  # noqa: N801 - as Spark calls it
            conf = {"spark.master": "yarn", "spark.sql.shuffle.partitions": "31"}  # noqa: RUF012 - a stand-in

    def job():
        raise RuntimeError("ModuleNotFoundError: No module named 'querysmasher'")

    with pytest.raises(DataError, match="install it there, or point PYSPARK_PYTHON") as caught:
        engine._run_job(Frame(), job)
    assert sys.executable not in str(caught.value)
    assert caught.value.__context__ is None
    assert engine._tasks(Frame()) == 31


def test_each_batch_of_marginals_is_one_job(spark):
    frame = spark_frame(clean_rows(20), spark)
    table = open_table(SCHEMA, frame, SCHEMA.names, limits=Limits(batch_cells=20))
    sets = [("age", "level"), ("sex",), ("member",), ("hour", "income")]
    list(table.marginals(sets[:1]))  # also encodes the records
    jobs = []
    for chosen in (sets[1:2], sets[1:3], sets):
        spark.sparkContext.setJobGroup("counting", "")
        before = len(spark.sparkContext.statusTracker().getJobIdsForGroup("counting"))
        assert [t.sum() for t in table.marginals(chosen)] == [20] * len(chosen)
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup("counting")) - before)
    assert jobs == [1, 1, 2], "sets of at most 20 cells share a job"


def test_spark_is_not_imported_for_other_tables():
    code = (
        "import sys, pyarrow;"
        "from querysmasher.data.sources import open_table; from querysmasher.schema import Schema;"
        "open_table(Schema.of(a=2), pyarrow.table({'a': [1]}), ['a']).records();"
        "assert 'pyspark' not in sys.modules"
    )
    python("-c", code, check=True)


def test_no_garbage_is_collected_while_spark_answers(spark, monkeypatch):
    """Collected objects of Spark send commands over a connection that is being read."""
    frame = spark.createDataFrame([(1,), (2,)], "a int")
    collects = []
    collect = type(frame).collect
    monkeypatch.setattr(type(frame), "collect", lambda self: collects.append(gc.isenabled()) or collect(self))
    gc.enable()
    (counts,) = open_table(Schema.of(a=3), frame, ["a"]).marginals([("a",)])
    assert counts.tolist() == [0, 1, 1]
    assert collects
    assert not any(collects)
    assert gc.isenabled()


def test_integers_of_every_width(spark):
    """Missing ones and the extremes of each type, beside Arrow."""
    schema = Schema(
        [
            Ordinal(f"x{i}", range(low, low + 9))
            for i, low in enumerate((-4, -128, 119, 0, -9, 2, 7, 250, 248, -3))
        ]
    )
    kinds = (
        "tinyint",
        "tinyint",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "bigint",
        "int",
        "smallint",
        "string",
    )
    ends = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63, "string": 5}
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(400):
        row = [int(generator.choice(schema[f"x{i}"].values)) for i in range(9)] + ["y"]
        if generator.random() < 0.4:
            index = int(generator.integers(9))
            end = ends[kinds[index]]
            row[index] = [None, end - 1, -end, 0, -1, schema[f"x{index}"].values[-1] + 1][
                int(generator.integers(6))
            ]
            row[index] = row[index] if row[index] is None or row[index] < end else None
        rows.append(tuple(row))
    words = ", ".join(f"x{i} {kind}" for i, kind in enumerate(kinds))
    frame = spark.createDataFrame(rows, words)
    names = schema.names[:9]
    table = open_table(schema, frame, names, "drop")
    plain = open_table(
        schema,
        pa.table({f"x{i}": pa.array([r[i] for r in rows], pa.int64()) for i in range(9)}),
        names,
        "drop",
    )
    assert 200 < plain.records() < 400
    sets = [*((name,) for name in names), ("x8", "x0"), ("x7", "x3", "x1")]
    for found, expected in zip(table.marginals(sets), plain.marginals(sets), strict=True):
        assert np.array_equal(found, expected)
