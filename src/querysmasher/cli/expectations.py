"""What to expect of a plan under the noise of its spec: errors, shares of the budget, the guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import SHARE
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import distribution_of
from querysmasher.privacy.rates import readable
from querysmasher.progress import Bar
from querysmasher.report.expectations import Expectation, noise_factor, together
from querysmasher.report.guarantees import delta_of, promise
from querysmasher.report.left_out import Counted
from querysmasher.report.words import ways_words
from querysmasher.spec import Spec

MOST_ROWS = 40
"""Maximum number of groups with a row each; more groups are summed up by entry of the workload."""


def promised(spec: Spec, budget: Budget) -> str:
    """Return the guarantee of a spec under a budget, and which records are counted."""
    measuring = spec.measuring
    counted = Counted(measuring.person, budget.records_per_person, measuring.unknown)
    return promise(budget, counted, measuring.report_dropped)


def left_for_answers(spec: Spec) -> float:
    """Return the share of the budget that is not spent on the errors of estimates or on records left out."""
    return (1 - SHARE if spec.measuring.report_dropped else 1.0) * (1 - spec.error_share)


@dataclass(frozen=True)
class Expectations:
    """A plan and the spec it was made for."""

    plan: Plan
    spec: Spec

    @property
    def factor(self) -> float:
        """Ratio of the errors under the noise of the spec to those under the default noise.

        What the errors of estimates, and the number of records left out, cost is missing elsewhere.
        """
        factor = noise_factor(self.plan, distribution_of(self.spec.measuring.noise))
        return factor / math.sqrt(left_for_answers(self.spec))

    @property
    def promise(self) -> str:
        """The guarantee, and which records are counted."""
        return promised(self.spec, self.plan.budget)

    @property
    def rmse(self) -> float:
        """The root mean square error over all queries."""
        return self.plan.rmse * self.factor

    @cached_property
    def groups(self) -> list[Expectation]:
        """A row per group."""
        rows = []
        with Bar("Predicting", len(self.plan.workload.groups)) as bar:
            for row in self.plan.summary():
                rows.append(row.scaled(self.factor))
                bar.advance()
        return rows

    def rows(self, every: bool) -> list[Expectation]:
        """Return a row per group or, if these are many and not `every` one is wanted, per entry."""
        rows = self.groups
        return rows if every or len(rows) <= MOST_ROWS else list(self._entries(iter(rows)))

    def sparse(self) -> str | None:
        """Point to estimates if most queries are cells of tables that are sparse in a usual data set.

        A table of C cells with expected error s has an average count below s if there are fewer than C s
        records. The number of records is not known here, so the remark says up to which one it holds.
        """
        if self.plan.asked is not None or self.spec.estimate is not None:
            return None
        tables = [
            (row.queries * row.rmse, row.queries) for row in self.groups if row.rmse and row.group.is_marginal
        ]
        covered = 0
        for records, queries in sorted(tables, reverse=True):
            covered += queries
            if records <= limits().usual_records:  # sparse only in smaller tables than is assumed elsewhere
                break
            if 2 * covered > self.plan.workload.query_count:
                return _sparse(readable(records, up=False, digits=2), self.spec)
        return None

    def _entries(self, rows: Iterator[Expectation]) -> Iterator[Expectation]:
        """Sum up the rows of each entry of the workload by number of attributes."""
        if self.plan.asked is not None:  # what is measured is not what is asked for
            yield from _by_ways("measured", rows)
            return
        for entry in self.spec.entries:
            yield from _by_ways(entry.kind, islice(rows, len(entry.workload.groups)))

    def equivalents(self) -> str:
        """Return the budget in other definitions of privacy, at its own δ if it has one."""
        budget, noise = self.plan.budget, distribution_of(self.spec.measuring.noise)
        cost, delta = noise.allowed_cost(budget), delta_of(budget)
        epsilon = budget.epsilon_at(delta, discrete=not noise.is_gaussian)
        gaussian = f", Gaussian DP with mu = {_up(math.sqrt(cost))}" if noise.is_gaussian else ""
        return (
            f"zCDP with rho = {_up(cost / 2)}{gaussian}, (epsilon, delta) = ({_up(epsilon)}, {delta!r}); "
            f"privacy cost {_up(cost)}"
        )

    def ledger(self) -> str | None:
        """Return what the ledger of the spec has left, if it has one that exists."""
        place, noise = self.spec.ledger, distribution_of(self.spec.measuring.noise)
        left = None if place is None else place.left()
        if place is None or left is None:
            return None
        cost = noise.allowed_cost(self.plan.budget)
        less = ", which is more" if cost > left else ""
        spends = f"this spends up to rho = {readable(cost / 2):.6g}{less}"
        return f"{str(place.path)!r} has left {place.left_words()}; {spends}"

    def to_json(self, every: bool) -> dict[str, Any]:
        """Return plain data."""
        plan = self.plan
        return {
            "queries": plan.workload.query_count,
            "expected_error": self.rmse,
            "objective": plan.objective,
            "largest_error": None if plan.worst_std is None else plan.worst_std * self.factor,
            "gap": plan.gap,
            "least_cost": plan.least_cost,
            "guarantee": self.promise,
            "equivalents": self.equivalents(),
            "privacy_cost": plan.privacy_cost,
            "budget": plan.budget.to_json(),
            "ledger": self.ledger(),
            "sparse": self.sparse(),
            "noise": self.spec.measuring.noise,
            "measurements": plan.measurements,
            "groups": [
                {
                    "asked": row.label,
                    "queries": row.queries,
                    "expected_error": row.rmse,
                    "largest_error": row.largest,
                    "largest_error_of": None
                    if row.extreme is None
                    else row.extreme.query(plan.workload.schema),
                    "budget_share": row.budget_share,
                }
                for row in self.rows(every)
            ],
        }


def _sparse(records: float, spec: Spec) -> str:
    """Say up to which number of records most counts are small, and what helps."""
    explored = all(group.is_marginal for group in spec.workload) and not spec.least
    return (
        f"with fewer than {records:,.0f} records, most of these counts are cells of tables whose average "
        "count is below its expected error. Estimates are usually closer to the truth there: "
        f"{'`querysmasher explore`' if explored else 'add [estimate] to the spec'}"
    )


def _up(amount: float) -> str:
    """Return an amount in four digits, rounded up: a budget that is copied suffices."""
    return f"{readable(amount, digits=4):.4g}"


def _by_ways(kind: str, rows: Iterable[Expectation]) -> Iterator[Expectation]:
    """Sum up rows by number of attributes."""
    by_ways: dict[int, list[Expectation]] = {}
    for row in rows:
        by_ways.setdefault(len(row.attributes), []).append(row)
    for ways, own in by_ways.items():
        yield together(f"{kind}: {ways_words(ways)}", own)
