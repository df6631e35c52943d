"""The sections of a spec file and their keys. Error messages quote a field's description."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from querysmasher.formats import FORMATS
from querysmasher.planning.estimating import PURPOSES
from querysmasher.planning.mechanisms import CENTERINGS, MECHANISMS, Mechanism, named
from querysmasher.planning.objectives.objective import INSUFFICIENT, OBJECTIVES
from querysmasher.planning.solvers import SOLVERS
from querysmasher.privacy.distributions import DISTRIBUTIONS

positive = Field(default=1.0, description="a positive number", gt=0, allow_inf_nan=False)
amount = Field(default=None, description="a positive number", gt=0, allow_inf_nan=False)
PATH = r"\A[^\x00]+\z"
path = Field(default=None, description="a path as a string", pattern=PATH)
words = Field(default=None, description="a non-empty string", min_length=1)
ANSWERS = (*(form.name for form in FORMATS), "none")
"""Formats of the answers."""


def choice(allowed: Iterable[str], default: str | None) -> Any:
    """Return the field of a key whose value is one of a few names. Error messages list them."""
    names = list(allowed)
    return Field(default=default, examples=names, pattern=rf"\A(?:{'|'.join(map(re.escape, names))})\z")


class Section(BaseModel):
    """A table of a spec file: unknown keys and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _day(given: object) -> object:
    """Return a date that is given as text; pydantic refuses anything else that is not a date."""
    return date.fromisoformat(given) if isinstance(given, str) else given


Day = Annotated[date, BeforeValidator(_day)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class OutputSection(Section):
    """The output files and their folder."""

    folder: str = Field(default="out", description="a path as a string", pattern=PATH)
    answers: str = choice(ANSWERS, "parquet")
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
        """Level, thresholds and suppression, as options of `Release.write`."""
        return self.model_dump(include={"level", "thresholds", "suppress"})


class EstimateSection(Section):
    """Estimates beside the unbiased answers."""

    answers: str | None = choice(ANSWERS, None)
    error_share: float | None = Field(default=None, description="a number from 0 to 0.5", ge=0, le=0.5)
    """The fraction of the budget for errors; by default 0, or 0.02 to explore."""


class AboutSection(Section):
    """Who publishes the release, and from which data: for its readers."""

    title: str | None = words
    organisation: str | None = words
    contact: str | None = words
    date: Day | None = Field(default=None, description="a date such as 2024-03-01")
    data: str | None = words
    version: str | None = words


class File(Section):
    """The top level."""

    codebook: str | None = path
    attributes: list[Any] | None = Field(default=None, alias="schema", description="[[schema]] tables")
    impossible: list[str] = Field(default=[], description="a list of predicates as strings")
    workload: list[Any] = Field(description="[[workload]] tables", min_length=1)
    statistics: list[Any] = Field(default=[], description="[[statistics]] tables")
    budget: dict[str, Any] = Field(description="a [budget] table")
    data: dict[str, Any] = Field(default={}, description="a [data] table")
    plan: dict[str, Any] = Field(default={}, description="a [plan] table")
    measure: dict[str, Any] = Field(default={}, description="a [measure] table")
    output: dict[str, Any] = Field(default={}, description="an [output] table")
    estimate: dict[str, Any] | None = Field(default=None, description="an [estimate] table")
    about: dict[str, Any] = Field(default={}, description="an [about] table")


class Amount(Section):
    """How much may be spent: one of cost, rho, mu, or epsilon with delta."""

    cost: float | None = amount
    rho: float | None = amount
    mu: float | None = amount
    epsilon: float | None = amount
    delta: float | None = Field(default=None, description="a number between 0 and 1", gt=0, lt=1)


class BudgetSection(Amount):
    """One of cost, rho, mu, epsilon with delta, or least; and the unit of privacy."""

    least: bool = Field(default=False, description="true or false")
    neighbours: str = choice(("add_remove", "replace_one"), "add_remove")
    records_per_person: int = Field(default=1, description="an integer from 1 to 10^9", ge=1, le=10**9)
    ledger: str | dict[str, Any] | None = Field(
        default=None, description="the path of a ledger, or a table with path, limit and label"
    )


class LedgerSection(Amount):
    """The ledger that records what is spent, and the limit with which it is created."""

    path: str = Field(description="a path as a string", pattern=PATH)
    label: str | None = Field(default=None, description="1 to 200 characters", min_length=1, max_length=200)


class DataSection(Section):
    """Where the table is."""

    path: str | None = path
    database: str | None = path
    table: str | None = Field(default=None, description="the name of a table or a view", min_length=1)
    delimiter: str | None = Field(default=None, description="a single character")
    quote: str | None = Field(default=None, description='a single character, or "" for none')
    encoding: str | None = Field(default=None, description='an encoding such as "utf-8" or "latin-1"')
    decimal: str | None = choice((".", ","), None)
    missing: dict[str, str | int | float | bool | date] | None = Field(
        default=None, description="a table of attributes and the value that missing ones count as"
    )


class PlanSection(Section):
    """How to plan."""

    mechanism: str | None = choice(MECHANISMS, None)
    solver: str = choice((*SOLVERS, *MECHANISMS), "optimal")
    centering: str | None = choice(CENTERINGS, None)
    tolerance: float = Field(default=1e-3, description="a number between 0 and 1", gt=0, lt=1)
    bases: dict[str, Any] | None = Field(default=None, description="a table of attributes and their bases")
    objective: str = choice(OBJECTIVES, "mean")
    insufficient: str = choice(INSUFFICIENT, "refuse")
    purpose: str = choice(PURPOSES, "answers")
    records: int | None = Field(default=None, description="an integer of at least 1", ge=1)
    exact: list[str | list[str]] | None = Field(
        default=None, description='a list of names of attributes and lists of names, such as ["state"]'
    )

    @property
    def chosen(self) -> Mechanism:
        """The mechanism asked for, under either key."""
        return MECHANISMS[named(self.solver)[0] if self.mechanism is None else self.mechanism]


class MeasureSection(Section):
    """How to measure."""

    noise: str = choice(DISTRIBUTIONS, "rounded")
    unknown: str = choice(("refuse", "drop"), "refuse")
    max_records: int = Field(default=100_000_000, description="an integer from 1 to 2^40", ge=1, le=2**40)
    person: str | None = Field(default=None, description="the name of a column", min_length=1)
    report_dropped: bool = Field(default=False, description="true or false")
    public: str | list[str] | None = Field(default=None, description="a path as a string, or a list of paths")


SECTIONS: dict[str, type[Section]] = {
    "budget": BudgetSection,
    "data": DataSection,
    "plan": PlanSection,
    "measure": MeasureSection,
    "output": OutputSection,
    "estimate": EstimateSection,
    "about": AboutSection,
}
