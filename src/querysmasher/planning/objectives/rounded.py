"""Targets that hold for what is measured: rounded to integers, a plan is slightly less accurate.

Rounding multiplies standard errors by a factor of about 1.00001 to 1.003. A plan of least cost spends more by
its square. Under a given budget, the targets are tightened by it, and the budget is shared anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from querysmasher.arrays import one_core
from querysmasher.planning.centre import Centres
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.again import kind_of
from querysmasher.planning.objectives.apart import is_mixed
from querysmasher.planning.objectives.capping import capped
from querysmasher.planning.objectives.finish import class_losses, with_noise
from querysmasher.planning.objectives.least import at_cost
from querysmasher.planning.objectives.multipliers import Scopes
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.objectives.within import replace_targets
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.distributions import distribution_of
from querysmasher.workload.workload import Workload

NOISE = distribution_of("rounded")
"""The default noise of `measure`."""

MET = 1 + 1e-7
"""A target is met if no standard error exceeds it by more than this factor."""

PROMISED = 1 + 1e-6
"""A plan that misses its targets by more, before any rounding, does not promise them."""

WEIGHT = 5.0
"""An estimate of the sum of the targets' multipliers relative to the loss."""


def as_measured(plan: Plan, max_records: int) -> Plan:
    """Return the plan with the strategies and the noise of its integers.

    Its variances are those of the release, or slightly above where rows have different noise: what rounding
    adds to the noise then counts as often as the noise itself.
    """
    integers = integer_plan(plan, NOISE.allowed_cost(plan.budget), max_records)
    solutions = tuple(Solution(strategy_of_integers(s), 1.0, 1.0, "integer") for s in integers.strategies)
    measured = tuple(
        replace(m, blocks=own.blocks if own.attributes else (), variance=sum(integers.noise(own, NOISE)))
        for m, own in zip(plan.measured, integers.measured, strict=True)
    )
    return replace(plan, solutions=solutions, measured=measured)


def missed_by(plan: Plan) -> float:
    """Return the largest ratio of standard error to target, over queries that have one."""
    return max((one.ratio for one in plan.extremes or () if one.group.target is not None), default=0.0)


def at_measured_cost(plan: Plan, max_records: int) -> Plan:
    """Return the plan of least cost at the cost at which its integers meet all targets."""
    for _ in range(limits().rounding_rounds):
        ratio = missed_by(as_measured(plan, max_records))
        if ratio <= MET:
            break
        cost = plan.budget.privacy_cost
        more = cost * (ratio * (1 + 1e-9)) ** 2
        plan = replace(at_cost(plan, more), certificate=replace(plan.certificate, value=more))
    return plan


def within_measured(
    plan: Plan,
    max_records: int,
    again: Callable[[Workload, Centres], Plan],
    certified: Callable[[Plan], Plan],
) -> Plan:
    """Return a plan under the same budget whose integers meet all targets.

    `again` plans for other targets around centres; it is needed if these strategies cannot meet them.
    `certified` returns a plan with a gap that holds whatever the targets.
    """
    if missed_by(plan) > PROMISED:
        return plan
    best, factor, bound = plan, 1.0, plan.weighted_loss / (1 + plan.gap) ** 2
    for _ in range(limits().rounding_rounds):
        ratio = missed_by(as_measured(best, max_records))
        if ratio <= MET:
            break
        factor *= ratio * (1 + 1e-9)
        tighter = replace_targets(plan.workload, 1 / factor)
        found = _shared_anew(plan, tighter)
        if found is None:
            found = replace(again(tighter, plan.centres), workload=plan.workload)
            if kind_of(found) != kind_of(plan):
                best = certified(found)
                continue
        # tighter targets have a higher bound, which does not hold for these
        best = replace(found, workload=plan.workload, certificate=Certificate(found.weighted_loss, bound))
    return best


def _shared_anew(plan: Plan, tighter: Workload) -> Plan | None:
    """Return the plan with the budget shared anew for tighter targets, or None if these are missed."""
    if is_mixed(plan):
        return None
    scopes = Scopes.of(tighter, own=True, single=True)
    own = replace(plan, workload=tighter)
    table = VarianceTable(own, scopes.of_group)
    targets = [entry.group.target for entry in table.entries]
    aims = np.array([np.inf if target is None else target.std for target in targets])
    losses = class_losses(tighter, table, scopes)
    with one_core():
        x = capped(table, losses, aims, plan.budget.privacy_cost, WEIGHT)
    if x is None:
        return None
    found = with_noise(own, tighter, table, scopes, x)
    return None if missed_by(found) > MET else found
