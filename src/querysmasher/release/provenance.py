"""Where a release comes from: who publishes it, when, from which data, by which plan, with which noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date as Date  # noqa: N812 - `date` is the name of a field
from typing import Any, Self

from querysmasher.errors import FileError, as_given
from querysmasher.fields import word
from querysmasher.privacy.distributions import Distribution, distribution_of


@dataclass(frozen=True)
class NoiseRecord:
    """Which noise a release carries."""

    name: str
    description: str
    seeded: bool

    def __post_init__(self) -> None:
        """Check that the noise is known: the guarantee of a release depends on it."""
        distribution_of(self.name)

    @property
    def distribution(self) -> Distribution:
        """The distribution of the noise."""
        return distribution_of(self.name)

    @property
    def is_private(self) -> bool:
        """Whether the noise protects anyone: not if it can be recomputed or is in floating point."""
        return not self.seeded and self.distribution.is_private


@dataclass(frozen=True)
class Provenance:
    """Words about a release for its readers. All are public, and none changes what is guaranteed."""

    title: str | None = None
    organisation: str | None = None
    contact: str | None = None
    """An address for questions."""
    date: Date | None = None
    """The day of the release."""
    data: str | None = None
    """A label of the table that was measured."""
    version: str | None = None
    """The version of the release, if the organisation numbers them."""
    spec_digest: str | None = None
    """SHA-256 of the spec file."""
    plan_digest: str | None = None
    """SHA-256 of the plan's file."""

    def __post_init__(self) -> None:
        """Check the words, and read the date if it is text."""
        for field in fields(self):
            given = getattr(self, field.name)
            if field.name == "date":
                object.__setattr__(self, "date", _day(given))
            elif given is not None and not (isinstance(given, str) and given.strip()):
                raise FileError(f"{field.name}: expected a non-empty string, got {as_given(given)}")

    def to_json(self) -> dict[str, str]:
        """Return the words that are given, as plain data."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in given.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_json` returned; refuse anything else."""
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = {name: word(data[name]) for name in data if name in known}
        return cls(**given)


def _day(given: object) -> Date | None:
    if given is None or type(given) is Date:
        return given
    try:
        return Date.fromisoformat(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise FileError(f"date: expected a date such as '2024-03-01', got {as_given(given)}") from None
