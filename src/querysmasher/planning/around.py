"""Plans of queries that are split, around given centres or the best ones found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from querysmasher.planning.allocation import allocate
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.centring import search_centres
from querysmasher.planning.decomposition import Decomposer
from querysmasher.planning.measured import Measured
from querysmasher.planning.mechanisms import Task
from querysmasher.planning.nothing import nothing_to_measure
from querysmasher.planning.options import Options
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Solution
from querysmasher.planning.subworkload import Subworkload
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.workload.workload import Workload

WAYS = (1.5, 2.0)
"""How much further from uniform centres than the best found to try, where the search is not exact."""


def plan_around_best(
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
        found = search_centres(workload, budget.unit)
    best = at(found.at(1.0))
    if found.is_exact and not far_apart:
        return best
    for way in WAYS:
        trial = at(found.at(way))
        if trial.weighted_loss >= best.weighted_loss:
            break
        best = trial
    even = at(found.uniform)
    return even if even.weighted_loss < best.weighted_loss else best


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
        raise nothing_to_measure(public=bool(subworkloads))
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
