"""Where the table is: files and DuckDB databases, which are never changed."""

import duckdb
import pytest

from querysmasher.errors import DataError, FileError
from querysmasher.spec.spec import Source


def test_a_path_is_passed_on(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("a\n1\n")
    assert Source(path).open() == path
    assert Source(tmp_path / "*.csv").open() == tmp_path / "*.csv"


def test_a_table_of_a_database(tmp_path):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS a")
    before = path.read_bytes()
    assert Source(path, "people").open().columns == ["a"]
    assert path.read_bytes() == before


def test_what_is_not_there(tmp_path, refuses):
    for source in (Source(tmp_path / "none.csv"), Source(tmp_path / "none.duckdb", "people")):
        with refuses(FileError, ValueError, "data: no file", "none."):
            source.open()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "no.duckdb").write_text("Ann Private")
    with pytest.raises(DataError, match="opening the database failed") as caught:
        Source(tmp_path / "no.duckdb", "people").open()
    assert "Ann" not in str(caught.value)
    duckdb.connect(str(tmp_path / "empty.duckdb")).close()
    with refuses(DataError, ValueError, "opening the table 'people' failed"):
        Source(tmp_path / "empty.duckdb", "people").open()
