"""The Gram matrix of queries about one attribute of very many values, never written out.

Weighted prefixes and single values take running sums. A few other rows, such as sums of numbers, are a matrix
QJQᵀ of low rank. All ranges and all circular ranges are prefixes too, up to such a matrix: with ℓ_j = n − j,

    ranges    (min+1)(n−max) = (n+1)·(n−max) − ℓ_i ℓ_j
    circular  d² − nd + n(n+1)/2 = 2n·(n−max) + (i² + ni) + (j² + nj) − 2ij + n(n+1)/2 − 2n²,   d = |i − j|

Ranges of given lengths, as in moving sums, are filters in the cosine basis. Let value j stand at j + ½. In
the cosine basis, a range of length l around x has the coefficients D_l(θ)·cos θx with
D_l(θ) = sin(lθ/2)/sin(θ/2). Cosines at all n positions x are orthogonal. So ranges of length l at all
positions, reflected where they pass an end, have a Gram matrix that is a filter, with eigenvalues D_l².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.workload.families import Intervals
from querysmasher.workload.family import Family, Indexes, Structure

WeightedFamily = tuple[Family, float]
"""A family of queries about the attribute, and what multiplies their weights."""

FEW = 16
"""Maximum number of rows without a closed form that a strategy follows."""

SMOOTH = 4.0
"""Maximum of the sum of a smooth row's changes, as a multiple of its largest entry."""

ROUGH = 1e-3
"""Minimum of local weights, as a fraction of their mean."""


@dataclass(frozen=True, eq=False)
class LineGram:
    """Σ coefficient × WᵀDW over families of queries about one attribute, plus a weight of the total."""

    size: int
    families: tuple[WeightedFamily, ...]
    total: float
    """κ: the weight of the number of records."""
    prefixes: Array
    """Weights of all prefixes."""
    values: Array
    """Weights of the single values."""
    ranges: float
    circular: float
    few: Array
    """A few rows without a closed form, times the roots of their weights: sums of the values' numbers."""
    others: tuple[WeightedFamily, ...]
    """Other queries without a closed form."""

    @classmethod
    def of(cls, size: int, families: Sequence[WeightedFamily], total: float = 0.0) -> LineGram:
        """Add up families of the same kind."""
        prefixes, values = np.zeros(size), np.zeros(size)
        every = {Structure.RANGES: 0.0, Structure.CIRCLE: 0.0}
        others: list[WeightedFamily] = []
        given: list[WeightedFamily] = []
        for family, coefficient in families:
            if family.structure in every and family.weights is None:
                every[family.structure] += coefficient
                continue
            spans = None if family.structure in every else family.spans()
            if spans is None:
                given.append((family, coefficient))
                continue
            first, last = spans
            weights = np.broadcast_to(1.0 if family.weights is None else family.weights, first.shape)
            rest = first != last
            if not first.any():
                np.add.at(prefixes, last, coefficient * weights)
            elif rest.all():
                others.append((family, coefficient))
            else:
                np.add.at(values, first[~rest], coefficient * weights[~rest])
                left = (first[rest], last[rest], weights[rest])
                others += [(Intervals((size,), *left), coefficient)] if rest.any() else []
        few = [np.zeros((0, size))]
        if sum(family.rows for family, _ in given) <= FEW:
            few += [np.sqrt(c * f.query_weights())[:, None] * f.matrix() for f, c in given]
        else:
            others += given
        ranges, circular = every.values()
        rest = np.concatenate(few), tuple(others)
        return cls(size, tuple(families), total, prefixes, values, ranges, circular, *rest)

    @cached_property
    def path(self) -> tuple[Array, Array, Array]:
        """The weights of prefixes that prefixes, ranges and circular ranges have together, Qᵀ and J."""
        n = self.size
        weights = self.prefixes + (n + 1) * self.ranges + 2 * n * self.circular
        if not (self.ranges or self.circular):
            return weights, self.few, np.eye(len(self.few))
        value = np.arange(n) / n
        rows = np.stack([np.ones(n), value, value**2 + value])  # 1, i/n, (i² + ni)/n²
        in_ranges = np.array([[-1, 1, 0], [1, -1, 0], [0, 0, 0]])
        in_circle = np.array([[(n + 1) / (2 * n) - 2, 0, 1], [0, -2, 0], [1, 0, 0]])
        middle = np.eye(3 + len(self.few))
        middle[:3, :3] = n**2 * (self.ranges * in_ranges + self.circular * in_circle)
        return weights, np.concatenate([rows, self.few]), middle

    @property
    def classes(self) -> Indexes:
        """The class of every value: consecutive values that no query distinguishes have the same."""
        if any(family.closed_form or family.spans() is None for family, _ in self.families):
            return np.arange(self.size)
        edges = sum((_boundaries(family) for family, _ in self.families), np.zeros(self.size))
        return np.append(0, np.cumsum(edges[:-1] > 0))

    def on_classes(self, classes: Indexes) -> LineGram:
        """Return the same queries over classes."""
        families = [(on_classes(family, classes) or family, weight) for family, weight in self.families]
        return LineGram.of(1 + int(classes[-1]), families, self.total)

    @cached_property
    def windows(self) -> tuple[Indexes, Indexes, Array]:
        """The first value, the length and the weight of every range without a closed form."""
        none = np.zeros(0, dtype=np.int64)
        parts: list[tuple[Indexes, Indexes, Array]] = [(none, none, np.zeros(0))]
        for family, coefficient in self.others:
            spans = family.spans()
            if spans is not None and np.all(spans[0] <= spans[1]):
                parts.append((*spans, coefficient * family.query_weights()))
        first, last, weights = map(np.concatenate, zip(*parts, strict=True))
        return first, last - first + 1, weights

    @property
    def few_and_total(self) -> Array:
        """The few rows, and the total if it has a weight."""
        return np.vstack([self.few, np.full((int(self.total > 0), self.size), np.sqrt(self.total))])

    def times(self, rows: Array) -> Array:
        """Return rows times the Gram matrix."""
        path, low, middle = self.path
        result = (
            self.total * rows.sum(axis=-1, keepdims=True) + rows * self.values + rows @ low.T @ middle @ low
        )
        result += np.cumsum((np.cumsum(rows, axis=-1) * path)[..., ::-1], axis=-1)[..., ::-1]
        for family, coefficient in self.others:
            answers = family.answers(rows.T) * (coefficient * family.query_weights())[:, None]
            result += family.spread(answers).T
        return result

    @property
    def boundaries(self) -> Array:
        """The weight of the queries that distinguish each value from the next: positive, if any is."""
        local = self.path[0] + sum(weight * _boundaries(family) for family, weight in self.others)
        local[-1] = local[-2]  # the last prefix is the total
        return np.maximum(local, ROUGH * float(local.mean()))


def on_classes(family: Family, classes: Indexes) -> Family | None:
    """Return a family of ranges as ranges of classes; None if some query is not a range of classes."""
    spans = family.spans()
    if spans is None or np.any(spans[0] > spans[1]):
        return None
    ends = np.append(np.diff(classes) > 0, True)
    if not (np.append(True, ends[:-1])[spans[0]].all() and ends[spans[1]].all()):
        return None
    return Intervals((1 + int(classes[-1]),), classes[spans[0]], classes[spans[1]], family.weights)


def is_implicit(family: Family) -> bool:
    """Return whether the queries of a family on one attribute need not be written out."""
    return family.structure not in (Structure.ROWS, Structure.RULE)


def is_smooth(family: Family) -> bool:
    """Return whether a family has a few rows that hardly vary between neighbouring values, as sums do."""
    if family.rows > FEW or not family.fits_memory:
        return False
    rows = family.matrix()
    varies = np.abs(np.diff(rows, axis=1)).sum(axis=1)
    return bool(np.all(varies <= SMOOTH * np.abs(rows).max(axis=1)))


def is_total(family: Family) -> bool:
    """Return whether every query of a family is the range of all values."""
    spans = None if family.closed_form else family.spans()
    return spans is not None and not spans[0].any() and bool((spans[1] == family.cells - 1).all())


def square_sum(family: Family, centre: Array) -> float:
    """Return the sum over the family's queries q of weight × (q·centre)², without listing all queries."""
    gram = LineGram.of(centre.size, [(family, 1.0)])
    return float(gram.times(centre[None])[0] @ centre)


def length_spectrum(by_length: Array) -> Array:
    """Return Σ c_l D_l(θ)² at every frequency, for the weights c_l of lengths below twice the size."""
    size = len(by_length) // 2
    angles = np.arange(1, size) * (np.pi / (2 * size))
    waves = 2 * (by_length.sum() - np.fft.rfft(by_length).real[1:size])  # Σ c_l (2 sin(lθ/2))²
    squares = np.square(np.arange(2 * size))
    return np.append(by_length @ squares, np.maximum(waves, 0.0) / (4 * np.sin(angles) ** 2))


def _boundaries(family: Family) -> Array:
    """Return the weight of the queries that have an end between each value and the next."""
    n = family.cells
    weights = family.query_weights()
    spans = family.spans()
    if spans is None:
        steps = np.square(np.diff(family.matrix(), axis=1, append=0.0))
        return np.asarray(weights @ steps)
    result = np.zeros(n + 1)
    np.add.at(result, spans[0], weights)  # the end before the first value
    np.add.at(result, spans[1] + 1, weights)
    return result[1:]
