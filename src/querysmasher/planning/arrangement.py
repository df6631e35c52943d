"""Which queries are measured as they are, and which are split over residual spaces.

Splitting pays when many attribute sets share parts; few queries that tie attributes are better measured
whole, at the optimum over all mechanisms (`mechanisms.whole`). Small workloads are planned in both ways, and
the better plan is kept. In larger ones, the queries given by their rows (predicates, `linear`, `a + b <= c`)
are measured whole beside the tables, which are split, if that is better. If one square root shows that this
is not near the optimum over all mechanisms, everything is measured whole, as far as sizes allow. If all
queries are given by rows but together too large, they are measured whole in clusters (`clusters`).
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.beside import partly_split
from querysmasher.planning.cells import height, value_classes
from querysmasher.planning.centre import uniform
from querysmasher.planning.clusters import clusters, least_clustered, shares
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms.whole import root_diagonal, root_of, whole_work
from querysmasher.planning.plan import Plan
from querysmasher.planning.split_bound import split_groups, split_roots
from querysmasher.planning.unsplit import (
    Cluster,
    Planned,
    better,
    if_measurable,
    is_few,
    least_whole,
    merged_groups,
    solve_unsplit,
    working,
)
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.unit import Unit
from querysmasher.workload.workload import Workload


def best_arrangement(
    workload: Workload,
    budget: Budget,
    tolerance: float,
    planned: Planned,
    progress: bool | None = None,
    *,
    centred: bool = True,
    lines: tuple[int, ...] = (),
) -> Plan:
    """Return the best plan found among those that split all groups, some, or none.

    If `centred`, clusters of queries measured whole beside others may use these others' total. Queries about
    `lines`, which have a centre for every set, are split if others are.
    """
    every = range(len(workload.groups))
    on_lines = {workload.schema.names[attribute] for attribute in lines}
    few = [
        place
        for place, group in enumerate(workload)
        if is_few(group) and on_lines.isdisjoint(group.attributes)
    ]
    most = limits().whole_work
    if len(few) < len(every):
        most = min(most, limits().mixed_whole_work)
    merged = merged_groups(workload, every, most) if few or _is_quick(workload) else None
    if merged is None:
        if len(few) == len(every):
            return _clustered(workload, budget.unit, tolerance, planned, progress)
        return partly_split(workload, few, budget.unit, tolerance, planned, progress, centred=centred)
    if merged.rows.shape[1] == 1:
        return planned([])  # all queries ask for the number of records
    quick = whole_work(merged) <= limits().quick_whole_work
    if few and (quick or len(few) == len(every)) and not budget.unit.total_is_public:
        whole = solve_unsplit(merged, every, tolerance, progress=progress)
        return if_measurable([whole], planned)  # the optimum over all mechanisms
    found = (
        planned([])
        if quick
        else partly_split(workload, few, budget.unit, tolerance, planned, progress, centred=centred)
    )
    with working(merged, progress):
        root = root_of(merged)
    if _is_near(found, root):
        return found
    return better(found, [solve_unsplit(merged, every, tolerance, root, progress)], planned)


def _is_quick(workload: Workload) -> bool:
    """Return whether tables, which distinguish all values, take little time to plan as they are."""
    names = {name for group in workload for name in group.attributes}
    cells = math.prod(workload.schema.sizes[place] for place in workload.schema.positions(sorted(names)))
    rows = sum(math.prod(map(height, group.families)) for group in workload)
    return cells * min(rows, cells) ** 2 <= limits().quick_whole_work


def _clustered(
    workload: Workload, unit: Unit, tolerance: float, planned: Planned, progress: bool | None
) -> Plan:
    """Return a plan that measures all queries as they are, in clusters, unless splitting them is better."""
    schema, groups = workload.schema, workload.groups
    maps = value_classes(schema, groups)
    places = None if maps is None else clusters(schema, groups, maps)
    if maps is None or places is None:
        return planned([])
    parts = split_groups(uniform(schema), schema, groups, maps)
    roots = split_roots(parts)
    split = math.fsum(math.sqrt(unit.squared_change(total=not place)) * own for place, own in roots.items())
    if split <= math.sqrt(unit.squared_change()) * least_clustered(maps, places, parts):
        return planned([])  # seen without merging any cluster, which may take minutes
    found = [(own, merged_groups(workload, own, math.inf)) for own in places]
    alone = len(places) == 1
    merged = [
        Cluster(own, one, np.zeros(len(one.rows)) if alone else shares(one))
        for own, one in found
        if one is not None
    ]
    if len(merged) < len(places):
        return planned([])
    least = least_whole(merged, unit)
    if split <= least:
        return planned([])
    unsplit = [own.solved(tolerance, progress) for own in merged]
    if limits().recentred * split <= least:
        return better(planned([]), unsplit, planned)
    return if_measurable(unsplit, planned)


def _is_near(plan: Plan, root: Array) -> bool:
    """Return whether no plan can be clearly better than this one, as far as one square root tells."""
    diagonal = root_diagonal(root)
    cost = plan.budget.privacy_cost / plan.budget.unit.squared_change()
    return (
        diagonal is not None and limits().worthwhile * plan.weighted_loss <= float(diagonal @ diagonal) / cost
    )
