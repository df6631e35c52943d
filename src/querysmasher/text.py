"""Foreign strings made safe to show: names and labels may come from a malicious file."""

from __future__ import annotations

import re

CONTROL = "\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Characters that affect a terminal: control characters other than the line break, characters that change the
writing direction, and lone surrogates, which cannot be printed."""

_CONTROL = re.compile(f"[{CONTROL}]")
_ONE_LINE = re.compile(f"[{CONTROL}\n]")
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")


def one_line(text: str) -> str:
    """Return a string on one line, with every control character replaced by U+FFFD.

    >>> one_line("a name" + chr(27) + "[2J") == "a name" + chr(0xFFFD) + "[2J"
    True
    """
    return text if text.isascii() and text.isprintable() else _ONE_LINE.sub("\ufffd", text)


def shown(text: str) -> str:
    """Return a string, possibly of several lines, with every control character replaced by U+FFFD."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub("\ufffd", text)


def escaped(json: str) -> str:
    """Return JSON with control characters escaped, which occur only in its strings."""
    return _CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json)


def cell(text: str) -> str:
    """Return a cell that a spreadsheet reads as text: one that starts like a formula is prefixed with '.

    >>> cell("=1+1"), cell("age <= 3")
    ("'=1+1", 'age <= 3')
    """
    return f"'{text}" if _FORMULA.match(text) else text
