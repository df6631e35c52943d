"""What a plan minimises, and how: every objective plans the same queries with other weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.planning.objectives import OBJECTIVES
from querysmasher.planning.objectives.again import Replan
from querysmasher.planning.objectives.finish import with_noise
from querysmasher.planning.objectives.worst import Search
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload


def check_objective(objective: object) -> None:
    """Refuse an unknown objective."""
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        msg = f"objective: expected one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}"
        raise PlanError(msg)


def plan_for(objective: str, workload: Workload, replan: Replan, tolerance: float) -> Plan:
    """Return the plan of least error; `replan` plans the same queries with any weights."""
    if objective == "worst":
        return plan_worst(workload, replan, tolerance)
    return replan(workload)


def plan_worst(workload: Workload, replan: Replan, tolerance: float) -> Plan:
    """Return the plan whose largest standard error, relative to its target, is least."""
    search = Search(workload, targets_of(workload), replan, tolerance)
    best = search.run()
    assert best.shares is not None  # noqa: S101 - only trials with shares are kept
    scopes = best.multipliers.scopes
    asked = best.multipliers.workload
    plan = with_noise(best.plan, asked, best.table, scopes, best.shares.variances)
    return replace(plan, workload=workload, gap=search.gap, objective="worst")


def targets_of(workload: Workload) -> Array:
    """Return the target of every group, and one where there is none."""
    return np.array([1.0 if g.target is None else g.target.std for g in workload])
