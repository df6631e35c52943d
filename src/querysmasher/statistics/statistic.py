"""Statistics stated as plain data: by a spec, by a release file and by the command.

A statistic is a method of `Statistical` and its arguments. The method says what these mean, and refuses
invalid ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from querysmasher.errors import WorkloadError, as_given, not_one_of, suggestion

if TYPE_CHECKING:  # they load pyarrow
    from querysmasher.statistics.contrasts import Statistical
    from querysmasher.statistics.figures import Figures

KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "table": (("attributes",), ("percent", "totals")),
    "mean": (("attribute",), ("by", "where", "assume")),
    "total": (("attribute",), ("by", "where", "assume")),
    "quantile": (("attribute", "probabilities"), ("by", "where", "bins", "assume")),
    "share": (("predicate",), ("of", "by")),
    "difference": (("a", "b"), ("by",)),
    "ratio": (("a", "b"), ("by",)),
}
"""The arguments that each kind of statistic needs, and those that it can have."""

NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}"
"""Names of statistics, which are part of the names of files."""

MOST = 200
"""Maximum number of statistics of a release."""


@dataclass(frozen=True)
class Statistic:
    """A kind of statistic and its arguments, of which those of differences and ratios may be statistics.

    >>> Statistic.read({"kind": "mean", "attribute": "age", "by": "sex"}).arguments
    {'attribute': 'age', 'by': 'sex'}
    """

    kind: str
    arguments: Mapping[str, Any]
    name: str = ""
    """What names its file; nothing in the arguments of another statistic."""
    title: str | None = None
    """Its title for readers, instead of one that follows from the arguments."""

    @classmethod
    def read(cls, data: Mapping[str, Any], name: str | None = None) -> Self:
        """Return the statistic that plain data state; `name` is its name if they state none.

        Without `name`, it is an argument of another one, and has neither a name nor a title.
        """
        given = dict(data)
        kind = given.pop("kind", None)
        if not isinstance(kind, str) or kind not in KINDS:
            raise WorkloadError(f"kind: {not_one_of(KINDS, kind)}")
        words = {} if name is None else {key: given.pop(key, None) for key in ("name", "title")}
        needed, more = KINDS[kind]
        allowed = ("kind", *words, *needed, *more)
        for key, value in given.items():
            if key not in allowed:
                raise WorkloadError(
                    f"{key}: unknown key{suggestion(key, allowed)} (allowed: {', '.join(allowed)})"
                )
            if key in ("a", "b") and isinstance(value, Mapping):
                given[key] = Statistic.read(value)
            elif not _is_plain(value):
                raise WorkloadError(
                    f"{key}: expected a string, a number or a list of these, got {as_given(value)}"
                )
        for key in needed:
            if key not in given:
                raise WorkloadError(f"{key}: missing; a {kind} needs {' and '.join(needed)}")
        if not isinstance(given.get("attributes", ()), Sequence):
            raise WorkloadError(f"attributes: expected a list of names, got {as_given(given['attributes'])}")
        title, stem = words.get("title"), words.get("name") or name or ""
        if title is not None and not (isinstance(title, str) and title.strip()):
            raise WorkloadError(f"title: expected a non-empty string, got {as_given(title)}")
        if name is not None and not (isinstance(stem, str) and re.fullmatch(NAME, stem)):
            why = "up to 60 letters, digits, - and _, for the name of a file"
            raise WorkloadError(f"name: expected {why}, got {as_given(stem)}")
        return cls(kind, given, stem, title)

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `read` rebuilds the statistic."""
        words = {"name": self.name or None, "title": self.title}
        given = {
            key: value.to_json() if isinstance(value, Statistic) else value
            for key, value in self.arguments.items()
        }
        return {"kind": self.kind, **{key: word for key, word in words.items() if word}, **given}

    def of(self, source: Statistical) -> Figures:
        """Return the figures of a release."""
        given = {
            key: value.of(source) if isinstance(value, Statistic) else value
            for key, value in self.arguments.items()
        }
        names = given.pop("attributes", ())
        made = getattr(source, self.kind)(*([names] if isinstance(names, str) else names), **given)
        figures: Figures = getattr(made, "figures", made)  # those of a table
        return figures if self.title is None else replace(figures, title=self.title)


def _is_plain(value: object) -> bool:
    several = value if isinstance(value, list) else [value]
    return all(isinstance(entry, str | bool | int | float) for entry in several)


def read_statistics(tables: Sequence[Mapping[str, Any]]) -> tuple[Statistic, ...]:
    """Return statistics with distinct names: the stated ones, or their numbers."""
    if len(tables) > MOST:
        raise WorkloadError(f"statistics: expected at most {MOST}, got {len(tables):,}")
    made = tuple(Statistic.read(table, str(number)) for number, table in enumerate(tables, 1))
    names = [statistic.name.casefold() for statistic in made]
    twice = next((s.name for i, s in enumerate(made) if s.name.casefold() in names[:i]), None)
    if twice is not None:
        raise WorkloadError(f"name: {twice!r} is the name of two statistics; each has a file of its own")
    return made
