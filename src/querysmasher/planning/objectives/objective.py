"""What a plan minimises, and how: every objective plans the same queries with other weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, Remedy
from querysmasher.formatting import number
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.objectives import INSUFFICIENT, OBJECTIVES
from querysmasher.planning.objectives.again import Again, Fresh, kind_of
from querysmasher.planning.objectives.apart import is_mixed
from querysmasher.planning.objectives.combining import combined
from querysmasher.planning.objectives.finish import with_noise
from querysmasher.planning.objectives.joining import Joined
from querysmasher.planning.objectives.multipliers import Scopes
from querysmasher.planning.objectives.sharing import largest_ratio, share
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.objectives.targets import FIRST_SHARE, CappedSearch, Found
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

LOOSE = (8.0, 30.0, 100.0, 1000.0)
"""Queries without targets may be this many times worse than without any targets, if nothing else works."""


WIDE = 0.01
"""If the gap is wider, plans around the centres of the least cost are tried, too."""

MOST_SHARE = 1e5
"""Maximum sum of the first multipliers, relative to the loss."""


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
    joined = Joined.of(workload)
    if objective == "worst":
        return joined.restored(plan_worst(joined.workload, targets_of(joined.workload), fresh))
    return plan_within(joined, fresh, insufficient)


def plan_worst(workload: Workload, aims: Array, fresh: Fresh) -> Plan:
    """Return the plan whose largest standard error, relative to its group's aim, is least."""
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
    return replace(plan, workload=workload, gap=gap, objective="worst")


def _combined_worst(plan: Plan, aims: Array, scopes: Scopes, search: Search) -> tuple[Plan, float]:
    """Return the plan of the least largest error of combined answers, and its gap."""

    def value(table: VarianceTable, x: Array) -> float:
        return largest_ratio(table, search.of_entries(table), x)

    def shares(table: VarianceTable, _: Array) -> Array:
        return share(table, search.of_entries(table), plan.budget.privacy_cost).variances

    found = combined(plan, plan.workload, scopes, value, shares)
    largest = max(one.std / aim for one, aim in zip(found.extremes or (), aims, strict=True))
    return found, max(0.0, largest / math.sqrt(search.bounds[kind_of(found)]) - 1)


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
    found = _searched(workload, first, again)
    if found is None or found.gap > WIDE:
        aimed = Workload(workload.schema, tuple(g for g in workload if g.target is not None))
        best = plan_worst(aimed, targets_of(aimed), fresh)
        factor = worst_of(best)
        if found is None and factor > 1 and insufficient == "refuse":
            raise refusal(best, factor, missed)
        if len(aimed.groups) == len(workload.groups):
            return joined.restored(found or best)
        if found is None and factor > 1:
            workload = replace_targets(workload, factor * (1 + SLACK * first.tolerance))
            found = _searched(workload, first, again)
        elif factor < 1:
            found = _close(workload, best.centres, again, found, factor)
        if found is None:
            found = _loose(workload, first, lambda: replace(fresh(), fixed=best.centres), most)
    return joined.restored(found)


def _searched(workload: Workload, first: Plan, again: Again) -> Plan | None:
    """Return the plan of least mean error within targets, or None if no plan of the search meets them."""
    return _found(CappedSearch(workload, again, again.tolerance).run(first))


def _found(found: Found | None) -> Plan | None:
    return None if found is None else replace(found.plan, gap=found.gap, objective="mean")


def _close(
    workload: Workload, centres: Centres, again: Again, known: Plan | None, factor: float
) -> Plan | None:
    """Return the better of a known plan and one around the centres of least cost, or else uniform ones.

    Around the centres of least cost, targets can be met at any cost above it. With `factor` the least largest
    ratio of error to target, the sum of the multipliers is about 1 / (1 / factor² - 1) of the loss, which is
    that much larger than without targets.
    """
    share = FIRST_SHARE * max(1.0, (1 / factor**2 - 1) ** -2)
    for own in dict.fromkeys((centres, uniform(workload.schema))):

        def at(asked: Workload, _: Centres | None = None, /, own: Centres = own) -> Plan:
            return again(asked, own)

        search = CappedSearch(workload, at, again.tolerance)
        plan = _found(search.run(at(workload), min(share, MOST_SHARE)))
        if plan is not None:
            return plan if known is None or plan.weighted_loss < known.weighted_loss else known
    return known


def _loose(workload: Workload, first: Plan, fresh: Fresh, most: float) -> Plan:
    """Return a plan that meets the targets and answers other queries roughly: there is hardly any budget."""
    stds = [one.std for one in first.extremes or ()]
    bound = first.weighted_loss / (1 + first.gap) ** 2
    for loose in LOOSE:
        given = zip(workload, stds, strict=True)
        aims = np.array([loose * std if g.target is None else g.target.std for g, std in given])
        plan = plan_worst(workload, np.maximum(aims, 1e-9), fresh)
        missed = max(one.ratio for one in plan.extremes or () if one.group.target is not None)
        if missed <= most:
            return replace(plan, gap=Found(plan, bound).gap, objective="mean")
    msg = (
        "budget: it suffices for the targets, but leaves nothing to queries without any: beside these, "
        f"targets are missed by a factor of {missed:.4g}. Use a privacy cost of "
        f"{plan.budget.privacy_cost * missed**2 * 1.002:.6g}, or leave out queries without targets"
    )
    raise PlanError(msg)


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


def refusal(best: Plan, factor: float, missed: list[tuple[str, float, Target]]) -> PlanError:
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
