"""The dialect of a CSV file. It is stated, never inferred from the records.

If it were inferred, one record could change how all others are read.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass

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
