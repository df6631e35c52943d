"""What a plan minimises, and how: every objective plans the same queries with other weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, not_one_of
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.objectives import INSUFFICIENT, OBJECTIVES
from querysmasher.planning.objectives.again import Fresh, kind_of
from querysmasher.planning.objectives.apart import is_mixed
from querysmasher.planning.objectives.combining import combined
from querysmasher.planning.objectives.finish import with_noise
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes
from querysmasher.planning.objectives.sharing import largest_ratio, share
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.objectives.worst import Search
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload


def check_objective(objective: object, insufficient: object) -> None:
    """Refuse unknown options."""
    for name, given, known in (
        ("objective", objective, OBJECTIVES),
        ("insufficient", insufficient, INSUFFICIENT),
    ):
        if not isinstance(given, str) or given not in known:
            msg = f"{name}: {not_one_of(known, given)}"
            raise PlanError(msg)


def plan_worst(workload: Workload, aims: Array, fresh: Fresh) -> Plan:
    """Return the plan whose largest standard error, relative to its group's aim, is least."""
    return search_worst(workload, aims, fresh)[0]


def search_worst(workload: Workload, aims: Array, fresh: Fresh) -> tuple[Plan, Multipliers]:
    """Return the same plan, and the multipliers that it was found with."""
    again = fresh()
    search = Search(workload, aims, again, again.tolerance)
    best = search.run()
    assert best.shares is not None  # noqa: S101 - only trials with shares are kept
    scopes = best.multipliers.scopes
    asked = best.multipliers.workload
    plan = with_noise(best.plan, asked, best.table, scopes, best.shares.variances)
    gap = search.gap
    if is_mixed(plan):
        plan, gap = _combined_worst(plan, aims, scopes, search)
    return replace(
        plan, workload=workload, certificate=Certificate((1 + gap) ** 2, 1.0, "worst")
    ), best.multipliers


def _combined_worst(plan: Plan, aims: Array, scopes: Scopes, search: Search) -> tuple[Plan, float]:
    """Return the plan of the least largest error of combined answers, and its gap."""

    def value(table: VarianceTable, x: Array) -> float:
        return largest_ratio(table, search.of_entries(table), x)

    def shares(table: VarianceTable, _: Array) -> Array:
        return share(table, search.of_entries(table), plan.budget.privacy_cost).variances

    found = combined(plan, plan.workload, scopes, value, shares)
    largest = max(one.std / aim for one, aim in zip(found.extremes or (), aims, strict=True))
    return found, max(0.0, largest / math.sqrt(search.bounds[kind_of(found)]) - 1)


def worst_of(plan: Plan) -> float:
    """Return the largest ratio of standard error to target."""
    worst = plan.worst
    assert worst is not None  # noqa: S101 - the search computed it
    return worst


def targets_of(workload: Workload) -> Array:
    """Return the target of every group, and one where there is none."""
    return np.array([1.0 if g.target is None else g.target.std for g in workload])
