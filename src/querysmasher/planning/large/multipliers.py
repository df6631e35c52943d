"""How much each query matters where attributes are not split: a product of weights of its families' queries.

There are too many queries on several attributes for a weight of each. Weights that are products prove bounds
all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.workload.groups import Group
from querysmasher.workload.weighted import weighted
from querysmasher.workload.workload import Workload

LEAST = 1e-4
"""Weights are at least this fraction of their mean: without any, queries might not be answered at all."""


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Weights of all queries, which sum to one."""

    groups: Array
    """The sum of the weights of each group."""
    rows: tuple[tuple[Array, ...], ...]
    """For each group and family, the weights of its queries relative to their mean."""

    @classmethod
    def even(cls, workload: Workload) -> Multipliers:
        """Return equal weights within every group."""
        rows = tuple(tuple(np.ones(f.rows) for f in group.families) for group in workload)
        return cls(np.full(len(rows), 1 / len(rows)), rows)

    def asked(self, workload: Workload, aims: Array, factor: float = 1.0) -> list[Group]:
        """Return the groups with weights such that Σ weight × aim² is `factor`."""
        return [
            replace(
                group,
                families=tuple(map(weighted, group.families, own)),
                weight=factor * share / aim**2 / group.rows,
                target=None,
            )
            for group, own, share, aim in zip(workload, self.rows, self.groups, aims, strict=True)
        ]

    def stepped(self, ratios: Sequence[Array], rate: float) -> Multipliers:
        """Return weights that grow with a power of the ratio of each query's variance to its aim²."""
        means, rows = [], []
        for ratio, own in zip(ratios, self.rows, strict=True):
            sums = [_means(ratio, own, axis) for axis in range(len(own))]
            mean = float(sums[0] @ own[0]) / own[0].size if own else float(ratio)
            means.append(mean)
            rows.append(tuple(_grown(w, part / mean, rate) for w, part in zip(own, sums, strict=True)))
        every = float(self.groups @ means)
        return Multipliers(_grown(self.groups, np.array(means) / every, rate, 1.0), tuple(rows))


def _means(ratio: Array, own: Sequence[Array], axis: int) -> Array:
    """Return the weighted mean of ratios over all families but one."""
    result = np.moveaxis(ratio, axis, 0)
    for weights in reversed([w for place, w in enumerate(own) if place != axis]):
        result = result @ weights / weights.size
    return np.asarray(result)


def _grown(weights: Array, ratio: Array, rate: float, total: float | None = None) -> Array:
    grown = weights * ratio**rate
    grown = np.maximum(grown, LEAST * grown.mean())
    return np.asarray(grown * ((weights.size if total is None else total) / grown.sum()))
