"""What makes plans with given options: for any objective, with groups split or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from querysmasher.errors import OutsideMeasuredSpaceError, PlanError
from querysmasher.planning.around import plan_around_best, plan_at
from querysmasher.planning.candidates import Planned, Unsplit, beside, best_candidate, without
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.certificate import Certificate
from querysmasher.planning.integer import check_measurable, refusal
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.joining import Joined
from querysmasher.planning.objectives.objective import (
    SCALED,
    Fresh,
    Least,
    check_cost,
    insufficient_budget,
    missed_targets,
    plan_least,
    plan_within,
    plan_worst,
    replace_targets,
    shared_anew,
    targets_of,
)
from querysmasher.planning.objectives.rounded import MET, as_measured, at_measured_cost, missed_by, with_cost
from querysmasher.planning.objectives.search import Replan, Wholes
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.privacy.budget import Budget
from querysmasher.workload.workload import Workload

P = TypeVar("P", Plan, Plan | None)


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
        joined = Joined.of(workload)
        asked = joined.workload
        if objective == "worst":
            aims = targets_of(asked)
            plan = self._measurable(lambda fresh: plan_worst(asked, aims, fresh(budget, None))[0])
        elif workload.has_targets:
            plan = self._within(asked, budget, insufficient)
        else:
            plan = self._arranged(asked, budget, partial(self._planned, asked, budget))
        return joined.restored(plan)

    def _within(self, workload: Workload, budget: Budget, insufficient: str) -> Plan:
        """Return the plan of least mean error that meets all targets, also as measured."""
        free = self._fresh(budget, None)(workload)
        missed = missed_targets(free)
        if not missed and missed_by(as_measured(free, self.max_records)) <= MET:
            return free
        aimed, least = workload, None
        best = self._measurable(lambda fresh: plan_within(aimed, budget, fresh))
        if best is None or best.gap > limits().promised_gap:
            least = self._least(workload, with_cost(budget, 1.0))
            cost = least.plan.budget.privacy_cost
            if best is None and cost > budget.privacy_cost:
                if insufficient == "refuse":
                    raise insufficient_budget(least, budget, missed)
                slack = 1 + SCALED * self.options.tolerance
                aimed = replace_targets(workload, math.sqrt(cost / budget.privacy_cost) * slack)
            if cost <= budget.privacy_cost or best is None:
                other = self._measurable(lambda fresh: plan_within(aimed, budget, fresh, least))
                best = min(filter(None, (best, other)), key=lambda plan: plan.weighted_loss)
        bound, factor = best.weighted_loss / (1 + best.gap) ** 2, 1.0
        for _ in range(limits().rounding_rounds if aimed is workload else 0):  # scaled ones are missed anyway
            ratio = missed_by(as_measured(best, self.max_records))
            if ratio <= MET:
                break
            factor *= ratio * (1 + 1e-9)
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
        found: list[Least] = []

        def make(fresh: Fresh) -> Plan:
            found.append(plan_least(workload, budget, fresh))
            return found[-1].plan

        plan = self._measurable(make)
        return replace(found[-1], plan=at_measured_cost(plan, self.max_records))

    def _measurable(self, make: Callable[[Fresh], P]) -> P:
        """Return a plan, around uniform centres if it cannot be measured around others."""
        best = make(self._fresh)
        if best is None:
            return best
        try:
            check_measurable(best, self.max_records)
        except PlanError:
            even = uniform(best.workload.schema)
            if best.centres == even:
                raise
            best = make(self._around(even))  # whose rows are smaller integers
            if best is not None:
                check_measurable(best, self.max_records)
        return best

    def _around(self, centres: Centres) -> Fresh:
        """Return what starts planning around given centres only."""
        return lambda budget, _, whole=None: self._fresh(budget, centres, whole)

    def _fresh(self, budget: Budget, centres: Centres | None, whole: Wholes | None = None, /) -> Replan:
        """Return what plans with other weights, around the best centres or around given ones."""

        def split(asked: Workload, centres: Centres | None, tolerance: float, /) -> Plan:
            """Plan with all groups split, around given centres or the best ones."""
            options = replace(self.options, tolerance=tolerance)
            if centres is None:
                return plan_around_best(
                    asked, budget, options, self.bases, self.far_apart, self.progress, self.large
                )
            return plan_at(centres, asked, budget, options, self.bases, self.progress, self.large)

        return Replan(
            lambda asked, planned: self._arranged(asked, budget, planned, centred=False),
            lambda asked, unsplit: self._planned(asked, budget, unsplit),
            split,
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
            if rest is not None and split is not None and unsplit:
                positive = tuple(centre.positive() for centre in split.centres)
                if positive != split.centres:  # rows measured whole are compared in the mean over centres
                    split = self._split(rest, budget, positive)
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
