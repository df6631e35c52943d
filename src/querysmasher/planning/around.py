"""Plans of queries that are split, around given centres or the best ones found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from querysmasher.planning.allocation import allocate
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.centres.search import search_centres
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
