"""The sections of a spec file about what is published: files, estimates, and words for readers."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from querysmasher.spec.section import PATH, Section, amount, words


def _day(given: object) -> object:
    """Return a date that is given as text; pydantic refuses all else that is not a date."""
    return date.fromisoformat(given) if isinstance(given, str) else given


Day = Annotated[date, BeforeValidator(_day)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class OutputSection(Section):
    """The output files and their folder."""

    folder: str = Field(default="out", description="a path as a string", pattern=PATH)
    answers: Literal["parquet", "csv", "csv.gz", "arrow", "feather", "json", "xlsx", "none"] = "parquet"
    level: float = Field(default=0.95, description="a number between 0 and 1", gt=0, lt=1)
    thresholds: list[Positive] = Field(
        default=[0.1, 0.2, 0.3], description="a list of increasing positive numbers"
    )
    suppress: float | None = amount

    @field_validator("thresholds")
    @classmethod
    def _increasing(cls, given: list[float]) -> list[float]:
        if any(a >= b for a, b in pairwise(given)):
            raise ValueError
        return given

    @property
    def reliability(self) -> dict[str, Any]:
        """The options of `Release.write`."""
        return self.model_dump(include={"level", "thresholds", "suppress"})


class EstimateSection(Section):
    """Estimates beside the unbiased answers."""

    answers: Literal["parquet", "csv", "csv.gz", "arrow", "feather", "json", "xlsx", "none"] | None = None
    error_share: float | None = Field(default=None, description="a number from 0 to 0.5", ge=0, le=0.5)
    """The share of the budget for errors; None for the usual one: nothing, or 0.02 to explore."""


class AboutSection(Section):
    """Who publishes the release, from which data: words for its readers."""

    title: str | None = words
    organisation: str | None = words
    contact: str | None = words
    date: Day | None = Field(default=None, description="a date such as 2024-03-01")
    data: str | None = words
    version: str | None = words
