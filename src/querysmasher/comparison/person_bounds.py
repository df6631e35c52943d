"""Bounds on the records of each person: the records left out against the noise, from public guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from querysmasher.errors import BudgetError, OutsideMeasuredSpaceError, PlanError
from querysmasher.formatting import columns, number
from querysmasher.html import notebook, table
from querysmasher.planning.plan import Plan
from querysmasher.privacy.bound import ADD_REMOVE
from querysmasher.release.tidy import frame_of
from querysmasher.workload.builders import marginals

HEADER = ("records per person", "left out", "of all records", "standard error", "error of the total")


@dataclass(frozen=True)
class PersonBound:
    """What to expect of one bound k.

    Attributes:
        records_per_person: the bound.
        left_out: the number of records left out, under the guess.
        share: the same as a fraction of all records.
        std: the root mean square of the standard errors of all planned queries.
        total_error: the root mean square error of the number of records, as a count of all records in the
            table: what is left out and noise together. NaN if the plan does not answer it.
    """

    records_per_person: int
    left_out: float
    share: float
    std: float
    total_error: float


@dataclass(frozen=True, repr=False)
class PersonBounds:
    """What to expect of several bounds, in increasing order."""

    rows: tuple[PersonBound, ...]

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return one row per bound."""
        return frame_of(pa.Table.from_pylist([asdict(row) for row in self.rows]), backend)

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as strings, under `HEADER`."""
        return [
            (
                f"{row.records_per_person:,}",
                f"{row.left_out:,.0f}",
                f"{row.share:.1%}",
                f"± {number(row.std)}",
                number(row.total_error),
            )
            for row in self.rows
        ]

    def __repr__(self) -> str:
        """Show the table."""
        return "\n".join(columns([HEADER, *self.cells()], words=0))

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        return notebook("Records per person", table(HEADER, self.cells(), numbers=range(len(HEADER))))


def records_per_person(
    plan: Plan, histogram: Mapping[int, float], bounds: Sequence[int] | None = None
) -> PersonBounds:
    """Compare bounds k on the records per person: how many records each leaves out, and how large errors are.

    The noise is proportional to k, and the number of records left out decreases with k. This function reads
    no data: guess the histogram from public knowledge, such as an earlier year or another region.

    Args:
        plan: a plan of the queries with the budget you intend to spend; its bound does not matter.
        histogram: numbers of persons by number of records: {1: 500, 2: 300, 10: 40}.
        bounds: the bounds to compare; by default 1, 2, 5, 10, 20, 50, … up to the most records of a person.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"plan: expected a Plan, got {type(plan).__name__}")
    if plan.budget.unit.total_is_public:
        raise BudgetError("plan: with replace_one neighbours no records are left out", ADD_REMOVE)
    given = dict(histogram) if isinstance(histogram, Mapping) else {}
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= 10**9 for n in given)
    fits = all(isinstance(times, int | float) and 0 <= times < math.inf for times in given.values())
    persons = {n: float(times) for n, times in given.items() if times} if whole and fits else {}
    if not persons:
        raise BudgetError(
            "histogram: expected numbers of persons by their number of records, such as {1: 500, 10: 40}"
        )
    total = math.fsum(n * times for n, times in persons.items())
    if bounds is None:
        bounds = [lead * 10**power for power in range(10) for lead in (1, 2, 5)]
        bounds = bounds[: 1 + sum(k < max(persons) for k in bounds)]
    if not bounds or any(isinstance(k, bool) or not isinstance(k, int) or k < 1 for k in bounds):
        raise BudgetError(f"bounds: expected integers of at least 1, got {bounds!r}")
    try:
        std = math.sqrt(float(plan.variances(marginals(plan.workload.schema, 0))[0]))
    except OutsideMeasuredSpaceError:
        std = math.nan
    rows = []
    for k in sorted(set(bounds)):
        factor = k / plan.budget.records_per_person
        left = math.fsum(max(n - k, 0) * times for n, times in persons.items())
        rows.append(PersonBound(k, left, left / total, factor * plan.rmse, math.hypot(left, factor * std)))
    return PersonBounds(tuple(rows))
