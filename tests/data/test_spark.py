"""What is particular to Spark; the contract in test_engines runs on it as well."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from mixed_table import SCHEMA, SETS, clean_rows, counted, spark_frame

from querysmasher.attributes import Categorical, Ordinal
from querysmasher.data import Limits, open_table
from querysmasher.data import spark as engine
from querysmasher.errors import DataError
from querysmasher.schema import Schema


def test_many_partitions_and_slabs(spark, monkeypatch):
    """More partitions than are counted, and tables in several slabs."""
    schema = Schema.of(a=600, b=500)
    frame = spark.range(5000).selectExpr("id % 600 AS a", "id % 500 AS b").repartition(9)
    (found,) = open_table(schema, frame, ["a", "b"]).marginals([("a", "b")])
    assert found.size > 2 * engine.SLAB_CELLS
    expected = np.zeros((600, 500), np.int64)
    np.add.at(expected, (np.arange(5000) % 600, np.arange(5000) % 500), 1)
    assert np.array_equal(found, expected)


def test_only_tables_leave_the_partitions(spark):
    rows = clean_rows(40)
    encoder = open_table(SCHEMA, spark_frame(rows, spark), SCHEMA.names)._rows
    batches = [b.select(SCHEMA.names) for b in spark_frame(rows, spark).toArrow().to_batches()]
    slabs = list(engine._count_partition(encoder, tuple(SETS), 2**20, iter(batches)))
    assert [batch.schema for batch in slabs] == [engine.SCHEMA] * len(slabs)
    flat = np.frombuffer(b"".join(s.column(1)[0].as_py() for s in slabs), np.int64)
    assert np.array_equal(flat, np.concatenate([t.ravel() for t in counted(SCHEMA, rows, SETS)]))
    (message,) = engine._sum_partition(iter(slabs + slabs))
    assert np.array_equal(np.frombuffer(message.column(1)[0].as_py(), np.int64), 2 * flat)


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
    with pytest.raises(DataError, match="attribute 'a': expected a column of numbers, got string"):
        open_table(schema, frame, ["a"]).records()


def test_failure_inside_spark_is_not_quoted(spark):
    frame = spark.createDataFrame([("SENTINEL77",)], schema="a string").selectExpr("cast(a AS int) AS a")
    with pytest.raises(DataError, match="counting in Spark failed with") as caught:
        open_table(Schema.of(a=2), frame, ["a"]).records()
    assert "SENTINEL77" not in str(caught.value)
    assert caught.value.__context__ is None


def test_executors_without_this_library_are_told_apart():
    class Frame:
        def collect(self):
            raise RuntimeError("ModuleNotFoundError: No module named 'querysmasher'")

    with pytest.raises(DataError, match="PYSPARK_PYTHON") as caught:
        engine._collected(Frame())
    assert caught.value.__context__ is None


def test_each_batch_of_marginals_is_one_job(spark):
    frame = spark_frame(clean_rows(20), spark)
    table = open_table(SCHEMA, frame, SCHEMA.names, limits=Limits(batch_cells=20))
    sizes = []
    run = table._run
    table._run = lambda batch, cells: sizes.append(cells) or run(batch, cells)
    sets = [("age", "level"), ("sex",), ("member",), ("hour", "income")]
    assert [t.sum() for t in table.marginals(sets)] == [20] * 4
    assert sizes == [20, 14]


def test_spark_is_not_imported_for_other_tables():
    code = (
        "import sys, pyarrow;"
        "from querysmasher.data import open_table; from querysmasher.schema import Schema;"
        "open_table(Schema.of(a=2), pyarrow.table({'a': [1]}), ['a']).records();"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603 - our own words
