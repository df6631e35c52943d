"""Targets that hold for what is measured: rounded to integers, a plan is slightly less accurate.

Rounding multiplies standard errors by a factor of about 1.00001 to 1.003. A plan of least cost spends more by
its square. Under a given budget, the targets are tightened by it, and the budget is shared anew.
"""

from __future__ import annotations

import math
from dataclasses import replace

from querysmasher.planning.integer import integer_plan
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.privacy.distributions import distribution_of

NOISE = distribution_of("rounded")
"""The default noise of `measure`."""

MET = 1 + 1e-7
"""A target is met if no standard error exceeds it by more than this factor."""

ROUNDS = 3
"""Maximum number of times that rounding is made up for: other noise is rounded otherwise."""


def as_measured(plan: Plan, max_records: int) -> Plan:
    """Return the plan with the strategies and the noise of its integers.

    Its variances are those of the release, or slightly above where rows have different noise: what rounding
    adds to the noise then counts as often as the noise itself.
    """
    integers = integer_plan(plan, NOISE.allowed_cost(plan.budget), max_records)
    solutions = tuple(Solution(strategy_of_integers(s), 1.0, 1.0, "integer") for s in integers.strategies)
    measured = tuple(
        replace(
            m,
            blocks=rounded.blocks if rounded.attributes else (),
            variance=sum(integers.noise(rounded, NOISE)),
        )
        for m, rounded in zip(plan.measured, integers.measured, strict=True)
    )
    return replace(plan, solutions=solutions, measured=measured)


def missed_by(plan: Plan) -> float:
    """Return the largest ratio of standard error to target, over queries that have one."""
    return max((e.ratio for e in plan.extremes or () if e.group.target is not None), default=0.0)


def with_cost(budget: Budget, cost: float) -> Budget:
    """Return the budget of a privacy cost, for the same neighbours."""
    unit = budget.unit
    return PrivacyCost(cost, neighbours=unit.neighbours, records_per_person=unit.records_per_person)


def at_cost(plan: Plan, cost: float) -> Plan:
    """Return the plan with the same shares of another budget."""
    factor = plan.budget.privacy_cost / cost
    measured = tuple(replace(m, variance=m.variance * factor) for m in plan.measured)
    budget = with_cost(plan.budget, cost)
    spent = math.fsum(budget.unit.change(m.attributes) / m.variance for m in measured)
    if spent > cost:  # by rounding error
        budget = with_cost(plan.budget, spent * (1 + 1e-15))
    return replace(plan, measured=measured, budget=budget, weighted_loss=plan.weighted_loss * factor)


def at_measured_cost(plan: Plan, max_records: int) -> Plan:
    """Return the plan of least cost at the cost at which its integers meet all targets."""
    for _ in range(ROUNDS):
        ratio = missed_by(as_measured(plan, max_records))
        if ratio <= MET:
            break
        cost = plan.budget.privacy_cost
        more = cost * (ratio * (1 + 1e-9)) ** 2
        plan = replace(at_cost(plan, more), certificate=replace(plan.certificate, value=more))
    return plan
