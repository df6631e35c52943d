"""Variances of queries about one attribute under a triangle.

V⁻¹ = B⁻¹B⁻ᵀ with B⁻¹ lower triangular, cut in halves (`privacy.factors.halves`). Row i of M = LB⁻¹, the sum
of its rows up to i, has the variance of prefix i as its squared length. M is of the same kind: in the second
half of a pair, rows are combinations of the rows of Zᵀ and of g, the column sums of the first half's inverse,

    m_i = Σ_{k≤i} y_k Zᵀ + g,

so squared lengths follow from one small Gram matrix per pair, and so do products of two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.strategies.on_line import OnLine
from querysmasher.privacy.factors import Halves
from querysmasher.workload.line import Places


@dataclass(frozen=True, eq=False)
class _Pairs:
    """How prefixes depend on the first half of each pair of one size: pair, value, combination."""

    basis: Array
    """Over the values of the first half."""
    weights: Array
    """Of the prefixes that end in the second half."""
    gram: Array


@dataclass(frozen=True, eq=False)
class TriangleVariances(OnLine):
    """The variances of prefixes, values and ranges of one attribute."""

    inverse: Halves
    """B⁻¹."""
    count: int

    @property
    def size(self) -> int:
        return self.count

    def transformed(self, rows: Array) -> Array:
        """Return rows times B⁻¹."""
        flat = self.inverse.padded(rows.reshape(-1, self.count).T.astype(float))
        return np.asarray(self.inverse.transposed_times(flat)[: self.count].T.reshape(rows.shape))

    def covary(self, rows: Array) -> Array:
        flat = self.inverse.padded(rows.reshape(-1, self.count).T.astype(float))
        image = self.inverse.transposed_times(flat)
        return np.asarray(self.inverse.times(image)[: self.count].T.reshape(rows.shape))

    @cached_property
    def _small(self) -> Array:
        """M within small blocks."""
        return np.cumsum(self.inverse.near, axis=1)

    @cached_property
    def _pairs(self) -> tuple[_Pairs, ...]:
        sums = self._small[:, -1].ravel().copy()  # g, of growing blocks
        found = []
        for link in self.inverse.far:
            pairs, _, half, _ = link.shape
            own = sums.reshape(pairs, 2, half)
            basis = np.concatenate([link[:, 0], own[:, 0, :, None]], axis=2)
            weights = np.concatenate([np.cumsum(link[:, 1], axis=1), np.ones((pairs, half, 1))], axis=2)
            found.append(_Pairs(basis, weights, basis.transpose(0, 2, 1) @ basis))
            own[:, 0] += (link[:, 0] @ weights[:, -1, :-1, None])[:, :, 0]
        return tuple(found)

    @cached_property
    def _inner(self) -> tuple[Array, ...]:
        """The products of prefixes that end in the first half of a pair with its basis."""
        found = []
        for level, own in enumerate(self._pairs):
            flat = own.basis.reshape(-1, own.basis.shape[2])
            image = self.inverse.half(level, 0).times(flat)
            found.append(np.cumsum(image.reshape(own.basis.shape), axis=1))
        return tuple(found)

    @cached_property
    def prefixes(self) -> Array:
        result = np.square(self._small).sum(axis=2).ravel()
        for own in self._pairs:
            pairs, half, _ = own.weights.shape
            result.reshape(pairs, 2, half)[:, 1] += ((own.weights @ own.gram) * own.weights).sum(axis=2)
        return np.asarray(result[: self.count])

    @cached_property
    def values(self) -> Array:
        result = np.square(self.inverse.near).sum(axis=2).ravel()
        for link in self.inverse.far:
            pairs, _, half, _ = link.shape
            z, y = link[:, 0], link[:, 1]
            result.reshape(pairs, 2, half)[:, 1] += ((y @ (z.transpose(0, 2, 1) @ z)) * y).sum(axis=2)
        return np.asarray(result[: self.count])

    def between_prefixes(self, low: Places, high: Places) -> Array:
        result, width = np.zeros(low.shape), self.inverse.width
        same = np.flatnonzero(low // width == high // width)
        block, rows = low[same] // width, self._small
        result[same] = (rows[block, low[same] % width] * rows[block, high[same] % width]).sum(axis=1)
        for own, inner in zip(self._pairs, self._inner, strict=True):
            half = own.weights.shape[1]
            pair, second = low // (2 * half), high // half % 2 == 1
            second &= pair == high // (2 * half)
            for both in (False, True):  # whether the smaller prefix ends in the second half, too
                chosen = np.flatnonzero(second & ((low // half % 2 == 1) == both))
                place, one, other = pair[chosen], low[chosen] % half, high[chosen] % half
                left = (own.weights @ own.gram if both else inner)[place, one]
                result[chosen] += (left * own.weights[place, other]).sum(axis=1)
        return result

    def _form(self, left: Array, right: Array) -> float:
        """Return left V⁻¹ right."""
        both = self.transformed(np.stack([left, right]))
        return float(both[0] @ both[1])

    def all_ranges(self) -> float:
        n = self.count
        falling = n - np.arange(n, dtype=float)
        return (n + 1) * float(self.prefixes.sum()) - self._form(falling, falling)

    def all_circular(self) -> float:
        """Return Σ_ij V⁻¹_ij (d² − nd + n(n+1)/2), d = |i − j|: prefixes, up to a matrix of rank three."""
        n, place = self.count, np.arange(self.count, dtype=float)
        ones = np.ones(n)
        total = 2 * n * float(self.prefixes.sum()) + 2 * self._form(place**2 + n * place, ones)
        return total - 2 * self._form(place, place) + (n * (n + 1) / 2 - 2 * n**2) * self._form(ones, ones)
