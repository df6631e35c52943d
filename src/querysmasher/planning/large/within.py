"""The least mean error within targets, and the least cost that meets them, where attributes are not split.

For multipliers μ of the targets t, no plan within the targets has a mean error below the least Σ (w_q +
μ_q)Var_q − Σ μ_q t_q², of which the planner returns a certified bound. Multipliers are a multiple of those of
the least largest error; the smallest multiple at which all targets are met is found by bisection.
"""

from __future__ import annotations

import math
from dataclasses import replace

from querysmasher.errors import PlanError
from querysmasher.planning.centre import Centres
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.large.multipliers import Multipliers
from querysmasher.planning.large.worst import Replan, for_workload, plan_worst, ratios_of
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives import LEAST
from querysmasher.planning.objectives.insufficient import InsufficientError, missed_targets
from querysmasher.planning.objectives.least import aimed_of, at_cost, check_cost, measuring_targets
from querysmasher.planning.objectives.objective import targets_of
from querysmasher.planning.objectives.within import replace_targets
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload

FIRST, MOST = 0.05, 1e5
"""The sum of all multipliers × target², relative to the loss: at first, and at most."""


def plan_within(workload: Workload, replan: Replan, tolerance: float, insufficient: str) -> Plan:
    """Return a plan of small mean error that meets all targets."""
    first = replan(workload, None)
    missed = missed_targets(first)
    if not missed:
        return first
    aimed, aiming = aimed_of(workload), workload
    worst = plan_worst(aimed, targets_of(aimed), replan, tolerance)
    factor = worst.plan.worst or math.inf
    if factor > 1:
        if insufficient == "refuse":
            raise InsufficientError(worst.plan, factor, missed)
        aiming = replace_targets(workload, factor * (1 + limits().scaled_slack * tolerance))
    found = _searched(aiming, first, worst.multipliers, replan, worst.plan.centres)
    if found is None:
        msg = (
            "budget: it suffices for the targets, but leaves nothing to queries without any; use a larger "
            "budget, or leave out queries without targets"
        )
        raise PlanError(msg)
    return replace(found, workload=workload)


def plan_least(workload: Workload, unit: Budget, replan: Replan, tolerance: float) -> Plan:
    """Return the plan of least cost that meets all targets; `unit` is the budget of all its plans."""
    aimed = aimed_of(workload)
    aims = targets_of(aimed)
    with measuring_targets(workload):
        worst = plan_worst(aimed, aims, replan, tolerance)
    factor = worst.plan.worst or math.inf
    least = unit.privacy_cost * (factor / (1 + worst.plan.gap)) ** 2
    plan = worst.plan
    if len(aimed.groups) < len(
        workload.groups
    ):  # others with so little weight that they cost hardly anything
        others = tuple(group for group in workload if group.target is None)
        alone = replan(Workload(workload.schema, others), plan.centres).weighted_loss
        loss = factor**2 * (limits().free_tolerances * tolerance / 2) ** 2
        light = tuple(replace(group, weight=group.weight * loss / alone) for group in others)
        asked = Workload(workload.schema, (*worst.multipliers.asked(aimed, aims), *light))
        plan = replan(asked, plan.centres)
        factor = max(math.sqrt(float(own.max())) for own in ratios_of(plan, aimed, aims))
    cost = unit.privacy_cost * factor**2 * (1 + 1e-12)
    check_cost(cost)
    plan = at_cost(for_workload(plan, workload), cost)
    return replace(plan, certificate=Certificate(plan.budget.privacy_cost, least, LEAST))


def _searched(
    workload: Workload, first: Plan, multipliers: Multipliers, replan: Replan, centres: Centres
) -> Plan | None:
    """Return the plan of least mean error found that meets all targets, or None."""
    aimed = aimed_of(workload)
    aims = targets_of(aimed)
    scale = first.weighted_loss
    best, bound = None, scale / (1 + first.gap) ** 2
    below, above, multiple = 0.0, math.inf, FIRST
    for _ in range(limits().large_within_steps):
        priced = multipliers.asked(aimed, aims, multiple * scale)
        asked = tuple(replace(group, target=None) for group in workload)
        plan = replan(Workload(workload.schema, (*asked, *priced)), centres)
        bound = max(bound, plan.weighted_loss / (1 + plan.gap) ** 2 - multiple * scale)
        ratios = ratios_of(plan, aimed, aims)
        if max(float(own.max()) for own in ratios) <= 1:
            above = multiple
            found = for_workload(plan, workload)
            if best is None or found.weighted_loss < best.weighted_loss:
                best = found
        else:
            below = multiple
            multipliers = multipliers.stepped(ratios)
        if above <= limits().large_within_gap * below or below >= MOST:
            break
        multiple = 4 * below if above == math.inf else math.sqrt(max(below, above / 16) * above)
    if best is None:
        return None
    return replace(best, certificate=Certificate(best.weighted_loss, bound))
