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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import PlanError
from querysmasher.planning.cells import MergedRows, are_given, height, merge, value_classes
from querysmasher.planning.clusters import clusters, shares, shifted
from querysmasher.planning.limits import limits
from querysmasher.planning.mechanisms.whole import least_root, root_diagonal, root_of, solve_whole, whole_work
from querysmasher.planning.mixture import Unsplit
from querysmasher.planning.plan import Plan
from querysmasher.planning.split_bound import split_bound
from querysmasher.privacy.budget import Budget
from querysmasher.progress import Bar
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload

Planned = Callable[[Sequence[Unsplit]], Plan]
"""Plans the workload with some groups unsplit and the others split."""


def without(workload: Workload, unsplit: Sequence[Unsplit]) -> Workload | None:
    """Return the groups that are split, or None if there are none."""
    whole = {place for own in unsplit for place in own.places}
    groups = tuple(group for place, group in enumerate(workload) if place not in whole)
    return Workload(workload.schema, groups) if groups else None


def best_arrangement(
    workload: Workload,
    budget: Budget,
    tolerance: float,
    planned: Planned,
    progress: bool | None = None,
    *,
    centred: bool = True,
) -> Plan:
    """Return the best plan found among those that split all groups, some, or none.

    If `centred`, clusters of queries measured whole beside others may use these others' total.
    """
    every = range(len(workload.groups))
    few = [place for place in every if is_few(workload.groups[place])]
    most = limits().whole_work
    if len(few) < len(every):
        most = min(most, limits().mixed_whole_work)
    merged = merged_groups(workload, every, most) if few or _is_quick(workload) else None
    if merged is None:
        if len(few) == len(every):
            return _clustered(workload, tolerance, planned, progress)
        return _partly_split(workload, few, tolerance, planned, progress, centred=centred)
    if merged.rows.shape[1] == 1:
        return planned([])  # all queries ask for the number of records
    quick = whole_work(merged) <= limits().quick_whole_work
    if few and (quick or len(few) == len(every)) and not budget.unit.total_is_public:
        whole = solve_unsplit(merged, every, tolerance, progress=progress)
        return _if_measurable([whole], planned)  # the optimum over all mechanisms
    found = (
        planned([]) if quick else _partly_split(workload, few, tolerance, planned, progress, centred=centred)
    )
    with _working(merged, progress):
        root = root_of(merged)
    if _is_near(found, root):
        return found
    return _better(found, [solve_unsplit(merged, every, tolerance, root, progress)], planned)


def _is_quick(workload: Workload) -> bool:
    """Return whether tables, which distinguish all values, take little time to plan as they are."""
    names = {name for group in workload for name in group.attributes}
    cells = math.prod(workload.schema.sizes[place] for place in workload.schema.positions(sorted(names)))
    rows = sum(math.prod(map(height, group.families)) for group in workload)
    return cells * min(rows, cells) ** 2 <= limits().quick_whole_work


def _partly_split(
    workload: Workload,
    few: Sequence[int],
    tolerance: float,
    planned: Planned,
    progress: bool | None,
    *,
    centred: bool,
) -> Plan:
    """Return the better of the plans that split all groups, and all but a few."""
    beside = list(
        _beside(workload, few, tolerance, progress, centred=centred and _knows_total(workload, few))
    )
    if not beside:
        return planned([])
    groups = [workload.groups[place] for place in few]
    entries = sum(group.rows * math.prod(f.cells for f in group.families) for group in groups)
    if entries <= limits().split_entries and _are_split_quickly(workload, few):
        return _better(planned([]), beside, planned)
    return _if_measurable(beside, planned)


def _are_split_quickly(workload: Workload, few: Sequence[int]) -> bool:
    """Return whether all tables are small, or some queries ask about no other attribute sets than tables."""
    tables = [group for place, group in enumerate(workload) if place not in set(few)]
    if max(math.prod(f.cells for f in group.families) for group in tables) <= limits().dense_cells:
        return True
    sets = [frozenset(group.attributes) for group in tables]
    return all(any(set(workload.groups[place].attributes) <= own for own in sets) for place in few)


def _clustered(workload: Workload, tolerance: float, planned: Planned, progress: bool | None) -> Plan:
    """Return a plan that measures all queries as they are, in clusters, unless splitting them is better."""
    schema, groups = workload.schema, workload.groups
    maps = value_classes(schema, groups)
    places = None if maps is None else clusters(schema, groups, maps)
    if maps is None or places is None:
        return planned([])
    found = [(own, merged_groups(workload, own, math.inf)) for own in places]
    alone = len(places) == 1
    merged = [
        (own, one, np.zeros(len(one.rows)) if alone else shares(one)) for own, one in found if one is not None
    ]
    if len(merged) < len(places):
        return planned([])
    roots = [root_of(shifted(one, alpha)) for _, one, alpha in merged]
    total = math.sqrt(math.fsum(float(one.weights @ alpha**2) for _, one, alpha in merged))
    least, split = total + math.fsum(map(least_root, roots)), split_bound(schema, groups, maps)
    if split <= least:
        return planned([])
    unsplit = [
        solve_unsplit(one, own, limits().coarse_tolerance * tolerance, root, progress, alpha)
        for (own, one, alpha), root in zip(merged, roots, strict=True)
    ]
    if limits().recentred * split <= least:
        return _better(planned([]), unsplit, planned)
    return _if_measurable(unsplit, planned)


def _if_measurable(unsplit: Sequence[Unsplit], planned: Planned) -> Plan:
    """Return the plan with some groups unsplit or, if these cannot be measured in integers, without."""
    try:
        return planned(unsplit)
    except PlanError:
        return planned([])


def _better(first: Plan, unsplit: Sequence[Unsplit], planned: Planned) -> Plan:
    """Return the first plan, unless another is clearly better and can be measured."""
    try:
        other = planned(unsplit)
    except PlanError:
        return first
    return other if other.weighted_loss < limits().worthwhile * first.weighted_loss else first


def _is_near(plan: Plan, root: Array) -> bool:
    """Return whether no plan can be clearly better than this one, as far as one square root tells."""
    diagonal = root_diagonal(root)
    cost = plan.budget.privacy_cost / plan.budget.unit.squared_change()
    return (
        diagonal is not None and limits().worthwhile * plan.weighted_loss <= float(diagonal @ diagonal) / cost
    )


def is_few(group: Group) -> bool:
    """Return whether a group consists of a limited number of queries, at least partly given by rows."""
    entries = group.rows * math.prod(family.cells for family in group.families)
    return are_given(group) and (group.rows <= limits().merged_rows or entries <= limits().given_small)


def merged_groups(workload: Workload, places: Iterable[int], most_work: float) -> MergedRows | None:
    """Return the queries of some groups over their distinct columns, or None if that is too much work."""
    groups = [workload.groups[place] for place in places]
    positions = workload.schema.positions
    attributes = sorted({a for group in groups for a in positions(group.attributes)}) or [0]
    merged = merge(workload.schema, groups, attributes)
    return None if merged is None or whole_work(merged) > most_work or not merged.rows.any() else merged


def solve_unsplit(
    merged: MergedRows,
    places: Iterable[int],
    tolerance: float,
    root: Array | None = None,
    progress: bool | None = None,
    alpha: Array | None = None,
) -> Unsplit:
    """Return the optimum for some groups alone, or less multiples α of the total."""
    if alpha is not None:
        merged = shifted(merged, alpha)
    with _working(merged, progress):
        solution = solve_whole(merged, tolerance, root)
    return Unsplit(tuple(places), merged.attributes, solution, merged.rows, merged.weights, alpha)


@contextmanager
def _working(merged: MergedRows, progress: bool | None) -> Iterator[None]:
    """Show that work is in progress; with one core, unless matrices are large."""
    small = min(merged.rows.shape) <= limits().threaded_cells
    with Bar("Solving", None, progress), one_core() if small else nullcontext():
        yield


def _knows_total(workload: Workload, few: Sequence[int]) -> bool:
    """Return whether the number of records follows from the other groups."""
    others = (group for place, group in enumerate(workload) if place not in set(few))
    return any(all(map(_counts, group.families)) for group in others)


def _counts(family: Family) -> bool:
    return bool(np.any(family.answers(np.ones(family.shape))))


def _beside(
    workload: Workload, few: Sequence[int], tolerance: float, progress: bool | None, *, centred: bool
) -> Iterator[Unsplit]:
    """Iterate over queries to measure whole beside split ones: all together, else in clusters."""
    for arrangement in _arrangements(workload, few):
        if 0 < len(arrangement) <= limits().most_unsplit:
            merged = [(own, _small_enough(workload, own)) for own in arrangement]
            if any(one is not None for _, one in merged):
                for places, one in merged:
                    if one is not None:
                        alpha = shares(one) if centred and len(merged) > 1 else None
                        yield solve_unsplit(
                            one, places, limits().coarse_tolerance * tolerance, None, progress, alpha
                        )
                return


def _arrangements(workload: Workload, few: Sequence[int]) -> Iterator[list[list[int]]]:
    """Iterate over ways to measure some groups whole: all together, and in clusters."""
    if few:
        yield [list(few)]
        groups = [workload.groups[place] for place in few]
        maps = value_classes(workload.schema, groups)
        found = None if maps is None else clusters(workload.schema, groups, maps)
        yield [[few[place] for place in own] for own in found or ()]


def _small_enough(workload: Workload, places: Sequence[int]) -> MergedRows | None:
    """Return queries over their distinct columns, if they can be measured whole beside split ones."""
    merged = merged_groups(workload, places, limits().beside_work)
    if merged is None or min(merged.rows.shape) * merged.labels.size > limits().beside_entries:
        return None
    widest = max(len(workload.groups[place].attributes) for place in places)
    together = len(merged.attributes) > widest
    return None if together and math.prod(merged.shape) > limits().counted_cells else merged
