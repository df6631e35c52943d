"""The least privacy cost that meets every accuracy target.

Variances are inversely proportional to the cost, so the least cost at which every standard error is within
its target is the square of the least largest ratio at cost one. One search for the worst case finds it, and
certifies it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from querysmasher.errors import PlanError
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.limits import limits
from querysmasher.planning.nothing import is_nothing_to_measure, is_public, nothing_to_measure
from querysmasher.planning.objectives import LEAST
from querysmasher.planning.objectives.again import Fresh
from querysmasher.planning.objectives.joining import Joined
from querysmasher.planning.objectives.objective import plan_worst, targets_of, worst_of
from querysmasher.planning.objectives.within import plan_within
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.workload.workload import Workload


def check_aimed(workload: Workload) -> None:
    """Refuse a workload without any target."""
    if not workload.has_targets:
        msg = "workload: expected an accuracy target on some of its queries; state it by workload.within(50)"
        raise PlanError(msg)


def aimed_of(workload: Workload) -> Workload:
    """Return the queries of a workload that have targets."""
    return Workload(workload.schema, tuple(g for g in workload if g.target is not None))


@contextmanager
def measuring_targets(workload: Workload) -> Iterator[None]:
    """Say that targets are about nothing if queries without targets are all that could be measured."""
    try:
        yield
    except PlanError as error:
        if not is_nothing_to_measure(error) or all(g.target is not None for g in workload):
            raise
        raise nothing_to_measure("all its queries with targets", public=is_public(error)) from None


def plan_least(workload: Workload, unit_budget: Budget, fresh: Callable[[Budget], Fresh]) -> Plan:
    """Return the plan of least cost that meets all targets; `fresh` starts planning under a budget."""
    joined = Joined.of(workload)
    aimed = aimed_of(joined.workload)
    with measuring_targets(workload):
        best = plan_worst(aimed, targets_of(aimed), fresh(unit_budget))
    factor = worst_of(best) / math.sqrt(unit_budget.privacy_cost)
    cost = factor**2 * (1 + 1e-12)
    check_cost(cost)
    least = (factor / (1 + best.gap)) ** 2
    if len(aimed.groups) == len(joined.workload.groups):
        plan = joined.restored(at_cost(best, cost))
    else:
        budget = with_cost(unit_budget, cost * (1 + limits().free_tolerances * best.tolerance))
        plan = plan_within(joined, fresh(budget), "refuse", most=limits().most_missed)
        ratio = max(one.ratio for one in plan.extremes or () if one.group.target is not None)
        if ratio > 1:
            plan = at_cost(plan, budget.privacy_cost * ratio**2 * (1 + 1e-12))
    return replace(plan, certificate=Certificate(plan.budget.privacy_cost, least, LEAST))


def check_cost(cost: float) -> None:
    """Refuse a cost at which no privacy is left."""
    if not cost <= limits().most_cost:
        msg = (
            f"workload: meeting its targets would cost {cost:.3g}, more than {limits().most_cost:g}, at "
            "which no privacy is left; use larger targets or fewer queries"
        )
        raise PlanError(msg)


def at_cost(plan: Plan, cost: float) -> Plan:
    """Return the plan with the same shares of another budget."""
    factor = plan.budget.privacy_cost / cost
    measured = tuple(replace(m, variance=m.variance * factor) for m in plan.measured)
    budget = with_cost(plan.budget, cost)
    spent = math.fsum(budget.unit.squared_change(total=not m.attributes) / m.variance for m in measured)
    if spent > cost:  # by rounding error
        budget = with_cost(plan.budget, spent * (1 + 1e-15))
    return replace(plan, measured=measured, budget=budget, weighted_loss=plan.weighted_loss * factor)


def with_cost(budget: Budget, cost: float) -> Budget:
    """Return the budget of a privacy cost, for the same neighbours."""
    unit = budget.unit
    return PrivacyCost(cost, neighbours=unit.neighbours, records_per_person=unit.records_per_person)
