"""What is particular to files and to DuckDB."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from mixed_table import counts

from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError
from querysmasher.schema import Schema


def write(path, text):
    path.write_text(text)
    return path


def test_csv_text_stays_text(tmp_path):
    path = write(tmp_path / "a.csv", "code,n\n01,1\n1,01\n1,1.0\n")
    schema = Schema([Categorical("code", ["01", "1"]), Ordinal("n", range(3))])
    assert counts(schema, path, "code") == [1, 2]
    assert counts(schema, path, "n") == [0, 3, 0]


def test_csv_types_are_not_guessed_from_the_data(tmp_path):
    """Twenty thousand rows that look like numbers, and then one that does not."""
    path = write(tmp_path / "a.csv", "code\n" + "1\n" * 30_000 + "A\n")
    assert counts(Schema([Categorical("code", ["1", "A"])]), path, "code") == [30_000, 1]


def test_csv_booleans_floats_and_bins(tmp_path):
    path = write(tmp_path / "a.csv", "b,f,x\ntrue,0.5,10\nFALSE,5e-1,9.99\n1,1,25\nmaybe,x,nan\n,,\n")
    schema = Schema([Categorical("b", [False, True]), Ordinal("f", [0.5, 1]), Binned("x", edges=[0, 10, 25])])
    assert counts(schema, path, "b", unknown="drop") == [1, 2]
    assert counts(schema, path, "f", unknown="drop") == [2, 1]
    assert counts(schema, path, "x", unknown="drop") == [1, 2]
    for name in schema.names:
        with pytest.raises(DataError, match=f"attribute '{name}'"):
            counts(schema, path, name)


def test_csv_empty_fields(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\nx,\n,y\n"",y\n')
    schema = Schema([Categorical("a", ["x", ""]), Categorical("b", ["y"])])
    assert counts(schema, path, "a") == [1, 2]
    assert counts(schema, path, "b", unknown="drop") == [2]


def test_csv_labels_of_several_kinds_are_text(tmp_path):
    path = write(tmp_path / "a.csv", "a\n1\nmany\n1\n2.5\n")
    assert counts(Schema([Categorical("a", [1, "many", 2.5])]), path, "a") == [2, 1, 1]
    with pytest.raises(DataError, match="attribute 'a': two of its values are the same string"):
        counts(Schema([Categorical("a", [1, "1"])]), path, "a")


def test_csv_with_quotes_semicolons_and_gzip(tmp_path):
    schema = Schema([Categorical('the "a"', ["x;y", 'z"']), Ordinal("b", range(3))])
    text = '"the ""a""";b\n"x;y";1\n"z""";2\n"x;y";2\n'
    assert counts(schema, write(tmp_path / "a.csv", text), 'the "a"', "b") == [[0, 1, 1], [0, 0, 1]]
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert counts(schema, packed, 'the "a"') == [2, 1]
    assert counts(schema, write(tmp_path / "a.tsv", text.replace(";b", "\tb").replace('";', '"\t')), "b") == [
        0,
        1,
        2,
    ]


def test_csv_glob_matches_columns_by_name(tmp_path):
    write(tmp_path / "1.csv", "a,b\n0,1\n")
    write(tmp_path / "2.csv", "b,a\n1,0\n")
    assert counts(Schema.of(a=2, b=2), str(tmp_path / "*.csv"), "a", "b") == [[0, 2], [0, 0]]


def test_header_alone(tmp_path):
    assert counts(Schema.of(a=2), write(tmp_path / "a.csv", "a\n"), "a") == [0, 0]


@pytest.mark.parametrize("text", ["", "a,b\n0,1\n0,1,SENTINEL77,4\n0,1\n" * 3, 'a,b\n0,"SENTINEL77\n'])
def test_damaged_csv_is_not_quoted(tmp_path, text):
    with pytest.raises(DataError) as caught:
        counts(Schema.of(a=2, b=2), write(tmp_path / "x.csv", text), "a", "b")
    assert "SENTINEL77" not in str(caught.value)
    assert caught.value.__context__ is None


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


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "none*.parquet"])
def test_no_such_file(tmp_path, name):
    with pytest.raises(DataError, match="no file at"):
        open_table(Schema.of(a=2), tmp_path / name, ["a"])


def test_folder_without_parquet(tmp_path):
    with pytest.raises(DataError, match="no Parquet file in the folder"):
        open_table(Schema.of(a=2), tmp_path, ["a"])


@pytest.mark.parametrize("name", ["a.xlsx", "a.txt", "a"])
def test_unreadable_kind_of_file(tmp_path, name):
    with pytest.raises(DataError, match=r"unknown kind of file.*expected a name ending in \.csv"):
        open_table(Schema.of(a=2), write(tmp_path / name, "a\n1\n"), ["a"])


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
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", LONG_STREAM], check=True, capture_output=True, timeout=120, cwd=root
    )
    assert 0 < float(done.stdout) < 0.15  # GB


def test_without_a_header_the_first_record_is_not_shown(tmp_path):
    path = write(tmp_path / "a.csv", "diabetic,Jane Doe\nhealthy,John Doe\n")
    schema = Schema([Categorical("diabetes", ["diabetic", "healthy"]), Categorical("name", ["Jane Doe"])])
    with pytest.raises(DataError, match="no column") as caught:
        open_table(schema, path, ["diabetes"])
    assert "diabetic" not in str(caught.value)
