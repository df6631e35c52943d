"""What makes plans with given options: for any objective, with groups split or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from querysmasher.errors import OutsideMeasuredSpaceError, PlanError
from querysmasher.planning.around import plan_around_best, plan_at
from querysmasher.planning.candidates import Planned, Unsplit, beside, best_candidate, without
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.integer import check_measurable, refusal
from querysmasher.planning.large import within as large_within
from querysmasher.planning.large import worst as large_worst
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.again import Again, Fresh
from querysmasher.planning.objectives.insufficient import InsufficientError
from querysmasher.planning.objectives.joining import Joined
from querysmasher.planning.objectives.least import at_cost, plan_least, with_cost
from querysmasher.planning.objectives.objective import targets_of
from querysmasher.planning.objectives.rounded import as_measured, at_measured_cost, missed_by, within_measured
from querysmasher.planning.objectives.within import LeavesNothingError, plan_for, replace_targets
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Making:
    """Makes plans with given options."""

    options: Options
    bases: Sequence[Solution]
    max_records: int
    far_apart: bool
    progress: bool | None
    large: tuple[int, ...] = ()
    """Indexes of attributes that are planned as lines or trees, with centres of their own."""

    def plan(self, workload: Workload, budget: Budget, objective: str, insufficient: str) -> Plan:
        """Return the plan of least error."""
        if objective == "mean" and not workload.has_targets:
            joined = Joined.of(workload)
            planned = partial(self._planned, joined.workload, budget)
            return joined.restored(self._arranged(joined.workload, budget, planned))

        if self.large:
            return self._large(workload, budget, objective, insufficient)

        def make(asked: Workload) -> Plan:
            return self._measurable(
                asked, lambda fixed: plan_for(objective, asked, self._fresh(budget, fixed), insufficient)
            )

        if objective == "worst":
            return make(workload)

        def again(asked: Workload, centres: Centres) -> Plan:
            return plan_for(objective, asked, self._fresh(budget, centres), insufficient)

        def certified(plan: Plan) -> Plan:
            return self._whatever_targets(plan, budget)

        try:
            return within_measured(make(workload), self.max_records, again, certified)
        except PlanError as refused:
            try:
                return self._least_scaled(workload, budget, refused)
            except LeavesNothingError:
                if insufficient == "refuse":
                    raise
            scaled = replace_targets(workload, 1 + limits().scaled_slack * self.options.tolerance)
            return replace(make(scaled), workload=workload)

    def _whatever_targets(self, plan: Plan, budget: Budget) -> Plan:
        """Return a plan with a gap to the least mean error around its centres without any targets."""
        free = self._fresh(budget, plan.centres)()(plan.workload)
        return replace(plan, certificate=Certificate(plan.weighted_loss, free.certificate.bound))

    def _least_scaled(self, workload: Workload, budget: Budget, refused: PlanError) -> Plan:
        """Return the plan of least cost with all of a budget, if it costs no more: a budget that suffices.

        Otherwise raise the refusal, with the least cost that meets the targets.
        """
        costs = []
        options = [self.options]
        if self.options.centering != "uniform":
            options.append(replace(self.options, centering="uniform"))
        for own in options:
            try:  # at the cost at which `least_budget` searches, to find the very same plan
                least = replace(self, options=own).least(workload, with_cost(budget, 1.0))
            except PlanError:
                continue
            if least.budget.privacy_cost <= budget.privacy_cost:
                plan = replace(at_cost(least, budget.privacy_cost * (1 - 1e-12)), budget=budget)
                return self._whatever_targets(plan, budget)
            costs.append(least.budget.privacy_cost)
        if costs and isinstance(refused, InsufficientError):
            refused = refused.costing(min(costs))
        raise refused from None

    def least(self, workload: Workload, budget: Budget) -> Plan:
        """Return the plan of least cost that meets all targets, for the neighbours of a budget."""
        if self.large:
            best = large_within.plan_least(
                workload, budget, self._large_again(budget), self.options.tolerance
            )
            return at_measured_cost(best, self.max_records)
        best = self._measurable(
            workload,
            lambda fixed: plan_least(workload, budget, lambda cost: self._fresh(cost, fixed)),
        )
        return at_measured_cost(best, self.max_records)

    def _large(self, workload: Workload, budget: Budget, objective: str, insufficient: str) -> Plan:
        """Return the plan of least error where some attributes are not split."""
        again, tolerance = self._large_again(budget), self.options.tolerance
        if objective == "worst":
            return large_worst.plan_worst(workload, targets_of(workload), again, tolerance).plan
        free = self._large_again(budget)(workload, None)
        if not workload.has_targets or missed_by(as_measured(free, self.max_records)) <= 1:
            return free
        best = large_within.plan_within(workload, again, tolerance, insufficient)
        missed = missed_by(as_measured(best, self.max_records))
        if not 1 < missed < limits().rounding_room or missed_by(best) > 1:
            return best
        tighter = replace_targets(workload, 1 / missed)
        return replace(large_within.plan_within(tighter, again, tolerance, insufficient), workload=workload)

    def _large_again(self, budget: Budget) -> large_worst.Replan:
        """Return what plans with other weights where some attributes are not split."""

        def again(asked: Workload, centres: Centres | None) -> Plan:
            if centres is None:
                return self._arranged(asked, budget, lambda _: self._planned(asked, budget, []))
            return plan_at(centres, asked, budget, self.options, self.bases, self.progress, self.large)

        return again

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

        def split(asked: Workload, centres: Centres | None, tolerance: float, /) -> Plan:
            """Plan with all groups split, around given centres or the best ones."""
            options = replace(self.options, tolerance=tolerance)
            if centres is None:
                return plan_around_best(
                    asked, budget, options, self.bases, self.far_apart, self.progress, self.large
                )
            return plan_at(centres, asked, budget, options, self.bases, self.progress, self.large)

        def fresh() -> Again:
            arranged, planned = (
                lambda asked, planned: self._arranged(asked, budget, planned, centred=False),
                lambda asked, unsplit: self._planned(asked, budget, unsplit),
            )
            return Again(arranged, planned, split, budget, self.options.tolerance, fixed)

        return fresh

    def _arranged(
        self, workload: Workload, budget: Budget, planned: Planned, *, centred: bool = True
    ) -> Plan:
        """Plan with the best choice of groups that are measured whole."""
        if self.options.keeps_whole:
            tolerance = self.options.tolerance
            return best_candidate(
                workload, budget, tolerance, planned, self.progress, centred=centred, lines=self.large
            )
        made = planned([])
        if isinstance(made, PlanError):
            raise made
        return made

    def _planned(self, workload: Workload, budget: Budget, unsplit: Sequence[Unsplit]) -> Plan | PlanError:
        """Plan with some groups whole, around the best centres at which the plan can be measured, if any.

        Return a plan, or why there is none.
        """
        rest = without(workload, unsplit)
        even = uniform(workload.schema)
        try:
            split = None if rest is None else self._split(rest, budget, None)
            plan = self._beside(split, unsplit, workload, budget)
            refused = refusal(plan, self.max_records)
            if refused is not None and rest is not None and plan.centres != even:
                split = self._split(rest, budget, even)  # whose rows are smaller integers
                plan = self._beside(split, unsplit, workload, budget)
                refused = refusal(plan, self.max_records)
        except PlanError as error:  # too large to split, or nothing to measure
            return error
        except OutsideMeasuredSpaceError as error:  # rounding errors hide what is measured
            return PlanError(str(error))
        return plan if refused is None else refused

    def _split(self, workload: Workload, budget: Budget, centres: Centres | None) -> Plan:
        """Plan with all groups split, around given centres or the best ones."""
        options = self.options, self.bases
        if centres is None:
            return plan_around_best(workload, budget, *options, self.far_apart, self.progress, self.large)
        return plan_at(centres, workload, budget, *options, self.progress, self.large)

    def _beside(
        self, split: Plan | None, unsplit: Sequence[Unsplit], workload: Workload, budget: Budget
    ) -> Plan:
        """Return a plan of all groups."""
        if split is not None and not unsplit:
            return split
        return beside(split, unsplit, workload, budget, self.options.tolerance)
