"""Which records a release counts, and how many were left out, if that was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from querysmasher.arrays import Numbers
from querysmasher.errors import PrivacyError
from querysmasher.fields import floats, fraction, integers, text
from querysmasher.privacy.accounting import Dropped, ends
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.unit import Unit

REACH = 1.959964
"""Half-width of a 95% interval, in standard errors."""

COUNTED = (
    "Every count, its error and its interval are about the records that are counted, not about all records "
    "in the table."
)
"""What is said wherever records are left out."""

POLICIES = ("refuse", "drop")


@dataclass(frozen=True, eq=False)
class LeftOut:
    """How many records were left out, measured with noise: see `privacy.accounting`.

    `values` is one number of dropped records or, where persons are distinguished, the number of persons in
    each of `bins`.
    """

    asked: Dropped
    values: Numbers
    noise: Distribution

    def __post_init__(self) -> None:
        """Check that there is one finite value per number asked for."""
        if self.values.shape != (self.asked.size,) or not np.isfinite(self.values).all():
            msg = "left out: expected one finite value per number"
            raise PrivacyError(msg)

    @property
    def std(self) -> float:
        """The standard error of each value."""
        variance = float(self.asked.variance)
        return math.sqrt(variance + self.noise.extra_variance(variance))

    @property
    def bins(self) -> list[tuple[int, int | None]]:
        """How many records persons lack, from and to, in each bin; the last has no end."""
        limits = ends(self.asked.unit.records_per_person) if self.asked.persons else ()
        return list(zip((1, *(end + 1 for end in limits)), (*limits, None), strict=True))

    @property
    def total(self) -> tuple[float, float]:
        """The sum of all values, records or persons, and its standard error."""
        return float(self.values.sum()), self.std * math.sqrt(self.values.size)

    @property
    def records(self) -> tuple[int, int | None]:
        """A 95% interval of the number of records left out, other than those without a person.

        Where persons are distinguished, each bin contributes its lower end to the first number and its upper
        end to the second, which assumes that nobody is in the last bin. It is None if somebody visibly is.
        """
        if not self.asked.persons:
            value, std = self.total
            return _rounded(value - REACH * std, value + REACH * std)
        low = np.array([first for first, _ in self.bins], dtype=float)
        high = np.array([last for _, last in self.bins if last is not None], dtype=float)
        least = low @ self.values - REACH * self.std * float(np.linalg.norm(low))
        if self.values[-1] > REACH * self.std:
            return _rounded(least, least)[0], None
        return _rounded(least, high @ self.values[:-1] + REACH * self.std * float(np.linalg.norm(high)))

    def words(self) -> str:
        """Return how many were left out, in sentences."""
        value, std = self.total
        low, high = _rounded(value - REACH * std, value + REACH * std)
        what = "persons have records left out" if self.asked.persons else "records were left out"
        said = f"About {max(value, 0):,.0f} {what} (95% interval {low:,} to {high:,})."
        if not self.asked.persons:
            return said
        least, most = self.records
        last = f"{self.bins[-2][1]:,}"
        if most is None:
            bound = f"no upper bound is known: about {self.values[-1]:,.0f} have more than {last} each"
        else:
            bound = f"at most {most:,} if nobody has more than {last}"
        return f"{said} With 95% confidence, these are at least {least:,} records in all; {bound}."

    def rows(self) -> list[tuple[str, str]]:
        """Return the table of bins: how many records persons lack, and how many persons do."""
        rows = []
        for (low, high), value in zip(self.bins, self.values.tolist(), strict=True):
            label = f"more than {low - 1:,}" if high is None else f"{low:,} to {high:,}"
            rows.append((f"{low:,}" if low == high else label, f"{value:,.0f}"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        numbers = {"std": self.std, "records": list(self.records)}
        if not self.asked.persons:
            return {"value": self.values.tolist()[0], **numbers}
        bins = zip(self.bins, self.values.tolist(), strict=True)
        return {"persons": [{"from": a, "to": b, "value": v} for (a, b), v in bins], **numbers}


@dataclass(frozen=True)
class Counted:
    """Which records of a table are counted.

    Args:
        person: the column that says to whom a record belongs, or None if persons are not distinguished.
        most: maximum number of records of one person that are counted.
        unknown: "refuse" if a table with a value outside the schema is refused, "drop" if such records are
            left out, None if a file does not say which.
        left_out: how many were left out, if that was measured.
    """

    person: str | None = None
    most: int = 1
    unknown: str | None = "refuse"
    left_out: LeftOut | None = None

    @property
    def dropped(self) -> Dropped | None:
        """What was measured of the records left out, if anything."""
        return None if self.left_out is None else self.left_out.asked

    @property
    def is_whole(self) -> bool:
        """Whether all records of the table are counted."""
        return self.person is None and self.unknown == "refuse"

    def words(self, measured: bool | None = None) -> str:
        """Return which records are left out, and what that means for counts, in sentences; none if none are.

        `measured` states whether the number of records left out is measured, if that is yet to happen.
        """
        parts = []
        if self.unknown == "drop":
            parts.append("those with a missing value, or one outside the schema, in a measured attribute")
        if self.unknown == "drop" and self.person is not None:
            parts.append(f"those without a value of {self.person!r}")
        if self.person is not None:
            who = f"of each person (a value of {self.person!r}) who has more"
            parts.append(f"all but {self.most:,} {who}, chosen at random")
        said = []
        if parts:
            done = self.left_out is not None if measured is None else measured
            how = "is measured as part of the budget" if done else "is not disclosed"
            nameless = done and self.person is not None and self.unknown == "drop"
            but = f", except for those without a value of {self.person!r}" if nameless else ""
            said = [
                f"Records are left out: {'; '.join(parts)}.",
                COUNTED,
                f"How many are left out {how}{but}.",
            ]
        if self.unknown is None:
            unsaid = "records with a missing value, or one outside the schema, are left out"
            said.append(f"The file does not say whether {unsaid}.")
        return " ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for readers."""
        return {
            "person": self.person,
            "records_per_person": self.most,
            "unknown": self.unknown,
            **({} if self.left_out is None else {"left_out": self.left_out.to_json()}),
        }

    def to_data(self) -> dict[str, Any]:
        """Return plain data with arrays, from which `counted_from_data` rebuilds this."""
        out = self.left_out
        return {
            "unknown": self.unknown,
            "left_out": None if out is None else {"variance": str(out.asked.variance), "values": out.values},
        }


ALL = Counted()
"""Every record of the table."""


def counted_from_data(data: Any, person: str | None, unit: Unit, noise: Distribution) -> Counted:
    """Rebuild which records are counted; an older file says nothing about values outside the schema."""
    unknown = "refuse" if unit.total_is_public else None
    if data is None:
        return Counted(person, unit.records_per_person, unknown)
    if set(data) != {"unknown", "left_out"}:
        raise ValueError
    unknown = None if data["unknown"] is None else text(data["unknown"], POLICIES)
    found = data["left_out"]
    if found is None:
        return Counted(person, unit.records_per_person, unknown)
    if set(found) != {"variance", "values"}:
        raise ValueError
    values = floats(found["values"], 1) if noise.dtype is np.float64 else integers(found["values"], 1)
    asked = Dropped(unit, person is not None, fraction(found["variance"]))
    return Counted(person, unit.records_per_person, unknown, LeftOut(asked, values, noise))


def _rounded(low: float, high: float) -> tuple[int, int]:
    """Return an interval of a number of records or persons: integers, none below 0."""
    return max(math.floor(low), 0), max(math.ceil(high), 0)
