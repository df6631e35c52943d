"""The dialect of a CSV file, and where its records start and end.

The dialect is stated, never inferred from the records: one record could change how all others are read.
Records are framed here, not by Arrow, whose errors quote the record.

Quotation marks alternate: the first opens, the next closes, and a doubled one inside a field closes and
opens again. So a line feed ends a record if an even number of marks precede it. This holds if every mark
opens at the start of a field or closes at its end. Each mark is checked; a file with another is refused. The
error states the line number and the kind of mistake, and never shows the line itself.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import DataError, as_given

DELIMITERS = (",", ";", "\t", "|")
"""The delimiters among which the header line decides if none is stated."""


@dataclass(frozen=True)
class CSV:
    r"""A CSV file and its dialect, which `measure` accepts instead of a path.

    The file has a header on its first line. Records end with a line feed, or a carriage return and a line
    feed. A field that contains the delimiter, a quotation mark or a line break is quoted, and a quotation
    mark in it is doubled. An empty line is not a record, unless the file has a single column.

    Attributes:
        path: the file, compressed with gzip if its name ends in ``.gz``; or a glob.
        delimiter: the delimiter; if None, the one of comma, semicolon, tab and ``|`` by which the header line
            names the most attributes needed.
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


BLOCK_BYTES = 2**24
LONGEST_RECORD = 2**28
"""Maximum number of bytes of a record: an unclosed quotation mark would take the rest of the file."""

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands for what cannot be read; a person's name that contains it is missing."""

LINE_FEED, CARRIAGE_RETURN = b"\n\r"

Positions = NDArray[np.intp]


def mistake(source: str, line: int, words: str) -> DataError:
    """Return the error for a mistake in a line of a file."""
    return DataError(f"data: {source}, line {line}: {words}")


@dataclass(frozen=True, repr=False)
class RecordBlock:
    """Complete records, each ending with a line feed.

    Attributes:
        data: their bytes, in UTF-8.
        line: the number of the first line.
        quote: the quotation mark, or None.
        source: the file in words, for messages.
    """

    data: bytes
    line: int
    quote: str | None
    source: str

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def _quotes(self) -> Positions:
        return np.flatnonzero(self._bytes == ord(self.quote)) if self.quote else np.empty(0, dtype=np.intp)

    def _outside(self, byte: int) -> Positions:
        """Return the positions of a byte outside quotation marks."""
        positions = np.flatnonzero(self._bytes == byte)
        return positions[np.searchsorted(self._quotes, positions) % 2 == 0]

    @cached_property
    def ends(self) -> Positions:
        """The positions of the line feeds that end records."""
        return self._outside(LINE_FEED)

    @cached_property
    def blank(self) -> NDArray[np.bool_]:
        """For each record, whether its line is empty."""
        lengths = np.diff(self.ends, prepend=-1)
        before = self._bytes[np.maximum(self.ends - 1, 0)]
        return (lengths == 1) | ((lengths == 2) & (before == CARRIAGE_RETURN))

    def line_of(self, position: int) -> int:
        """Return the number of the line on which a position lies."""
        return self.line + self.data.count(b"\n", 0, position)

    def mistake(self, position: int, words: str) -> DataError:
        """Return the error for a mistake at a position."""
        return mistake(self.source, self.line_of(position), words)

    def split(self) -> tuple[RecordBlock, RecordBlock]:
        """Return the first record, and the others."""
        end = int(self.ends[0]) + 1
        first, others = self.data[:end], self.data[end:]
        return replace(self, data=first), replace(self, data=others, line=self.line_of(end))

    def readable(self) -> RecordBlock:
        """Replace bytes that are not UTF-8, which changes the end of no record."""
        is_ascii = self.data.isascii()
        return self if is_ascii else replace(self, data=self.data.decode(errors="replace").encode())

    def check(self, delimiter: str) -> None:
        """Refuse misplaced quotation marks and bytes that are not UTF-8."""
        bad = None
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            bad = error.start
        if bad is not None:
            raise self.mistake(bad, "not UTF-8; state the file's encoding, 'latin-1' for example")
        if not len(self._quotes):
            return
        opening, closing = self._quotes[0::2], self._quotes[1::2]
        before = np.where(opening > 0, self._bytes[opening - 1], LINE_FEED)
        doubled = np.zeros(len(opening), dtype=bool)
        doubled[1:] = opening[1:] == closing[: len(opening) - 1] + 1
        bare = opening[~(doubled | (before == ord(delimiter)) | (before == LINE_FEED))]
        last = len(self.data) - 1
        after, next_but_one = (self._bytes[np.minimum(closing + step, last)] for step in (1, 2))
        returned = (after == CARRIAGE_RETURN) & (next_but_one == LINE_FEED)
        ended = returned | np.isin(after, [ord(delimiter), LINE_FEED, ord(self.quote or "")])
        trailing = closing[~ended]
        if len(bare) and not (len(trailing) and trailing[0] < bare[0]):
            words = "a quotation mark inside a field that does not start with one"
            raise self.mistake(int(bare[0]), words)
        if len(trailing):
            raise self.mistake(int(trailing[0]), "text after the closing quotation mark of a field")
        if len(self._quotes) % 2:
            raise self.mistake(int(self._quotes[-1]), "a quotation mark that is never closed")

    def ragged(self, columns: int, delimiter: str) -> list[tuple[int, int, int]]:
        """Return start, end and number of fields of each record with too many or too few fields."""
        starts = np.concatenate([[0], self.ends[:-1] + 1])
        delimiters = np.searchsorted(self._outside(ord(delimiter)), self.ends)
        fields = np.diff(delimiters, prepend=0) + 1
        wrong = (fields != columns) & ~self.blank
        return list(zip(*(array[wrong].tolist() for array in (starts, self.ends, fields)), strict=True))

    def even(self, columns: int, delimiter: str) -> RecordBlock:
        """Replace the fields of ragged records by a string about their line, which matches no label."""
        parts, done = [], 0
        for start, end, count in self.ragged(columns, delimiter):
            field = f"{UNREADABLE}line {self.line_of(start)}: {count} fields".split(delimiter, maxsplit=1)[0]
            parts += [self.data[done:start], delimiter.join([field] * columns).encode()]
            done = end
        return replace(self, data=b"".join([*parts, self.data[done:]]))


def blocks(chunks: Iterable[bytes], quote: str | None, source: str) -> Iterator[RecordBlock]:
    """Split a stream of UTF-8 into blocks of complete records."""
    held, line = b"", 1
    for more in chunks:
        held += more
        end = held.rfind(b"\n") + 1
        if quote and quote.encode() in held:
            ends = RecordBlock(held, line, quote, source).ends
            end = int(ends[-1]) + 1 if len(ends) else 0
        if end:
            yield RecordBlock(held[:end], line, quote, source)
            line += held.count(b"\n", 0, end)
            held = held[end:]
        elif len(held) > LONGEST_RECORD:
            words = f"a record of more than {LONGEST_RECORD >> 20} MiB; a quotation mark may not be closed"
            raise mistake(source, line, words)
    if held:
        yield RecordBlock(held if held.endswith(b"\n") else held + b"\n", line, quote, source)
