"""The stated dialect of CSV files, and mistakes in them named by kind and line."""

from __future__ import annotations

import csv
import gzip

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from querysmasher.attributes import Binned, Categorical, Ordinal
from querysmasher.data import framing
from querysmasher.data.csv import open_csv
from querysmasher.data.encoding import Encoder, Strings
from querysmasher.data.framing import CSV
from querysmasher.errors import DataError
from querysmasher.schema import Schema
from tests.data.mixed_table import counts
from tests.profiles import fewer

SCHEMA = Schema([Categorical("a", ["x", "y", "é", "x\ny"]), Ordinal("b", [0, 1, 2.5])])


def table(data, *names, unknown="refuse"):
    return counts(SCHEMA, data, *names, unknown=unknown)


def texts(path, dialect, names):
    """Every field of some columns."""
    file = open_csv(str(path), dialect, names)
    columns = [[] for _ in names]
    for batch in file.batches():
        for column, name in zip(columns, names, strict=True):
            column.extend(batch.column(name).column.to_pylist())
    return columns


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\nx,1\nx,1,SECRET\nx,1\n", "line 3: a record of 3 fields; the header has 2"),
        (b'a,b\nx,1\n"x\ny",1\nSECRET\n', "line 5: a record of 1 field; the header has 2"),
        (b'a,b\nx,1\nx"SECRET,1\n', "line 3: a quotation mark inside a field that does not start with one"),
        (b'a,b\nx,1\n"x"SECRET,1\n', "line 3: text after the closing quotation mark of a field"),
        (b'a,b\nx,1\n\n"SECRET\ny,1\n', "line 4: a quotation mark that is never closed"),
        (b"a,b\nx,1\n\xe9SECRET,1\n", "line 3: not UTF-8; state the file's encoding"),
        ("a,b\nx,1\n".encode("utf-16"), "is not UTF-8: it starts like utf-16; state its encoding"),
        (b"", "is empty; expected a header on the first line"),
        (b"a,b\rx,1\rSECRET,1\r", "line 1: a carriage return that no line feed follows"),
        (b"\na,b\nx,1\n", "line 1: empty; expected a header"),
        (b"a,b,a\nx,1,SECRET\n", "the column 'a' occurs more than once in file 'people.csv'"),
        (
            b"x,SECRET\ny,1\n",
            "no column 'a'.*the first line of file 'people.csv' has no name of an attribute: is it a header?",
        ),
        (b"A,b\nx,1\n", "no column 'a'.*the nearest column is 'A'"),
        (
            b"c,b\nx,1\n",
            "no column 'a' for the attribute of that name in file 'people.csv'; rename",
        ),
    ],
)
def test_mistakes_are_named_by_line_and_kind(tmp_path, content, words):
    path = tmp_path / "people.csv"
    for name, packed in ((path, content), (tmp_path / "people.csv.gz", gzip.compress(content))):
        name.write_bytes(packed)
        with pytest.raises(DataError, match=words.replace("people.csv", name.name)) as caught:
            table(name, "a", "b")
        assert "SECRET" not in str(caught.value)
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None


def test_lines_are_counted_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(framing, "BLOCK_BYTES", 16)
    path = tmp_path / "people.csv"
    path.write_text("a,b\n" + '"x\ny",1\n' * 50 + "x,1,2\n")
    with pytest.raises(DataError, match="line 102: a record of 3 fields"):
        table(path, "a", "b")
    path.write_text("a,b\n" + "x,1\n" * 50 + 'x"y,1\n')
    with pytest.raises(DataError, match="line 52: a quotation mark inside a field"):
        table(path, "a", "b")


def test_a_record_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(framing, "BLOCK_BYTES", 2**16)
    monkeypatch.setattr(framing, "LONGEST_RECORD", 2**20)
    path = tmp_path / "people.csv"
    path.write_text('a,b\nx,1\n"' + "SECRET\n" * 2**18)
    with pytest.raises(DataError, match="line 3: a record of more than 1 MiB; a quotation mark may not be"):
        table(path, "a", "b")


def test_encodings(tmp_path):
    path = tmp_path / "people.csv"
    for encoding in ("latin-1", "utf-16", "utf-8-sig", "cp1252", "utf-32-be"):
        path.write_text("a,b\né,1\n" * 1 + "x,1\n", encoding=encoding)
        assert table(CSV(path, encoding=encoding), "a") == [1, 0, 1, 0]
    path.write_text("a,b\nx,1\n", encoding="utf-8-sig")
    assert table(path, "a") == [1, 0, 0, 0]
    path.write_bytes(b"a,b\nx,1\nx,1\n\xff,1\n")
    with pytest.raises(DataError, match="line 4: not ascii; state the file's encoding"):
        table(CSV(path, encoding="ascii"), "a")


@pytest.mark.parametrize(
    ("encoding", "half"), [("utf-7", b"+2AA-"), ("raw_unicode_escape", b"\\ud800"), ("utf-16", b"\0\xd8")]
)
def test_half_a_character_is_named_by_its_line(tmp_path, encoding, half):
    """Some encodings can write what no text may hold; Python's own error quotes all around it."""
    path = tmp_path / "people.csv"
    path.write_bytes("a,b\nx,1\nSECRET".encode(encoding) + half + ",1\n".encode(encoding))
    with pytest.raises(DataError, match=f"line 3: not {encoding}; state the file's encoding") as caught:
        table(CSV(path, encoding=encoding), "a")
    assert "SECRET" not in str(caught.value)


def test_stated_delimiter_quote_and_decimal_sign(tmp_path):
    path = tmp_path / "people.txt"
    path.write_text("a:b\n'x\ny':2,5\n'x':2,50\ny: 1\n")
    assert table(CSV(path, delimiter=":", quote="'", decimal=","), "a", "b") == [
        [0, 0, 1],
        [0, 1, 0],
        [0, 0, 0],
        [0, 0, 1],
    ]
    path.write_text('a\tb\n"x\t1\ny\t0\n')
    assert table(CSV(path, quote=None), "b") == [1, 1, 0]
    assert table(CSV(path, quote=""), "a", unknown="drop") == [0, 1, 0, 0]


def test_the_header_alone_tells_the_delimiter(tmp_path):
    path = tmp_path / "people.csv"
    for sign in ",;\t|":
        path.write_text(f"a{sign}b{sign}c\nx{sign}1{sign},;|\n" if sign != "," else 'a,b,c\nx,1,";|"\n')
        if sign in ";|":
            path.write_text(f'a{sign}b{sign}c\nx{sign}1{sign}",;|"\n')
        assert table(path, "a", "b") == [[0, 1, 0], [0] * 3, [0] * 3, [0] * 3]


def test_empty_lines(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("a,b\n\nx,1\r\n\r\n\nx,1\n\n")
    assert table(path, "a") == [2, 0, 0, 0]
    path.write_text("a\nx\n\nx\n")  # of a single column, an empty line is a record with nothing in it
    assert table(path, "a", unknown="drop") == [2, 0, 0, 0]
    assert table(path, unknown="drop") == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"delimiter": ";;"},
            "delimiter: expected a single ASCII character other than a line break, such as ';', got ';;'",
        ),
        ({"delimiter": "\n"}, "delimiter: expected a single"),
        ({"delimiter": "§"}, "delimiter: expected a single"),
        ({"delimiter": 3}, "delimiter: expected a single"),
        ({"quote": "ab"}, "quote: expected a single"),
        ({"delimiter": "'", "quote": "'"}, "delimiter: expected a character other than the quotation mark"),
        ({"decimal": ";"}, "decimal: expected '.' or ',', got ';'"),
        (
            {"encoding": "klingon"},
            "encoding: expected an encoding such as 'utf-8' or 'latin-1', got 'klingon'",
        ),
        ({"encoding": "rot13"}, "encoding: expected"),
        ({"encoding": None}, "encoding: expected"),
        ({"path": 3}, "path: expected a path, got int"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(DataError, match=words):
        CSV(**{"path": "people.csv"} | options)


fields = st.lists(st.sampled_from([*'ab""\n\r,;# é\\\'', "\r\n", '""']), max_size=6).map("".join)


@fewer(150)
@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(fields, min_size=n, max_size=n), max_size=5)),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from([3, 2**20]),
)
def test_what_a_writer_wrote_is_read_back(tmp_path_factory, rows, end, quoting, size):
    """Against Python's own writer, in blocks so small that every record lies across some."""
    width = len(rows[0]) if rows else 2
    names = [f"c{place}" for place in range(width)]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator=end, quoting=quoting).writerows([names, *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "BLOCK_BYTES", size)
        found = texts(path, CSV(path), names)
    expected = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    if end == "\n" and quoting == csv.QUOTE_MINIMAL:  # an unquoted return before the line feed goes with it
        expected[-1] = [_without_return(text) for text in expected[-1]]
    assert found == expected


def _without_return(text):
    plain = not set(text) & set('",\n')
    return text.removesuffix("\r") if plain else text


@example(',""\ra', 2)  # a lone return is text, also after a quotation mark
@fewer(250)
@given(
    st.lists(
        st.sampled_from(["a", "b", ",", ",", "\n", "\n", "\r\n", '"', '"', '""', "\r"]), max_size=24
    ).map("".join),
    st.sampled_from([2, 2**20]),
)
def test_any_text_is_read_as_a_plain_parser_reads_it_or_refused(tmp_path_factory, body, size):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(b"c0,c1\n" + body.encode())
    expected = plain_parser(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "BLOCK_BYTES", size)
        if expected is None:
            with pytest.raises(DataError, match=r"line \d+: "):
                texts(path, CSV(path), ["c0", "c1"])
        else:
            assert texts(path, CSV(path), ["c0", "c1"]) == expected


def plain_parser(body):
    """The dialect, character by character: columns of two fields each, or None for a file to refuse."""
    body = body + "\n" if body and not body.endswith("\n") else body
    rows, row, place = [], [], 0
    while place < len(body):
        if body[place] == '"':
            text, place = "", place + 1
            while True:
                if place >= len(body):
                    return None
                if body.startswith('""', place):
                    text, place = text + '"', place + 2
                elif body[place] == '"':
                    place += 1
                    break
                else:
                    text, place = text + body[place], place + 1
            bare = False
        else:
            start = place
            while body[place] not in ",\n":
                if body[place] == '"':
                    return None
                place += 1
            text, bare = body[start:place], True
        if bare and body[place] == "\n":
            text = text.removesuffix("\r")
        elif not bare and body.startswith("\r\n", place):
            place += 1
        if body[place] not in ",\n":
            return None
        row.append(text)
        if body[place] == "\n":
            if not (bare and row == [""]):
                rows.append(row)
            row = []
        place += 1
    if any(len(one) != 2 for one in rows):
        return None
    return [[one[0] for one in rows], [one[1] for one in rows]]


def test_numbers_and_booleans_in_texts(tmp_path):
    path = tmp_path / "people.csv"
    schema = Schema(
        [
            Ordinal("n", [1, 2**53 + 1, 0.5]),
            Categorical("t", [True, False]),
            Binned("x", edges=[0, 0.5, 100]),
        ]
    )
    rows = [
        ("1", "true", "0.1"),
        ("+1", "F", " .5"),
        ("1.0", "Yes", "5e-1"),
        (" 1 ", "0", "+1e2"),
        ("1e0", "n", "100."),
        ("9007199254740993", "T", "0"),
        (".5", "1", "-0"),
        ("0,5", "maybe", "1,0"),
        ("9007199254740992", "", "100.1"),
        ("1_0", "2", "0x1"),
        ("nan", "true false", "nan"),
        ("1e999", "yes", "-inf"),
        ("9" * 5000, "no", "9" * 5000),
        ("١", "1.0", "١"),
        ("", "", ""),
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([schema.names, *rows])

    for name, expected in {"n": [5, 1, 1], "t": [5, 4], "x": [3, 4]}.items():
        assert counts(schema, path, name, unknown="drop") == expected
        with pytest.raises(DataError, match=f"attribute '{name}'"):
            counts(schema, path, name)


number_texts = st.one_of(
    st.lists(st.sampled_from([*"0123456789+-.,eE ", "nan", "inf", "_"]), max_size=7).map("".join),
    st.floats().map(str),
    st.integers().map(str),
)


@fewer(200)
@given(st.lists(number_texts, min_size=1, max_size=10), st.sampled_from(".,"))
def test_a_number_does_not_depend_on_the_texts_around_it(values, decimal):
    for attribute in (Binned("a", edges=[-5, 0, 0.5, 7, 1e9]), Ordinal("a", [0, 1, 12, 0.5, -3])):
        encoder = Encoder(attribute)

        def read(some, encoder=encoder):
            return encoder.encode(Strings(pa.array(some, pa.large_string()), decimal)).tolist()

        assert read(values) == [read([value])[0] for value in values]


def write(path, text):
    path.write_text(text)
    return path


def test_text_stays_text(tmp_path):
    path = write(tmp_path / "a.csv", "code,n\n01,1\n1,01\n1,1.0\n")
    schema = Schema([Categorical("code", ["01", "1"]), Ordinal("n", range(3))])
    assert counts(schema, path, "code") == [1, 2]
    assert counts(schema, path, "n") == [0, 3, 0]


def test_types_are_not_guessed_from_the_data(tmp_path):
    """Twenty thousand rows that look like numbers, and then one that does not."""
    path = write(tmp_path / "a.csv", "code\n" + "1\n" * 30_000 + "A\n")
    assert counts(Schema([Categorical("code", ["1", "A"])]), path, "code") == [30_000, 1]


def test_empty_fields(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\nx,\n,y\n"",y\n')
    schema = Schema([Categorical("a", ["x", ""]), Categorical("b", ["y"])])
    assert counts(schema, path, "a") == [1, 2]
    assert counts(schema, path, "b", unknown="drop") == [2]


def test_labels_of_several_kinds_are_text(tmp_path):
    path = write(tmp_path / "a.csv", "a\n1\nmany\n1\n2.5\n")
    assert counts(Schema([Categorical("a", [1, "many", 2.5])]), path, "a") == [2, 1, 1]
    with pytest.raises(DataError, match="attribute 'a': two of its values are the same string"):
        counts(Schema([Categorical("a", [1, "1"])]), path, "a")


def test_with_quotes_semicolons_and_gzip(tmp_path):
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


def test_glob_matches_columns_by_name(tmp_path):
    write(tmp_path / "1.csv", "a,b\n0,1\n")
    write(tmp_path / "2.csv", "b,a\n1,0\n")
    assert counts(Schema.of(a=2, b=2), str(tmp_path / "*.csv"), "a", "b") == [[0, 2], [0, 0]]
