"""What is wrong with a predicate that cannot be read, and the predicate as it may be meant."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from querysmasher.errors import nearest
from querysmasher.names import OPERATORS, TOKEN

_SIGNS = {
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "!": "not",
    "~": "not",
    "=": "==",
    "<>": "!=",
    "=>": ">=",
    "=<": "<=",
}
"""Signs of other languages, and what predicates write instead."""

_MISTAKE = re.compile(
    rf"(?P<kept>{TOKEN.pattern}|[<>!=:]=(?!=))"
    r"|(?P<date>(?<![\w-])\d{4}-\d\d-\d\d(?![\w-]))"
    r"|(?P<between>(?P<what>[^\W\d]\w*)\s+between\s+(?P<low>\S+)\s+and\s+(?P<high>[^\s()]+))"
    r"|(?P<is>\bis\b(?P<is_not>\s+not\b)?)"
    r"|(?P<sign>&&?|\|\|?|<>|=>|=<|=|!|~)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<open>[(\['\"`])|(?P<close>[)\]])",
    re.IGNORECASE,
)


@dataclass
class Advice:
    """What is wrong with the text of a predicate, in words, and the text corrected."""

    text: str
    known: Collection[str]
    """Names of attributes."""
    problems: list[str] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)
    """Problems only if the corrected text can be read."""
    mended: str = ""
    _opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look for mistakes."""
        mended = _MISTAKE.sub(self._mend, self.text)
        for sign in reversed(self._opened):
            quote = sign in "'\"`"
            self._say(f"a quotation mark {sign} is not closed" if quote else f"a {sign} is not closed")
            mended += {"(": ")", "[": "]"}.get(sign, sign)
        self.mended = " ".join(mended.split()) if mended != self.text else self.text

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _instead(self, given: str, meant: str) -> str:
        self._say(f"{given!r} is written {meant!r}")
        return f" {meant} "

    def _mend(self, match: re.Match[str]) -> str:
        """Return what may be meant by a part of the text."""
        text = match[0]
        if match["kept"] and text.endswith("["):
            self._opened.append("[")  # of a list
        if match["date"]:
            self._say(f"dates need quotes, as in '{text}'")
            return f"'{text}'"
        if match["between"]:
            return self._instead("between", f"{match['low']} <= {match['what']} <= {match['high']}")
        if match["is"]:
            return self._instead("is not", "!=") if match["is_not"] else self._instead("is", "==")
        if match["sign"]:
            return self._instead(text, _SIGNS[text])
        if match["word"]:
            return self._word(text)
        if match["open"]:
            self._opened.append(text)
        if match["close"]:
            if self._opened and self._opened[-1] == {")": "(", "]": "["}[text]:
                self._opened.pop()
            else:
                self._say(f"a {text} has no opening bracket")
                return ""
        return text

    def _word(self, word: str) -> str:
        if word in self.known or word in OPERATORS:
            return word
        if word.lower() == "like":
            self._say("like is not known; list the values, as in region in ['north', 'south']")
        meant = nearest(word, [operator for operator in OPERATORS if operator != "is"])
        if meant is not None:
            self.guesses.append(f"{word!r} is written {meant!r}")
        return word if meant is None else meant
