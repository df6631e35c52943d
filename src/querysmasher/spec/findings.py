"""The problems of a spec file: all are reported at once, each with its key and line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from operator import itemgetter
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from querysmasher import errors
from querysmasher.attributes import literal
from querysmasher.errors import QuerySmasherError, SpecError, as_ratio, suggestion
from querysmasher.spec.sections import SECTIONS, Section

Location = tuple[str | int, ...]
"""The path to a key: ("workload", 2, "family")."""

S = TypeVar("S", bound=Section)


class LocatedError(QuerySmasherError):
    """A problem, and the path from a table to its key."""

    def __init__(self, steps: Location, problem: str) -> None:
        """Store both."""
        super().__init__(problem)
        self.steps = steps


@contextmanager
def within(*steps: str) -> Iterator[None]:
    """Add the path of a key to errors of the library in this context."""
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
    problems: list[tuple[Location, str]] = field(default_factory=list)

    def add(self, location: Location, problem: str) -> None:
        """Record a problem."""
        self.problems.append((location, problem))

    @contextmanager
    def at(self, location: Location, keys: Collection[str] = ()) -> Iterator[None]:
        """Record an error of the library in this context, at the key that it names, else at `location`."""
        try:
            yield
        except LocatedError as error:
            self.add((*location, *error.steps), error.problem)
        except QuerySmasherError as error:
            message = error.for_spec()
            named, _, rest = message.partition(": ")
            self.add(*(((*location, named), rest) if named in keys else (location, message)))

    def section(self, model: type[S], data: object, location: Location) -> S | None:
        """Return a table of the file as an object of its model, or record the table's problems."""
        if not isinstance(data, Mapping):
            self.add(location, f"expected a table, got {shown(data)}")
            return None
        try:
            return model.model_validate(data)
        except ValidationError as error:
            fields = {f.alias or name: f for name, f in model.model_fields.items()}
            kinds: dict[str, str] = {}
            for e in error.errors(include_url=False):
                kinds.setdefault(str(e["loc"][0]), e["type"])  # once, where none of several types fits
            for key, kind in kinds.items():
                self.add((*location, key), _problem(key, kind, fields, data))
            return None

    def choice(
        self, data: Mapping[str, Any], key: str, allowed: Collection[str], location: Location
    ) -> str | None:
        """Return the value of a key that states the kind of the table, or record its problem."""
        if key not in data:
            self.add((*location, key), f"missing; expected one of {', '.join(allowed)}")
        elif not isinstance(data[key], str) or data[key] not in allowed:
            self.add((*location, key), not_one_of(allowed, data[key]))
        else:
            return str(data[key])
        return None

    def finish(self) -> None:
        """Raise `SpecError` if there are problems."""
        lines = [(line_of(self.text, key) or 0, key, problem) for key, problem in self.problems]
        told = [
            (f"line {line}: " if line else "") + (f"{written(key)}: " if key else "") + problem
            for line, key, problem in sorted(lines, key=itemgetter(0))
        ]
        keys = [(written(key), problem) for key, problem in self.problems]
        if len(told) == 1:
            raise SpecError(f"{self.title}{', ' if lines[0][0] else ': '}{told[0]}", keys)
        if told:
            listed = "\n".join(f"  {each}" for each in told)
            raise SpecError(f"{self.title} has {len(told)} problems:\n{listed}", keys)


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


def written(location: Location) -> str:
    """Return a path to a key as text: workload[2].family."""
    text = ""
    for step in location:
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
    hint = as_ratio(data[key]) if "between 0 and 1" in str(about.description) else ""
    return f"expected {about.description}, got {shown(data[key])}{hint}"


_HEADER = re.compile(r"""\s*(\[{1,2})\s*([A-Za-z_"'][\w."'-]*)\s*\]{1,2}\s*(#.*)?$""")
_KEY = re.compile(r"""\s*["']?([\w-]+)["']?\s*[=.]""")


def line_of(text: str, location: Location) -> int | None:
    """Return the line, counted from 1, of a key; of its table if the key is not found; else None.

    >>> text = "k = 1 | [[workload]] | k = 2 | [[workload]] | k = 3".replace(" | ", chr(10))
    >>> line_of(text, ("workload", 1, "k"))
    5
    """
    lines = _lines(text)
    keys = (location[:3], location[:2], location[:1], (*location, 0))  # the last: of the first such table
    return next((lines[key] for key in keys if key in lines), None)


def _lines(text: str) -> dict[Location, int]:
    """Return the lines of all tables of a TOML file, and of their keys."""
    lines: dict[Location, int] = {}
    latest: dict[str, Location] = {}
    counts: Counter[str] = Counter()
    table: Location | None = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            name, _, key = header[2].partition(".")
            if key:  # a table in a table: its keys are not searched for
                table = None
                lines.setdefault((*latest.get(name, (name,)), key), number)
                continue
            table = latest[name] = (name, counts[name]) if header[1] == "[[" else (name,)
            counts[name] += 1
            lines.setdefault(table, number)
        elif table is not None and (key_value := _KEY.match(line)):
            lines.setdefault((*table, key_value[1]), number)
    return lines
