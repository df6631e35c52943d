"""Plans for workloads with attributes of very many values, which are not split.

For every set A of the other attributes, one block is measured on A together with the large attributes:
their whole strategies V, times the residual strategy of A. A query q ⊗ r, with q about a large attribute,
has the variance q V⁻¹ qᵀ times that of what r leaves on A; a query r alone has the factor 1ᵀV⁻¹1. So, given
V, the other attributes are planned as usual, with queries that weigh as much as V makes them cost.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from querysmasher.arrays import in_order
from querysmasher.errors import PlanError
from querysmasher.planning.allocation import allocate
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.centres.search import search_centres
from querysmasher.planning.integer import check_measurable
from querysmasher.planning.large.asked import Asked
from querysmasher.planning.large.layers import Key, Layer, Layers, Places
from querysmasher.planning.large.sharing import Lines
from querysmasher.planning.measured import Blocks, Measured
from querysmasher.planning.mechanisms import Task
from querysmasher.planning.mechanisms.mechanism import Choice
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.strategies import Strategy
from querysmasher.planning.subworkload import Subworkload
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.schema import Schema
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

FAINT = 1e-9
"""Bounds below this fraction of the loss are no bounds."""


class LargePlanner:
    """Plans a workload with large attributes."""

    def __init__(
        self,
        workload: Workload,
        budget: Budget,
        options: Options,
        large: Places,
        progress: bool | None,
        *,
        fine: bool = False,
    ) -> None:
        """Take the workload apart; `fine` if the largest error matters, rather than the mean."""
        self.workload, self.budget, self.options, self.large = workload, budget, options, large
        self.progress = progress
        self.groups: defaultdict[Key, list[Group]] = defaultdict(list)
        for group in workload:
            asked = Asked.of(workload.schema, group, large)
            self.groups[asked.large].append(asked.small)
        lines = Lines(trees=any(family.is_tree for group in workload for family in group.families), fine=fine)
        self.layers = Layers(workload.schema, self.groups, budget.unit.total_is_public, lines)

    def plan(self, max_records: int) -> Plan:
        """Return the plan around the best centres found, among those at which it can be measured."""
        with Bar("Choosing strategies", None, self.progress):
            even = uniform(self.workload.schema)
            first = self.at(even)
        plans = [first]
        if self.options.centering == "optimized":
            for centres in self._centres(first):
                plans.append(self.at(centres))
                if (
                    plans[-1].weighted_loss >= min(plan.weighted_loss for plan in plans[:-1])
                    and len(plans) > 2
                ):
                    break
        for plan in (plans[place] for place in in_order([plan.weighted_loss for plan in plans])):
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
        """Iterate over other centres of the other attributes, as if large ones only weighed their queries."""
        schema = self.workload.schema
        asked = {name for groups in self.groups.values() for group in groups for name in group.attributes}
        if not asked:
            return
        layer = self.layers.around(first.centres)[0]
        weights = layer.weights or {}
        small = Schema([attribute for attribute in schema if attribute.name in asked])
        groups = tuple(
            replace(group, weight=group.weight * weights.get(key, 1.0))
            for key, own in self.groups.items()
            for group in own
            if weights.get(key, 1.0) > 0
        )
        found = search_centres(Workload(small, groups), self.budget)
        for candidate in found.centres[::-1]:
            chosen = dict(zip(small.names, candidate, strict=True))
            centres = tuple(
                chosen.get(name, even) for name, even in zip(schema.names, first.centres, strict=True)
            )
            if centres != first.centres:
                yield centres

    def at(self, centres: Centres) -> Plan:
        """Return the plan around given centres of the other attributes."""
        public = self.budget.unit.total_is_public
        layers = [own for own in self.layers.around(centres) if own.attributes or own.products or not public]
        task = Task(
            self.workload,
            [Subworkload(own.attributes, own.terms) for own in layers],
            self.options.tolerance,
            self.options.solver,
            (),
            self.progress,
        )
        found, choices = self.options.mechanism.choose(task)
        solutions = list(found)
        numbers: dict[Strategy, int] = {}
        for own in layers:
            for product in own.products:
                for strategy in product.strategies.values():
                    if strategy not in numbers:
                        numbers[strategy] = len(solutions)
                        solutions.append(Solution(strategy, 1.0, min(1.0, own.quality), strategy.kind))
        factors = [
            self.budget.unit.squared_change(total=not (own.attributes or own.products)) for own in layers
        ]
        reached = [choice.reached for choice in choices]
        bounds = [_bound(own, choice) for own, choice in zip(layers, choices, strict=True)]
        variances = allocate(reached, factors, self.budget.privacy_cost).tolist()
        measured: list[Measured] = []
        for own, choice, variance in zip(layers, choices, variances, strict=True):
            measured += _measured(own, choice, variance, numbers)
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
            gap=max(0.0, above / max(below, FAINT * above) - 1),
            mechanism=self.options.mechanism.name,
            solver=self.options.solver,
            centering=self.options.centering,
            tolerance=self.options.tolerance,
        )


def _bound(layer: Layer, choice: Choice) -> float:
    """Return a lower bound on √loss of a set."""
    follows = choice.bound * layer.quality
    return follows if layer.bound is None else min(choice.reached, layer.bound)


def _measured(
    layer: Layer, choice: Choice, variance: float, numbers: Mapping[Strategy, int]
) -> Iterator[Measured]:
    """Iterate over the measurements of a layer: one per block of large attributes."""
    if not layer.products:
        yield Measured(layer.attributes, choice.blocks, variance, choice.reached)
        return
    for product, share, part in zip(layer.products, layer.shares, layer.parts, strict=True):
        attributes = tuple(sorted((*layer.attributes, *product.strategies)))
        place = {attribute: axis for axis, attribute in enumerate(attributes)}
        blocks: Blocks = (
            *((tuple(place[layer.attributes[a]] for a in axes), number) for axes, number in choice.blocks),
            *(((place[a],), numbers[strategy]) for a, strategy in product.strategies.items()),
        )
        root = choice.reached * math.sqrt(share * part)
        yield Measured(attributes, blocks, variance / share, root)
