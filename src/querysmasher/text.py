"""Texts from elsewhere, made safe to show: names and labels may come from a file that means mischief."""

from __future__ import annotations

import re

CONTROL = "\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""What acts on a terminal: control signs other than the line break, signs that turn the direction of writing,
and halves of signs, which cannot be printed at all."""

_CONTROL = re.compile(f"[{CONTROL}]")
_ONE_LINE = re.compile(f"[{CONTROL}\n]")
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")


def one_line(text: str) -> str:
    """Return a text on one line, in which every control sign is replaced by U+FFFD.

    >>> one_line("a name" + chr(27) + "[2J") == "a name" + chr(0xFFFD) + "[2J"
    True
    """
    return text if text.isascii() and text.isprintable() else _ONE_LINE.sub("\ufffd", text)


def shown(text: str) -> str:
    """Return a text, of several lines perhaps, in which every control sign is replaced by U+FFFD."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub("\ufffd", text)


def escaped(json: str) -> str:
    """Return JSON in which control signs are escaped: they stand only in its strings."""
    return _CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json)


def cell(text: str) -> str:
    """Return what a spreadsheet takes as a text: a cell that begins like a formula begins with ' instead.

    >>> cell("=1+1"), cell("age <= 3")
    ("'=1+1", 'age <= 3')
    """
    return f"'{text}" if _FORMULA.match(text) else text
