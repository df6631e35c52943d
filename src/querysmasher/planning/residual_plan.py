"""Plans that measure given residuals at given privacy costs: the phases of an exploration.

The residual of an attribute set is what its marginal has beyond those of its proper subsets. All of it is
measured, with the same noise in every direction: the best strategy for a marginal around uniform centres.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from querysmasher.errors import PlanError
from querysmasher.planning.around import plan_at
from querysmasher.planning.centre import uniform
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.options import Options
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.privacy.entries import canonical
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.workload import Group, Workload

Place = tuple[int, ...]
"""Increasing indexes of attributes."""


def tables(schema: Schema, sets: Sequence[Place], weights: Sequence[float] | None = None) -> Workload:
    """Return the workload of all cells of the marginals on some sets."""
    own = [1.0] * len(sets) if weights is None else weights
    return Workload(
        schema,
        tuple(
            Group(
                tuple(schema.names[a] for a in place),
                tuple(Identity.of(schema.sizes[a]) for a in place),
                weight,
            )
            for place, weight in zip(sets, own, strict=True)
        ),
    )


def directions(schema: Schema, place: Place) -> int:
    """Return the number of directions of the residual of a set: zero if an attribute has one value."""
    return math.prod(schema.sizes[a] - 1 for a in place)


def cell_cost(schema: Schema, place: Place, budget: Budget) -> float:
    """Return the privacy cost at which the noise on every cell of a residual has variance 1.

    With variance s² in every direction of the residual, it costs Π(1 - 1/n)/s² for each change of a record,
    and a cell has the variance s² Π(1 - 1/n).
    """
    change = budget.unit.squared_change(total=not place)
    return change * math.prod((1 - 1 / schema.sizes[a]) ** 2 for a in place)


def residual_plan(
    schema: Schema, budget: Budget, costs: Mapping[Place, float], max_records: int
) -> IntegerPlan:
    """Return a plan in integers that measures the residual of each set at its privacy cost, or a little less.

    `budget` states the unit of privacy; that of the returned plan is the sum of the costs.
    """
    total = math.fsum(costs.values())
    if (
        not costs
        or min(costs.values()) <= 0
        or not all(directions(schema, place) for place in costs if place)
    ):
        msg = "costs: expected a positive privacy cost for sets of attributes with several values"
        raise PlanError(msg)
    unit = budget.unit
    own = PrivacyCost(total, neighbours=unit.neighbours, records_per_person=unit.records_per_person)
    options = Options.of(centering="uniform")
    plan = plan_at(uniform(schema), tables(schema, list(costs)), own, options)
    measured = tuple(
        replace(m, variance=unit.squared_change(total=not m.attributes) / costs[m.attributes])
        for m in plan.measured
        if m.attributes in costs
    )
    return integer_plan(replace(plan, measured=measured), total, max_records)


def joined(plans: Sequence[IntegerPlan], budget: Budget) -> IntegerPlan:
    """Return all measurements of several plans, in order, as one under the budget of all.

    Equal strategies become one, so that repeated measurements of a set are recognised.
    """
    numbers: dict[str, int] = {}
    strategies: list[IntegerStrategy] = []
    measured: list[IntegerMeasured] = []
    for plan in plans:
        place = []
        for strategy in plan.strategies:
            key = _key(strategy)
            if key not in numbers:
                numbers[key] = len(strategies)
                strategies.append(strategy)
            place.append(numbers[key])
        measured += [
            IntegerMeasured(m.attributes, tuple((axes, place[n]) for axes, n in m.blocks), m.variance)
            for m in plan.measured
        ]
    first = plans[0]
    return IntegerPlan(first.schema, budget, tuple(strategies), tuple(measured), first.max_records)


def _key(strategy: IntegerStrategy) -> str:
    factors = [[axes, factor.kind, factor.to_data()] for axes, factor in strategy.factors]
    return canonical({"shape": strategy.shape, "factors": factors, "multipliers": strategy.multipliers})


def rounded_up(variance: float) -> Fraction:
    """Return a variance as a short fraction, never smaller."""
    grain = 1 if variance >= 2**20 else 2**20
    return max(Fraction(1), Fraction(math.ceil(Fraction(variance) * grain), grain))
