"""What a plan tells in advance: errors by group of queries, shares of the budget, the guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from querysmasher.planning.plan import GroupSummary, Plan
from querysmasher.privacy.distributions import distribution_of
from querysmasher.progress import Bar
from querysmasher.report.words import promise
from querysmasher.spec import Spec
from querysmasher.workload.groups import Group

MOST_ROWS = 40
"""A table of more groups is summed up by entry of the workload."""


@dataclass(frozen=True)
class Row:
    """The error to expect of some queries, and the share of the budget spent on their attribute sets."""

    asked: str
    queries: int
    rmse: float
    share: float

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "asked": self.asked,
            "queries": self.queries,
            "expected_error": self.rmse,
            "budget_share": self.share,
        }


@dataclass(frozen=True)
class Expectations:
    """A plan beside the spec it was made for."""

    plan: Plan
    spec: Spec

    @property
    def factor(self) -> float:
        """How much larger errors are for the noise of the spec than for the default one."""
        allowed = distribution_of(self.spec.measuring.noise).allowed_cost(self.plan.budget)
        return math.sqrt(self.plan.budget.privacy_cost / allowed)

    @property
    def rmse(self) -> float:
        """The root mean square error over all queries."""
        return self.plan.rmse * self.factor

    def rows(self, every: bool) -> list[Row]:
        """Return a row per group or, where that is too many and not `every` one is wanted, per entry."""
        summaries = []
        with Bar("Predicting", len(self.plan.workload.groups)) as bar:
            for summary in self.plan.summary():
                summaries.append(summary)
                bar.advance()
        shares = self.plan.budget_shares()
        if every or len(summaries) <= MOST_ROWS:
            return [self._row(self._words(s.group), [s], shares) for s in summaries]
        return [self._row(asked, own, shares) for asked, own in self._entries(iter(summaries))]

    def _words(self, group: Group) -> str:
        """Say what a group asks: a single query in full."""
        return next(group.labels(self.spec.schema)) if group.rows == 1 else group.describe()

    def _entries(self, summaries: Iterator[GroupSummary]) -> Iterator[tuple[str, list[GroupSummary]]]:
        for entry in self.spec.entries:
            by_way: dict[int, list[GroupSummary]] = {}
            for _ in entry.workload:
                summary = next(summaries)
                by_way.setdefault(len(summary.attributes), []).append(summary)
            for way, own in by_way.items():
                yield f"{entry.kind}: {way} attribute{'s' * (way != 1)} at a time", own

    def _row(self, asked: str, own: Iterable[GroupSummary], shares: dict[tuple[str, ...], float]) -> Row:
        own = list(own)
        queries = sum(s.queries for s in own)
        place = self.spec.schema.position
        sets = {tuple(sorted(s.attributes, key=place)) for s in own}
        return Row(
            asked,
            queries,
            math.sqrt(math.fsum(s.queries * s.rmse**2 for s in own) / queries) * self.factor,
            math.fsum(shares.get(one, 0.0) for one in sets),
        )

    def equivalents(self) -> str:
        """Say the budget in other words."""
        budget, noise = self.plan.budget, distribution_of(self.spec.measuring.noise)
        cost = noise.allowed_cost(budget)
        epsilon = budget.epsilon_at(1e-6, discrete=not noise.is_gaussian)
        gaussian = f", Gaussian DP with mu = {math.sqrt(cost):.4g}" if noise.is_gaussian else ""
        return (
            f"zCDP with rho = {cost / 2:.4g}{gaussian}, (epsilon, delta) = ({epsilon:.4g}, 1e-06); "
            f"privacy cost {cost:.4g}"
        )

    def to_json(self, every: bool) -> dict[str, Any]:
        """Return plain data."""
        plan = self.plan
        return {
            "queries": plan.workload.query_count,
            "expected_error": self.rmse,
            "gap": plan.gap,
            "guarantee": promise(plan.budget),
            "equivalents": self.equivalents(),
            "privacy_cost": plan.privacy_cost,
            "budget": plan.budget.to_json(),
            "noise": self.spec.measuring.noise,
            "measurements": plan.measurements,
            "groups": [row.to_json() for row in self.rows(every)],
        }
