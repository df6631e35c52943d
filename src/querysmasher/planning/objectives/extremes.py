"""The largest standard error of every group under a plan, and the first query that attains it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from querysmasher.planning.objectives.entry import Entry
from querysmasher.planning.objectives.extreme import Extreme
from querysmasher.planning.objectives.table import VarianceTable
from querysmasher.planning.planned import Planned


def extremes(plan: Planned) -> list[Extreme]:
    """Return the largest standard error of every group, in order."""
    table = own_table(plan)
    found: dict[int, Extreme] = {}
    for number, entry in enumerate(table.entries):
        variance, where = table.largest(number, table.variances)
        rows = query_rows(entry, where)
        for member in entry.members:
            found[member] = Extreme(plan.workload.groups[member], math.sqrt(variance), rows)
    return [found[index] for index in range(len(plan.workload.groups))]


def own_table(plan: Planned) -> VarianceTable:
    """Return the variances of a plan's own workload."""
    plan.estimator.prepare(plan.workload)
    numbers: dict[Hashable, int] = {}
    scopes = [
        tuple(numbers.setdefault(f.key, len(numbers)) for f in group.families) for group in plan.workload
    ]
    return VarianceTable(plan, scopes)


def query_rows(entry: Entry, where: Sequence[int]) -> tuple[int, ...]:
    """Return the row of every family, given the row of every cluster."""
    rows = [0] * len(entry.group.families)
    for cluster, place in zip(entry.clusters, where, strict=True):
        shape = [entry.group.families[i].rows for i in cluster]
        for i, row in zip(cluster, np.unravel_index(place, shape), strict=True):
            rows[i] = int(row)
    return tuple(rows)
