"""What a plan minimises: the mean error, also within targets; the largest error; the cost that meets targets.

Each objective minimises by the oracle that plans a workload with any weights (`Replan`). A new one needs a
file, and an entry in `OBJECTIVES`.

Variances are inversely proportional to the cost. Let r be the smallest possible maximum, over queries, of
standard error / target at cost one. The least cost that meets all targets is r²: one search finds and
certifies it, and tells whether a budget suffices for the targets.

Rounded to integers, a plan is slightly less accurate: standard errors grow by a factor of about 1.00001 to
1.003. For targets to hold for what is measured, a plan of least cost spends more by the square of this
factor. Under a given budget, the targets are tightened by it, and the budget is reallocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from querysmasher.arrays import Array, in_order
from querysmasher.errors import PlanError, Remedy, TooLargeError, not_one_of
from querysmasher.formatting import number
from querysmasher.planning.candidates import merged_groups
from querysmasher.planning.centre import Centres
from querysmasher.planning.checks import nothing_in
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.multipliers import Multipliers, targets_of
from querysmasher.planning.objectives.replan import Bounded, Replan, Wholes
from querysmasher.planning.objectives.search import PROMISED, Search, Trial
from querysmasher.planning.objectives.variances import Extreme
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import LEAST, Certificate, Solution
from querysmasher.planning.strategies import strategy_of_integers
from querysmasher.privacy.budget import Budget, PrivacyCost, readable
from querysmasher.privacy.distributions import distribution_of
from querysmasher.workload.family import Structure
from querysmasher.workload.workload import Target, Workload

INSUFFICIENT = ("refuse", "scale")
"""What to do if a budget does not suffice for the targets."""

MOST_NAMED = 4
"""Maximum number of groups that an error names."""

PRINTED = 1 + 1e-5
"""Factor by which a printed cost is increased: another plan may cost a little more."""

MOST_COST = 1e6
"""Maximum privacy cost that planning chooses itself: beyond, no privacy is left."""

SPARE = 2.5
"""Margin, in tolerances, by which scaled targets exceed the least possible ones, and by which queries without
targets may raise the least cost."""


def check_objective(objective: object, insufficient: object) -> None:
    """Refuse unknown options."""
    for name, given, known in (
        ("objective", objective, OBJECTIVES),
        ("insufficient", insufficient, INSUFFICIENT),
    ):
        if not isinstance(given, str) or given not in known:
            raise PlanError(f"{name}: {not_one_of(known, given)}")


def check_written_out(workload: Workload, lines: Sequence[int]) -> None:
    """Refuse families that are too large to write out; on `lines`, hierarchies and few queries may be."""
    named, most = {workload.schema.names[attribute] for attribute in lines}, limits()
    for names, family in (part for group in workload for part in group.parts()):
        on_line = not named.isdisjoint(names)
        if family.fits_memory or (
            on_line and (family.rows <= family.cells or family.structure is Structure.TREE)
        ):
            continue
        allowed = "families that can be written out"
        if family.cells > most.axis_values and family.rows > most.large_worst_queries:
            allowed = f"{most.large_worst_queries:,} queries per group where attributes have very many values"
        raise TooLargeError(
            f"workload: targets and objective='worst' are limited to {allowed}, "
            f"got {family.rows:,} queries over {family.cells:,} cells on ({', '.join(names)}). "
            "Remedies: chosen ranges (`ranges`), coarser values, or objective='mean' without targets"
        )


def aimed_of(workload: Workload) -> Workload:
    """Return the queries of a workload that have targets."""
    return Workload(workload.schema, tuple(g for g in workload if g.target is not None))


def replace_targets(workload: Workload, factor: float) -> Workload:
    """Return the workload with multiples of its targets, as standard errors."""
    groups = (g if g.target is None else replace(g, target=Target(g.target.std * factor)) for g in workload)
    return Workload(workload.schema, tuple(groups))


# --- the largest error, and the least cost ---


def plan_worst(workload: Workload, replan: Replan) -> Plan:
    """Return the plan whose largest standard error, relative to its target if there is one, is least."""
    aims = targets_of(workload)
    return replan.measurable(lambda centres: least_largest(workload, aims, replan, centres)).plan


def least_largest(
    workload: Workload, aims: Array, replan: Replan, centres: Centres | None, objective: str = "worst"
) -> Trial:
    """Return the plan whose largest standard error relative to aims is least, and its multipliers.

    The aims are standard errors, one for every group.
    """
    search = Search(workload, replan, aims)
    best = search.run(centres)
    assert best is not None  # noqa: S101 - without caps, every plan will do
    plan = replace(best.plan, workload=workload)
    return replace(best, plan=replace(plan, certificate=Certificate(best.value, search.bound, objective)))


@dataclass(frozen=True, eq=False)
class Least(Bounded):
    """The plan of least cost that meets all targets, and the cost that meets them without other queries."""

    multipliers: Multipliers
    whole: Wholes | None
    aimed_cost: float


def plan_least(workload: Workload, replan: Replan) -> Plan:
    """Return the plan of least cost that meets all targets, for the neighbours of the budget."""
    plan = _least(workload, replan).plan
    cost = plan.budget.privacy_cost
    if not cost <= MOST_COST:
        raise PlanError(
            f"workload: meeting its targets would cost {cost:.3g}, more than {MOST_COST:g}, at "
            "which no privacy is left; use larger targets or fewer queries"
        )
    return plan


def _least(workload: Workload, replan: Replan) -> Least:
    """Return the plan of least cost that meets all targets, also as measured."""
    for queries, which in ((workload, ""), (aimed_of(workload), " with targets")):
        if nothing := nothing_in(queries, replan.budget.unit, f"all its queries{which}"):
            raise nothing
    least = replan.measurable(lambda centres: _least_around(workload, replan, centres))
    plan = least.plan
    for _ in range(ROUNDS):
        ratio = missed_by(as_measured(plan, replan.max_records))
        if ratio <= MET:
            break
        plan = at_cost(plan, plan.budget.privacy_cost * (ratio * (1 + 1e-9)) ** 2)
    certificate = Certificate(plan.budget.privacy_cost, least.bound, LEAST)
    return replace(least, plan=replace(plan, certificate=certificate))


def _least_around(workload: Workload, replan: Replan, centres: Centres | None) -> Least:
    """Return the plan of least cost that meets all targets, around given centres or the best ones."""
    aimed, unit = aimed_of(workload), replan.budget
    best = least_largest(aimed, targets_of(aimed), replan, centres)
    plan = best.plan
    cost = aimed_cost = unit.privacy_cost * missed_by(plan) ** 2 * (1 + 1e-12)
    bound = cost / (1 + plan.gap) ** 2
    indexes = [index for index, group in enumerate(workload) if group.target is not None]
    whole: Wholes | None = None
    every = range(len(workload.groups))
    if replan.options.mechanism.choose is not None:  # else all queries are whole together
        whole = [(tuple(indexes[i] for i in groups), alpha) for groups, alpha in replan.whole or ()]
    if plan.estimator.is_single and merged_groups(workload, every, plan.budget.unit, limits().light_work):
        whole = [(tuple(every), None)]
    if len(aimed.groups) < len(workload.groups):
        plan = _beside_others(workload, plan, replace(replan, whole=whole))
        cost = unit.privacy_cost * missed_by(plan) ** 2 * (1 + 1e-12)
    return Least(at_cost(plan, cost), bound, best.multipliers, whole, aimed_cost)


def _beside_others(workload: Workload, plan: Plan, replan: Replan) -> Plan:
    """Return a plan that also answers queries without targets, and misses targets by hardly more.

    These queries may have errors so much larger than without targets that they cost hardly anything.
    """
    loose = missed_by(plan) * math.sqrt(SPARE * plan.tolerance)
    free = replan(workload, plan.centres)
    stds = np.array([max(extreme.std, 1e-9) for extreme in free.extremes or ()])
    aims = targets_of(workload, math.inf)
    aims = np.where(np.isfinite(aims), aims, stds / loose)
    return least_largest(workload, aims, replan, plan.centres).plan


# --- the mean error within targets ---


def plan_within(workload: Workload, replan: Replan) -> Plan:
    """Return the plan of least mean error that meets all targets, if there are any, also as measured."""
    if not workload.has_targets:
        return replan.certified(replan.first(workload))
    budget, free = replan.budget, replan(workload)
    missed = [e for e in free.extremes or () if e.group.target is not None and e.ratio > MET]
    if not missed and missed_by(as_measured(free, replan.max_records)) <= MET:
        return replan.certified(free)
    if free.estimator.is_single:  # all queries whole: a plan takes long, and targets may be met better
        replan = replace(replan, whole=None)
    aimed, least = workload, None
    best = replan.measurable(lambda centres: _within(aimed, replan, centres))
    if best is None or best.plan.weighted_loss > best.bound * (1 + PROMISED) ** 2:
        unit = with_cost(budget, 1.0)
        least = _least(workload, replace(replan, budget=unit, whole=None))
        cost = least.plan.budget.privacy_cost
        if best is None and cost > budget.privacy_cost:
            if replan.insufficient == "refuse":
                raise _insufficient_budget(least, budget, missed)
            slack = 1 + SPARE * replan.options.tolerance
            aimed = replace_targets(workload, math.sqrt(cost / budget.privacy_cost) * slack)
        if cost <= budget.privacy_cost or best is None:
            other = replan.measurable(lambda centres: _within(aimed, replan, centres, least))
            best = min(filter(None, (best, other)), key=lambda made: made.plan.weighted_loss)
    plan, factor = best.plan, 1.0
    for _ in range(ROUNDS if aimed is workload else 0):  # scaled ones are missed anyway
        ratio = missed_by(as_measured(plan, replan.max_records))
        if ratio <= MET:
            break
        factor = max(factor, ratio / missed_by(plan)) * (1 + 1e-9)  # by which rounding multiplies errors
        tighter = replace_targets(aimed, 1 / factor)
        other = Search(tighter, replan).reallocated(plan) or _within(tighter, replan, plan.centres, least)
        plan = replace(other.plan if other else plan, workload=aimed)
    # tighter targets have a higher bound, which does not hold for these
    return replace(plan, workload=workload, certificate=Certificate(plan.weighted_loss, best.bound))


def _within(
    workload: Workload, replan: Replan, centres: Centres | None, least: Least | None = None
) -> Bounded | None:
    """Return the plan of least mean error that meets all targets, or None if none is found.

    `least`, the plan of least cost, is used at this budget if the search finds no better plan.
    """
    replan = replan if least is None else replace(replan, whole=least.whole)
    search = Search(workload, replan)
    best = search.run(centres, None if least is None else least.multipliers)
    plan, bound = None if best is None else best.plan, search.bound
    if least is not None:
        known = at_cost(least.plan, replan.budget.privacy_cost * (1 - 1e-12))
        if plan is None or known.weighted_loss < plan.weighted_loss:
            plan, free = replace(known, budget=replan.budget), replan(workload, known.centres)
            free = replan.certified(free)
            bound = max(search.bounds[known.centres], free.weighted_loss / (1 + free.gap) ** 2)
    return None if plan is None else Bounded(replace(plan, workload=workload), bound)


def _insufficient_budget(least: Least, budget: Budget, missed: Sequence[Extreme]) -> PlanError:
    """Return the error of an insufficient budget; `missed` are groups that a plan without targets misses."""
    given, cost = budget.privacy_cost, PRINTED * least.plan.budget.privacy_cost
    if least.aimed_cost <= given * (1 + 1e-6):
        return PlanError(
            "budget: the budget suffices for the targets, but leaves nothing for queries without targets. "
            f"With these queries, targets are missed by a factor of {_factor(math.sqrt(cost / given))}. "
            f"Use a privacy cost of {readable(cost):.6g}, or leave out queries without targets"
        )
    factor = math.sqrt(least.aimed_cost / given)
    certain = math.sqrt((least.plan.least_cost or 0.0) / given)
    proven = f"; no plan of this kind misses them by less than {certain:.4g}" if certain > 1 else ""
    problem = (
        "budget: the budget does not suffice for the targets: the best plan misses them by a factor of "
        f"{_factor(factor)}{proven}. Planned without targets, {_listed(missed)}. "
    )
    looser = "looser targets, or {}insufficient{}'scale' to miss all targets by this factor"
    if cost > MOST_COST:
        problem += (
            f"Meeting all targets would take a privacy cost of {cost:.3g}, more than "
            f"{MOST_COST:g}, at which no privacy is left"
        )
        ways = ("use ", "use ")
    else:
        same, delta = PrivacyCost(cost), budget.stated_delta
        if delta is None:
            stated = f"{budget.letter} = {readable(getattr(same, budget.letter)):.6g}"
        else:
            stated = f"epsilon = {readable(same.epsilon_at(delta) * PRINTED):.6g} at delta = {delta!r}"
        problem += (
            f"All targets are met by a privacy cost of {readable(cost):.6g} ({stated}), instead of "
            f"{given:.6g}"
        )
        ways = ("use that budget, `least_budget`, ", "use that budget, [budget] least = true, ")
    code, spec = looser.format("", "="), looser.format("[plan] ", " = ")
    return PlanError(problem, Remedy(ways[0] + code, ways[1] + spec))


def _listed(missed: Sequence[Extreme]) -> str:
    """Return the groups that miss their targets most, with both errors."""
    listed = (
        f"{extreme.group.describe()}: standard error {number(extreme.std)}, "
        f"target {number(extreme.std / extreme.ratio)}"
        for extreme in (missed[i] for i in in_order([-e.ratio for e in missed])[:MOST_NAMED])
    )
    more = f"; and {len(missed) - MOST_NAMED} more" if len(missed) > MOST_NAMED else ""
    return "; ".join(listed) + more


def _factor(factor: float) -> str:
    """Return a factor above one in four digits, or in as many as it takes to show that it exceeds one."""
    if factor < 1 + 1e-6:
        return "less than 1.000001"
    return next(text for digits in range(4, 8) if (text := f"{factor:.{digits}g}") != "1")


NOISE = distribution_of("rounded")
"""The default noise of `measure`."""

MET = 1 + 1e-7
"""A target is met if no standard error exceeds it by more than this factor."""

ROUNDS = 3
"""Maximum number of corrections for rounding: each changes the noise, which is then rounded anew."""


def as_measured(plan: Plan, max_records: int) -> Plan:
    """Return the plan with the strategies and the noise of its integers.

    Its variances are those of the release. If rows have different noise they are slightly larger, because
    what rounding adds to the noise is multiplied like the noise.
    """
    integers = integer_plan(plan, NOISE.allowed_cost(plan.budget), max_records)
    solutions = tuple(Solution(strategy_of_integers(s), 1.0, 1.0, "integer") for s in integers.strategies)
    measured = tuple(
        replace(
            m,
            blocks=rounded.blocks if rounded.attributes else (),
            variance=sum(integers.noise(rounded, NOISE)),
        )
        for m, rounded in zip(plan.measured, integers.measured, strict=True)
    )
    return replace(plan, solutions=solutions, measured=measured)


def missed_by(plan: Plan) -> float:
    """Return the largest ratio of standard error to target, over queries that have one."""
    return max((e.ratio for e in plan.extremes or () if e.group.target is not None), default=0.0)


def with_cost(budget: Budget, cost: float) -> Budget:
    """Return the budget of a privacy cost, for the same neighbours."""
    return PrivacyCost(cost, **asdict(budget.unit))


def at_cost(plan: Plan, cost: float) -> Plan:
    """Return the plan with the same shares of another budget."""
    factor = plan.budget.privacy_cost / cost
    measured = tuple(replace(m, variance=m.variance * factor) for m in plan.measured)
    spent = math.fsum(m.price / m.variance for m in measured)
    budget = with_cost(plan.budget, cost if spent <= cost else spent * (1 + 1e-15))  # by rounding error
    return replace(plan, measured=measured, budget=budget, weighted_loss=plan.weighted_loss * factor)


@dataclass(frozen=True)
class Objective:
    """What a plan can minimise under a budget."""

    name: str
    minimise: Callable[[Workload, Replan], Plan]
    """Returns the plan, whose certificate names the objective."""
    title: str
    """What is certified, in words."""
    largest: bool
    """Whether it is about the largest error, not about the mean."""


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("mean", plan_within, "The weighted root mean square error", largest=False),
        Objective("worst", plan_worst, "The largest error", largest=True),
    )
}
"""The objectives that can be chosen, by name."""
