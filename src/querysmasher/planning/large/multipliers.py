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

FIRST_RATE, LEAST_RATE, MOST_RATE = 2.0, 1.0, 40.0
"""The power of its ratio by which a weight grows: at first, at least and at most."""

FASTER, SLOWER = 1.6, 0.5
"""What multiplies this power where a ratio stays on the same side of its mean, and where it changes sides."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights with a mean of one, and how fast each grows."""

    values: Array
    rates: Array
    last: Array
    """Logarithms of the ratios from which they grew."""

    @classmethod
    def first(cls, values: Array) -> Weights:
        """Return weights to begin with."""
        return cls(values, np.full(values.size, FIRST_RATE), np.zeros(values.size))

    def mean(self, of: Array) -> Array:
        """Return weighted means along the last axis."""
        return np.asarray(of @ self.values / self.values.size)

    def grown(self, ratio: Array) -> Weights:
        """Return weights that grow by a power of ratios to their mean."""
        now = np.log(np.maximum(ratio, 1e-300) / float(self.mean(ratio)))
        same = now * self.last
        factor = np.where(same > 0, FASTER, np.where(same < 0, SLOWER, 1.0))
        rates = np.clip(self.rates * factor, LEAST_RATE, MOST_RATE)
        values = self.values * np.exp(np.clip(rates * now, -20.0, 2.0))
        values = np.maximum(values, LEAST * values.mean())
        return Weights(values / values.mean(), rates, now)


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Weights of all queries, of which the products sum to one."""

    groups: Weights
    """The sums of the weights of all groups, relative to their mean."""
    rows: tuple[tuple[Weights, ...], ...]
    """For each group and family, the weights of its queries."""

    @classmethod
    def first(cls, workload: Workload) -> Multipliers:
        """Return equal sums, and equal weights within every group."""
        rows = tuple(tuple(Weights.first(np.ones(f.rows)) for f in group.families) for group in workload)
        return cls(Weights.first(np.ones(len(rows))), rows)

    def asked(self, workload: Workload, aims: Array, factor: float = 1.0) -> list[Group]:
        """Return the groups with weights such that Σ weight × aim² is `factor`."""
        return [
            replace(
                group,
                families=tuple(weighted(f, w.values) for f, w in zip(group.families, own, strict=True)),
                weight=factor * share / len(self.rows) / aim**2 / group.rows,
                target=None,
            )
            for group, own, share, aim in zip(workload, self.rows, self.groups.values, aims, strict=True)
        ]

    def stepped(self, ratios: Sequence[Array]) -> Multipliers:
        """Return weights that grow with the ratio of each query's variance to its aim²."""
        means, rows = [], []
        for ratio, own in zip(ratios, self.rows, strict=True):
            sums = [_means(ratio, own, axis) for axis in range(len(own))]
            means.append(float(own[0].mean(sums[0])) if own else float(ratio))
            rows.append(tuple(w.grown(part) for w, part in zip(own, sums, strict=True)))
        return Multipliers(self.groups.grown(np.array(means)), tuple(rows))


def _means(ratio: Array, own: Sequence[Weights], axis: int) -> Array:
    """Return the weighted mean of ratios over all families but one."""
    result = np.moveaxis(ratio, axis, 0)
    for weights in reversed([w for place, w in enumerate(own) if place != axis]):
        result = weights.mean(result)
    return result
