"""The text of a spec file, edited key by key: comments, order and spacing stay as they are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Comment, Table, Trivia

from querysmasher.studio.security import confined

Location = tuple[str | int, ...]

LONG = 90
"""Maximum number of characters of a list on one line."""

PATHS = {"codebook", "path", "database", "folder", "file", "hierarchy", "rows", "ranges", "ledger", "public"}
"""Keys whose strings are paths, wherever they stand, also in lists."""

BEGINS, ENDS = "#begins-here-8c1f", "#ends-here-8c1f"
"""Comments that mark a table while it is cut out of a text."""


class Document:
    """A spec file as text, with changes."""

    def __init__(self, text: str) -> None:
        """Read a text, which must be TOML."""
        self._read = tomlkit.parse(text)

    @property
    def text(self) -> str:
        """The text as it is now."""
        return self._read.as_string()

    @property
    def plain(self) -> dict[str, Any]:
        """The content as plain data."""
        return dict(self._read.unwrap())

    def get(self, location: Location) -> Any:
        """Return the plain value at a location, or None."""
        found: Any = self._read
        for step in location:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return None
        return found.unwrap() if hasattr(found, "unwrap") else found

    def set(self, location: Location, value: Any) -> None:
        """Set a key of a table, which is created if it is missing; None removes the key."""
        *path, key = location
        table: Any = self._read
        for place, step in enumerate(path):
            if isinstance(step, str) and step not in table:
                if value is None:
                    return
                if table is not self._read:
                    for inner in reversed([*path[place + 1 :], key]):
                        value = {inner: value}
                    key = step
                    break
                table[step] = tomlkit.table()
            table = table[step]
        if value is None:
            self._forget(table, str(key))
        elif key not in table and isinstance(table, Table) and table.value.body:
            self._insert(table, f"{_key(key)} = {_item(value).as_string()}")
        else:
            table[key] = _item(value)

    def _insert(self, table: Table, lines: str) -> None:
        """Insert lines below the last key of a table, above comments that may be about what follows."""
        _end(table)
        self._read = tomlkit.parse(self.text.replace(ENDS, lines))

    def _forget(self, table: Any, key: str) -> None:
        """Remove a key, but keep the comment beside it."""
        if key not in table:
            return
        remark = table.item(key).trivia.comment if hasattr(table, "item") else ""
        body = getattr(table if table is self._read else getattr(table, "value", None), "body", None)
        if remark and isinstance(body, list):
            index = next(i for i, (name, _) in enumerate(body) if name is not None and name.key == key)
            body[index] = (None, Comment(Trivia(comment=remark)))
            self._read = tomlkit.parse(self.text)
        else:
            del table[key]

    def add(self, section: str, *tables: Mapping[str, Any]) -> None:
        """Add tables at the end of a section of several."""
        if not tables:
            return
        each = [
            "\n".join(
                [f"[[{section}]]", *(f"{_key(key)} = {_item(value).as_string()}" for key, value in t.items())]
            )
            for t in tables
        ]
        text = "\n\n".join(each)
        before = self._read.get(section)
        if isinstance(before, AoT):
            self._insert(before[-1], f"\n{text}")
        else:
            self._read = tomlkit.parse(f"{self.text.rstrip()}\n\n{text}\n")

    def replace(self, section: str, index: int, values: dict[str, Any]) -> None:
        """Give a table these keys and no others."""
        before = self.get((section, index))
        for key in before | values:
            if before.get(key) != values.get(key):
                self.set((section, index, key), values.get(key))

    def remove(self, section: str, index: int) -> None:
        """Remove a table, but not the comments below it, which may be about the next one."""
        tables = self._read[section]
        if not isinstance(tables, AoT):  # written as a list
            del tables[index]
            return
        _end(tables[index])
        tables[index].value.body.insert(0, (None, Comment(Trivia(comment=BEGINS))))
        before, _, rest = self.text.partition(BEGINS)
        _, _, after = rest.partition(ENDS + "\n")
        header = before.rstrip().rfind("\n") + 1
        kept, after = before[:header].rstrip("\n"), after.lstrip("\n")
        self._read = tomlkit.parse(kept + (bool(header) + bool(after and header)) * "\n" + after)


def _end(table: Table) -> None:
    """Mark the end of the last key of a table."""
    body = table.value.body
    last = max((i for i, (key, _) in enumerate(body) if key is not None), default=-1)
    body.insert(last + 1, (None, Comment(Trivia(comment=ENDS))))


def _key(name: object) -> str:
    return tomlkit.key(str(name)).as_string()


def _item(value: Any) -> Any:
    """Return a value in TOML; tables are written on one line, and long lists one entry per line."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, entry in value.items():
            table[key] = _item(entry)
        return table
    if isinstance(value, Sequence) and not isinstance(value, str):
        listed = tomlkit.array()
        listed.extend([_item(entry) for entry in value])
        return listed.multiline(len(listed.as_string()) > LONG)
    return tomlkit.item(value)


@lru_cache(maxsize=2)
def paths(text: str) -> tuple[tuple[Location, str], ...]:
    """Return the keys of a spec that state paths, and these."""
    return tuple(_paths(tomllib.loads(text), ()))


def strays(named: Iterable[tuple[Location, str]], folder: Path) -> Iterator[tuple[Location, str]]:
    """Return the keys whose paths lead out of the folder of their spec, each with an error message."""
    for location, name in named:
        if confined(folder, name) is None:
            yield location, f"expected a path in the folder of the spec, got {name!r}; Studio opens no other"


def _paths(data: Any, location: Location) -> Iterator[tuple[Location, str]]:
    if isinstance(data, str):
        if next(key for key in reversed(location) if isinstance(key, str)) in PATHS:
            yield location, data
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _paths(value, (*location, key))


def written(location: Location) -> str:
    """Return a location as the command writes it: workload[2].weight.

    >>> written(("workload", 2, "weight"))
    'workload[2].weight'
    """
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' * bool(text)}{step}"
    return text


def location_of(name: str) -> Location:
    """Return the location that a form names, the inverse of `written`.

    >>> location_of("workload[2].weight")
    ('workload', 2, 'weight')
    """
    found = re.findall(r"\[(\d+)\]|([^.\[\]]+)", name)
    return tuple(int(number) if number else word for number, word in found)
