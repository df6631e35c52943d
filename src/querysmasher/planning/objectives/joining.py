"""Queries that are given one by one, joined: planned as one family, whatever their targets and weights.

A query q with target t and weight w is as far from its target as (s/t)·q is from s, and w·Var(q) is
w·(t/s)²·Var((s/t)·q). So queries on the same attributes with different targets are rows of one family with
the target s. A family has a multiplier for every row, and one Gram matrix however many rows it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.workload.groups import Group
from querysmasher.workload.rows import Rows
from querysmasher.workload.target import Target
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Joined:
    """A workload with groups joined, and the groups that each of its groups stands for."""

    asked: Workload
    workload: Workload
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, workload: Workload) -> Joined:
        """Join the groups that consist of rows on the same attributes."""
        alike: defaultdict[Hashable, list[list[int]]] = defaultdict(list)
        for place, group in enumerate(workload):
            bins = alike[_key(group, place)]
            rows = sum(workload.groups[other].rows for other in bins[-1]) if bins else 0
            if bins and rows + group.rows <= limits().merged_rows:
                bins[-1].append(place)
            else:
                bins.append([place])
        places = sorted(tuple(own) for bins in alike.values() for own in bins)
        if len(places) == len(workload.groups):
            return cls(workload, workload, tuple(places))
        groups = tuple(_joined([workload.groups[place] for place in own]) for own in places)
        return cls(workload, Workload(workload.schema, groups), tuple(places))

    def restored(self, plan: Plan) -> Plan:
        """Return a plan of the joined workload as one of the workload that was asked."""
        if self.workload is self.asked:
            return replace(plan, workload=self.asked)
        measured = tuple(
            replace(m, whole=tuple(sorted(own for place in m.whole for own in self.places[place])))
            for m in plan.measured
        )
        return replace(plan, workload=self.asked, measured=measured)


def _key(group: Group, place: int) -> Hashable:
    """Return what groups have in common that can be joined; a group of another kind only equals itself."""
    if len(group.families) != 1 or not group.families[0].is_written_out:
        return place
    aim = None if group.target is None else round(np.log(group.target.std) / np.log(limits().joined_targets))
    return group.attributes, aim


def _joined(groups: list[Group]) -> Group:
    """Return the rows of all groups as one group."""
    if len(groups) == 1:
        return groups[0]
    first = groups[0]
    scales = [
        1.0 if g.target is None or first.target is None else first.target.std / g.target.std for g in groups
    ]
    rows = np.concatenate([scale * g.families[0].matrix() for g, scale in zip(groups, scales, strict=True)])
    weights = np.concatenate([g.query_weights() / scale**2 for g, scale in zip(groups, scales, strict=True)])
    target = None if first.target is None else Target(first.target.std)
    family = Rows(first.families[0].shape, rows, weights)
    return Group(first.attributes, (family,), 1.0, target)
