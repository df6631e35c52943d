"""`values = "discover"` in a [[schema]] table: values that are found before planning, under one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import Field

from querysmasher.attributes import Label
from querysmasher.errors import BudgetError
from querysmasher.privacy.budget import Budget, PrivacyCost, readable, rounded
from querysmasher.privacy.distributions import Distribution
from querysmasher.schema import Schema
from querysmasher.spec.findings import Findings
from querysmasher.spec.sections import Section

DISCOVER = "discover"
"""The word that stands for the values."""

SUPPOSED = 20
"""Number of values that plans suppose where `release` discovers them."""

SUPPOSING = (
    f"values that `release` discovers are not known yet; errors here suppose {SUPPOSED} of each attribute"
)

PLACEHOLDER = "(values to be discovered)"
"""The only value of such an attribute until its values are known."""


class ToDiscover(Section):
    """How to discover the values of an attribute, and of which: `column` is not a key."""

    share: float = Field(default=0.1, description="a number between 0 and 1", gt=0, lt=1)
    """The fraction of the budget that this takes."""
    delta: float | None = Field(default=None, description="a number between 0 and 1", gt=0, lt=1)
    """The probability that its threshold takes, or None for a share of the budget's δ."""
    at_most: int | None = Field(default=None, description="an integer of at least 1", ge=1, le=10**9)
    """How many values of each person are counted, or None for as many as records."""
    column: str = Field(default="", exclude=True)

    def delta_within(self, budget: Budget, columns: int) -> Fraction:
        """Return the δ of the threshold; refuse a budget that states none if none is stated here."""
        if self.delta is not None:
            return Fraction(self.delta)
        if budget.stated_delta is None:
            raise BudgetError(
                f"delta: expected a probability for the values of {self.column!r}, because the budget states "
                "none; state it well below 1 / number of people: delta = 1e-7"
            )
        return Fraction(budget.stated_delta) / (2 * columns)


def substituted(
    tables: Sequence[Any], found: Mapping[str, Sequence[Label]], findings: Findings
) -> tuple[list[Any], tuple[ToDiscover, ...]]:
    """Return [[schema]] tables with the values that were found, and which columns are to be discovered."""
    made, asked = list[Any](), list[ToDiscover]()
    for number, table in enumerate(tables):
        if not isinstance(table, Mapping) or table.get("values") != DISCOVER:
            made.append(table)
            continue
        here, keys = ("schema", number), ToDiscover.model_fields.keys() - {"column"}
        if table.get("kind") != "categorical":
            findings.add((*here, "values"), 'expected kind = "categorical" for values to be discovered')
        section = findings.section(ToDiscover, {k: v for k, v in table.items() if k in keys}, here)
        name, other = str(table.get("name", "")), table.get("other", "other")
        values = [*found.get(name, [PLACEHOLDER])] or [other]
        made.append({k: v for k, v in table.items() if k not in keys} | {"values": values, "other": other})
        if section is not None:
            asked.append(section.model_copy(update={"column": name}))
    if sum(one.share for one in asked) >= 1:
        findings.add(("schema",), "expected shares of discovered values with a sum below 1")
    return made, tuple(asked)


def known(schema: Schema, asked: Sequence[ToDiscover]) -> dict[str, tuple[Label, ...]]:
    """Return the values that a schema has of the columns."""
    return {one.column: tuple(schema[one.column].values[: schema[one.column].listed]) for one in asked}


@dataclass(frozen=True)
class Shares:
    """A budget in parts: what each column spends and its δ, and what is left for the plan."""

    budget: Budget
    parts: tuple[PrivacyCost, ...]
    deltas: tuple[Fraction, ...]

    @classmethod
    def of(cls, budget: Budget, asked: Sequence[ToDiscover], noise: Distribution) -> Shares:
        """Divide a budget; the δ of all columns is taken from it first, if it states one."""
        deltas = tuple(one.delta_within(budget, len(asked)) for one in asked)
        allowed = noise.allowed_cost(budget.without(sum(deltas, Fraction(0))))
        return cls(budget, tuple(_costing(budget, one.share * allowed) for one in asked), deltas)

    def rest(self, noise: Distribution, costs: Sequence[Fraction] | None = None) -> PrivacyCost:
        """Return what is left after the columns have spent these exact costs, or else their parts."""
        if costs is None:
            costs = [Fraction(part.privacy_cost) for part in self.parts]
        allowed = Fraction(noise.allowed_cost(self.budget.without(sum(self.deltas, Fraction(0)))))
        return _costing(self.budget, rounded(allowed - sum(costs, Fraction(0)), up=False))

    def words(self, asked: Sequence[ToDiscover]) -> str:
        """Return what the release and the discovered values guarantee together, in a sentence."""
        columns = " and ".join(repr(one.column) for one in asked)
        delta = float(sum(self.deltas, Fraction(0)))
        beside = "" if self.budget.stated_delta else f" up to delta = {readable(delta)}"
        return (
            f"The values of {columns} were discovered in the same table. The release and these values "
            f"together satisfy {self.budget.claim()}{beside}, for the same neighbours."
        )


def _costing(budget: Budget, cost: float) -> PrivacyCost:
    """Return a budget of this cost for the same neighbours."""
    unit = budget.unit
    return PrivacyCost(
        cost, neighbours=unit.neighbours, records_per_person=unit.records_per_person, exact=unit.exact
    )
