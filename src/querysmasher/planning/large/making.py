"""Plans for workloads with lines and trees, which bring centres of their own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from querysmasher.errors import PlanError
from querysmasher.planning.allocation import allocate
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.centring import search_centres
from querysmasher.planning.decomposition import Decomposer
from querysmasher.planning.integer import check_measurable
from querysmasher.planning.large.asked import Asked
from querysmasher.planning.lines.splitting import Asked as OnLines
from querysmasher.planning.lines.splitting import LineSplitter, Places, SplitSet
from querysmasher.planning.measured import Blocks, Measured
from querysmasher.planning.mechanisms import Task
from querysmasher.planning.nothing import nothing_to_measure
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import Strategy
from querysmasher.planning.subworkload import Subworkload, Term
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.schema import Schema
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

Key = tuple[tuple[int, Family], ...]
"""Families on lines and trees."""


class LargePlanner:
    """Plans a workload with lines and trees."""

    def __init__(
        self,
        workload: Workload,
        budget: Budget,
        options: Options,
        large: Places,
        progress: bool | None,
    ) -> None:
        """Take the workload apart."""
        self.workload, self.budget, self.options, self.large = workload, budget, options, large
        self.progress = progress
        self.groups: defaultdict[Key, list[Group]] = defaultdict(list)
        for group in workload:
            asked = Asked.of(workload.schema, group, large)
            self.groups[asked.large].append(asked.small)
        trees = any(family.is_tree for group in workload for family in group.families)
        self.lines = LineSplitter(workload.schema, trees, budget.unit.total_is_public)

    def plan(self, max_records: int) -> Plan:
        """Return the plan around the best centres found, among those at which it can be measured."""
        with Bar("Choosing strategies", None, self.progress):
            first = self.at(uniform(self.workload.schema))
        plans = [first]
        if self.options.centering == "optimized":
            plans += [self.at(centres) for centres in self._centres(first)]
        for plan in sorted(plans, key=lambda plan: plan.weighted_loss):
            try:
                check_measurable(plan, max_records)
            except PlanError:
                if plan is first:
                    raise
                continue
            return plan
        check_measurable(first, max_records)
        return first

    def _centres(self, first: Plan) -> Iterator[Centres]:
        """Iterate over other centres of the other attributes, as if lines and trees only weighed queries."""
        schema = self.workload.schema
        asked = {name for groups in self.groups.values() for group in groups for name in group.attributes}
        if not asked:
            return
        small = Schema([attribute for attribute in schema if attribute.name in asked])
        groups = tuple(
            replace(group, weight=group.weight * math.prod(family.rows for _, family in key))
            for key, own in self.groups.items()
            for group in own
        )
        found = search_centres(Workload(small, groups), self.budget.unit)
        chosen = dict(zip(small.names, found.at(1.0), strict=True))
        centres = tuple(
            chosen.get(name, even) for name, even in zip(schema.names, first.centres, strict=True)
        )
        if centres != first.centres:
            yield centres

    def _sets(self, centres: Centres) -> Iterator[tuple[Places, SplitSet]]:
        """Iterate over the sets to measure, with the other attributes of each."""
        decomposer = Decomposer(self.workload.schema, centres)
        sets: defaultdict[Places, dict[Key, tuple[Term, ...]]] = defaultdict(dict)
        for key, groups in self.groups.items():
            for one in decomposer.decompose(groups):
                sets[one.attributes][key] = one.terms
        for kept in sorted(sets, key=lambda kept: (len(kept), kept)):
            asked = [OnLines(key, terms) for key, terms in sets[kept].items()]
            for own in self.lines.split(kept, asked):
                if kept or own.strategies or not self.budget.unit.total_is_public:
                    yield kept, own

    def at(self, centres: Centres) -> Plan:
        """Return the plan around given centres of the other attributes."""
        sets = [(kept, own) for kept, own in self._sets(centres) if own.terms]
        if not sets:
            raise nothing_to_measure(public=self.budget.unit.total_is_public)
        task = Task(
            self.workload,
            [Subworkload(kept, own.terms) for kept, own in sets],
            self.options.tolerance,
            self.options.solver,
            (),
            self.progress,
        )
        found, choices = self.options.mechanism.choose(task)
        solutions = list(found)
        numbers: dict[Strategy, int] = {}
        for _, own in sets:
            for strategy in own.strategies.values():
                if strategy not in numbers:
                    numbers[strategy] = len(solutions)
                    solutions.append(Solution(strategy, 1.0, own.quality, strategy.kind))
        factors = [self.budget.unit.squared_change(total=not (kept or own.strategies)) for kept, own in sets]
        reached = [choice.reached for choice in choices]
        bounds = [choice.bound * own.quality for (_, own), choice in zip(sets, choices, strict=True)]
        variances = allocate(reached, factors, self.budget.privacy_cost).tolist()
        measured = []
        for (kept, own), choice, variance in zip(sets, choices, variances, strict=True):
            attributes = tuple(sorted((*kept, *own.strategies)))
            place = {attribute: axis for axis, attribute in enumerate(attributes)}
            blocks: Blocks = (
                *((tuple(place[kept[a]] for a in axes), number) for axes, number in choice.blocks),
                *(((place[a],), numbers[strategy]) for a, strategy in own.strategies.items()),
            )
            measured.append(Measured(attributes, blocks, variance, choice.reached))
        weigh = [math.sqrt(factor) for factor in factors]
        above = math.fsum(w * r for w, r in zip(weigh, reached, strict=True))
        below = math.fsum(w * b for w, b in zip(weigh, bounds, strict=True))
        return Plan(
            self.workload,
            self.budget,
            centres,
            tuple(solutions),
            tuple(measured),
            weighted_loss=math.fsum(m.variance * m.root_loss**2 for m in measured),
            gap=max(0.0, above / below - 1),
            mechanism=self.options.mechanism.name,
            solver=self.options.solver,
            centering=self.options.centering,
            tolerance=self.options.tolerance,
        )
