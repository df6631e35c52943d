"""The line of a key in a TOML file."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"""\s*\[{1,2}\s*([A-Za-z_"'][\w."'-]*)\s*\]{1,2}\s*(#.*)?$""")


def line_of(text: str, place: Sequence[str | int]) -> int | None:
    """Return the line, counted from 1, of a key, else of its table, else None.

    >>> text = "k = 1 | [[workload]] | k = 2 | [[workload]] | k = 3".replace(" | ", chr(10))
    >>> line_of(text, ("workload", 1, "k"))
    5
    """
    lines = text.splitlines()
    if not place or not lines:
        return None
    section, *rest = place
    start, stop = _section(lines, str(section), rest[0] if rest and isinstance(rest[0], int) else None)
    if start is None:
        return _key(lines, 0, _first_header(lines), str(section))
    keys = [step for step in rest if isinstance(step, str)]
    return (_key(lines, start, stop, keys[0]) if keys else None) or start


def _section(lines: Sequence[str], name: str, number: int | None) -> tuple[int | None, int]:
    """Return the header's line, from 1, and the end of a table or of the n-th one of a list of tables."""
    start, seen = None, -1
    for place, line in enumerate(lines):
        header = _HEADER.match(line)
        if header is None:
            continue
        if start is not None and not header[1].startswith(f"{name}."):
            return start, place
        seen += header[1] == name
        if header[1] == name and (number is None or seen == number):
            start = place + 1
    return start, len(lines)


def _first_header(lines: Sequence[str]) -> int:
    return next((place for place, line in enumerate(lines) if _HEADER.match(line)), len(lines))


def _key(lines: Sequence[str], start: int, stop: int, key: str) -> int | None:
    pattern = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]|\s*\[+\s*[\w-]+\.{re.escape(key)}\s*\]""")
    return next((place + 1 for place in range(start, stop) if pattern.match(lines[place])), None)
