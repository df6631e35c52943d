"""The numbers of a plan's page: errors by group with their spread, shares of the budget, error against ε.

Memory does not grow with the number of queries: errors are summed without writing queries out, and for a
large group their spread is estimated from a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array, in_order, one_core
from querysmasher.errors import TooLargeError
from querysmasher.formatting import count, shortened
from querysmasher.guarantees import delta_of
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import ApproxDP, Budget
from querysmasher.report.expectations import Expectation, by_kind, expect, largest_errors
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group

MAX_ENTRIES = 3_000_000
"""Maximum number of values (24 MB) when rows of a family or queries over tied attributes are written out."""

WHOLE = 300_000
"""Maximum number of queries of a group that is not sampled, if its attributes are measured separately."""

SAMPLE = 20_000
PER_KIND = 12
"""Number of groups from which the spread of a kind is estimated."""

SPREAD_GROUPS = 300
"""Maximum number of groups for which the page shows the spread of each."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STEPS = 160


def error_rows(plan: Plan) -> tuple[list[Expectation], list[Expectation]]:
    """Return the errors of every group, in the workload's order, and of every kind."""
    with one_core():
        estimator = plan.new_estimator()  # its memory is freed with it
        errors = _Errors(estimator)
        rows = list(expect(plan, estimator=estimator, max_entries=MAX_ENTRIES))
        extremes = largest_errors(plan)
        if extremes is not None:
            rows = [replace(row, largest=one.std) for row, one in zip(rows, extremes, strict=True)]
        samples: dict[int, Array | None] = {}
        if len(rows) <= SPREAD_GROUPS:
            for place, row in enumerate(rows):
                sample = errors.sample(row.group)
                rows[place] = replace(row, spread=quantiles([(sample, 1.0)]))
                samples[id(row.group)] = None if sample is None else _thin(sample)
        kinds = []
        for kind in by_kind(rows):
            chosen = kind.groups[:: max(1, math.ceil(len(kind.groups) / PER_KIND))]
            parts = [(samples[id(g)] if id(g) in samples else errors.sample(g), g.rows) for g in chosen]
            kinds.append(replace(kind, spread=quantiles(parts)))
        return rows, kinds


def quantiles(parts: Sequence[tuple[Array | None, float]]) -> tuple[float, ...] | None:
    """Return the quantiles of samples, each of which represents a number of queries."""
    known = [(sample, weight) for sample, weight in parts if sample is not None and sample.size]
    if not known:
        return None
    values = np.concatenate([sample for sample, _ in known])
    weights = np.concatenate([np.full(sample.size, weight / sample.size) for sample, weight in known])
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    places = np.searchsorted(heights, np.array(QUANTILES) * heights[-1] * (1 - 1e-12))
    return tuple(values[order][np.minimum(places, values.size - 1)].tolist())


def shares(plan: Plan, most: int) -> list[tuple[str, int, float]]:
    """Return (attribute set, its size, share of the budget), the largest first, the smallest combined."""
    own = list(plan.budget_shares().items())
    largest_first = (own[place] for place in in_order([-share for _, share in own]))
    named = [(" × ".join(names) or "total", len(names), share) for names, share in largest_first]
    if len(named) <= most + 1:
        return named
    rest = math.fsum(share for _, _, share in named[most:])
    return [*named[:most], (f"{len(named) - most:,} other attribute sets together", 0, rest)]


def shares_by_way(plan: Plan) -> list[tuple[str, int, float]]:
    """Return (how many attributes at a time, that number, share of the budget)."""
    found: dict[int, list[float]] = {}
    for names, share in plan.budget_shares().items():
        found.setdefault(len(names), []).append(share)
    return [
        (
            "total" if way == 0 else f"{count(way, 'attribute')} ({count(len(own), 'attribute set')})",
            way,
            math.fsum(own),
        )
        for way, own in sorted(found.items())
    ]


def tenths(parts: Sequence[float]) -> list[str]:
    """Return shares as percentages with one decimal that add up to the rounded sum, by largest remainders.

    >>> tenths([1 / 3, 1 / 3, 1 / 3])
    ['33.4%', '33.3%', '33.3%']
    """
    exact = [1000 * part for part in parts]
    floors = [math.floor(part + 1e-9) for part in exact]
    left = round(math.fsum(exact)) - sum(floors)
    order = sorted(range(len(parts)), key=lambda i: round(floors[i] - exact[i], 6))  # equals stay in order
    for place in order[: max(left, 0)]:
        floors[place] += 1
    return [f"{floor / 10:.1f}%" for floor in floors]


def epsilon_curve(budget: Budget) -> tuple[float, list[float], list[float]] | None:
    """Return the plan's ε, a grid of ε around it, and the factor of the errors at each, for constant δ.

    Errors are proportional to 1/√(privacy cost). None if the budget is too small or large for an ε.
    """
    delta = delta_of(budget)
    start = budget.epsilon_at(delta)
    if not 1e-3 <= start <= 1e4:
        return None
    grid = np.geomspace(min(0.1, start / 10), max(10.0, start * 5), STEPS)
    epsilons = sorted({*grid.tolist(), start})
    costs = [budget.privacy_cost if e == start else ApproxDP(e, delta).privacy_cost for e in epsilons]
    factors = [math.sqrt(budget.privacy_cost / cost) for cost in costs]
    return shortened(start, 9), [shortened(e, 9) for e in epsilons], [shortened(f, 9) for f in factors]


class _Errors:
    """Standard errors of the queries of groups, sampled where a group is large."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator

    def sample(self, group: Group) -> Array | None:
        """Return the standard errors of a group's queries, or of a sample of them."""
        apart = self._is_apart(group)
        small = all(f.rows * f.cells <= MAX_ENTRIES for f in group.families)
        if not (apart and small and group.rows <= WHOLE):
            cells = 1 if apart else math.prod(f.cells for f in group.families)
            most = min(SAMPLE, MAX_ENTRIES // cells)
            chosen = _sampled(group, most)
            if chosen is None:
                return None
            group = chosen
        try:
            return np.sqrt(self.estimator.variances(group).ravel())
        except TooLargeError:
            return None

    def _is_apart(self, group: Group) -> bool:
        """Return whether every attribute is measured separately, so that variances are sums of products."""
        if any(len(f.shape) > 1 or f.rows * f.cells > MAX_ENTRIES for f in group.families):
            return False
        sets = subsets(sorted(self.estimator.schema.positions(group.attributes)))
        measured = (m for s in sets for m in self.estimator.measured.get(s, ()))
        return all(len(axes) <= 1 for m in measured for axes, _ in m.blocks)


def _sampled(group: Group, most: int) -> Group | None:
    """Return a group of about `most` of a group's queries, spread evenly: some rows of every family."""
    if most < 8:
        return None
    left, families = float(most), list(group.families)
    order = sorted(range(len(families)), key=lambda i: families[i].rows)
    for done, place in enumerate(order):  # small families first: they leave more to the others
        count = min(families[place].rows, int(left ** (1 / (len(order) - done))))
        rows = _some_rows(families[place], max(count, 1), seed=place)
        if rows is None:
            return None
        left /= len(rows)
        families[place] = Rows(families[place].shape, rows)
    return replace(group, families=tuple(families))


def _some_rows(family: Family, count: int, seed: int) -> Array | None:
    """Return `count` rows of a family, drawn with a fixed seed."""
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(family.rows, size=count, replace=False))
    if family.structure is Structure.ROWS or family.rows * family.cells <= MAX_ENTRIES:
        return family.matrix()[chosen]
    if count * family.cells > MAX_ENTRIES:
        return _some_rows(family, MAX_ENTRIES // family.cells, seed)
    return family.drawn(generator, chosen)


def _thin(sample: Array) -> Array:
    """Return an evenly spread part of a sample, for the spread of its kind."""
    return np.sort(sample)[:: max(1, sample.size // SAMPLE)]
