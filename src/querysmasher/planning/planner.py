"""Make a plan: refuse what cannot be planned, and minimise an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from querysmasher.arrays import one_core
from querysmasher.errors import PlanError, as_given, explained
from querysmasher.planning.checks import check_arguments, check_scales, check_sizes, exact_sets
from querysmasher.planning.estimating import check_purpose, plan_estimate
from querysmasher.planning.integer import MAX_RECORDS
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.splitting import check_cells, large_attributes
from querysmasher.planning.mechanisms import DEFAULT, Options, choose_bases
from querysmasher.planning.objectives.multipliers import Joined
from querysmasher.planning.objectives.objective import (
    OBJECTIVES,
    check_objective,
    check_written_out,
    plan_least,
)
from querysmasher.planning.objectives.replan import Replan
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.tying import Tying
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.privacy.unit import AttributeSets, Unit, attributes_of
from querysmasher.progress import Bar
from querysmasher.workload.workload import Workload


@explained("qs.plan(workload, qs.ApproxDP(epsilon=1.0, delta=1e-6))")
def plan(
    workload: Workload,
    budget: Budget,
    *,
    mechanism: str | None = None,
    solver: str = "optimal",
    centering: str | None = None,
    tolerance: float = 1e-3,
    bases: Mapping[str, Any] | None = None,
    objective: str = "mean",
    insufficient: str = "refuse",
    max_records: int = MAX_RECORDS,
    purpose: str = "answers",
    records: int | None = None,
    exact: Workload | None = None,
    progress: bool | None = None,
) -> Plan:
    """Plan how to measure a workload under a privacy budget, without data.

    Args:
        workload: the queries.
        budget: `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.
        mechanism: "querysmasher" (the default); "whole", which measures a few queries without splitting them,
            at the optimum over all mechanisms; or "residual", "basis" or "fourier": ResidualPlanner,
            ResidualPlanner+ and Weighted Fourier Factorizations, which are simpler. The default is at least
            as accurate, up to the tolerance.
        solver: the numerical method. "optimal" chooses by size (the table in
            `querysmasher.planning.solvers`); "dense" and "structured" force one. `plan.methods` says which
            method is chosen, and why. The name of a mechanism selects that mechanism.
        centering: "optimized" (the default) chooses the centre of every attribute to lower the error below
            the paper's optimum; "uniform" is the paper's method, and the only one for the other mechanisms.
        tolerance: how far the error may exceed that of the best possible plan of this kind, as a fraction.
        bases: for mechanism="basis", a mapping from attributes to bases: "identity", "prefix", "range",
            "circular", "haar", or a matrix of rows over the values. The planner chooses the other bases.
        objective: what to minimise: "mean" (the default), the weighted mean square error; or "worst", the
            largest standard error, relative to its target if a query has one, whatever the weights.
            With "mean", the plan meets the targets of queries (`Workload.within`).
        insufficient: what to do if the budget does not suffice for the targets: "refuse" raises an error that
            names the missed targets and a sufficient budget; "scale" misses all targets by the same factor.
        max_records: the public cap on the number of records that you will pass to `measure`. A plan that
            cannot be measured in integers under this cap is refused; a lower cap allows more plans.
        purpose: "answers" (the default) minimises the error of unbiased answers; "estimate" measures what
            improves `Release.estimate` of marginals most: on sparse tables, only parts on one and two
            attributes. `plan.asked` is then the workload to estimate, and `plan.workload` the queries with
            unbiased answers.
        records: for purpose="estimate", a rough, public number of records. Without it, `measure` first spends
            1% of the budget on this number, and divides the rest accordingly; the plan then shows the errors
            for 30,000 records.
        exact: counts to publish as they are, such as `marginals(schema, ["state"])`, or of groups of values,
            such as `where(schema, "age >= 18")`. Answers equal them, and only the rest is measured. This
            changes the guarantee: neighbours replace a record by one with the same values of these
            attributes, or values of the same groups ("replace_one", whatever the budget says), so that what
            a record says about them is not protected: `repr(plan)` states it.
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> print(round(qs.plan(qs.all_kway(schema, [1, 2], "prefix"), qs.PrivacyCost(1.0)).rmse, 3))
    1.805
    """
    check_arguments(workload, budget)
    budget = _knowing(workload, budget, exact)
    check_objective(objective, insufficient)
    check_purpose(purpose, records)
    options = Options.of(mechanism, solver, centering, tolerance, bases)
    searched = OBJECTIVES[objective].largest or workload.has_targets
    if purpose == "estimate":
        options = _prepared(workload, budget.unit, options, bases, max_records, progress, searched=searched)
        if not options.keeps_whole or objective != "mean":
            msg = "purpose: 'estimate' supports only the default mechanism, solver, centering and objective"
            raise PlanError(msg)
        if budget.unit.known(workload.schema).groups:
            msg = "purpose: expected 'answers', as groups of values have exact counts, got 'estimate'"
            raise PlanError(msg)
        return plan_estimate(workload, budget, records, max_records)

    def made(tied: Workload) -> Plan:
        ready = _prepared(tied, budget.unit, options, bases, max_records, progress, searched=searched)
        replan = Replan(ready, budget, max_records, insufficient)
        return _minimised(OBJECTIVES[objective].minimise, tied, replan)

    return _tied(made, workload, budget.unit, options)


@explained("qs.least_budget(workload.within(50))")
def least_budget(
    workload: Workload,
    *,
    neighbours: str = "add_remove",
    records_per_person: int = 1,
    mechanism: str | None = None,
    solver: str = "optimal",
    centering: str | None = None,
    tolerance: float = 1e-3,
    bases: Mapping[str, Any] | None = None,
    max_records: int = MAX_RECORDS,
    exact: Workload | AttributeSets | None = None,
    progress: bool | None = None,
) -> Plan:
    """Plan at the least privacy cost that meets every accuracy target of a workload, without data.

    `plan.budget` is the budget found; `plan.budget.rho`, `plan.budget.mu` and `plan.budget.epsilon_at(delta)`
    convert it. `plan.least_cost` is certified: every plan of this kind that meets the targets costs at least
    this much. Other queries get whatever accuracy costs nothing extra.

    Args:
        workload: the queries; `Workload.within` states targets, and at least one group must have a target.
        neighbours: "add_remove" or "replace_one", as for a budget.
        records_per_person: maximum number of records of one person, as for a budget.
        mechanism: as for `plan`, like all other arguments.
        solver: as for `plan`.
        centering: as for `plan`.
        tolerance: as for `plan`.
        bases: as for `plan`.
        max_records: as for `plan`.
        exact: as for `plan`.
        progress: as for `plan`.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> plan = qs.least_budget(qs.queries(schema, age="prefix").within(10))
    >>> print(round(plan.budget.privacy_cost, 3), plan.worst <= 1)
    0.025 True
    """
    budget = PrivacyCost(1.0, neighbours=neighbours, records_per_person=records_per_person)
    check_arguments(workload, budget)
    budget = cast("PrivacyCost", _knowing(workload, budget, exact))
    if not workload.has_targets:
        msg = "workload: expected an accuracy target on some of its queries; state it by workload.within(50)"
        raise PlanError(msg)
    options = Options.of(mechanism, solver, centering, tolerance, bases)

    def made(tied: Workload) -> Plan:
        ready = _prepared(tied, budget.unit, options, bases, max_records, progress, searched=True)
        return _minimised(plan_least, tied, Replan(ready, budget, max_records))

    return _tied(made, workload, budget.unit, options)


def _tied(made: Callable[[Workload], Plan], workload: Workload, unit: Unit, options: Options) -> Plan:
    """Return the plan of a workload over combinations of attributes that are tied together.

    If counts by some of these are exact, a plan that ties nothing may be better, and is made as well.
    """
    tying = Tying.of(workload, unit) if options.mechanism.ties else None
    exact = {name for names in unit.exact for name in attributes_of(names)}
    tied = () if tying is None else (name for names in tying.components for name in names)
    plans, refusals = list[Plan](), list[PlanError]()
    for way in [tying] if exact.isdisjoint(tied) else [tying, None]:
        try:
            plan = made(workload if way is None else way.workload(workload))
            plans.append(replace(plan, workload=workload, tying=way))
        except PlanError as error:
            refusals.append(error)
    if not plans:
        raise refusals[0]
    first, last = plans[0], plans[-1]
    return first if first.certificate.value * limits().worthwhile <= last.certificate.value else last


def _knowing(workload: Workload, budget: Budget, exact: Workload | AttributeSets | None) -> Budget:
    """Return the budget for neighbours that agree on exact counts."""
    if exact is None:
        return budget
    sets = exact if isinstance(exact, tuple) else exact_sets(workload, exact)
    return replace(budget, neighbours="replace_one", exact=(*budget.exact, *sets))


def _prepared(
    workload: Workload,
    unit: Unit,
    options: Options,
    bases: Mapping[str, Any] | None,
    max_records: int,
    progress: bool | None,
    *,
    searched: bool,
) -> Options:
    """Refuse a workload that cannot be planned; return the options, with the bases and lines of the workload.

    `searched` says whether the largest errors of queries matter.
    """
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        allowed = "expected an integer from 1 to 2^40, such as 1_000_000"
        raise PlanError(f"max_records: {allowed}, got {as_given(max_records)}")
    known = unit.known(workload.schema)
    options = replace(options, replaced=unit.total_is_public, agreed=known.agreed, grouped=bool(known.groups))
    if known.groups and options.mechanism.name not in {DEFAULT, "whole"}:
        msg = f"mechanism: expected {DEFAULT!r} or 'whole', as groups of values have exact counts, got "
        raise PlanError(f"{msg}{options.mechanism.name!r}")
    if len(unit.exact) > 1 and options.mechanism.choose is None:
        allowed = "expected one that splits queries, as there are several tables of exact counts"
        raise PlanError(f"mechanism: {allowed}, got {options.mechanism.name!r}")
    lines: tuple[int, ...] = ()
    if options.are_default:
        mean = not searched and options.centering == "optimized"
        lines = large_attributes(workload, mean=mean, tolerance=options.tolerance, replaced=options.replaced)
        lines = tuple(a for a in lines if a not in options.agreed.union(known.groups))
    if searched:
        check_written_out(workload, lines)
    check_sizes(workload, lines)
    check_cells(workload, lines, sums=not options.replaced)
    check_scales(workload)
    chosen: list[Solution] = []
    if options.mechanism.has_bases:
        with one_core():
            chosen = choose_bases(workload, bases)
    return replace(options, bases=chosen, lines=lines, progress=progress)


def _minimised(minimise: Callable[[Workload, Replan], Plan], workload: Workload, replan: Replan) -> Plan:
    """Return the best plan. Queries given one by one are planned as one family."""
    with Bar("Planning", None, replan.options.progress):
        joined = Joined.of(workload)
        return joined.restored(minimise(joined.workload, replan))
