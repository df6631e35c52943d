"""One search for all objectives: multipliers rise, plans follow, until the certificate is close enough.

For targets t > 0 and plans V of one cost, whose variances are convex in V,

    min_V max_q Var_q(V)/t_q²  =  max over λ ≥ 0, Σλ = 1, of min_V Σ_q λ_q Var_q(V)/t_q²,

and the least Σ w_q Var_q with all Var_q ≤ t_q² is the maximum over μ ≥ 0 of

    min_V Σ_q (w_q + μ_q/t_q²) Var_q(V) − Σ_q μ_q.

The planner solves these minima: they are mean errors with other weights. Its certified lower bound is a lower
bound on the optimum, whatever the multipliers. Their derivatives are Var_q/t_q², less one in the second case:
multipliers of queries that come out worse than others, or than their target, grow. With the strategies of
every plan, the budget is reallocated, which gives an upper bound and closes most of the gap.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.objectives.multipliers import (
    MOST_STEP,
    Multipliers,
    Scopes,
    class_losses,
    expectations,
    merged,
    spread,
    targets_of,
)
from querysmasher.planning.objectives.reallocation import Reallocation, with_noise
from querysmasher.planning.objectives.replan import Bounded, Replan
from querysmasher.planning.objectives.variances import VarianceTable
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Certificate
from querysmasher.workload.workload import Workload

FLOOR = 1.0
"""The least multipliers, in units of goal × average: a plan says little about weightless queries."""

GROWTH = 1.22
"""Factor by which the accepted gap grows with every plan, from the tolerance on."""

ROUNDS = 5
"""Maximum number of times that a budget is reallocated at other prices."""

PROMISED = 0.01
"""The gap that is promised: above it, the search continues while plans narrow the gap."""

MOST_WEIGHT = 1e6
"""Maximum sum of the multipliers of targets, relative to the loss: beyond, rounding errors hide the loss.
It is less if targets are missed by far: the least budget then says sooner whether they can be met."""


@dataclass(frozen=True, eq=False)
class Trial(Bounded):
    """A plan for some multipliers, its variances, and the loss of every class at σ² = 1."""

    multipliers: Multipliers
    table: VarianceTable
    losses: Array
    gap: float = 0.0
    """How far its plan may be from the best one: as solved, if a record is replaced, not as certified."""
    value: float = math.inf
    """The value to minimise, after the budget is reallocated."""


class Search:
    """The search for the least largest ratio of variance to target², or for the least mean within targets."""

    def __init__(self, workload: Workload, replan: Replan, aims: Array | None = None) -> None:
        """Minimise the largest ratio to `aims`, one per group or, without these, the mean within targets."""
        self.mean, self.replan = aims is None, replan
        self.aims = targets_of(workload, math.inf) if aims is None else aims
        self.squares = np.where(np.isfinite(self.aims), self.aims, 1.0) ** 2
        self.best: Trial | None = None
        self.level = 1.0
        """The fraction of target² that multipliers aim at, if plans miss their targets by very little."""
        self.missed = 1.0
        """The largest ratio of variance to target² of the last plan, or 1 if it meets its targets."""
        self.highest: Trial | None = None
        """The plan of the highest bound, if one measurement answers all queries within targets."""
        self.bounds: defaultdict[Centres, float] = defaultdict(float)
        """The best lower bound of plans around each choice of centres."""
        self.reached: defaultdict[Centres, float] = defaultdict(float)
        """The same if plans are as good as they are solved: the search ends when it cannot rise further."""
        self.proofs: dict[Centres, tuple[Plan, float]] = {}
        """The plan of the best lower bound around each choice of centres, and what is subtracted from it."""
        self._floor, self._weight, self._part, self._change = FLOOR, 0.0, 0.5, 0.0
        self._spare = 0.0
        """By how much the sum of multipliers aims below targets², as a logarithm: more while plans miss."""
        self._use(merged(workload, aimed=True) if self.mean else workload)

    def _use(self, workload: Workload) -> None:
        self.workload, self.scopes = workload, Scopes.of(workload, added=self.mean)
        self._begun = False

    @property
    def gap(self) -> float:
        """How far the best plan seems from the optimum around its centres, as a fraction of standard errors.

        If a record is replaced, bounds are loose: the search compares plans with one another.
        """
        if self.best is None:
            return math.inf
        return Certificate(self.best.value, self.reached[self.best.plan.centres]).gap

    @property
    def bound(self) -> float:
        """The best lower bound around the centres of the best plan."""
        return 0.0 if self.best is None else self.bounds[self.best.plan.centres]

    @property
    def _hair(self) -> float:
        """The least fraction below targets² that multipliers aim at: it costs hardly any loss."""
        return self.replan.options.tolerance / (2 + 2 * self._weight)

    def run(self, centres: Centres | None, start: Multipliers | None = None) -> Trial | None:
        """Return the best plan around given centres or the best ones, or None if none meets all targets.

        The search ends when the certified gap is below a goal, which rises with every plan, faster when
        plans no longer narrow the gap. Plans for the largest error are solved to the goal, too, but roughly
        while the bound rises steeply; if every query has a multiplier of its own, the goal waits meanwhile.
        While the bound rises, every plan chooses its centres. Then those of the best plan are kept, as a
        bound holds only around them, and small families are merged, if this is allowed.
        """
        multipliers, trial, options = self._first(centres, start), None, self.replan.options
        tolerance = options.tolerance
        goal, highest, narrowest, far = tolerance, 0.0, math.inf, False
        separate = all(len(group.families) < 2 for group in self.workload)  # so that the gap closes
        while self._weight < MOST_WEIGHT * self.level**2 and (self.best or goal < 4 * PROMISED):
            narrowing = PROMISED < self.gap < 0.9 * narrowest
            accepted = max(PROMISED, goal / 2) if self.mean and goal > PROMISED else goal
            if self.gap <= accepted and not narrowing:
                break
            if narrowing and self.mean:
                goal = min(goal, PROMISED / 2)
            if narrowest <= self.gap < PROMISED:
                goal *= GROWTH**3
            elif not (narrowing or (far and separate)):
                goal *= GROWTH if goal < PROMISED else GROWTH**0.25
            narrowest = min(self.gap, narrowest)
            rough, precision = far, 1.0 if self.mean else (4 * PROMISED if far else goal) / tolerance
            last, trial = trial, self._tried(multipliers, centres, precision)
            if trial is None:  # queries of hardly any weight are lost in rounding errors
                self._floor, trial = 5 * self._floor, last
                multipliers = self._stepped(trial, goal) if trial else multipliers
                continue
            settled, rise = trial.bound < highest * (1 + tolerance), trial.bound - highest
            far = rise > PROMISED * highest > 0 and not self.mean  # the next plan is much better
            highest = max(trial.bound, highest)
            if not far:
                goal = max(goal, 0.0 if rough else min(4 * trial.gap, PROMISED / 2))  # what it proves
                self._keep(trial, highest * (1 + goal + trial.gap) ** 4)
                if rise < 0 and narrowest <= self.gap < PROMISED and not self.mean:
                    goal = max(goal, PROMISED / 2)  # the plan proved nothing, and was no better
            multipliers = self._stepped(trial, goal)
            if settled and centres is None:
                centres = (self.best or trial).plan.centres
                highest, self.highest = self.reached[centres], None
            elif settled and self.gap > goal and not (self.mean or options.mechanism.uniform_only):
                finer = merged(self.workload)
                if finer is not self.workload:
                    self._use(finer)
                    even = Multipliers.even(finer, self.scopes, trial.multipliers.groups)
                    multipliers = spread(trial.multipliers, even)
                    goal, highest, narrowest = tolerance, 0.0, math.inf
        if self.best is None and trial is not None:
            self._keep(trial)
        self._prove()
        plain = uniform(self.workload.schema)
        public = trial is not None and trial.plan.budget.unit.total_is_public
        if (
            public
            and self.best
            and Certificate(self.best.value, self.bound).gap > PROMISED
            and centres not in {None, plain}
            and not self.mean
        ):
            start = self._first(plain, self.best.multipliers)  # for families that were merged since then
            if other := self._tried(start, plain, 1.0):  # centres are not made for pairs
                self._keep(other)
            if self.best.plan.centres == plain:
                return self.run(plain, self.best.multipliers)
        return self.best

    def _prove(self) -> None:
        """Find the closest lower bound around the centres of the best plan."""
        if self.best and self.best.plan.centres in self.proofs:
            plan, subtracted = self.proofs[self.best.plan.centres]
            closest = self.replan.certified(plan, 0.0).certificate.bound - subtracted
            self.bounds[plan.centres] = max(closest, self.bounds[plan.centres])

    def _first(self, centres: Centres | None, start: Multipliers | None) -> Multipliers:
        """Return the multipliers to begin with: even ones, or those of groups with targets."""
        aimed = np.isfinite(self.aims)
        first = Multipliers.even(self.workload, self.scopes, np.where(aimed, 1 / aimed.sum(), 0.0))
        first = first if start is None else spread(start, first)
        if not self.mean:
            return first
        plan = self.replan(self.workload, centres)
        first = replace(first, groups=first.groups * plan.weighted_loss)
        return self._of_best_sum(first, self._tabulated(plan, first))

    def _tried(self, multipliers: Multipliers, centres: Centres | None, precision: float) -> Trial | None:
        """Plan with some multipliers, and keep the bound that this proves; None if queries are lost."""
        weighted = multipliers.weighted(self.squares, added=self.mean)
        plan = self.replan(weighted, centres, precision / (1 + self._weight))
        total = float(multipliers.groups.sum())
        subtracted = total if self.mean else 0.0
        proven = plan.certificate.bound - subtracted
        if proven > self.bounds[plan.centres]:
            self.bounds[plan.centres], self.proofs[plan.centres] = proven, (plan, subtracted)
        solved = self.replan.options.tolerance * precision / (1 + self._weight)
        gap = min(plan.gap, solved) if plan.budget.unit.total_is_public else plan.gap
        bound = plan.weighted_loss / (1 + gap) ** 2 - subtracted
        self.reached[plan.centres] = max(bound, self.reached[plan.centres])
        plan = replace(plan, workload=self.workload)
        estimator = plan.estimator
        if self._begun and estimator.is_single and not all(map(estimator.contains, self.workload)):
            return None
        trial = replace(self._tabulated(plan, multipliers), bound=bound, gap=gap)
        if self.mean:
            self._weight = total / float(trial.losses @ trial.table.variances)
        return trial

    def _tabulated(self, plan: Plan, multipliers: Multipliers) -> Trial:
        """Return a plan with its variances and losses."""
        with one_core():
            table, self._begun = VarianceTable(plan, self.scopes.of_group), True
            return Trial(plan, 0.0, multipliers, table, class_losses(self.workload, table, self.scopes))

    def _keep(self, trial: Trial, most: float = math.inf) -> None:
        """Reallocate the budget of a plan, and keep it if it is the best, and its value is at most `most`.

        If a record is replaced, prices hold for the noise for which they were made: other noise may cost
        more. Then the budget is reallocated at the prices between, and less of it, if targets must be met.
        """
        table, cost = trial.table, trial.plan.budget.privacy_cost
        aims = np.array([self.aims[entry.members[0]] for entry in table.entries])
        by_column = expectations(table, trial.multipliers.rows)
        for _ in range(ROUNDS if trial.plan.budget.unit.total_is_public else 1):
            best = math.inf if self.best is None else self.best.value
            reallocation = Reallocation(table, aims, cost, by_column)
            with one_core():
                if self.mean:
                    x = reallocation.least_loss(trial.losses)
                    value = math.inf if x is None else float(trial.losses @ x)
                    self.missed = 1.0 if x is not None else max(1.0, reallocation.largest(table.variances))
                    self.level = (1 - self._hair) / self.missed
                    more = 2 * self._spare + math.log(self.missed) if self.missed > 1 else self._spare / 2
                    self._spare = min(more, PROMISED / (1 + self._weight))
                else:
                    x, value = reallocation.least_largest(most=min(best, most))
            if x is None or value >= best:
                break
            plan = with_noise(trial.plan, table, trial.losses, x)
            more = plan.measured[table.sets[0][0]].variance / float(x[0])
            meets = more <= 1 + 1e-9 or not self.mean
            if meets and value * more < best:
                self.best = replace(trial, plan=plan, value=value * more)
            if more <= 1 + self.replan.options.tolerance / 4 and meets:
                break
            cost /= more if self.mean else 1.0
            prices = np.array([sum(plan.measured[i].price for i in indexes) for indexes in table.sets])
            table.spent = np.sqrt(table.spent * prices)

    def reallocated(self, plan: Plan) -> Trial | None:
        """Return a plan with its budget reallocated, or None if its strategies do not meet the targets."""
        plan = replace(plan, workload=self.workload)
        self._keep(self._tabulated(plan, Multipliers.even(self.workload, self.scopes, self.squares)))
        return self.best

    def _stepped(self, trial: Trial, goal: float) -> Multipliers:
        """Return the next multipliers, which follow the expected variances of groups and of their rows.

        Where the bound falls, they have grown too fast: some queries are then neglected in turn.
        """
        table, multipliers, tolerance = trial.table, trial.multipliers, self.replan.options.tolerance
        falls = trial.bound < self.reached[trial.plan.centres] * (1 - tolerance)
        by_column = expectations(table, multipliers.rows)
        by_group = (table.coefficients(by_column) @ table.variances)[table.entry_of] / self.squares
        weights = np.bincount(table.entry_of, multipliers.groups / self.squares).astype(float)
        by_row = multipliers.row_slopes(table, table.slopes(by_column, weights))
        solved = tolerance if self.mean else goal  # what plans are solved to
        floor = self._floor * solved * min(1.0, 3 / (1 + self._weight))
        if self.mean and len(table.sets) == 1:
            return self._stepped_whole(trial, by_group, by_row, floor, goal)
        by_group /= self.level if self.mean else float(multipliers.groups @ by_group)
        return self._of_best_sum(multipliers.stepped(by_group, by_row, floor, slowly=falls), trial)

    def _stepped_whole(
        self, trial: Trial, by_group: Array, by_row: list[Array], floor: float, goal: float
    ) -> Multipliers:
        """Return the next multipliers if one measurement answers all, so that no budget is divided.

        The closer the budget is to the least one, the less a larger sum changes, by about 1 + the weight. So
        it follows the mean ratio by any power, and the others by larger powers. Where the bound falls,
        multipliers go half of the way back to the best ones. They aim as far below targets as the largest
        ratio is above the mean one, but at little cost: a level lower by x raises the loss by x(1 + weight).
        """
        multipliers, highest = trial.multipliers, self.highest or trial
        if trial.bound < highest.bound - PROMISED * abs(highest.bound):
            self.highest = replace(highest, multipliers=highest.multipliers.slower())
            return self.highest.multipliers.halfway(multipliers)
        self.highest, steep = max(highest, trial, key=lambda tried: tried.bound), 1 + self._weight
        total = float(multipliers.groups.sum())
        mean = float(multipliers.groups @ by_group) / total
        level = 1 - self._hair
        level *= min(1.0, mean / self.missed) if self.missed > 1 else 1.0
        level = max(level, 1 - max(PROMISED, goal) / steep)
        return multipliers.stepped(by_group / mean, by_row, floor, steep=steep).summed(total, mean / level)

    def _of_best_sum(self, multipliers: Multipliers, trial: Trial) -> Multipliers:
        """Scale multipliers: to the sum 1 for the largest ratio, to the sum of the highest bound for targets.

        With sum s, the bound is (Σ_k √(c_k (ℓ_k + s b_k)))² / budget - s if strategies stay the same, with
        ℓ_k the loss of class k and s·b_k, the `added` one, that of the multipliers: concave in s. For targets
        that are tighter by a hair, s counts a little less: plans at the highest bound miss about as often as
        they meet.
        """
        table, groups, losses = trial.table, multipliers.groups, trial.losses
        total, last = float(groups.sum()), float(trial.multipliers.groups.sum())
        if not self.mean:
            return replace(multipliers, groups=groups / total)
        if len(table.sets) == 1:  # there is nothing to divide
            return multipliers
        coefficients = table.coefficients(expectations(table, multipliers.rows))
        added = np.bincount(table.entry_of, groups / self.squares) @ coefficients / total
        loss = math.log(float(losses @ table.variances))
        low, high = loss - 14.0, loss + 14.0
        aim = (1 - self._hair) * math.exp(-self._spare) * trial.plan.budget.privacy_cost
        for _ in range(40):
            middle = (low + high) / 2
            roots = np.sqrt(np.maximum(table.spent * (losses + math.exp(middle) * added), 1e-300))
            slope = float(roots.sum() * (table.spent * added / roots).sum())
            low, high = (middle, high) if slope > aim else (low, middle)
        change = self._part * (low - math.log(last))
        if change * self._change < 0:  # strategies follow the sum: it must not jump back and forth
            self._part, change = self._part / 2, change / 2
        self._change = change = min(max(change, -MOST_STEP), MOST_STEP)
        return replace(multipliers, groups=groups * (last * math.exp(change) / total))
