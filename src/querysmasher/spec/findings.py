"""The problems of a spec file, each with its key and line; all are reported at once."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from querysmasher import errors
from querysmasher.attributes import literal
from querysmasher.errors import QuerySmasherError, SpecError, as_share, suggestion
from querysmasher.spec.model import SECTIONS, Section

Place = tuple[str | int, ...]
"""The path to a key: ("workload", 2, "family")."""

S = TypeVar("S", bound=Section)


class LocatedError(QuerySmasherError):
    """A problem, and the path from a table to its key."""

    def __init__(self, steps: Place, problem: str) -> None:
        """Store both."""
        super().__init__(problem)
        self.steps = steps


@contextmanager
def within(*steps: str) -> Iterator[None]:
    """Add the key to errors of the library in this context."""
    try:
        yield
    except QuerySmasherError as error:
        raise LocatedError(steps, error.for_spec()) from None


@dataclass
class Findings:
    """Collects problems; `finish` raises them as one `SpecError`."""

    title: str
    """The name of the file, as the user knows it."""
    text: str = ""
    """Its text, to look up lines."""
    problems: list[tuple[Place, str]] = field(default_factory=list)

    def add(self, place: Place, problem: str) -> None:
        """Record a problem."""
        self.problems.append((place, problem))

    @contextmanager
    def at(self, place: Place, keys: Collection[str] = ()) -> Iterator[None]:
        """Record errors of the library in this context, at the key that they name or at `place`."""
        try:
            yield
        except LocatedError as error:
            self.add((*place, *error.steps), error.problem)
        except QuerySmasherError as error:
            message = error.for_spec()
            named, _, rest = message.partition(": ")
            self.add(*(((*place, named), rest) if named in keys else (place, message)))

    def section(self, model: type[S], data: object, place: Place) -> S | None:
        """Return a table of the file as its model, or record its problems."""
        if not isinstance(data, Mapping):
            self.add(place, f"expected a table, got {shown(data)}")
            return None
        try:
            return model.model_validate(data)
        except ValidationError as error:
            fields = {f.alias or name: f for name, f in model.model_fields.items()}
            seen = dict.fromkeys((str(e["loc"][0]), e["type"]) for e in error.errors(include_url=False))
            told: set[str] = set()
            for key, kind in seen:
                if key not in told:  # a value that fits none of several types is one problem
                    self.add((*place, key), _problem(key, kind, fields, data))
                told.add(key)
            return None

    def choice(self, data: Mapping[str, Any], key: str, allowed: Collection[str], place: Place) -> str | None:
        """Return the value of the key that selects the kind of table, or record its problem."""
        if key not in data:
            self.add((*place, key), f"missing; expected one of {', '.join(allowed)}")
        elif not isinstance(data[key], str) or data[key] not in allowed:
            self.add((*place, key), not_one_of(allowed, data[key]))
        else:
            return str(data[key])
        return None

    def finish(self) -> None:
        """Raise `SpecError` if there are problems."""
        lines = [(line_of(self.text, place) or 0, place, problem) for place, problem in self.problems]
        told = [
            (f"line {line}: " if line else "") + (f"{written(place)}: " if place else "") + problem
            for line, place, problem in sorted(lines, key=lambda found: found[0])
        ]
        if len(told) == 1:
            raise SpecError(f"{self.title}{', ' if lines[0][0] else ': '}{told[0]}")
        if told:
            raise SpecError(f"{self.title} has {len(told)} problems:\n" + "\n".join(f"  {t}" for t in told))


def not_one_of(allowed: Collection[str], given: object) -> str:
    """State what was expected, what was given, and the nearest name."""
    return errors.not_one_of(allowed, given, shown(given))


def unknown_key(key: str, allowed: Collection[str]) -> str:
    """State that a key is unknown, and list the known ones."""
    return f"unknown key{suggestion(key, allowed)} (allowed: {', '.join(allowed)})"


def home_of(key: str) -> str:
    """State in which section a key belongs, if any."""
    homes = [name for name, model in SECTIONS.items() if key in model.model_fields]
    return f"unknown key; it belongs under [{homes[0]}]" if homes else ""


def shown(value: object) -> str:
    """Return a value approximately as written, shortened."""
    text = (
        literal(value)
        if isinstance(value, str) or type(value) is date  # not a time
        else json.dumps(value, default=str, ensure_ascii=False)
    )
    return text if len(text) <= 60 else text[:57] + "..."


def written(place: Place) -> str:
    """Return a path to a key as text: workload[2].family."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[\w-]+", step) else json.dumps(step))
    return text


def _problem(key: str, kind: str, fields: Mapping[str, FieldInfo], data: Mapping[str, Any]) -> str:
    if kind == "extra_forbidden":
        near = suggestion(key, fields)
        return home_of(key) if home_of(key) and not near else unknown_key(key, fields)
    about = fields[key]
    if about.examples:
        return not_one_of(about.examples, data[key])
    if kind == "missing":
        return f"missing; expected {about.description}"
    hint = as_share(data[key]) if "between 0 and 1" in str(about.description) else ""
    return f"expected {about.description}, got {shown(data[key])}{hint}"


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
