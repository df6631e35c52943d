"""Columns of a table of variances: how each is computed, so that another plan can compute it anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.shares import Tied
from querysmasher.workload.groups import Group


@dataclass(frozen=True, eq=False, slots=True)
class SingleColumn:
    """Rows on one attribute, and the number of its strategy; or rows on none, without any."""

    rows: Array
    strategy: int | None

    def values(self, estimator: Estimator) -> Array:
        """Return the variances at σ² = 1, or the squares of rows on no attribute."""
        if self.strategy is None:
            return np.asarray(self.rows[:, 0] ** 2)
        return np.maximum(estimator.strategies[self.strategy].variances([((0,), self.rows)]), 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class JointColumn:
    """The families of a cluster with their numbers of rows, and what strategies tie among them."""

    group: Group
    cluster: tuple[int, ...]
    shape: tuple[int, ...]
    inside: tuple[Tied, ...]

    def values(self, estimator: Estimator) -> Array:
        """Return the variances at σ² = 1 of all combinations of rows."""
        values = np.ones(self.shape)
        for one in self.inside:
            own = estimator.residual.tied_variances(one, self.group)
            order = sorted(range(len(one.places)), key=one.places.__getitem__)
            spread = [
                size if place in one.places else 1
                for size, place in zip(self.shape, self.cluster, strict=True)
            ]
            values = values * own.transpose(order).reshape(spread)
        return np.maximum(values.ravel(), 0.0)


Recipe = SingleColumn | JointColumn
