"""The Gram matrix of queries about one attribute of very many values, never written out, and its bounds.

The inverse T of the Gram matrix G₀ of weighted prefixes is the Laplacian of a path: conductance 1/ω_j
between values j and j+1, and 1/ω_{n−1} from the last value to the ground. Single values add a diagonal μ.
All ranges and all circular ranges are prefixes too, up to a matrix QJQᵀ of rank three: with ℓ_j = n − j,

    ranges    (min+1)(n−max) = (n+1)·(n−max) − ℓ_i ℓ_j
    circular  d² − nd + n(n+1)/2 = 2n·(n−max) + (i² + ni) + (j² + nj) − 2ij + n(n+1)/2 − 2n²,   d = |i − j|

For any distribution p, with P = diag(p) and H = P^½GP^½, no strategy has a loss below (tr H^½)². With
E = μ + t²P⁻¹ (diagonal) and R = (T + E⁻¹)⁻¹, of a tridiagonal matrix, and G = G₀ + μ:

    tr H^½ = (2/π) ∫ tr H(H + t²)⁻¹ dt = (2/π) ∫ Σ_j [μ_j/E_j + (t²/p_j) R_jj/E_j²] dt,

positive terms only. The diagonal of R follows from the pivots in both directions. The terms of rank three
add (2/π) ∫ t²P^{-½}YCYᵀP^{-½} dt to the root, with Y = (G₀ + E)⁻¹Q = E⁻¹R(TQ) and C = (I + JQᵀY)⁻¹J.
p ← p·v with v_j = (H^½)_jj/p_j increases the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.workload.families import Intervals
from querysmasher.workload.family import Family, Indexes, Structure

WeightedFamily = tuple[Family, float]
"""A family of queries about the attribute, and what multiplies their weights."""

STEP = 0.6
"""Step in log t of the trapezium rule."""

SMALL = 1e-7
"""Terms of the trapezium rule below this fraction of the sum end it."""

GAIN = 1e-4
"""A bound that rises by less than this fraction rises no more."""

EASY = 1e-10
"""Smallest weight of a query, relative to the largest, that recurrences and decompositions take."""

ROUGH = 1e-3
"""Minimum of local weights, as a fraction of their mean."""


def trace_bound(
    terms: Callable[[Array, float], tuple[float, Array]], p: Array, middle: float, enough: float
) -> float:
    """Return a lower bound on the largest tr X^½ of any distribution p; it need not be above `enough`.

    For a distribution and t, `terms` returns tr X(X + t²)⁻¹ and, up to a factor, what each p gains by
    growing. Most terms are about e^middle. In log t, the integrand of each eigenvalue is a hyperbolic secant,
    for which the trapezium rule of step h is too large by at most a factor 1 + 2 Σ_k sech(kπ²/h) (Poisson's
    summation formula); leaving terms out only lowers the sum. So the bound is certified.
    """
    excess, best = 1 + 4.4 * sum(math.exp(-k * math.pi**2 / STEP) for k in (1, 2)), 0.0
    for _ in range(12):
        p = p / p.sum()
        total, gains = 0.0, np.zeros(p.size)
        for sign in (1, -1):
            for step in range(sign < 0, 2_000):
                t = math.exp(middle + sign * step * STEP)
                term, gain = terms(p, t)
                total += t * term
                gains += t * gain
                if t * term <= SMALL * total:
                    break
        value = 2 / math.pi * STEP * total / excess
        done = value <= best * (1 + GAIN)
        best, p = max(best, value), p * gains**1.5
        if done or best >= enough:
            break
    return best


def path_bound(gram: LineGram, start: Array, enough: float) -> float:
    """Return a lower bound on the loss of the families with a closed form, near `enough` if it can be.

    Prefixes of too little weight get more. That adds at most the root of the least loss of what is added,
    as tr (A + B)^½ ≤ tr A^½ + tr B^½: all prefixes can be answered with variances of at most (1 + log(n)/π)².
    """
    path, rows, middle = gram.path
    weights, values = np.append(path[:-1], path[-1] + gram.total), gram.values
    if not weights.any():
        return float(values.sum())
    from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

    least = EASY * weights.max()
    surplus = math.sqrt(float(np.maximum(least - weights, 0.0).sum())) * (1 + math.log(gram.size) / math.pi)
    weights = np.maximum(weights, least)
    image = np.diff(-np.diff(rows, append=0.0) / weights, prepend=0.0)  # TQ
    laplacian, beside = 1 / weights, -1 / weights[:-1]  # T
    laplacian[1:] -= beside

    def terms(p: Array, t: float) -> tuple[float, Array]:
        inverse = p / (t**2 + values * p)  # E⁻¹
        diagonal = laplacian + inverse
        ahead, ratios, _ = lapack.dpttrf(diagonal, beside)
        back = lapack.dpttrf(diagonal[::-1], beside[::-1])[0][::-1]
        result = t**2 * inverse**2 / (ahead + back - diagonal) / p + values * inverse
        if len(rows):
            solved = inverse * lapack.dpttrs(ahead, ratios, image.T)[0].T  # Yᵀ
            inside = np.linalg.solve(np.eye(len(rows)) + middle @ (solved @ rows.T), middle)  # C
            result += t**2 * np.einsum("aj,ab,bj->j", solved, inside, solved) / p
        return float(result.sum()), result / p

    root = math.sqrt(enough)
    return max(0.0, trace_bound(terms, start, math.log(root / gram.size), root) - surplus) ** 2


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
    others: tuple[WeightedFamily, ...]
    """Queries without a closed form."""

    @classmethod
    def of(cls, size: int, families: Sequence[WeightedFamily], total: float = 0.0) -> LineGram:
        """Add up families of the same kind."""
        prefixes, values = np.zeros(size), np.zeros(size)
        every = {Structure.RANGES: 0.0, Structure.CIRCLE: 0.0}
        others: list[WeightedFamily] = []
        for family, coefficient in families:
            if family.structure in every and family.weights is None:
                every[family.structure] += coefficient
                continue
            spans = None if family.structure in every else family.spans()
            if spans is None:
                others.append((family, coefficient))
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
        ranges, circular = every.values()
        return cls(size, tuple(families), total, prefixes, values, ranges, circular, tuple(others))

    @cached_property
    def path(self) -> tuple[Array, Array, Array]:
        """The weights of prefixes that prefixes, ranges and circular ranges have together, Qᵀ and J."""
        n = self.size
        weights = self.prefixes + (n + 1) * self.ranges + 2 * n * self.circular
        if not (self.ranges or self.circular):
            return weights, np.zeros((0, n)), np.zeros((0, 0))
        value = np.arange(n) / n
        rows = np.stack([np.ones(n), value, value**2 + value])  # 1, i/n, (i² + ni)/n²
        in_ranges = np.array([[-1, 1, 0], [1, -1, 0], [0, 0, 0]])
        in_circle = np.array([[(n + 1) / (2 * n) - 2, 0, 1], [0, -2, 0], [1, 0, 0]])
        return weights, rows, n**2 * (self.ranges * in_ranges + self.circular * in_circle)

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
        """How much weight distinguishes each value from the next: positive, unless none does."""
        local = self.path[0] + sum(weight * _boundaries(family) for family, weight in self.others)
        local[-1] = local[-2]  # the last prefix is the total
        return np.maximum(local, ROUGH * float(local.mean()))


def on_classes(family: Family, classes: Indexes) -> Family | None:
    """Return ranges as ranges of classes; None if they are not, or the queries of a family are no ranges."""
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


def is_total(family: Family) -> bool:
    """Return whether all ranges of a list have all values."""
    spans = None if family.closed_form else family.spans()
    return spans is not None and not spans[0].any() and bool((spans[1] == family.cells - 1).all())


def square_sum(family: Family, centre: Array) -> float:
    """Return the sum over the family's queries q of weight × (q·centre)², without listing all queries."""
    gram = LineGram.of(centre.size, [(family, 1.0)])
    return float(gram.times(centre[None])[0] @ centre)


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
