"""Reads the fields of CSV files as strings; `framing` finds where records start and end."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from querysmasher.data import framing
from querysmasher.data.encoding import Strings
from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.framing import CSV, DELIMITERS, RecordBlock, blocks, mistake
from querysmasher.data.rows import Batch
from querysmasher.errors import DataError

MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


LONE_RETURN = re.compile(rb"\r(?!\n)")
"""A carriage return that belongs to its field: only a line feed ends a record."""


@dataclass(frozen=True)
class CSVFile:
    """One file, its dialect, and the indexes of the needed columns.

    A file with a character that cannot be decoded, or a record with too many or too few fields, is refused.
    With `drop`, the character is replaced, and so are all fields of the record. A file with misplaced
    quotation marks is always refused, because the ends of its records are unknown.
    """

    path: str
    dialect: CSV
    delimiter: str
    columns: int
    indexes: dict[str, int]
    drop: bool = False

    def batches(self) -> Generator[Batch]:
        """Iterate over the records."""
        with closing(_blocks(self.path, self.dialect, self.drop)) as parts:
            for number, block in enumerate(parts):
                records = block if number else block.split()[1]
                if records.data:
                    yield self._parsed(records)

    def _parsed(self, block: RecordBlock) -> Batch:
        if self.drop:
            block = block.readable()
        block.check(self.delimiter)
        table = self._read(block)
        if table is None and self.drop:
            table = self._read(block.even(self.columns, self.delimiter))
        if table is None:
            for start, _, count in block.ragged(self.columns, self.delimiter):
                fields = "field" if count == 1 else "fields"
                raise block.mistake(start, f"a record of {count} {fields}; the header has {self.columns}")
            raise block.mistake(0, "the records that start here cannot be read")
        columns = {
            name: Strings(table.column(str(index)).combine_chunks(), self.dialect.decimal)
            for name, index in self.indexes.items()
        }
        return Batch(columns, table.num_rows)

    def _read(self, block: RecordBlock) -> Any:
        """Return the needed columns as strings through Arrow, or None if a record is ragged."""
        names = [str(index) for index in range(self.columns)]
        chosen = [names[index] for index in sorted(set(self.indexes.values())) or [0]]
        data, stand_in = block.data, ""
        if LONE_RETURN.search(data):  # where Arrow would end the record
            stand_in = next(sign for sign in map(chr, range(0xE000, 0xF900)) if sign.encode() not in data)
            data = LONE_RETURN.sub(stand_in.encode(), data)
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(data),
                read_options=pa.csv.ReadOptions(column_names=names, block_size=len(data) + 1),
                parse_options=pa.csv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=self.dialect.quote or False,
                    double_quote=True,
                    escape_char=False,
                    newlines_in_values=self.dialect.quote is not None,
                    ignore_empty_lines=self.columns > 1,
                ),
                convert_options=pa.csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(chosen, pa.large_string()),
                    include_columns=chosen,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:  # its message quotes the record
            return None
        if table.num_rows != len(block.ends) - (int(block.blank.sum()) if self.columns > 1 else 0):
            return None
        if stand_in:
            columns = [pc.replace_substring(column, stand_in, "\r") for column in table.columns]
            table = pa.table(columns, names=chosen)
        return table


def open_csv(
    path: str, dialect: CSV, names: Sequence[str], person: str | None = None, drop: bool = False
) -> CSVFile:
    """Return a file, of which only the header is read."""
    with closing(_blocks(path, dialect, drop)) as parts:
        block = next(parts, None)
    if block is None:
        raise DataError(f"data: {_words(path)} is empty; expected a header on the first line")
    delimiter, columns = _read_header(block.split()[0], dialect, path, names, person)
    return CSVFile(path, dialect, delimiter, len(columns), {n: columns.index(n) for n in names}, drop)


def header_of(path: str, dialect: CSV) -> list[str]:
    """Return the names of the columns of a file; refuse a first line that is rather a record."""
    with closing(_blocks(path, dialect, drop=False)) as parts:
        block = next(parts, None)
    _, columns = _read_header(block.split()[0], dialect, path, (), None) if block else ("", [])
    if not columns or len(set(columns)) < len(columns) or not all(map(NAME.search, columns)):
        raise DataError(f"data: expected a header of names on the first line of {_words(path)}")
    return columns


NAME = re.compile(r"^[^\W\d]")
"""How the name of a column starts: a number, a date or nothing is rather a value of a record."""


def _read_header(
    header: RecordBlock, dialect: CSV, path: str, names: Sequence[str], person: str | None
) -> tuple[str, list[str]]:
    """Return the delimiter, chosen by the header if it is not stated, and the columns."""
    if LONE_RETURN.search(header.data):
        raise header.mistake(0, "a carriage return that no line feed follows; save the file with line feeds")
    first = "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","
    usual = sorted(DELIMITERS, key=lambda d: d != first)
    candidates = [dialect.delimiter] if dialect.delimiter else usual
    headers = {d: columns for d in candidates if (columns := _columns(header, d))}
    if not headers:
        header.check(candidates[0])  # raises the precise error
        raise header.mistake(0, "empty; expected a header")
    named = {d: len(set(names) & set(columns)) for d, columns in headers.items()}
    delimiter = max(headers, key=lambda d: (named[d], len(headers[d]) if not any(named.values()) else 0))
    hint = ""
    if not named[delimiter]:
        hint = f"; the first line of {header.source} has no name of an attribute: is it a header?"
    check_columns(names, headers[delimiter], source=header.source, hint=hint, person=person)
    return delimiter, headers[delimiter]


def _columns(header: RecordBlock, delimiter: str) -> list[str]:
    """Return the names of the columns, or none if quotation marks do not fit the delimiter."""
    try:
        header.check(delimiter)
    except DataError:
        return []
    text = header.data.decode().removesuffix("\n").removesuffix("\r")
    style: dict[str, Any] = {"quotechar": header.quote} if header.quote else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **style)
    return quietly("reading the header", next, reader, [])


def _blocks(path: str, dialect: CSV, drop: bool) -> Generator[RecordBlock]:
    opened = gzip.open if path.lower().endswith(".gz") else open
    with quietly(f"opening {path!r}", opened, path, "rb") as file:
        yield from blocks(_chunks(file, dialect, _words(path), drop), dialect.quote, _words(path))


def _chunks(file: Any, dialect: CSV, source: str, drop: bool) -> Iterator[bytes]:
    """Yield the bytes of a file as UTF-8, without a byte order mark."""
    encoding = codecs.lookup(dialect.encoding).name
    start = quietly("reading the table", file.read, 4) if encoding == "utf-8" else b""
    mark = next((m for m in MARKS if start.startswith(m)), b"")
    if MARKS.get(mark, "utf-8") != "utf-8":
        raise DataError(f"data: {source} is not UTF-8: it starts like {MARKS[mark]}; state its encoding")
    file.seek(len(mark))
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace" if drop else "strict")
    halves = "surrogatepass" if drop else "strict"  # surrogates, which some encodings write
    line, raw = 1, b"?"
    while raw:
        raw = quietly("reading the table", file.read, framing.BLOCK_BYTES)
        if encoding == "utf-8":  # `RecordBlock` checks it
            yield raw
            continue
        try:
            text = decoder.decode(raw, final=not raw)
            data = text.encode(errors=halves)
        except UnicodeError as error:
            before: Any = getattr(error, "object", b"")[: getattr(error, "start", 0)]
            line += before.count("\n" if isinstance(before, str) else b"\n")
            break
        line += text.count("\n")
        yield data
    else:
        return
    raise mistake(source, line, f"not {dialect.encoding}; state the file's encoding")


def _words(path: str) -> str:
    return f"file {os.path.basename(path)!r}"  # noqa: PTH119 - a path of any system, as given
