"""Where tables are: files, relations of DuckDB, and a new kind of source, in one registry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import querysmasher as qs
from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data import sources
from querysmasher.data.foreign import check_columns
from querysmasher.data.rows import ScanCounter
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.schema import Schema
from tests.builders import python
from tests.data.mixed_table import counts


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, "no file at") for name in ("none.csv", "none.parquet", "none*.parquet")),
        (".", "no Parquet file in the folder"),
        *((name, "unknown kind of file.*ending in .csv") for name in ("a.xlsx", "a.txt", "a")),
    ],
)
def test_paths_that_are_no_table(tmp_path, name, words):
    for other in ("a.xlsx", "a.txt", "a"):
        (tmp_path / other).write_text("a\n1\n")
    with pytest.raises(DataError, match=words):
        open_table(Schema.of(a=2), tmp_path / name, ["a"])


def test_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nothing of the sort PAR1")
    with pytest.raises(DataError, match=r"opening .* failed with"):
        counts(Schema.of(a=2), path, "a")


def test_parquet_that_breaks_while_it_is_read(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"a": np.zeros(1000, int)}), path)
    table = open_table(Schema.of(a=2), path, ["a"])
    path.unlink()
    with pytest.raises(DataError, match="reading the table failed"):
        table.records()


def test_relation_that_fails_while_it_runs():
    relation = duckdb.connect().sql("SELECT CAST('SENTINEL77' || range AS INTEGER) AS a FROM range(9)")
    with pytest.raises(DataError, match="reading the table failed with ConversionException") as caught:
        counts(Schema.of(a=2), relation, "a")
    assert "SENTINEL77" not in str(caught.value)
    assert caught.value.__context__ is None


def test_enums_and_wide_numbers_of_duckdb():
    relation = duckdb.connect().sql(
        "SELECT 'y'::ENUM('x', 'y') AS e, 3::HUGEINT AS h, 2::UTINYINT AS u, 0.5::DECIMAL(5, 2) AS d "
        "FROM range(4)"
    )
    schema = Schema(
        [
            Categorical("e", ["y"]),
            Ordinal("h", [3, 4]),
            Ordinal("u", range(3)),
            Binned("d", edges=[0, 0.5, 1]),
        ]
    )
    assert counts(schema, relation, "e", "h", "u", "d") == [[[[0, 0], [0, 0], [0, 4]], [[0, 0]] * 3]]


LONG_STREAM = """
import duckdb
from benchmarks.process import peak_gigabytes
from querysmasher.data.counting import Limits
from querysmasher.data.sources import open_table
from querysmasher.attributes import Categorical, Ordinal
from querysmasher.schema import Schema

query = "SELECT range % 3 AS a, repeat('x', 50 + range % 20) AS b FROM range(3_500_000)"
schema = Schema([Ordinal("a", range(3)), Categorical("b", ["x" * n for n in range(50, 70)])])
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
table = open_table(schema, connection.sql(query), schema.names, limits=Limits(keep_bytes=0))
before = peak_gigabytes()
(found,) = table.marginals([("a",)])
assert found.sum() == 3_500_000
print(peak_gigabytes() - before)
"""


@pytest.mark.slow
def test_memory_of_a_long_stream_stays_bounded():
    """Rows of 250 MB; a process of its own, for its peak of memory to be that of the stream."""
    pytest.importorskip("resource")
    root = Path(__file__).parents[2]
    done = python("-c", LONG_STREAM, check=True, cwd=root)
    assert 0 < float(done.stdout) < 0.15  # GB


@dataclass
class Records:
    """A toy source: a list of records, one mapping each."""

    records: list


def open_records(rows, data):
    """The file of the toy source."""
    if not isinstance(data, Records):
        return None
    check_columns(rows.columns, list(data.records[0]))

    def read():
        for start in range(0, len(data.records), rows.limits.read_rows):
            yield pa.RecordBatch.from_pylist(data.records[start : start + rows.limits.read_rows])

    return ScanCounter(rows, read)


def test_a_new_source_needs_one_line_in_one_registry(monkeypatch):
    monkeypatch.setitem(sources.OPENERS, "a list of Records", open_records)
    schema = qs.Schema.of(a=3, b=2)
    with pytest.raises(
        DataError, match=r"expected the path of a CSV or Parquet file, .*or a list of Records"
    ):
        qs.check(schema, 7)
    people = Records([{"a": i % 3, "b": i % 2} for i in range(300)])
    assert qs.check(schema, people).ok
    release = qs.measure(qs.plan(qs.marginals(schema, [1, 2]), qs.zCDP(10)), people, seed=1)
    np.testing.assert_allclose(release.marginal("a", "b"), 50, atol=8)
    found = qs.check(schema, Records([{"a": 7, "b": 1}]))
    assert found["a"].values == (("7", 1),)
