"""Reading CSV files: records framed by the stated dialect, their fields as strings."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv

from querysmasher.data.foreign import check_columns, quietly
from querysmasher.data.framing import (
    CSV,
    DELIMITERS,
    RecordBlock,
    blank_lines,
    blocks,
    check,
    even,
    fields,
    first_record,
    has_lone_returns,
    mistake,
    ragged,
    readable,
    record_ends,
)
from querysmasher.data.rows import Batch
from querysmasher.data.values import Texts
from querysmasher.errors import DataError

MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class CSVFile:
    """One file, its dialect, and the indexes of the needed columns.

    If records are dropped (`drop`), a character that cannot be decoded is replaced, and so is every field of
    a record with too many or too few. Otherwise such a file is refused. A file whose quotation marks do not
    say where records end is always refused.
    """

    path: str
    dialect: CSV
    delimiter: str
    columns: int
    places: dict[str, int]
    drop: bool = False

    def batches(self) -> Generator[Batch]:
        """Iterate over the records."""
        with closing(_blocks(self.path, self.dialect, self.drop)) as parts:
            for number, block in enumerate(parts):
                start = 0 if number else first_record(block, self.dialect.quote)
                line = block.line + block.data.count(b"\n", 0, start)
                rest = RecordBlock(block.data[start:], line)
                if rest.data:
                    yield self._parsed(rest)

    def _parsed(self, block: RecordBlock) -> Batch:
        quote = self.dialect.quote
        if self.drop:
            block = readable(block)
        check(block, self.delimiter, quote, _words(self.path))
        wanted = sorted(set(self.places.values())) or [0]
        ends = record_ends(block.data, quote)
        empty = int(blank_lines(block.data, ends).sum()) if self.columns > 1 else 0
        read = self._slowly if has_lone_returns(block.data, quote) else self._quickly
        columns = read(block, wanted)
        if columns is None and self.drop:
            columns = read(even(block, self.columns, self.delimiter, quote), wanted)
        if columns is None or any(len(column) != len(ends) - empty for column in columns):
            raise self._misread(block)
        found = dict(zip(wanted, columns, strict=True))
        texts = {name: Texts(found[place], self.dialect.decimal) for name, place in self.places.items()}
        return Batch(texts, len(columns[0]))

    def _slowly(self, block: RecordBlock, wanted: list[int]) -> list[Any] | None:
        """Return the strings of some columns, field by field, or None if a record is ragged."""
        if ragged(block, self.columns, self.delimiter, self.dialect.quote):
            return None
        columns = fields(block.data, self.columns, self.delimiter, self.dialect.quote)
        return [pa.array([text.decode() for text in columns[place]], pa.large_string()) for place in wanted]

    def _quickly(self, block: RecordBlock, wanted: list[int]) -> list[Any] | None:
        """Return the strings of some columns through Arrow, or None if it refuses them."""
        names = [str(place) for place in range(self.columns)]
        chosen = [names[place] for place in wanted]
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(block.data),
                read_options=pa.csv.ReadOptions(column_names=names, block_size=len(block.data) + 1),
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
        except pa.ArrowInvalid:  # which quotes the record
            return None
        return [_joined(column) for column in table.columns]

    def _misread(self, block: RecordBlock) -> DataError:
        wrong = ragged(block, self.columns, self.delimiter, self.dialect.quote)
        if not wrong:
            words = "the records that start here cannot be read"
            return mistake(_words(self.path), block.line, words)
        start, _, count = wrong[0]
        line = block.line + block.data.count(b"\n", 0, start)
        words = f"a record of {count} {'field' if count == 1 else 'fields'}; the header has {self.columns}"
        return mistake(_words(self.path), line, words)


def open_csv(
    path: str, dialect: CSV, names: Sequence[str], person: str | None = None, drop: bool = False
) -> CSVFile:
    """Read the header of a file, and return the file; do not read the records."""
    with closing(_blocks(path, dialect, drop)) as parts:
        block = next(parts, None)
    if block is None:
        raise DataError(f"data: {_words(path)} is empty; expected a header on the first line")
    header = RecordBlock(block.data[: first_record(block, dialect.quote)], 1)
    delimiter, columns = _read_header(header, dialect, path, names, person)
    places = {name: columns.index(name) for name in names}
    return CSVFile(path, dialect, delimiter, len(columns), places, drop)


def _read_header(
    header: RecordBlock, dialect: CSV, path: str, names: Sequence[str], person: str | None
) -> tuple[str, list[str]]:
    """Return the delimiter, which the header determines if it is not stated, and the columns."""
    source = _words(path)
    if has_lone_returns(header.data, dialect.quote):
        raise mistake(source, 1, "a carriage return that no line feed follows; save the file with line feeds")
    first = "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","
    usual = sorted(DELIMITERS, key=lambda d: d != first)
    candidates = [dialect.delimiter] if dialect.delimiter else usual
    headers = {d: columns for d in candidates if (columns := _columns(header, d, dialect.quote))}
    if not headers:
        check(header, candidates[0], dialect.quote, source)  # which raises the precise error
        raise mistake(source, 1, "empty; expected a header")
    named = {d: len(set(names) & set(columns)) for d, columns in headers.items()}
    delimiter = max(headers, key=lambda d: (named[d], len(headers[d]) if not any(named.values()) else 0))
    hint = ""
    if not named[delimiter]:
        hint = f"; the first line of {source} has no name of an attribute: is it a header?"
    check_columns(names, headers[delimiter], place=source, hint=hint, person=person)
    return delimiter, headers[delimiter]


def _columns(header: RecordBlock, delimiter: str, quote: str | None) -> list[str]:
    """Return the names of the columns, or none if quotation marks do not fit the delimiter."""
    try:
        check(header, delimiter, quote, "")
    except DataError:
        return []
    text = header.data.decode().removesuffix("\n").removesuffix("\r")
    style: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **style)
    return quietly("reading the header", next, reader, [])


def _blocks(path: str, dialect: CSV, drop: bool) -> Generator[RecordBlock]:
    with quietly(f"opening {path!r}", _opened, path) as file:
        yield from blocks(_reader(file, dialect, path, drop), dialect.quote, _words(path))


def _opened(path: str) -> BinaryIO:
    return gzip.open(path) if path.lower().endswith(".gz") else Path(path).open("rb")  # type: ignore[return-value]


def _reader(file: BinaryIO, dialect: CSV, path: str, drop: bool) -> Callable[[int], bytes]:
    """Return a function that reads the next bytes of a file, as UTF-8 without a byte order mark."""

    def read(size: int) -> bytes:
        return quietly("reading the table", file.read, size)

    if not dialect.is_utf8:
        return _Decoded(read, dialect.encoding, _words(path), drop)
    start = read(4)
    mark = next((m for m in MARKS if start.startswith(m)), b"")
    if MARKS.get(mark, "utf-8") != "utf-8":
        msg = f"data: {_words(path)} is not UTF-8: it starts like {MARKS[mark]}; state its encoding"
        raise DataError(msg)
    rest = start.removeprefix(mark)
    file.seek(len(start) - len(rest))
    return read


class _Decoded:
    """Reads the bytes of a file in another encoding as UTF-8."""

    def __init__(self, read: Callable[[int], bytes], encoding: str, source: str, drop: bool) -> None:
        self._read = read
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace" if drop else "strict")
        self._halves = "surrogatepass" if drop else "strict"  # which `readable` replaces
        self._source = source
        self._line = 1

    def __call__(self, size: int) -> bytes:
        """Return further bytes, or none at the end."""
        while True:
            raw = self._read(size)
            text = self._decoded(raw)
            data = self._encoded(text)
            self._line += text.count("\n")
            if text or not raw:
                return data

    def _decoded(self, raw: bytes) -> str:
        try:
            return self._decoder.decode(raw, final=not raw)
        except UnicodeError as error:
            before = raw[: getattr(error, "start", 0)]
        raise self._wrong(before.count(b"\n"))

    def _encoded(self, text: str) -> bytes:
        """Return the text as UTF-8; some encodings write halves of characters, which have none."""
        try:
            return text.encode(errors=self._halves)
        except UnicodeEncodeError as error:
            lines = text.count("\n", 0, error.start)
        raise self._wrong(lines)

    def _wrong(self, lines: int) -> DataError:
        words = f"not {self._encoding}; state the file's encoding"
        return mistake(self._source, self._line + lines, words)


def _joined(column: Any) -> Any:
    column = column.combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _words(path: str) -> str:
    return f"file {os.path.basename(path)!r}"  # noqa: PTH119 - a path of any system, as given
