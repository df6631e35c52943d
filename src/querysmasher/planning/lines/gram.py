"""The Gram matrix of queries about one attribute of very many values, without writing it out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.lines.path import EASY, Path
from querysmasher.workload.family import Family, LineSums

Asked = tuple[Family, float]
"""A family of queries about the attribute, and what multiplies their weights."""

SLIGHT = 1e-6
"""Minimum weight of a prefix, relative to the mean, for which a strategy is chosen."""

ROUGH = 1e-3
"""Where local weights fall below this fraction of their mean, they are smoothed."""


@dataclass(frozen=True, eq=False)
class LineGram:
    """Σ coefficient × WᵀDW over families of queries about one attribute, plus a weight of the total."""

    size: int
    asked: tuple[Asked, ...]
    total: float = 0.0
    """κ: the weight of the number of records."""
    prefixes: Array | None = None
    """Weights of all prefixes."""
    values: Array | None = None
    """Weights of the single values."""
    ranges: float = 0.0
    circular: float = 0.0
    others: tuple[Asked, ...] = field(default=())
    """Queries without a closed form."""

    @classmethod
    def of(cls, size: int, asked: Sequence[Asked], total: float = 0.0) -> LineGram:
        """Add up families of the same kind."""
        sums = LineSums(np.zeros(size), np.zeros(size))
        others: list[Asked] = []
        for family, coefficient in asked:
            left = family.original.add_to(sums, family.weights, coefficient)
            others += [(family, coefficient)] if left is None else left
        return cls(
            size,
            tuple(asked),
            total,
            sums.prefixes if sums.prefixes.any() else None,
            sums.values if sums.values.any() else None,
            sums.ranges,
            sums.circular,
            tuple(others),
        )

    def scaled_key(self) -> tuple[float, Hashable]:
        """Return the sum of all coefficients, and a key of what the queries are up to this factor."""
        scale = sum(coefficient for _, coefficient in self.asked) or 1.0
        asked = sorted((repr(family.key), f"{coefficient / scale:.9e}") for family, coefficient in self.asked)
        return scale, (self.size, tuple(asked), f"{self.total / scale:.9e}")

    def scaled(self, factor: float) -> LineGram:
        """Return the Gram matrix times a factor."""
        return LineGram.of(self.size, [(f, c * factor) for f, c in self.asked], self.total * factor)

    def times(self, rows: Array) -> Array:
        """Return rows times the Gram matrix."""
        n, place = self.size, np.arange(self.size)
        result = np.full(rows.shape, 0.0) + self.total * rows.sum(axis=-1, keepdims=True)
        if self.prefixes is not None:
            result += _backwards(np.cumsum(rows, axis=-1) * self.prefixes)
        if self.values is not None:
            result += rows * self.values
        if self.ranges:  # (min+1)(n−max)
            low = np.cumsum((place + 1) * rows, axis=-1)
            high = _backwards((n - place) * rows) - (n - place) * rows
            result += self.ranges * ((n - place) * low + (place + 1) * high)
        if self.circular:  # d² − nd + n(n+1)/2 with d = |i − j|
            zero, one, two = ((rows * place**power).sum(axis=-1, keepdims=True) for power in (0, 1, 2.0))
            before, moment = np.cumsum(rows, axis=-1), np.cumsum(rows * place, axis=-1)
            apart = 2 * (place * before - moment) + one - place * zero
            squares = place**2.0 * zero - 2 * place * one + two
            result += self.circular * (squares - n * apart + n * (n + 1) / 2 * zero)
        for family, coefficient in self.others:
            result += coefficient * _gram_times(family, rows)
        return result

    @property
    def boundaries(self) -> Array:
        """How much weight distinguishes each value from the next: positive, as smooth as needed."""
        n = self.size
        local = np.zeros(n) + (n + 1) * self.ranges + 2 * n * self.circular
        if self.prefixes is not None:
            local += self.prefixes
        for family, coefficient in self.others:
            local += coefficient * _boundaries(family)
        if n > 1:
            local[-1] = local[-2]  # the last prefix is the total
        mean = float(local.mean())
        if mean > 0 and float(local.min()) < ROUGH * mean:
            local = np.maximum(_smoothed(local, max(1, n // 64)), ROUGH * mean)
        return local

    def path(self, *, merged: bool = True) -> Path | None:
        """Return the families with a closed form as weighted prefixes; None if there are no such.

        If `merged`, for bounds, values that hardly any prefix distinguishes are one. Else, for strategies,
        the smallest weights are raised, so that every value is known.
        """
        n = self.size
        weights = np.zeros(n) + (n + 1) * self.ranges + 2 * n * self.circular
        if self.prefixes is not None:
            weights += self.prefixes
        plain = not (self.ranges or self.circular)
        weights[-1] += self.total
        if not weights.any():
            return None
        ends = None
        if merged and plain and self.values is None:
            ends = np.flatnonzero(weights > EASY * weights.max())
            weights = weights[ends]
        least = EASY * weights.max() if merged else max(EASY * weights.max(), SLIGHT * weights.mean())
        added = float(np.maximum(least - weights, 0.0).sum())
        weights = np.maximum(weights, least)
        if plain:
            return Path(weights, self.values, added=added, ends=ends)
        place = np.arange(n) / n
        rows = np.stack([np.ones(n), place, place**2 + place])  # 1, i/n, (i² + ni)/n²
        middle = np.zeros((3, 3))
        middle[:2, :2] -= self.ranges * n**2 * np.array([[1, -1], [-1, 1]])
        middle += self.circular * n**2 * np.array([[(n + 1) / (2 * n) - 2, 0, 1], [0, -2, 0], [1, 0, 0]])
        return Path(weights, self.values, rows, middle, added)


def square_sum(family: Family, centre: Array, *, weighted: bool = True) -> float:
    """Return the sum over the family's queries q of (weight ×) (q·centre)², without listing all queries."""
    if not weighted and family.original.weights is not None:
        return float(np.square(family.original.answers(centre)).sum())
    gram = LineGram.of(centre.size, [(family if weighted else family.original, 1.0)])
    return float(gram.times(centre[None])[0] @ centre)


def _backwards(rows: Array) -> Array:
    """Return sums from each entry on."""
    return np.cumsum(rows[..., ::-1], axis=-1)[..., ::-1]


def _gram_times(family: Family, rows: Array) -> Array:
    answers = family.answers(rows.T)
    if family.weights is not None:
        answers = answers * family.weights[:, None]
    return family.original.spread(answers).T


def _boundaries(family: Family) -> Array:
    """Return the weight of the queries that have an end between each value and the next."""
    n = family.cells
    weights = np.ones(family.rows) if family.weights is None else family.weights
    spans = family.original.spans()
    if spans is None:
        steps = np.square(np.diff(family.matrix(), axis=1, append=0.0))
        return np.asarray(weights @ steps)
    result = np.zeros(n + 1)
    np.add.at(result, spans[0], weights)  # the end before the first value
    np.add.at(result, spans[1] + 1, weights)
    return result[1:]


def _smoothed(array: Array, reach: int) -> Array:
    """Return means over windows of 2 × reach + 1 entries."""
    padded = np.pad(array, reach, mode="edge")
    sums = np.cumsum(np.append(0.0, padded))
    width = 2 * reach + 1
    return np.asarray((sums[width:] - sums[:-width]) / width)
