"""Make a plan: choose centres and strategies, and share the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from querysmasher.arrays import one_core
from querysmasher.errors import PlanError
from querysmasher.planning.allocation import allocate
from querysmasher.planning.asking import check_asked, check_scales, check_sizes
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.centres.search import search_centres
from querysmasher.planning.decomposition import Decomposer
from querysmasher.planning.integer import MAX_RECORDS, check_measurable
from querysmasher.planning.measured import Measured
from querysmasher.planning.mechanisms import Task
from querysmasher.planning.mechanisms.basis import choose_bases
from querysmasher.planning.mixture import Unsplit, beside
from querysmasher.planning.objectives.again import Again, Fresh
from querysmasher.planning.objectives.least import check_aimed, plan_least
from querysmasher.planning.objectives.objective import check_objective, plan_for
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.subworkload import Subworkload
from querysmasher.planning.unsplit import Planned, best_arrangement, without
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.progress import Bar
from querysmasher.workload.workload import Workload


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
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> print(round(qs.plan(qs.all_kway(schema, [1, 2], "prefix"), qs.PrivacyCost(1.0)).rmse, 3))
    1.805
    """
    check_asked(workload, budget)
    check_objective(objective, insufficient)
    making = _making(workload, mechanism, solver, centering, tolerance, bases, max_records, progress)
    return making.plan(workload, budget, objective, insufficient)


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
    >>> print(round(plan.budget.privacy_cost, 4), plan.worst <= 1)
    0.0248 True
    """
    budget = PrivacyCost(1.0, neighbours=neighbours, records_per_person=records_per_person)
    check_asked(workload, budget)
    check_aimed(workload)
    making = _making(workload, mechanism, solver, centering, tolerance, bases, max_records, progress)
    return making.least(workload, budget)


def _making(
    workload: Workload,
    mechanism: str | None,
    solver: str,
    centering: str | None,
    tolerance: float,
    bases: Mapping[str, Any] | None,
    max_records: int,
    progress: bool | None,
) -> Making:
    """Check the options, and return what makes plans with them."""
    options = Options.of(mechanism, solver, centering, tolerance, bases)
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        msg = f"max_records: expected an integer from 1 to 2^40, got {max_records!r}"
        raise PlanError(msg)
    check_sizes(workload)
    far_apart = check_scales(workload)
    own_bases: list[Solution] = []
    if options.mechanism.has_bases:
        with one_core():
            own_bases = choose_bases(workload, bases)
    return Making(options, own_bases, max_records, far_apart, progress)


@dataclass(frozen=True, eq=False)
class Making:
    """Makes plans with given options."""

    options: Options
    bases: Sequence[Solution]
    max_records: int
    far_apart: bool
    progress: bool | None

    def plan(self, workload: Workload, budget: Budget, objective: str, insufficient: str) -> Plan:
        """Return the plan of least error."""
        if objective == "mean" and not workload.has_targets:
            return self._arranged(workload, budget, partial(self._planned, workload, budget))
        return self._measurable(
            workload,
            lambda fixed: plan_for(objective, workload, self._fresh(budget, fixed), insufficient),
        )

    def least(self, workload: Workload, budget: Budget) -> Plan:
        """Return the plan of least cost that meets all targets, for the neighbours of a budget."""
        return self._measurable(
            workload,
            lambda fixed: plan_least(workload, budget, lambda cost: self._fresh(cost, fixed)),
        )

    def _measurable(self, workload: Workload, make: Callable[[Centres | None], Plan]) -> Plan:
        """Return a plan, around uniform centres if it cannot be measured around others."""
        best = make(None)
        try:
            check_measurable(best, self.max_records)
        except PlanError:
            even = uniform(workload.schema)
            if best.centres == even:
                raise
            best = make(even)  # whose rows are smaller integers
            check_measurable(best, self.max_records)
        return best

    def _fresh(self, budget: Budget, fixed: Centres | None) -> Fresh:
        """Return what starts planning with other weights."""

        def split(asked: Workload, centres: Centres | None = None) -> Plan:
            """Plan with all groups split, around given centres or the best ones."""
            if centres is None:
                return _around_best_centres(
                    asked, budget, self.options, self.bases, self.far_apart, self.progress
                )
            return plan_at(centres, asked, budget, self.options, self.bases, self.progress)

        def fresh() -> Again:
            arranged, planned = (
                lambda asked, planned: self._arranged(asked, budget, planned),
                lambda asked, unsplit: self._planned(asked, budget, unsplit),
            )
            return Again(arranged, planned, split, budget, self.options.tolerance, fixed)

        return fresh

    def _arranged(self, workload: Workload, budget: Budget, planned: Planned) -> Plan:
        """Plan with the best choice of groups that are unsplit."""
        if self.options.keeps_whole:
            return best_arrangement(workload, budget, self.options.tolerance, planned)
        return planned([])

    def _planned(self, workload: Workload, budget: Budget, unsplit: Sequence[Unsplit]) -> Plan:
        """Plan with some groups unsplit, and refuse a plan that cannot be measured."""
        rest = without(workload, unsplit)
        split = None
        if rest is not None:
            split = _at_best_centres(
                rest, budget, self.options, self.bases, self.max_records, self.far_apart, self.progress
            )
        if not unsplit and split is not None:
            return split
        mixed = beside(split, unsplit, workload, budget, self.options.tolerance)
        check_measurable(mixed, self.max_records)
        return mixed


def _at_best_centres(
    workload: Workload,
    budget: Budget,
    options: Options,
    bases: Sequence[Solution],
    max_records: int,
    far_apart: bool,
    progress: bool | None,
) -> Plan:
    """Plan with the best centres found, among those at which the plan can be measured."""
    best = _around_best_centres(workload, budget, options, bases, far_apart, progress)
    try:
        check_measurable(best, max_records)
    except PlanError:
        even = uniform(workload.schema)
        if best.centres == even:
            raise
        at_even = plan_at(even, workload, budget, options, bases, progress)  # whose rows are smaller integers
        check_measurable(at_even, max_records)
        return replace(at_even, stopped_early=best.stopped_early)
    return best


def _around_best_centres(
    workload: Workload,
    budget: Budget,
    options: Options,
    bases: Sequence[Solution],
    far_apart: bool,
    progress: bool | None,
) -> Plan:
    """Plan with the best centres found."""

    def at(centres: Centres) -> Plan:
        return plan_at(centres, workload, budget, options, bases, progress)

    if options.centering == "uniform":
        return at(uniform(workload.schema))
    with Bar("Choosing centres", None, progress):
        found = search_centres(workload, budget, far_apart=far_apart)
    last = at(found.centres[-1]) if found.is_proven or found.uniform_bound else None
    beats = last is not None and math.sqrt(last.weighted_loss * budget.privacy_cost) <= found.uniform_bound
    best = last if last is not None and (found.is_proven or beats) else _best(map(at, found.centres))
    return replace(best, stopped_early=True) if found.stopped_early else best


def _best(plans: Iterator[Plan]) -> Plan:
    """Return the best plan; the first has uniform centres, and the others come ever closer to these."""
    best = first = next(plans)
    for trial in plans:
        if trial.weighted_loss < best.weighted_loss:
            best = trial
        elif best is not first:
            break  # a larger step gained more
    return best


def plan_at(
    centres: Centres,
    workload: Workload,
    budget: Budget,
    options: Options,
    bases: Sequence[Solution] = (),
    progress: bool | None = None,
) -> Plan:
    """Plan with given centres."""
    if options.mechanism.splits:
        subworkloads = Decomposer(workload.schema, centres).decompose(workload.groups)
    else:
        asked = sorted({p for group in workload for p in workload.schema.positions(group.attributes)})
        subworkloads = [Subworkload(tuple(asked) or (0,), ())]  # a total is summed over any attribute
    public_total = budget.unit.total_is_public
    sets = [s for s in subworkloads if s.attributes or not public_total]  # what is public is not measured
    if not sets:
        why = "all its queries are zero, so there is nothing to measure"
        if subworkloads:
            why = "it asks only for the number of records, which these neighbours make public"
        msg = f"workload: {why}"
        raise PlanError(msg)
    task = Task(workload, sets, options.tolerance, options.solver, bases, progress)
    solutions, choices = options.mechanism.choose(task)
    reached = [c.reached for c in choices]
    factors = [budget.unit.squared_change(total=not s.attributes) for s in sets]
    variances = allocate(reached, factors, budget.privacy_cost).tolist()
    whole = () if options.mechanism.splits else tuple(range(len(workload.groups)))
    measured = tuple(
        Measured(s.attributes, c.blocks, variance, c.reached, whole)
        for s, c, variance in zip(sets, choices, variances, strict=True)
    )
    weigh = [math.sqrt(f) for f in factors]
    return Plan(
        workload,
        budget,
        centres,
        tuple(solutions),
        measured,
        weighted_loss=math.fsum(m.variance * m.root_loss**2 for m in measured),
        gap=max(0.0, float(np.dot(weigh, reached) / np.dot(weigh, [c.bound for c in choices])) - 1),
        mechanism=options.mechanism.name,
        solver=options.solver,
        centering=options.centering,
        tolerance=options.tolerance,
    )
