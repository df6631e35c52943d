"""Make a plan: choose centres and strategies, and share the budget, for any objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from querysmasher.arrays import one_core
from querysmasher.errors import OutsideMeasuredSpaceError, PlanError, as_given, explained
from querysmasher.planning.allocation import plan_around_best, plan_at
from querysmasher.planning.candidates import Planned, Unsplit, beside, best_candidate, without
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.checks import check_arguments, check_scales, check_sizes, normalised
from querysmasher.planning.estimating import check_purpose, plan_estimate
from querysmasher.planning.integer import MAX_RECORDS, refusal
from querysmasher.planning.lines.splitting import check_cells, large_attributes, searched_without_matrices
from querysmasher.planning.mechanisms import choose_bases
from querysmasher.planning.objectives.multipliers import Joined
from querysmasher.planning.objectives.objective import (
    MET,
    ROUNDS,
    SPARE,
    Least,
    ReplanMaker,
    as_measured,
    at_measured_cost,
    check_aimed,
    check_cost,
    check_objective,
    check_written_out,
    insufficient_budget,
    missed_by,
    missed_targets,
    plan_least,
    plan_within,
    plan_worst,
    replace_targets,
    shared_anew,
    targets_of,
    with_cost,
)
from querysmasher.planning.objectives.search import PROMISED, Replan, Wholes
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Certificate, Solution
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
        mechanism: "querysmasher" (the default); "whole", which measures a few queries without splitting them,
            at the optimum over all mechanisms; or "residual", "basis" or "fourier": ResidualPlanner,
            ResidualPlanner+ and Weighted Fourier Factorizations, which are simpler and never more accurate
            than the default.
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
        progress: show a progress bar; by default only on a terminal.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> print(round(qs.plan(qs.all_kway(schema, [1, 2], "prefix"), qs.PrivacyCost(1.0)).rmse, 3))
    1.805
    """
    check_arguments(workload, budget)
    check_objective(objective, insufficient)
    check_purpose(purpose, records)
    options = Options.of(mechanism, solver, centering, tolerance, bases)
    planner = _planner(workload, options, bases, max_records, progress, objective)
    if purpose == "estimate":
        if not planner.options.keeps_whole or objective != "mean":
            msg = "purpose: 'estimate' supports only the default mechanism, solver, centering and objective"
            raise PlanError(msg)
        return plan_estimate(workload, budget, records, max_records)
    with Bar("Planning", None, progress):
        scaled, factor = normalised(workload)
        return planner.plan(scaled, budget, objective, insufficient).weighing(workload, factor)


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
        progress: as for `plan`.

    >>> import querysmasher as qs
    >>> schema = qs.Schema.of(age=10, sex=2)
    >>> plan = qs.least_budget(qs.queries(schema, age="prefix").within(10))
    >>> print(round(plan.budget.privacy_cost, 3), plan.worst <= 1)
    0.025 True
    """
    budget = PrivacyCost(1.0, neighbours=neighbours, records_per_person=records_per_person)
    check_arguments(workload, budget)
    check_aimed(workload)
    options = Options.of(mechanism, solver, centering, tolerance, bases)
    planner = _planner(workload, options, bases, max_records, progress)
    with Bar("Planning", None, progress):
        scaled, factor = normalised(workload)
        return planner.least(scaled, budget).weighing(workload, factor)


def _planner(
    workload: Workload,
    options: Options,
    bases: Mapping[str, Any] | None,
    max_records: int,
    progress: bool | None,
    objective: str = "",
) -> Planner:
    """Refuse a workload that cannot be planned with these options, and return what plans it."""
    if isinstance(max_records, bool) or not isinstance(max_records, int) or not 1 <= max_records <= 2**40:
        allowed = "expected an integer from 1 to 2^40, such as 1_000_000"
        raise PlanError(f"max_records: {allowed}, got {as_given(max_records)}")
    searched = objective != "mean" or workload.has_targets
    lines: tuple[int, ...] = ()
    if options.are_default:
        mean = not searched and options.centering == "optimized"
        lines = large_attributes(workload, mean=mean, tolerance=options.tolerance)
    if searched:
        lines = searched_without_matrices(workload, lines)
        check_written_out(workload, lines)
    check_sizes(workload, lines)
    check_cells(workload, lines)
    check_scales(workload)
    chosen: list[Solution] = []
    if options.mechanism.has_bases:
        with one_core():
            chosen = choose_bases(workload, bases)
    options = replace(options, bases=chosen, lines=lines, progress=progress)
    return Planner(options, max_records)


P = TypeVar("P", Plan, Plan | None)


@dataclass(frozen=True, eq=False)
class Planner:
    """Makes plans with given options."""

    options: Options
    max_records: int

    def plan(self, workload: Workload, budget: Budget, objective: str, insufficient: str) -> Plan:
        """Return the plan of least error."""
        joined = Joined.of(workload)
        rows = joined.workload
        if objective == "worst":
            aims = targets_of(rows)
            plan = self._measurable(lambda at: plan_worst(rows, aims, self._replan(budget, at))[0])
        elif workload.has_targets:
            plan = self._within(rows, budget, insufficient)
        else:
            plan = self._arranged(rows, budget, partial(self._planned, rows, budget))
        return joined.restored(plan)

    def _within(self, workload: Workload, budget: Budget, insufficient: str) -> Plan:
        """Return the plan of least mean error that meets all targets, also as measured."""
        free = self._replan(budget, None)(workload)
        missed = missed_targets(free)
        if not missed and missed_by(as_measured(free, self.max_records)) <= MET:
            return free
        aimed, least = workload, None
        best = self._measurable(lambda at: plan_within(aimed, budget, self._around(at)))
        if best is None or best.gap > PROMISED:
            least = self._least(workload, with_cost(budget, 1.0))
            cost = least.plan.budget.privacy_cost
            if best is None and cost > budget.privacy_cost:
                if insufficient == "refuse":
                    raise insufficient_budget(least, budget, missed)
                slack = 1 + SPARE * self.options.tolerance
                aimed = replace_targets(workload, math.sqrt(cost / budget.privacy_cost) * slack)
            if cost <= budget.privacy_cost or best is None:
                other = self._measurable(lambda at: plan_within(aimed, budget, self._around(at), least))
                best = min(filter(None, (best, other)), key=lambda plan: plan.weighted_loss)
        bound, factor = best.weighted_loss / (1 + best.gap) ** 2, 1.0
        for _ in range(ROUNDS if aimed is workload else 0):  # scaled ones are missed anyway
            ratio = missed_by(as_measured(best, self.max_records))
            if ratio <= MET:
                break
            factor = max(factor, ratio / missed_by(best)) * (1 + 1e-9)  # by which rounding multiplies errors
            shared = shared_anew(best, factor)
            if shared is None:
                tighter = replace_targets(aimed, 1 / factor)
                shared = plan_within(tighter, budget, self._around(best.centres), least)
            best = replace(shared or best, workload=aimed)
        # tighter targets have a higher bound, which does not hold for these
        return replace(best, workload=workload, certificate=Certificate(best.weighted_loss, bound))

    def least(self, workload: Workload, budget: Budget) -> Plan:
        """Return the plan of least cost that meets all targets, for the neighbours of a budget."""
        joined = Joined.of(workload)
        least = self._least(joined.workload, budget)
        check_cost(least.plan.budget.privacy_cost)
        return joined.restored(least.plan)

    def _least(self, workload: Workload, budget: Budget) -> Least:
        """Return the plan of least cost that meets all targets, also as measured."""
        tried: list[Least] = []

        def make(centres: Centres | None) -> Plan:
            tried.append(plan_least(workload, budget, self._around(centres)))
            return tried[-1].plan

        plan = self._measurable(make)
        return replace(tried[-1], plan=at_measured_cost(plan, self.max_records))

    def _measurable(self, make: Callable[[Centres | None], P]) -> P:
        """Return a plan around the best centres, or around uniform ones if it cannot be measured there."""
        best = make(None)
        if best is None:
            return best
        refused, even = refusal(best, self.max_records), uniform(best.workload.schema)
        if refused is not None and best.centres != even:
            best = make(even)  # whose rows are smaller integers
            refused = None if best is None else refusal(best, self.max_records)
        if refused is not None:
            raise refused
        return best

    def _around(self, centres: Centres | None) -> ReplanMaker:
        """Return what starts planning around given centres only, if any."""
        if centres is None:
            return self._replan
        return lambda budget, _, whole=None: self._replan(budget, centres, whole)

    def _replan(self, budget: Budget, centres: Centres | None, whole: Wholes | None = None, /) -> Replan:
        """Return what plans with other weights, around the best centres or around given ones."""
        return Replan(
            lambda workload, planned: self._arranged(workload, budget, planned, centred=False),
            lambda workload, unsplit: self._planned(workload, budget, unsplit),
            lambda workload, centres, tolerance: self._split(workload, budget, centres, tolerance),
            budget,
            self.options.tolerance,
            centres,
            whole,
        )

    def _arranged(
        self, workload: Workload, budget: Budget, planned: Planned, *, centred: bool = True
    ) -> Plan:
        """Plan with the best choice of groups that are measured whole."""
        if self.options.keeps_whole:
            return best_candidate(workload, budget, self.options, planned, centred=centred)
        plan = planned([])
        if isinstance(plan, PlanError):
            raise plan
        return plan

    def _planned(self, workload: Workload, budget: Budget, unsplit: Sequence[Unsplit]) -> Plan | PlanError:
        """Plan with some groups whole; return a plan that can be measured, or why there is none."""
        rest, tolerance = without(workload, unsplit), self.options.tolerance

        def around(centres: Centres | None) -> Plan:
            split = None if rest is None else self._split(rest, budget, centres, tolerance)
            if rest is not None and split is not None and unsplit:
                positive = tuple(centre.positive() for centre in split.centres)
                if positive != split.centres:  # rows measured whole are compared in the mean over centres
                    split = self._split(rest, budget, positive, tolerance)
            return beside(split, unsplit, workload, budget, tolerance)

        try:
            return self._measurable(around)
        except PlanError as error:  # too large to split, or nothing to measure
            return error
        except OutsideMeasuredSpaceError as error:  # rounding errors hide what is measured
            return PlanError(str(error))

    def _split(self, workload: Workload, budget: Budget, centres: Centres | None, tolerance: float) -> Plan:
        """Plan with all groups split, around given centres or the best ones."""
        options = replace(self.options, tolerance=tolerance)
        if centres is None:
            return plan_around_best(workload, budget, options)
        return plan_at(centres, workload, budget, options)
