"""The plan of least error, as far as an exploration follows it: with very many records, nothing is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from querysmasher.exploring.asked import Asked
from querysmasher.exploring.shares import DENSE, MEAN, dense_share
from querysmasher.planning.around import plan_at
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimating import Place
from querysmasher.planning.options import Options
from querysmasher.privacy.budget import Budget

SURELY = 10
"""The plan of least error is at most this many times better than measuring every table evenly, by itself."""


@dataclass(frozen=True)
class Direct:
    """What the plan of least error would spend on each attribute set, and how much of it to follow."""

    weight: float = 0.0
    """The share of the budget that is spent in this way."""
    costs: Mapping[Place, float] = field(default_factory=dict)
    """The privacy cost of each set in the plan."""

    @classmethod
    def of(cls, asked: Asked, budget: Budget, total: float, cost: float) -> Direct:
        """Return what to follow on a table of so many records, if so much privacy cost is to be spent."""
        schema, unit = asked.schema, budget.unit
        sizes = [math.prod(schema.sizes[a] for a in place) for place in asked.sets]
        records = max(total, 1.0)
        alone = MEAN * math.fsum(sizes) * math.sqrt(unit.squared_change() / (len(sizes) * cost)) / records
        if alone > SURELY * DENSE:
            return cls()
        best = plan_at(uniform(schema), asked.workload, budget, Options.of(centering="uniform"))
        scale = math.sqrt(budget.privacy_cost / cost)
        weight = dense_share(MEAN * scale * best.rmse * math.fsum(sizes) / len(sizes) / records)
        costs = {
            m.attributes: unit.squared_change(total=not m.attributes) / m.variance for m in best.measured
        }
        return cls(weight, {place: own * cost / budget.privacy_cost for place, own in costs.items()})

    def missing(self, spent: Mapping[Place, float], cost: float) -> dict[Place, float]:
        """Return a privacy cost for each set that the plan spends more on than was spent already."""
        missing = {place: own - spent.get(place, 0.0) for place, own in self.costs.items()}
        short = {place: own for place, own in missing.items() if own > 0}
        whole = math.fsum(short.values())
        return {place: own * cost / whole for place, own in short.items()} if cost > 0 and whole > 0 else {}
