"""Few queries measured as they are beside tables, which are split: whether that is better than splitting all.

Splitting queries that ask about large combinations of values may take minutes, so it is not tried where
bounds (`split_bound`) show that it cannot be much better. On a set where tables alone have a root loss T and
the few queries at least P, both together have at least √(T² + P²), because no strategy is better for either
than its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from querysmasher.planning.cells import MergedRows, value_classes
from querysmasher.planning.centre import Centres, uniform
from querysmasher.planning.clusters import clusters, shares
from querysmasher.planning.estimator.whole import Place
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.planning.split_bound import split_groups, split_roots
from querysmasher.planning.unsplit import UNMEASURABLE, Cluster, Planned, better, least_whole, merged_groups
from querysmasher.privacy.unit import Unit
from querysmasher.workload.family import Family
from querysmasher.workload.workload import Workload


def partly_split(
    workload: Workload,
    few: Sequence[int],
    unit: Unit,
    tolerance: float,
    planned: Planned,
    progress: bool | None,
    *,
    centred: bool,
) -> Plan:
    """Return the better of the plans that split all groups, and all but a few.

    If `centred`, several clusters of these few may use the total that the others tell.
    """
    found = list(_clusters(workload, few, centred=centred and _knows_total(workload, few)))
    if not found or sum(min(own.merged.rows.shape) for own in found) > limits().beside_rows:
        return planned([])
    groups = [workload.groups[place] for place in few]
    entries = sum(group.rows * math.prod(f.cells for f in group.families) for group in groups)
    if entries <= limits().split_entries and _are_split_quickly(workload, few):
        return better(planned([]), [own.solved(tolerance, progress) for own in found], planned)
    whole = [place for own in found for place in own.places]
    if len(found) > 1:
        roots = _roots(workload, whole, uniform(workload.schema), unit)
        if math.fsum(roots.values()) <= limits().splits_well * least_whole(found, unit):
            return planned([])  # what queries leave on sets of tables hardly costs anything there
    try:
        partly = planned([own.solved(tolerance, progress) for own in found])
    except UNMEASURABLE:
        return planned([])
    if not _may_split_better(partly, whole):
        return partly
    split = planned([])
    return partly if partly.weighted_loss < limits().worthwhile * split.weighted_loss else split


def _roots(workload: Workload, few: Sequence[int], centres: Centres, unit: Unit) -> dict[Place, float]:
    """Return what splitting some groups costs at least on every set: infinitely much, if nobody knows."""
    groups = [workload.groups[place] for place in few]
    maps = value_classes(workload.schema, groups)
    if maps is None:
        return {tuple(range(len(workload.schema))): math.inf}
    roots = split_roots(split_groups(centres, workload.schema, groups, maps))
    return {place: own * _change(unit, place) for place, own in roots.items()}


def _may_split_better(partly: Plan, few: Sequence[int]) -> bool:
    """Return whether it may be clearly better to split a few groups too, around the centres of a plan.

    Not where that takes long: on a large set with parts of tables and of other queries.
    """
    schema, unit = partly.workload.schema, partly.budget.unit
    known = [own for own in partly.measured if not own.whole]
    asked = [set(schema.positions(partly.workload.groups[place].attributes)) for place in few]
    shared = (own.attributes for own in known if any(one.issuperset(own.attributes) for one in asked))
    if max((math.prod(schema.sizes[a] for a in place) for place in shared), default=0) > limits().tried_cells:
        return False
    queries = _roots(partly.workload, few, partly.centres, unit)
    tables = {own.attributes: own.root_loss * _change(unit, own.attributes) for own in known}
    roots = (math.hypot(queries.get(place, 0.0), tables.get(place, 0.0)) for place in {*queries, *tables})
    loss = math.sqrt(partly.weighted_loss * partly.budget.privacy_cost)
    return loss > limits().split_gain * math.fsum(roots)


def _change(unit: Unit, place: Place) -> float:
    return math.sqrt(unit.squared_change(total=not place))


def _are_split_quickly(workload: Workload, few: Sequence[int]) -> bool:
    """Return whether all tables are small, or some queries ask about no other attribute sets than tables."""
    tables = [group for place, group in enumerate(workload) if place not in set(few)]
    if max(math.prod(f.cells for f in group.families) for group in tables) <= limits().dense_cells:
        return True
    sets = [frozenset(group.attributes) for group in tables]
    return all(any(set(workload.groups[place].attributes) <= own for own in sets) for place in few)


def _knows_total(workload: Workload, few: Sequence[int]) -> bool:
    """Return whether the number of records follows from the other groups."""
    others = (group for place, group in enumerate(workload) if place not in set(few))
    return any(all(map(_counts, group.families)) for group in others)


def _counts(family: Family) -> bool:
    return bool(np.any(family.answers(np.ones(family.shape))))


def _clusters(workload: Workload, few: Sequence[int], *, centred: bool) -> Iterator[Cluster]:
    """Iterate over queries to measure whole beside split ones: all together, else in clusters."""
    for arrangement in _arrangements(workload, few):
        if 0 < len(arrangement) <= limits().most_unsplit:
            merged = [(own, _small_enough(workload, own)) for own in arrangement]
            if any(one is not None for _, one in merged):
                for places, one in merged:
                    if one is not None:
                        yield Cluster(places, one, shares(one) if centred and len(merged) > 1 else None)
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
