"""The interface of a plan for files and pages, which cannot import `Plan`, as it imports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from querysmasher.formatting import one_line
from querysmasher.planning.centre import Centres
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.limit import Limit
from querysmasher.planning.measured import Measured
from querysmasher.planning.solution import Solution
from querysmasher.privacy.budget import Budget
from querysmasher.schema import Schema
from querysmasher.workload.workload import Group, Workload


@dataclass(frozen=True)
class Extreme:
    """The largest standard error of a group's queries, and the rows of a query that has it."""

    group: Group
    std: float
    rows: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """The standard error relative to the target, which is one for a group without any."""
        return self.std / (1.0 if self.group.target is None else self.group.target.std)

    def query(self, schema: Schema) -> str:
        """Return the query in words."""
        each = [
            one_line(family.labels([schema[n] for n in names])[row])
            for (names, family), row in zip(self.group.parts(), self.rows, strict=True)
        ]
        return " and ".join(filter(None, each)) or "total"


class Planned(Protocol):
    """A readable plan; `Plan` documents every name."""

    @property
    def workload(self) -> Workload: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def centres(self) -> Centres: ...
    @property
    def solutions(self) -> tuple[Solution, ...]: ...
    @property
    def measured(self) -> tuple[Measured, ...]: ...
    @property
    def weighted_loss(self) -> float: ...
    @property
    def certificate(self) -> Certificate: ...
    @property
    def gap(self) -> float: ...
    @property
    def mechanism(self) -> str: ...
    @property
    def solver(self) -> str: ...
    @property
    def centering(self) -> str: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def objective(self) -> str: ...
    @property
    def asked(self) -> Workload | None: ...
    @property
    def sizes_first(self) -> bool: ...
    @property
    def worst(self) -> float | None: ...
    @property
    def least_cost(self) -> float | None: ...
    @property
    def extremes(self) -> Sequence[Extreme] | None: ...
    @property
    def worst_std(self) -> float | None: ...
    @property
    def privacy_cost(self) -> float: ...
    @property
    def rmse(self) -> float: ...
    @property
    def whole(self) -> tuple[int, ...]: ...
    @property
    def fallbacks(self) -> dict[str, tuple[int, float]]: ...
    @property
    def measurements(self) -> int: ...
    @property
    def estimator(self) -> Estimator: ...
    def new_estimator(self) -> Estimator: ...
    def budget_shares(self) -> dict[tuple[str, ...], float]: ...
    def limit(self) -> Limit: ...
