"""Names in predicates: plain if Python reads them as one name, in brackets otherwise.

Every shell preserves brackets inside single and double quotes, whereas backticks would run a command:
`querysmasher answer out "[hours-per-week] >= 40"`. A closing bracket in a name is written twice.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterator

_TEXT = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_LIST = r"\bin\s*\["  # what is in these brackets is a list of values
TOKEN = re.compile(rf"{_TEXT}|{_LIST}|`(?P<ticks>[^`]*)`|\[(?P<name>(?:[^\]]|\]\])*)\]")
"""A string, the start of a list, or a name in backticks or brackets."""

OPERATORS = ("and", "or", "not", "in", "is")


def written_name(name: str) -> str:
    """Return an attribute's name as a predicate writes it.

    >>> written_name("age"), written_name("hours-per-week"), written_name("a]b"), written_name("class")
    ('age', '[hours-per-week]', '[a]]b]', '[class]')
    """
    plain = name.isidentifier() and not keyword.iskeyword(name)
    same = unicodedata.normalize("NFKC", name) == name  # as Python reads names
    return name if plain and same else f"[{name.replace(']', ']]')}]"


class QuotedNames:
    """A predicate with every quoted name replaced by an identifier, and their meanings."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        """Replace the names of `text`; a value in brackets that is not a known name is unchanged."""
        self.meant: dict[str, str] = {}
        self._known = known
        self._stem = "quoted_"
        while self._stem in text:
            self._stem += "_"
        self.text = TOKEN.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        name = match["ticks"] if match["name"] is None else self._bracketed(match["name"], match[0])
        if name is None:
            return match[0]  # a string, a list, or a value
        short = f"{self._stem}{len(self.meant)}_"
        self.meant[short] = name
        return f" {short} "

    def _bracketed(self, inside: str, whole: str) -> str | None:
        name = inside.replace("]]", "]")
        if name in self._known or name.strip() not in self._known:
            return None if name not in self._known and _is_value(whole) else name
        return name.strip()

    def restored(self, text: str) -> str:
        """Return a string with the quoted names as they were written."""
        for short, name in self.meant.items():
            text = text.replace(short, written_name(name))
        return text


def bare_names(text: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Iterate over the known names that lack brackets in `text`, with the corrected text."""
    odd = sorted((name for name in known if _needs_brackets(name)), key=len, reverse=True)
    for name in odd:
        pattern = re.compile(rf"({TOKEN.pattern})|(?<!\w){re.escape(name)}(?!\w)")
        found = [match for match in pattern.finditer(text) if match[1] is None]
        if found:
            start, stop = found[0].span()
            yield name, text[:start] + written_name(name) + text[stop:]


def _needs_brackets(name: str) -> bool:
    """Return whether a name without brackets is a mistake: it may be intended as numbers and operators."""
    readable = name in OPERATORS or not any(map(str.isalpha, name)) or _is_value(name)
    return written_name(name) != name and not readable


def _is_value(text: str) -> bool:
    """Return whether a string is a value, or a list of values."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True
