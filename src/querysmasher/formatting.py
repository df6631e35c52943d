"""Numbers, fractions, lists and foreign strings as readers expect them on pages, in notebooks, on a terminal.

Numbers are rounded so that they look the same on every processor, although their last digits differ. Foreign
strings are made safe to show: names and labels may come from a malicious file.
"""

from __future__ import annotations

import json
import keyword
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

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


def written_name(name: str) -> str:
    """Return an attribute's name as a predicate writes it.

    >>> written_name("age"), written_name("hours-per-week"), written_name("a]b"), written_name("class")
    ('age', '[hours-per-week]', '[a]]b]', '[class]')
    """
    plain = name.isidentifier() and not keyword.iskeyword(name)
    same = unicodedata.normalize("NFKC", name) == name  # as Python reads names
    return name if plain and same else f"[{name.replace(']', ']]')}]"


def settled(value: float) -> float:
    """Return a number in twelve digits, so that it is rounded alike on every processor, also at a half.

    >>> [f"{value:.1f}" for value in (1.15, 1.1 + 0.05, settled(1.15), settled(1.1 + 0.05))]
    ['1.1', '1.2', '1.1', '1.1']
    """
    return float(f"{value:.12g}") + 0.0  # never -0


def shortened(value: float, digits: int) -> float:
    """Return a number with so many significant digits.

    >>> shortened(1.23456, 3)
    1.23
    """
    return float(f"{settled(value):.{digits}g}")


def decimal(value: float, digits: int) -> str:
    """Return a number with so many decimals and separated thousands.

    >>> decimal(1234.25, 1), decimal(-1e-14, 1)
    ('1,234.2', '0.0')
    """
    return f"{settled(value):z,.{digits}f}"


def number(value: float) -> str:
    """Return a number with three significant digits and separated thousands.

    >>> number(1234.5), number(0.012345), number(0)
    ('1,230', '0.0123', '0')
    """
    if not math.isfinite(value):
        return "—"
    if value == 0:
        return "0"
    value = shortened(value, 3)
    decimals = 2 - math.floor(math.log10(abs(value)))
    if not -12 <= decimals <= 7:
        return f"{value:.2e}"
    return f"{value:,.{max(decimals, 0)}f}"


def figure(value: float, std: float) -> str:
    """Return a figure with the decimals that its standard error justifies: two digits of the error.

    >>> figure(38.6437, 0.1234), figure(12345.67, 45.6), figure(3.0, 0.0), figure(-math.inf, 0.1)
    ('38.64', '12,346', '3', '-inf')
    """
    if not math.isfinite(value):
        return "—" if math.isnan(value) else str(value)
    if not 0 < std < math.inf:
        return f"{settled(value):,.6g}" if abs(value) < 1e6 else decimal(value, 0)
    return decimal(value, min(max(1 - math.floor(math.log10(settled(std))), 0), 9))


def percentage(value: float) -> str:
    """Return an upper bound on a fraction as a percentage, rounded up: never 0%.

    >>> percentage(0.1234), percentage(1e-9)
    ('12.34%', '0.01%')
    """
    return f"{max(math.ceil(value * 1e4 - 1e-6), 1) / 100:.2f}%"


def count(value: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> count(1, "query", "queries"), count(2000, "attribute")
    ('1 query', '2,000 attributes')
    """
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def preview(values: Sequence[object], most: int = 4) -> str:
    """Return the first values and the last, so that a reader knows what the domain looks like.

    >>> preview(["F", "M"]), preview(range(100))
    ('F, M', '0, 1, 2, …, 99')
    """
    shown = [one_line(str(v)) for v in values[:most]]
    if len(values) > most:
        shown = [*shown[:-1], "…", one_line(str(values[-1]))]
    return ", ".join(s if len(s) <= 40 else s[:39] + "…" for s in shown)


def error(value: float | None) -> str:
    """Return a standard error; None is one that was not computed.

    >>> error(12.724), error(None)
    ('± 12.7', 'not computed')
    """
    return "not computed" if value is None else f"± {number(value)}"


def columns(lines: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """Align the cells of a table of strings: the first `words` columns to the left, the others to the right.

    >>> columns([("queries", "number"), ("age", "100")])
    ['queries  number', 'age         100']
    """
    cells = [tuple(line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index >= words else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]


def read_json(text: str | bytes) -> Any:
    """Return what a JSON text says; refuse one that repeats a key: readers differ in which value they take.

    >>> read_json('{"epsilon": [1.0, null]}')
    {'epsilon': [1.0, None]}
    >>> read_json('{"epsilon": 1, "epsilon": 2}')
    Traceback (most recent call last):
    ...
    ValueError: it repeats a key
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    merged = dict(pairs)
    if len(merged) != len(pairs):
        raise ValueError("it repeats a key")
    return merged
