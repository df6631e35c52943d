"""Variances of queries about one attribute under a mirrored filter.

V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹ with K a filter, D a diagonal and Z of few rows (`mirrored`). The variances of all
prefixes follow from sums below the diagonal (`halving`): with r = 1/d and y_i = Σ_{j<i} K_ij r_j, Var_i −
Var_{i−1} = r_i(2y_i + r_i K_ii). The sum of the variances of all ranges, or circular ranges, is a sum of
r_i K_ij r_j times a polynomial in i and j below the diagonal, and follows from such sums too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.cuts import crossing
from querysmasher.planning.strategies.halving import sums_below
from querysmasher.privacy.factors import Reflection
from querysmasher.workload.line import Places


@dataclass(frozen=True, eq=False)
class LineVariances:
    """The variances of prefixes, values and ranges of one attribute."""

    reflection: Reflection
    spectrum: Array
    """The eigenvalues of K."""
    kernel: Array
    """The free lags of K."""
    diagonal: Array
    correction: Array
    """Z."""

    @property
    def size(self) -> int:
        """Number of values."""
        return self.diagonal.size

    def covary(self, rows: Array) -> Array:
        """Return rows times V⁻¹."""
        scaled = rows / self.diagonal
        image = self.reflection.apply(self.kernel, scaled)
        if self.correction.size:
            image = image - (scaled @ self.correction.T) @ self.correction
        return np.asarray(image / self.diagonal)

    @cached_property
    def of_total(self) -> Array:
        """V⁻¹1: the covariance of every value's count with the total."""
        return self.covary(np.ones(self.size))

    def of_rows(self, rows: Array) -> Array:
        """Return the variances of any queries, given as rows."""
        return np.einsum("ij,ij->i", rows, self.covary(rows))

    def of_spans(self, first: Places, last: Places) -> Array:
        """Return the variances of sums of consecutive values."""
        around = first > last  # the complement of what lies between: its variance needs two cuts as well
        before, until = first - 1, last
        prefixes = np.append(self.prefixes, 0.0)  # index −1: nothing
        low, high = np.minimum(before, until), np.maximum(before, until)
        shared = np.zeros(first.shape)
        single = first == last
        inner = (low >= 0) & ~single
        shared[inner] = self.between_prefixes(low[inner], high[inner])
        result = np.where(single, self.values[first], prefixes[low] + prefixes[high] - 2 * shared)
        if around.any():  # 1 − (high prefix − low prefix)
            own = around
            covariance = np.append(np.cumsum(self.of_total), 0.0)
            result[own] += covariance[self.size - 1] - 2 * (covariance[high[own]] - covariance[low[own]])
        return np.asarray(result)

    @cached_property
    def _inverse_diagonal(self) -> Array:
        """The diagonal of K."""
        return self.reflection.diagonal(self.kernel)

    def _below(self, *powers: int) -> list[Array]:
        """Return y_i = Σ_{j<i} K_ij (j/n)^power r_j for some powers."""
        r, place = 1 / self.diagonal, np.arange(self.size) / self.size
        return list(sums_below(self.reflection, self.kernel, np.stack([r * place**p for p in powers])))

    @cached_property
    def prefixes(self) -> Array:
        """The variance of every prefix."""
        r = 1 / self.diagonal
        (y,) = self._below(0)
        sums = np.cumsum(r * (2 * y + r * self._inverse_diagonal))
        for row in self.correction:
            sums -= np.cumsum(r * row) ** 2
        return np.asarray(sums)

    @cached_property
    def values(self) -> Array:
        """The variance of every value's count."""
        r = 1 / self.diagonal
        return np.asarray(r**2 * (self._inverse_diagonal - np.square(self.correction).sum(axis=0)))

    def between_prefixes(self, low: Places, high: Places) -> Array:
        """Return the covariance of two prefixes."""
        if self.size <= limits().written_values:
            return np.asarray(self._dense_cumulated[low, high])
        if min(np.unique(low).size, np.unique(high).size) * self.size > limits().exact_range_work:
            cut = crossing(self.reflection, self.spectrum, 1 / self.diagonal, low, high)
            for row in self.correction:
                sums = np.cumsum(row / self.diagonal)
                cut -= sums[low] * (sums[high] - sums[low])
            return np.asarray(self.prefixes[low] + cut)
        result = np.empty(low.shape)
        swap = np.unique(high).size < np.unique(low).size
        fixed, other = (high, low) if swap else (low, high)
        order = np.argsort(fixed, kind="stable")
        ends = np.flatnonzero(np.diff(fixed[order], append=-1))
        start = 0
        place = np.arange(self.size)
        for end in ends.tolist():
            own = order[start : end + 1]
            running = np.cumsum(self.covary((place <= fixed[own[0]]).astype(float)))
            result[own] = running[other[own]]
            start = end + 1
        return result

    @cached_property
    def _dense_cumulated(self) -> Array:
        """The covariances of all prefixes."""
        inverse = self.reflection.matrix(self.kernel) - self.correction.T @ self.correction
        inverse /= np.outer(self.diagonal, self.diagonal)
        return np.asarray(inverse.cumsum(axis=0).cumsum(axis=1))

    def all_ranges(self) -> float:
        """Return Σ_ij V⁻¹_ij (min+1)(n−max)."""
        n, r, place = self.size, 1 / self.diagonal, np.arange(self.size)
        zero, one = self._below(0, 1)
        below = n * one + zero
        total = float((r * (n - place)) @ (2 * below + (place + 1) * r * self._inverse_diagonal))
        for row in self.correction:
            sums = np.append(np.cumsum(r * row), 0.0)
            total -= float((n + 1) * (sums @ sums) - sums.sum() ** 2)
        return total

    def all_circular(self) -> float:
        """Return Σ_ij V⁻¹_ij (d² − nd + n(n+1)/2) with d = |i − j|."""
        n, r, place = self.size, 1 / self.diagonal, np.arange(self.size)
        zero, one, two = self._below(0, 1, 2)
        constant = n * (n + 1) / 2
        below = (place * (place - n) + constant) * zero + (n - 2 * place) * n * one + float(n) ** 2 * two
        total = float(r @ (2 * below + constant * r * self._inverse_diagonal))
        for row in self.correction:
            own = r * row
            sums, every = np.cumsum(own) - own, float(own.sum())
            squares = float(n * (sums @ sums) - sums.sum() ** 2)
            apart = float((2 * place - n + 1) @ sums)
            pairs = n * (n - 1) / 2
            total -= 2 * squares + pairs * every**2 - 2 * every * apart + n * every**2
        return total
