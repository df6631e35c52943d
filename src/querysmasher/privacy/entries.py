"""The entries of a ledger: a chain in which every entry fixes all entries before it.

The digest of an entry is SHA-256(digest of the previous entry + line feed + text of the entry), where the
text is canonical JSON (see `digests`). Entry 0 states the limit, the unit of privacy and the label of the
data; every other entry states a cost as an exact fraction. A changed, removed, inserted or reordered entry
changes the digest of every later one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from querysmasher.errors import FileError, QuerySmasherError
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.digests import canonical, digest
from querysmasher.privacy.distributions import Distribution, distribution_of
from querysmasher.privacy.totals import Total
from querysmasher.privacy.unit import Unit

START = ""
"""What stands for the digest before entry 0."""

FORMAT = 1

_SHORT = re.compile(r"[^\x00-\x1f\x7f]{0,200}")
_NAME = re.compile(r".{1,1000}", re.DOTALL)
_HEX = re.compile(r"[0-9a-f]{64}")
_FRACTION = re.compile(r"[0-9]{1,400}(/[0-9]{1,400})?")


@dataclass(frozen=True)
class Opening:
    """Entry 0: what the ledger is about.

    Attributes:
        identity: random digits that distinguish this ledger from every other one.
        label: which data it is about.
        limit: what all entries together may spend, and for which unit of privacy.
        time: when it was created, in UTC.
    """

    identity: str
    label: str
    limit: Budget
    time: str

    number = 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of the entry."""
        return {
            "format": FORMAT,
            "ledger": self.identity,
            "number": 0,
            "time": self.time,
            "label": self.label,
            "limit": self.limit.to_json(),
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the entry."""
        return linked(START, self.to_json())


@dataclass(frozen=True)
class Entry:
    """What one measurement spends, or was about to spend when it failed.

    Attributes:
        ledger: the identity of the ledger.
        number: 1 for the first measurement.
        time: when it was written, in UTC.
        label: which data was measured.
        unit: whom the cost is about.
        cost: the privacy cost β, exactly.
        noise: the name of the distribution of the noise.
        plan: the digest of the integer plan.
        person: the column that says to whom a record belongs, or None if persons are not distinguished.
        previous: the digest of the entry before.
    """

    ledger: str
    number: int
    time: str
    label: str
    unit: Unit
    cost: Fraction
    noise: str
    plan: str
    person: str | None
    previous: str

    def to_json(self) -> dict[str, Any]:
        """Return the content of the entry, of which its digest is computed."""
        return {
            "ledger": self.ledger,
            "number": self.number,
            "time": self.time,
            "label": self.label,
            "neighbours": self.unit.neighbours,
            "records_per_person": self.unit.records_per_person,
            "person": self.person,
            "cost": str(self.cost),
            "noise": self.noise,
            "plan": self.plan,
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the entry, which fixes all entries before it."""
        return linked(self.previous, self.to_json())

    def to_data(self) -> dict[str, Any]:
        """Return the content with the digests that link it to the others, for readers."""
        return {**self.to_json(), "previous": self.previous, "digest": self.digest}

    @property
    def distribution(self) -> Distribution:
        """The distribution of the noise."""
        return distribution_of(self.noise)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], previous: str) -> Entry:
        """Rebuild an entry from its content; raise ValueError for anything else."""
        entry = cls(
            _match(_SHORT, data["ledger"]),
            _whole(data["number"]),
            _match(_SHORT, data["time"]),
            _match(_SHORT, data["label"]),
            Unit(_match(_SHORT, data["neighbours"]), _whole(data["records_per_person"])),
            Fraction(_match(_FRACTION, data["cost"])),
            distribution_of(data["noise"]).name,
            _match(_HEX, data["plan"]),
            None if data["person"] is None else _match(_NAME, data["person"]),
            _match(_HEX, previous),
        )
        if entry.to_json() != dict(data):
            raise ValueError
        return entry


@dataclass(frozen=True)
class Chain:
    """All entries of a ledger, checked: every digest is the one it must be."""

    opening: Opening
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]], path: str) -> Chain:
        """Check the stored entries: (number, content, digest), in order.

        Raise `FileError` if one is missing, foreign, or does not have the digest that follows from its
        content and from the entries before it.
        """
        opening: Opening | None = None
        entries: list[Entry] = []
        for place, row in enumerate(rows):
            try:
                if opening is None:
                    opening = _opening(_content(row, place, START))
                else:
                    before = entries[-1].digest if entries else opening.digest
                    entry = _entry(_content(row, place, before), opening, place, before)
                    entries.append(_same_persons(entry, (*entries, entry)[0]))
            except (ValueError, LookupError, TypeError, QuerySmasherError, RecursionError, ArithmeticError):
                raise FileError(
                    f"ledger: entry {place} of {path!r} was changed or removed after it was written; "
                    "the ledger can no longer be trusted, and nothing is measured with it"
                ) from None
        if opening is None:
            raise FileError(f"ledger: {path!r} has no first entry")
        return cls(opening, tuple(entries))

    @property
    def head(self) -> str:
        """The digest of the last entry, which fixes all of them."""
        return self.entries[-1].digest if self.entries else self.opening.digest

    @property
    def total(self) -> Total:
        """What all entries spend together."""
        return Total.of((entry.cost, entry.distribution) for entry in self.entries)


def linked(previous: str, content: Mapping[str, Any]) -> str:
    """Return the digest of an entry with this content after the entry with this digest."""
    return digest(f"{previous}\n{canonical(content)}")


def _content(row: Sequence[Any], place: int, before: str) -> dict[str, Any]:
    """Return the content of a stored entry; raise ValueError unless it has the right number and digest."""
    number, text, stored = row
    data = json.loads(text)
    if number != place or canonical(data) != text or linked(before, data) != stored:
        raise ValueError
    return data


def _opening(data: Mapping[str, Any]) -> Opening:
    opening = Opening(
        _match(_SHORT, data["ledger"]),
        _match(_SHORT, data["label"]),
        Budget.from_json(data["limit"]),
        _match(_SHORT, data["time"]),
    )
    if opening.to_json() != dict(data):
        raise ValueError
    return opening


def _entry(data: Mapping[str, Any], opening: Opening, number: int, before: str) -> Entry:
    """Return an entry of this ledger: the unit of privacy and the label of the data are never mixed."""
    entry = Entry.from_json(data, before)
    expected = (opening.identity, number, opening.label, opening.limit.unit)
    if (entry.ledger, entry.number, entry.label, entry.unit) != expected:
        raise ValueError
    return entry


def _same_persons(entry: Entry, first: Entry) -> Entry:
    """Return an entry; raise ValueError if it distinguishes persons in another way than the first one."""
    if entry.person != first.person:
        raise ValueError
    return entry


def _match(pattern: re.Pattern[str], value: object) -> str:
    if type(value) is not str or not pattern.fullmatch(value):
        raise ValueError
    return value


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value
