"""Errors of figures, as combinations of the errors of answers: the joint covariance follows from these.

A count is one answer. A ratio N / D errs by (e_N - R e_D) / D, to first order. A quantile errs by what the
distribution function errs at its place. Differences of such figures are combinations again, so the covariance
of any two figures of one release follows from that of the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.statistics.source import Source
from querysmasher.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Linear:
    """Figure i errs by Σ_k coefficients[i, k] × (error of query indexes[i, k] of the workload)."""

    source: Source
    workload: Workload
    indexes: NDArray[np.int64]
    coefficients: Array

    @classmethod
    def of(cls, source: Source, workload: Workload, *terms: tuple[NDArray[np.int64], Array]) -> Linear:
        """Return figures of one term or several, each the indexes of queries and their coefficients."""
        indexes = np.stack([index.ravel() for index, _ in terms], axis=1)
        coefficients = np.stack([np.broadcast_to(c, i.shape).ravel() for i, c in terms], axis=1)
        return cls(source, workload, indexes, np.where(np.isfinite(coefficients), coefficients, 0.0))

    def covariance(self) -> Array:
        """Return the covariance of the figures."""
        half = self._combined(self.source.covariance(self.workload))
        return self._combined(half.T)

    def _combined(self, rows: Array) -> Array:
        """Return one row per figure, from one per query."""
        result = np.zeros((len(self.indexes), rows.shape[1]))
        for index, coefficient in zip(self.indexes.T, self.coefficients.T, strict=True):
            result += coefficient[:, None] * rows[index]
        return result

    def take(self, places: Sequence[int]) -> Linear:
        """Return some of the figures, possibly repeated."""
        chosen = list(places)
        return Linear(self.source, self.workload, self.indexes[chosen], self.coefficients[chosen])

    def plus(self, other: Linear, own: Array | float, others: Array | float) -> Linear:
        """Return own × these figures + others × other ones, figure by figure."""
        same = self.workload is other.workload
        workload = self.workload if same else self.workload + other.workload
        shift = 0 if same else self.workload.query_count
        scaled = [
            np.broadcast_to(np.asarray(c, dtype=float), len(one.indexes))[:, None] * one.coefficients
            for one, c in ((self, own), (other, others))
        ]
        return Linear(
            self.source,
            workload,
            np.concatenate([self.indexes, other.indexes + shift], axis=1),
            np.where(np.isfinite(found := np.concatenate(scaled, axis=1)), found, 0.0),
        )
