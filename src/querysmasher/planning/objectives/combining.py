"""The last step for plans that measure some groups as they are: shares of the budget for combined answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.apart import CombinedTable, can_combine
from querysmasher.planning.objectives.finish import class_losses, with_noise
from querysmasher.planning.objectives.multipliers import Scopes
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload

Value = Callable[[VarianceTable, Array], float]
"""What is to be small, given a table and the noise variances of its classes; infinite beyond a target."""

Share = Callable[[VarianceTable, Array], Array | None]
"""The best noise variances of a table's classes, given its losses at σ² = 1, or None if there are none."""


def combined(plan: Plan, workload: Workload, scopes: Scopes, value: Value, share: Share) -> Plan:
    """Return the plan for `workload` with the budget shared anew, and the loss of its combined answers."""
    plan = replace(plan, workload=workload)
    if not can_combine(plan):
        table = VarianceTable(plan, scopes.of_group)
        return with_noise(plan, workload, table, scopes, table.variances)
    table = CombinedTable(plan, scopes.of_group)
    best = value(table, table.variances)
    for _ in range(limits().combining_rounds):
        with one_core():
            x = share(table, class_losses(workload, table, scopes))
        if x is None:
            break
        moved = with_noise(plan, workload, table, scopes, x)
        found = CombinedTable(moved, scopes.of_group)
        reached = value(found, found.variances)
        if not reached < best:
            break
        plan, table, best, before = moved, found, reached, best
        if reached > before * (1 - limits().combining_gain):
            break
    return with_noise(plan, workload, table, scopes, np.asarray(table.variances))
