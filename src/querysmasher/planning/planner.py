"""Make a plan: choose centres and strategies, and share the budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querysmasher.arrays import one_core
from querysmasher.errors import PlanError, as_given, explained
from querysmasher.planning.asking import check_asked, check_scales, check_sizes, normalised
from querysmasher.planning.estimating import check_purpose, plan_estimate
from querysmasher.planning.integer import MAX_RECORDS
from querysmasher.planning.lines.splitting import check_cells, large_attributes, searched_without_matrices
from querysmasher.planning.making import Making
from querysmasher.planning.mechanisms.basis import choose_bases
from querysmasher.planning.objectives.objective import check_aimed, check_objective
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.privacy.budget import Budget, PrivacyCost
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
    progress: bool | None = None,
) -> Plan:
    """Plan how to measure a workload under a privacy budget, without data.

    Args:
        workload: the queries.
        budget: `PrivacyCost`, `zCDP`, `GaussianDP` or `ApproxDP`.
        mechanism: "querysmasher" (the default); "whole", which measures few queries as they are, at the
            optimum over all mechanisms; or one that is simpler and never more accurate than the default:
            "residual", "basis" or "fourier", which are ResidualPlanner, ResidualPlanner+ and Weighted Fourier
            Factorizations.
        solver: the numerical method. "optimal" chooses by size (the table in
            `querysmasher.planning.solvers`); "dense" and "structured" force one. `plan.methods` says which is
            chosen, and why. The name of a mechanism selects that mechanism.
        centering: "optimized" (the default) chooses the centre of every attribute to lower the error below
            the paper's optimum; "uniform" is the paper's method, and the only one for the other mechanisms.
        tolerance: how far above the optimum of its kind the error may be, as a fraction.
        bases: for mechanism="basis", the bases that the planner should not choose, by attribute: one of
            "identity", "prefix", "range", "circular", "haar", or a matrix of rows over its values.
        objective: what to minimise: "mean" (the default), the weighted mean square error; or "worst", the
            largest standard error, relative to its target if a query has one, whatever the weights.
            With "mean", queries with targets (`Workload.within`) keep to them.
        insufficient: what to do if the budget does not suffice for the targets: "refuse", with an error that
            says which are missed and what would suffice; or "scale", and miss all by the same factor.
        max_records: the public cap on the number of records that you will pass to `measure`. A plan that
            cannot be measured in integers under it is refused; a lower cap allows more plans.
        purpose: "answers" (the default), unbiased ones of least error; or "estimate", which measures what
            `Release.estimate` can use best for a workload of marginals: on sparse tables only parts on one
            and two attributes. `plan.asked` is the workload to estimate, and `plan.workload` what can be
            answered without bias.
        records: for purpose="estimate", a rough, public number of records. Without it, `measure` learns it
            first, for 1% of the budget, and shares the rest accordingly; the plan says what it does for
            30,000 records.
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> print(round(qs.plan(qs.all_kway(schema, [1, 2], "prefix"), qs.PrivacyCost(1.0)).rmse, 3))
    1.805
    """
    check_asked(workload, budget)
    check_objective(objective, insufficient)
    check_purpose(purpose, records)
    making = _making(
        workload, mechanism, solver, centering, tolerance, bases, max_records, progress, objective
    )
    if purpose == "estimate":
        if not making.options.keeps_whole or objective != "mean":
            msg = (
                "purpose: 'estimate' has no other mechanism, solver, centering or objective than the default"
            )
            raise PlanError(msg)
        return plan_estimate(workload, budget, records, max_records)
    with Bar("Planning", None, progress):
        scaled, factor = normalised(workload)
        return making.plan(scaled, budget, objective, insufficient).weighing(workload, factor)


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
    progress: bool | None = None,
) -> Plan:
    """Plan at the least privacy cost that meets every accuracy target of a workload, without data.

    `plan.budget` is what it costs: `plan.budget.rho`, `plan.budget.mu` and `plan.budget.epsilon_at(delta)`
    say the same in other words. `plan.least_cost` is certified: every plan of its kind that meets the targets
    costs at least as much. Queries without a target are answered as well as comes for free.

    Args:
        workload: the queries; `within` states targets, and at least one part must have one.
        neighbours: "add_remove" or "replace_one", as for a budget.
        records_per_person: maximum number of records of one person, as for a budget.
        mechanism: as for `plan`, like all other arguments.
        solver: as for `plan`.
        centering: as for `plan`.
        tolerance: as for `plan`.
        bases: as for `plan`.
        max_records: as for `plan`.
        progress: as for `plan`.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> plan = qs.least_budget(qs.queries(schema, age="prefix").within(10))
    >>> print(round(plan.budget.privacy_cost, 3), plan.worst <= 1)
    0.025 True
    """
    budget = PrivacyCost(1.0, neighbours=neighbours, records_per_person=records_per_person)
    check_asked(workload, budget)
    check_aimed(workload)
    making = _making(workload, mechanism, solver, centering, tolerance, bases, max_records, progress)
    with Bar("Planning", None, progress):
        scaled, factor = normalised(workload)
        return making.least(scaled, budget).weighing(workload, factor)


def _making(
    workload: Workload,
    mechanism: str | None,
    solver: str,
    centering: str | None,
    tolerance: float,
    bases: Mapping[str, Any] | None,
    max_records: int,
    progress: bool | None,
    objective: str = "",
) -> Making:
    """Check the options, and return what makes plans with them."""
    options = Options.of(mechanism, solver, centering, tolerance, bases)
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        msg = (
            f"max_records: expected an integer from 1 to 2^40, such as 1_000_000, got {as_given(max_records)}"
        )
        raise PlanError(msg)
    large: tuple[int, ...] = ()
    if options.plans_large:
        mean = objective == "mean" and not workload.has_targets and options.centering == "optimized"
        large = large_attributes(workload, mean=mean)
    if objective != "mean" or workload.has_targets:
        large = searched_without_matrices(workload, large)
    check_sizes(workload, large)
    check_cells(workload, large)
    far_apart = check_scales(workload)
    own_bases: list[Solution] = []
    if options.mechanism.has_bases:
        with one_core():
            own_bases = choose_bases(workload, bases)
    return Making(options, own_bases, max_records, far_apart, progress, large)
