"""From a trial to a plan of the workload that was asked: its weights, and the noise of the best shares.

Besides, what the classes of attribute sets lose, and how much targets should weigh against that.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.workload.workload import Workload


def with_noise(plan: Plan, workload: Workload, table: VarianceTable, scopes: Scopes, x: Array) -> Plan:
    """Return the plan for `workload` with noise variances `x`, one per class of the table."""
    variances = np.array([m.variance for m in plan.measured])
    losses = class_losses(workload, table, scopes)
    if table.is_linear:
        for number, own in enumerate(table.sets):
            variances[own] = x[number]
        unit, cost = plan.budget.unit, plan.budget.privacy_cost
        factors = np.array([unit.squared_change(total=not m.attributes) for m in plan.measured], dtype=float)
        while (spent := math.fsum(factors / variances)) > cost:  # by rounding error
            variances *= max(spent / cost, 1 + 1e-15)
        by_set = np.empty(len(variances))
        for number, own in enumerate(table.sets):
            by_set[own] = losses[number] / len(own)
    else:  # any losses that add up to the total
        by_set = losses[0] / (len(variances) * variances)
    measured = tuple(
        replace(
            m,
            variance=variance,
            root_loss=math.sqrt(loss),
            whole=tuple(place for place in m.whole if place < len(workload.groups)),
        )
        for m, variance, loss in zip(plan.measured, variances.tolist(), by_set.tolist(), strict=True)
    )
    total = math.fsum(m.variance * m.root_loss**2 for m in measured)
    return replace(plan, workload=workload, measured=measured, weighted_loss=total)


def class_losses(workload: Workload, table: VarianceTable, scopes: Scopes) -> Array:
    """Return Σ weight × variance over all queries, at σ² = 1 on the sets of one class, for every class."""
    weights = np.array([sum(workload.groups[g].weight for g in entry.members) for entry in table.entries])
    return np.asarray(weights @ table.coefficients(_summed(table, scopes)))


def _summed(table: VarianceTable, scopes: Scopes) -> Array:
    """Return the sum of every column with the weights of its families."""
    result = np.empty(len(table.columns))
    for number, (column, kind) in enumerate(zip(table.columns, table.kinds, strict=True)):
        weights = np.ones(1)
        for scope in kind:
            family = scopes.scopes[scope].family
            own = np.ones(family.rows) if family.weights is None else family.weights
            weights = np.multiply.outer(weights, own).ravel()
        result[number] = weights @ column
    return result


def best_sum(multipliers: Multipliers, aims: Array, table: VarianceTable, losses: Array) -> float:
    """Return the sum of the multipliers at which the bound is highest, if strategies stayed the same.

    It is then (Σ_k √(n_k c_k (ℓ_k + s b_k)))² / budget - s, with ℓ_k the loss of class k and s·b_k that of
    the multipliers: concave in s. `aims` has the target of every group, infinite for those without any.
    """
    relative = np.where(np.isfinite(aims), multipliers.groups / aims**2, 0.0)
    weights = np.array([relative[list(entry.members)].sum() for entry in table.entries])
    added = weights @ table.coefficients(multipliers.by_column(table)) / float(multipliers.groups.sum())
    spent = table.counts * table.changes
    budget = float((spent / table.variances).sum())

    def slope(log_sum: float) -> float:
        roots = np.sqrt(np.maximum(spent * (losses + math.exp(log_sum) * added), 1e-300))
        return float(roots.sum() * (spent * added / roots).sum()) / budget - 1

    low, high = (math.log(float(multipliers.groups.sum())) + change for change in (-9.0, 9.0))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return math.exp(low)
