"""What a plan minimises, and how: every objective plans the same queries with other weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, Remedy
from querysmasher.formatting import number
from querysmasher.planning.objectives import INSUFFICIENT, OBJECTIVES
from querysmasher.planning.objectives.again import Fresh
from querysmasher.planning.objectives.finish import with_noise
from querysmasher.planning.objectives.targets import CappedSearch, Found
from querysmasher.planning.objectives.worst import Search
from querysmasher.planning.plan import Plan
from querysmasher.workload.target import Target
from querysmasher.workload.workload import Workload

MET = 1 + 1e-9
"""A target is met by a plan that ignores it if no standard error exceeds it by more than this factor."""

MOST_NAMED = 4
"""Maximum number of groups that an error names."""

SLACK = 3.0
"""Number of tolerances by which scaled targets exceed the least possible, to leave some to other queries."""

LOOSE = 10.0
"""Queries without targets may be this many times worse than without any targets, if nothing else works."""


def check_objective(objective: object, insufficient: object) -> None:
    """Refuse unknown options."""
    for name, given, known in (
        ("objective", objective, OBJECTIVES),
        ("insufficient", insufficient, INSUFFICIENT),
    ):
        if not isinstance(given, str) or given not in known:
            msg = f"{name}: expected one of {', '.join(map(repr, known))}, got {given!r}"
            raise PlanError(msg)


def plan_for(objective: str, workload: Workload, fresh: Fresh, insufficient: str) -> Plan:
    """Return the plan of least error; `fresh` starts planning the queries with any weights."""
    if objective == "worst":
        return plan_worst(workload, targets_of(workload), fresh)
    return plan_within(workload, fresh, insufficient)


def plan_worst(workload: Workload, aims: Array, fresh: Fresh) -> Plan:
    """Return the plan whose largest standard error, relative to its group's aim, is least."""
    again = fresh()
    search = Search(workload, aims, again, again.tolerance)
    best = search.run()
    assert best.shares is not None  # noqa: S101 - only trials with shares are kept
    scopes = best.multipliers.scopes
    asked = best.multipliers.workload
    plan = with_noise(best.plan, asked, best.table, scopes, best.shares.variances)
    return replace(plan, workload=workload, gap=search.gap, objective="worst")


def plan_within(workload: Workload, fresh: Fresh, insufficient: str, *, cost_is_known: bool = False) -> Plan:
    """Return the plan of least mean error that meets all targets.

    If the `cost_is_known` to suffice, no search decides that first.
    """
    first = fresh()(workload)
    missed = missed_targets(first)
    if not missed:
        return first
    if cost_is_known:
        return _within(workload, first, fresh)
    aimed = Workload(workload.schema, tuple(g for g in workload if g.target is not None))
    best = plan_worst(aimed, targets_of(aimed), fresh)
    factor = worst_of(best)
    if factor > 1:
        if insufficient == "refuse":
            raise _refusal(best, factor, missed)
        if len(aimed.groups) == len(workload.groups):
            return replace(best, workload=workload)
        scaled = replace_targets(workload, factor * (1 + SLACK * first.tolerance))
        return replace(_within(scaled, first, fresh), workload=workload)
    return _within(workload, first, fresh)


def _within(workload: Workload, first: Plan, fresh: Fresh) -> Plan:
    """Return the plan of least mean error within targets that some plan can meet."""
    again = fresh()
    found = CappedSearch(workload, again, again.tolerance).run(first)
    if found is None:  # every plan of the search missed a target a little: keep well below
        stds = [one.std for one in first.extremes or ()]
        given = zip(workload, stds, strict=True)
        aims = np.array([LOOSE * std if g.target is None else g.target.std for g, std in given])
        plan = plan_worst(workload, np.maximum(aims, 1e-9), fresh)
        bound = first.weighted_loss / (1 + first.gap) ** 2
        found = Found(plan, bound)
    return replace(found.plan, gap=found.gap, objective="mean")


def replace_targets(workload: Workload, factor: float) -> Workload:
    """Return the workload with multiples of its targets, as standard errors."""
    groups = (g if g.target is None else replace(g, target=Target(g.target.std * factor)) for g in workload)
    return Workload(workload.schema, tuple(groups))


def worst_of(plan: Plan) -> float:
    """Return the largest ratio of standard error to target."""
    worst = plan.worst
    assert worst is not None  # noqa: S101 - the search computed it
    return worst


def missed_targets(plan: Plan) -> list[tuple[str, float, Target]]:
    """Return the groups that miss their target: their name, largest standard error and target."""
    return [
        (one.group.describe(), one.std, one.group.target)
        for one in plan.extremes or ()
        if one.group.target is not None and one.ratio > MET
    ]


def _refusal(best: Plan, factor: float, missed: list[tuple[str, float, Target]]) -> PlanError:
    """Say which targets are missed by how much, and what would suffice."""
    cost = best.budget.privacy_cost * factor**2 * (1 + 1e-5)  # printed with fewer digits
    least = factor / (1 + best.gap)
    certain = f"; no plan of its kind misses by less than {least:.4g}" if least > 1 else ""
    listed = "; ".join(
        f"{name}: standard error {number(std)}, target {number(target.std)}"
        for name, std, target in sorted(missed, key=lambda one: -one[1] / one[2].std)[:MOST_NAMED]
    )
    more = f"; and {len(missed) - MOST_NAMED} more" if len(missed) > MOST_NAMED else ""
    msg = (
        f"budget: it does not suffice for the targets, which the best plan misses by a factor of {factor:.4g}"
        f"{certain}. Planned without targets, {listed}{more}. All targets are met by a privacy cost of "
        f"{cost:.6g} (rho = {cost / 2:.6g}), instead of {best.budget.privacy_cost:.6g}"
    )
    remedy = Remedy(
        "use that budget, `least_budget`, looser targets, or insufficient='scale' to miss all by this factor",
        "use that budget, [budget] least = true, looser targets, or [plan] insufficient = 'scale' to miss "
        "all by this factor",
    )
    return PlanError(msg, remedy)


def targets_of(workload: Workload) -> Array:
    """Return the target of every group, and one where there is none."""
    return np.array([1.0 if g.target is None else g.target.std for g in workload])
