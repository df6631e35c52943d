"""Targets and a budget: the plan of least mean error within the targets, or why there is none.

The search runs around uniform centres, and around those of the least budget if they meet the targets more
easily. From the multipliers that it finds, centres are chosen anew, as for any weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from querysmasher.errors import PlanError
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.again import Again, Fresh, kind_of
from querysmasher.planning.objectives.found import Found
from querysmasher.planning.objectives.insufficient import InsufficientError, missed_targets, said_factor
from querysmasher.planning.objectives.joining import Joined
from querysmasher.planning.objectives.multipliers import Multipliers
from querysmasher.planning.objectives.objective import plan_worst, search_worst, targets_of, worst_of
from querysmasher.planning.objectives.targets import MET, CappedSearch
from querysmasher.planning.plan import Plan
from querysmasher.workload.target import Target
from querysmasher.workload.workload import Workload


class LeavesNothingError(PlanError):
    """The budget suffices for the targets, but not for the other queries beside them."""


def plan_for(objective: str, workload: Workload, fresh: Fresh, insufficient: str) -> Plan:
    """Return the plan of least error; `fresh` starts planning the queries with any weights."""
    joined = Joined.of(workload)
    if objective == "worst":
        return joined.restored(plan_worst(joined.workload, targets_of(joined.workload), fresh))
    return plan_within(joined, fresh, insufficient)


def plan_within(joined: Joined, fresh: Fresh, insufficient: str, *, most: float = 1.0) -> Plan:
    """Return the plan of least mean error that meets all targets.

    If nothing is left to queries without targets, the others may be missed by the factor `most`.
    """
    workload = joined.workload
    again = fresh()
    first = again(workload)
    missed = missed_targets(joined.restored(first))
    if not missed:
        return joined.restored(first)
    even = uniform(workload.schema)
    start = again.fixed or even
    movable = first.centering == "optimized" and again.fixed is None and kind_of(first) != "whole"
    found = CappedSearch(workload, again.around(start)).run()
    if found is None or (movable and found.weight > limits().tight_targets):
        best, multipliers = _least_missed(workload, fresh, even)
        factor = worst_of(best)
        if found is None and factor**2 > MET:
            if insufficient == "refuse":
                raise InsufficientError(best, factor, missed)
            workload = replace_targets(workload, factor * (1 + limits().scaled_slack * first.tolerance))
        search = CappedSearch(workload, again.around(best.centres))
        if found is None or best.centres != start:
            found = _better(found, search, None, multipliers)
        if found is None:
            return joined.restored(_rough(workload, best, fresh, search, most))
    if movable:
        found = _moved(workload, again, found)
    certificate = Certificate(found.plan.weighted_loss, found.bound)
    plan = replace(found.plan, workload=workload, certificate=certificate, tolerance=again.tolerance)
    return joined.restored(plan)


def _least_missed(workload: Workload, fresh: Fresh, even: Centres) -> tuple[Plan, Multipliers]:
    """Return the plan of the queries with targets that misses these least, also around uniform centres.

    The multipliers are those that it was found with.
    """
    aimed = Workload(workload.schema, tuple(g for g in workload if g.target is not None))
    best = search_worst(aimed, targets_of(aimed), fresh)
    if worst_of(best[0]) > 1 and best[0].centres != even:
        other = search_worst(aimed, targets_of(aimed), lambda: replace(fresh(), fixed=even))
        best = min(best, other, key=lambda one: worst_of(one[0]))
    return best


def _better(
    known: Found | None, search: CappedSearch, start: Found | None, worst: Multipliers | None = None
) -> Found | None:
    """Return what a search finds if it is better than what is known."""
    most = np.inf if known is None else known.plan.weighted_loss
    found = search.run(None if start is None else start.multipliers, most, worst)
    return known if found is None or found.plan.weighted_loss >= most else found


def _moved(workload: Workload, again: Again, found: Found) -> Found:
    """Return a plan around centres that are better for the same multipliers, as long as that helps."""
    tried = {found.plan.centres}
    for _ in range(limits().centre_moves):
        centres = again(found.weighted()).centres
        if centres in tried:
            break
        tried.add(centres)
        before = found
        found = _better(before, CappedSearch(workload, again.around(centres)), before) or before
        if found.plan.weighted_loss > before.plan.weighted_loss * (1 - again.tolerance):
            break
    return found


def _rough(workload: Workload, best: Plan, fresh: Fresh, search: CappedSearch, most: float) -> Plan:
    """Return a plan that meets the targets and answers other queries roughly: there is hardly any budget.

    The search around the centres of the best plan met no targets, but it has a bound.
    """

    def certified(plan: Plan) -> Plan:
        return replace(plan, certificate=Certificate(plan.weighted_loss, search.bound))

    if len(best.workload.groups) == len(workload.groups):
        return certified(best)
    first = search.again(workload)
    stds = [one.std for one in first.extremes or ()]
    for loose in limits().loosened:
        given = zip(workload, stds, strict=True)
        aims = np.array([loose * std if g.target is None else g.target.std for g, std in given])
        plan = plan_worst(workload, np.maximum(aims, 1e-9), lambda: replace(fresh(), fixed=best.centres))
        missed = max(one.ratio for one in plan.extremes or () if one.group.target is not None)
        if missed <= most:
            return certified(plan)
    msg = (
        "budget: it suffices for the targets, but leaves nothing to queries without any: beside these, "
        f"targets are missed by a factor of {said_factor(missed)}. Use a privacy cost of "
        f"{plan.budget.privacy_cost * missed**2 * 1.002:.6g}, or leave out queries without targets"
    )
    raise LeavesNothingError(msg)


def replace_targets(workload: Workload, factor: float) -> Workload:
    """Return the workload with multiples of its targets, as standard errors."""
    groups = (g if g.target is None else replace(g, target=Target(g.target.std * factor)) for g in workload)
    return Workload(workload.schema, tuple(groups))
