"""The dialect of a CSV file, and where records start and end, from the stated dialect alone.

The dialect is stated, never inferred from the records: one record could change how all others are read.

Quotation marks alternate: the first opens, the next closes, and a doubled one inside a field closes and
opens again. So a line feed ends a record if an even number of marks precede it. This holds for every file
in which a mark opens only at the start of a field and closes only at its end, which is checked for each
mark. Otherwise the file is refused with the line number and the kind of mistake; the line itself is never
shown.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import DataError, as_given

DELIMITERS = (",", ";", "\t", "|")
"""Possible delimiters if none is stated; the header line decides."""


@dataclass(frozen=True)
class CSV:
    r"""A CSV file and its dialect, which `measure` accepts instead of a path.

    The file has a header on its first line. Records end with a line feed, or a carriage return and a line
    feed. A field that contains the delimiter, a quotation mark or a line break is quoted, and a quotation
    mark in it is doubled. An empty line is not a record, unless the file has a single column.

    Attributes:
        path: the file, compressed with gzip if its name ends in ``.gz``; or a glob.
        delimiter: the delimiter; if None, the first of comma, semicolon, tab and ``|`` by which the
            header line names every attribute needed.
        quote: the quotation mark; None if no field is quoted.
        encoding: the file's encoding, as Python names it.
        decimal: the decimal separator of numbers, ``.`` or ``,``.

    >>> CSV("people.csv", delimiter=";", decimal=",")
    CSV(path='people.csv', delimiter=';', quote='"', encoding='utf-8', decimal=',')
    """

    path: str | os.PathLike[str]
    delimiter: str | None = None
    quote: str | None = '"'
    encoding: str = "utf-8"
    decimal: str = "."

    def __post_init__(self) -> None:
        """Check every option."""
        if not isinstance(self.path, str | os.PathLike):
            raise DataError(f"path: expected a path, got {type(self.path).__name__}")
        object.__setattr__(self, "quote", self.quote or None)
        for name in ("delimiter", "quote"):
            given = getattr(self, name)
            if given is not None and not (
                isinstance(given, str) and len(given) == 1 and given.isascii() and given not in "\r\n\0"
            ):
                example = ", such as ';'" if name == "delimiter" else ""
                msg = f"{name}: expected a single ASCII character other than a line break{example}, got "
                msg += as_given(given)
                raise DataError(msg)
        if self.delimiter is not None and self.delimiter == self.quote:
            msg = f"delimiter: expected a character other than the quotation mark, got {self.delimiter!r}"
            raise DataError(msg)
        if self.decimal not in (".", ","):
            raise DataError(f"decimal: expected '.' or ',', got {as_given(self.decimal)}")
        try:
            known = isinstance(self.encoding, str) and codecs.lookup(self.encoding)._is_text_encoding  # noqa: SLF001
        except LookupError:
            known = False
        if not known:
            msg = (
                f"encoding: expected an encoding such as 'utf-8' or 'latin-1', got {as_given(self.encoding)}"
            )
            raise DataError(msg)

    @property
    def is_utf8(self) -> bool:
        """Whether the file's bytes need no decoding."""
        return codecs.lookup(self.encoding).name == "utf-8"


BLOCK_BYTES = 2**24
LONGEST_RECORD = 2**28
"""Maximum number of bytes of a record: an unclosed quotation mark would extend to the end of the file."""

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands for what cannot be read; a person's name with it is none."""

LINE_FEED, CARRIAGE_RETURN = b"\n\r"

Positions = NDArray[np.intp]


@dataclass(frozen=True, repr=False)
class RecordBlock:
    """Complete records, each ending with a line feed, and the number of the first line."""

    data: bytes
    line: int


def mistake(source: str, line: int, words: str) -> DataError:
    """Return the error for a mistake in a line of a file."""
    return DataError(f"data: {source}, line {line}: {words}")


def blocks(read: Callable[[int], bytes], quote: str | None, source: str) -> Iterator[RecordBlock]:
    """Split a stream of UTF-8 into blocks of complete records.

    Args:
        read: returns at most the given number of bytes, and none at the end.
        quote: the quotation mark, or None.
        source: the file in words, for messages.
    """
    held, line = b"", 1
    while True:
        more = read(max(BLOCK_BYTES, len(held)))
        if not more:
            break
        held += more
        end = _end_of_records(held, quote)
        if end:
            yield RecordBlock(held[:end], line)
            line += held.count(b"\n", 0, end)
            held = held[end:]
        elif len(held) > LONGEST_RECORD:
            words = f"a record of more than {LONGEST_RECORD >> 20} MiB; a quotation mark may not be closed"
            raise mistake(source, line, words)
    if held:
        yield RecordBlock(held if held.endswith(b"\n") else held + b"\n", line)


def first_record(block: RecordBlock, quote: str | None) -> int:
    """Return where the first record of a block ends."""
    return int(record_ends(block.data, quote)[0]) + 1 if quote else block.data.index(b"\n") + 1


def check(block: RecordBlock, delimiter: str, quote: str | None, source: str) -> None:
    """Refuse misplaced quotation marks and bytes that are not UTF-8."""
    data = block.data
    if not data.isascii():
        bad = _not_utf8(data)
        if bad is not None:
            words = "not UTF-8; state the file's encoding, 'latin-1' for example"
            raise mistake(source, _line(block, bad), words)
    if quote and quote.encode() in data:
        _check_quotes(block, delimiter, quote, source)


def has_lone_returns(data: bytes, quote: str | None) -> bool:
    """Return whether an unquoted carriage return is not followed by a line feed.

    Some writers do not quote it. It is part of its field: only a line feed ends a record.
    """
    if b"\r" not in data:
        return False
    returns = _positions(data, CARRIAGE_RETURN)
    returns = returns[_outside(returns, _quotes(data, quote))]
    return bool((_bytes(data)[np.minimum(returns + 1, len(data) - 1)] != LINE_FEED).any())


def record_ends(data: bytes, quote: str | None) -> Positions:
    """Return the positions of the line feeds that end records, in bytes that start with a record."""
    feeds = _positions(data, LINE_FEED)
    return feeds[_outside(feeds, _quotes(data, quote))]


def blank_lines(data: bytes, ends: Positions) -> NDArray[np.bool_]:
    """Return for each record whether its line is empty."""
    lengths = np.diff(ends, prepend=-1)
    before = _bytes(data)[np.maximum(ends - 1, 0)]
    return (lengths == 1) | ((lengths == 2) & (before == CARRIAGE_RETURN))


def ragged(block: RecordBlock, columns: int, delimiter: str, quote: str | None) -> list[tuple[int, int, int]]:
    """Return where the records with too many or too few fields start and end, and their numbers of fields."""
    ends = record_ends(block.data, quote)
    starts = np.concatenate([[0], ends[:-1] + 1])
    fields = np.diff(np.searchsorted(_delimiters(block.data, delimiter, quote), ends), prepend=0) + 1
    wrong = np.flatnonzero((fields != columns) & ~blank_lines(block.data, ends))
    return list(zip(*(one[wrong].tolist() for one in (starts, ends, fields)), strict=True))


def even(block: RecordBlock, columns: int, delimiter: str, quote: str | None) -> RecordBlock:
    """Replace each field of such records by one that no attribute and no person has: where it is."""
    parts, done = [], 0
    for start, end, count in ragged(block, columns, delimiter, quote):
        field = f"{UNREADABLE}line {_line(block, start)}: {count} fields".split(delimiter, maxsplit=1)[0]
        parts += [block.data[done:start], delimiter.join([field] * columns).encode()]
        done = end
    return RecordBlock(b"".join([*parts, block.data[done:]]), block.line) if done else block


def readable(block: RecordBlock) -> RecordBlock:
    """Replace bytes that are not UTF-8; all others stay, and with them the records."""
    data = block.data
    return block if data.isascii() else RecordBlock(data.decode(errors="replace").encode(), block.line)


def fields(data: bytes, columns: int, delimiter: str, quote: str | None) -> list[list[bytes]]:
    """Return the fields of each record, one list per column: slow, and only for records of equal length."""
    ends = record_ends(data, quote)
    kept = ~blank_lines(data, ends) if columns > 1 else np.ones(len(ends), dtype=bool)
    starts, ends = np.concatenate([[0], ends[:-1] + 1])[kept], ends[kept]
    ends = ends - ((ends > starts) & (_bytes(data)[np.maximum(ends - 1, 0)] == CARRIAGE_RETURN))
    inner = _delimiters(data, delimiter, quote).reshape(len(ends), columns - 1)
    begins = np.column_stack([starts, inner + 1]).T.tolist()
    stops = np.column_stack([inner, ends]).T.tolist()
    mark = (quote or "").encode()

    def text(begin: int, stop: int) -> bytes:
        field = data[begin:stop]
        return field[1:-1].replace(mark * 2, mark) if mark and field.startswith(mark) else field

    return [[text(b, s) for b, s in zip(*pair, strict=True)] for pair in zip(begins, stops, strict=True)]


def _not_utf8(data: bytes) -> int | None:
    """Return the position of the first byte that is not UTF-8, or None."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def _check_quotes(block: RecordBlock, delimiter: str, quote: str, source: str) -> None:
    data, quotes = block.data, _quotes(block.data, quote)
    byte = _bytes(data)
    opening, closing = quotes[0::2], quotes[1::2]
    before = np.where(opening > 0, byte[opening - 1], LINE_FEED)
    doubled = np.zeros(len(opening), dtype=bool)
    doubled[1:] = opening[1:] == closing[: len(opening) - 1] + 1
    bare = opening[~(doubled | (before == ord(delimiter)) | (before == LINE_FEED))]
    after, next_but_one = (byte[np.minimum(closing + step, len(byte) - 1)] for step in (1, 2))
    returned = (after == CARRIAGE_RETURN) & (next_but_one == LINE_FEED)
    ended = returned | (after == ord(delimiter)) | (after == LINE_FEED) | (after == ord(quote))
    trailing = closing[~ended]
    if len(bare) and not (len(trailing) and trailing[0] < bare[0]):
        words = "a quotation mark inside a field that does not start with one"
        raise mistake(source, _line(block, int(bare[0])), words)
    if len(trailing):
        words = "text after the closing quotation mark of a field"
        raise mistake(source, _line(block, int(trailing[0])), words)
    if len(quotes) % 2:
        raise mistake(source, _line(block, int(quotes[-1])), "a quotation mark that is never closed")


def _end_of_records(data: bytes, quote: str | None) -> int:
    """Return where the last complete record ends, or 0."""
    if not quote or quote.encode() not in data:
        return data.rfind(b"\n") + 1
    ends = record_ends(data, quote)
    return int(ends[-1]) + 1 if len(ends) else 0


def _outside(positions: Positions, quotes: Positions) -> Any:
    """Return which positions lie outside quotation marks."""
    return np.searchsorted(quotes, positions) % 2 == 0


def _delimiters(data: bytes, delimiter: str, quote: str | None) -> Positions:
    """Return the positions of the delimiters between fields."""
    found = _positions(data, ord(delimiter))
    return found[_outside(found, _quotes(data, quote))]


def _quotes(data: bytes, quote: str | None) -> Positions:
    return _positions(data, ord(quote)) if quote else np.empty(0, dtype=np.intp)


def _positions(data: bytes, byte: int) -> Positions:
    return np.flatnonzero(_bytes(data) == byte)


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def _line(block: RecordBlock, position: int) -> int:
    """Return the number of the line on which a position lies."""
    return block.line + block.data.count(b"\n", 0, position)
