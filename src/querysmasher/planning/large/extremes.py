"""The largest standard error of every group where attributes are not split."""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import first_largest
from querysmasher.errors import TooLargeError
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.extreme import Extreme
from querysmasher.planning.planned import Planned
from querysmasher.workload.workload import Workload


def check_searchable(workload: Workload) -> None:
    """Refuse groups with more queries than are searched for the largest error."""
    for group in workload:
        if group.rows > limits().large_worst_queries:
            msg = (
                f"workload: targets and objective='worst' are limited to {limits().large_worst_queries:,} "
                f"queries per group where attributes have very many values, got {group.rows:,} on "
                f"({', '.join(group.attributes)}). Remedies: chosen ranges (`ranges`), coarser values, or "
                "objective='mean' without targets"
            )
            raise TooLargeError(msg)


def large_extremes(plan: Planned) -> list[Extreme] | None:
    """Return the largest standard error of every group, in order; None if there are too many queries."""
    if any(group.rows > limits().large_worst_queries for group in plan.workload):
        return None
    found = []
    for group in plan.workload:
        variances = plan.estimator.variances(group)
        rows = np.unravel_index(first_largest(variances), variances.shape)
        found.append(Extreme(group, math.sqrt(variances.max()), tuple(map(int, rows))))
    return found
