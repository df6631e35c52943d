"""The least largest error where attributes are not split, by plans with other weights.

As in `objectives.worst`: for multipliers λ that sum to one, no plan around the same centres has a largest
Var_q/t_q² below the least Σ λ_q Var_q/t_q², of which the planner returns a certified bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centres
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.large.multipliers import Multipliers
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

Replan = Callable[[Workload, Centres | None], Plan]
"""Plans a workload for the mean error, around given centres or the best ones."""


@dataclass(frozen=True, eq=False)
class Worst:
    """The plan whose largest error is least, and the multipliers that prove the best bound."""

    plan: Plan
    multipliers: Multipliers


def plan_worst(workload: Workload, aims: Array, replan: Replan, tolerance: float) -> Worst:
    """Return the plan whose largest standard error, relative to its group's aim, is least."""
    multipliers, best = Multipliers.first(workload), None
    least, bound, stalled, gap = math.inf, 0.0, 0, math.inf
    many = max(workload.schema.sizes) > limits().quick_values
    for _ in range(limits().large_worst_fewer if many else limits().large_worst_steps):
        asked = Workload(workload.schema, tuple(multipliers.asked(workload, aims)))
        plan = replan(asked, None if best is None else best.plan.centres)
        ratios = ratios_of(plan, workload, aims)
        largest = max(float(own.max()) for own in ratios)
        below = plan.weighted_loss / (1 + plan.gap) ** 2
        gained = largest < least * (1 - 1e-3) or below > bound * (1 + 1e-3)
        stalled = 0 if gained else stalled + 1
        bound = max(bound, below)
        if best is None or largest < least:
            least, best = largest, Worst(plan, multipliers)
        gap = max(0.0, math.sqrt(least / bound) - 1)
        if gap <= max(limits().large_worst_gap, tolerance) or stalled >= (
            limits().large_worst_impatience if many else limits().large_worst_patience
        ):
            break
        multipliers = multipliers.stepped(ratios)
    assert best is not None  # noqa: S101 - there is at least one step
    return replace(
        best,
        plan=replace(for_workload(best.plan, workload), certificate=Certificate(least, bound, "worst")),
    )


def ratios_of(plan: Plan, groups: Sequence[Group] | Workload, aims: Array) -> list[Array]:
    """Return the variance of every query relative to the square of its group's aim."""
    return [plan.estimator.variances(group) / aim**2 for group, aim in zip(groups, aims, strict=True)]


def for_workload(plan: Plan, workload: Workload) -> Plan:
    """Return a plan for queries with other weights as one for a workload: only its losses change."""
    total = 0.0
    for group in workload:
        own = plan.estimator.variances(group)
        for family in reversed(group.families):
            own = own.sum(axis=-1) if family.weights is None else own @ family.weights
        total += group.weight * float(own)
    root = math.sqrt(total / plan.weighted_loss)
    measured = tuple(replace(one, root_loss=one.root_loss * root) for one in plan.measured)
    return replace(plan, workload=workload, measured=measured, weighted_loss=total)
