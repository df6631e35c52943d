"""How a CSV file is written, as the spec states it."""

from __future__ import annotations

import pytest

from querysmasher.data.framing import CSV
from querysmasher.data.sources import open_table
from querysmasher.errors import SpecError
from tests.spec.files import SMALL, read

STYLE = 'delimiter = ";"\nquote = "\'"\nencoding = "latin-1"\ndecimal = ","\n'


def test_options_reach_the_reader(tmp_path):
    spec = read(tmp_path, f'{SMALL}[data]\npath = "people.csv"\n{STYLE}')
    name = spec.schema.names[0]
    (tmp_path / "people.csv").write_text(f"{name};'no;te é'\n", encoding="latin-1")
    data = spec.source.open()
    assert data == CSV(tmp_path / "people.csv", ";", "'", "latin-1", ",")
    assert open_table(spec.schema, data, [name]).records() == 0


def test_without_options_the_path_stands_alone(tmp_path):
    (tmp_path / "people.csv").write_text("a\n")
    assert read(tmp_path, f'{SMALL}[data]\npath = "people.csv"\n').source.open() == tmp_path / "people.csv"


def test_parquet_has_no_dialect(tmp_path):
    (tmp_path / "people.parquet").write_text("")
    spec = read(tmp_path, f'{SMALL}[data]\npath = "people.parquet"\n{STYLE}')
    assert spec.source.open() == tmp_path / "people.parquet"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('path = "a.csv"\ndelimiter = ";;"', "data.delimiter: expected a single ASCII character"),
        ('path = "a.csv"\ndecimal = ";"', "data.decimal: expected one of"),
        ('path = "a.csv"\nencoding = "klingon"', "data.encoding: expected an encoding such as"),
        ('path = "a.csv"\nquote = 3', "data.quote: expected a single character"),
        ('database = "a.db"\ntable = "t"\nquote = "+"', "data.quote: this describes a CSV file"),
    ],
)
def test_mistakes(tmp_path, lines, words):
    with pytest.raises(SpecError, match=words):
        read(tmp_path, f"{SMALL}[data]\n{lines}\n")
