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
add (2/π) ∫ t²P^{-½}YCYᵀP^{-½} dt to the root, with Y = (G₀ + E)⁻¹Q = E⁻¹R(TQ) and C = (I + JQᵀY)⁻¹J. The
trapezoidal rule in log t converges exponentially. p ← p·v with v_j = (H^½)_jj/p_j increases the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.workload.families import Intervals
from querysmasher.workload.family import Family, Structure

WeightedFamily = tuple[Family, float]
"""A family of queries about the attribute, and what multiplies their weights."""

STEP = 0.6
"""Step in log t: the error of the trapezoidal rule is of the order exp(−π²/STEP), below 1e-7."""

REACH = 15.0
"""How far log t goes beyond the range of the eigenvalues."""

SURE = 1 - 2e-6
"""Bounds are multiplied by this, more than all errors of quadrature and rounding."""

EASY = 1e-10
"""Smallest weight of a query, relative to the largest, that recurrences and decompositions take."""

ROUGH = 1e-3
"""Minimum of local weights, as a fraction of their mean."""


def path_bound(gram: LineGram, start: Array) -> float:
    """Return a lower bound on √loss of the families with a closed form, as weighted prefixes; zero for none.

    Prefixes of too little weight get more. That adds at most the root of the least loss of what is added,
    as tr (A + B)^½ ≤ tr A^½ + tr B^½: all prefixes can be answered with variances of at most (1 + log(n)/π)².
    """
    path, rows, middle = gram.path
    weights = np.append(path[:-1], path[-1] + gram.total)
    if not weights.any():
        return 0.0
    least = EASY * weights.max()
    surplus = math.sqrt(float(np.maximum(least - weights, 0.0).sum())) * (1 + math.log(gram.size) / math.pi)
    p, best = start / start.sum(), 0.0
    for _ in range(4):
        root = _root_diagonal(np.maximum(weights, least), gram.values, rows, middle, p)
        best = max(best, float(root.sum()) * SURE - surplus)
        p = p * (root / p) ** 1.5
        p /= p.sum()
    return best


def _root_diagonal(prefixes: Array, values: Array, rows: Array, middle: Array, p: Array) -> Array:
    """Return the diagonal of H^½ for weights of prefixes and of values, Qᵀ and J: its sum is a bound."""
    from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

    conductance = 1 / prefixes
    most = float(2 * prefixes.max() * p.size**2 + values.max())
    first = 0.5 * math.log(float((prefixes * p).min()) / 8) - REACH
    last = 0.5 * math.log(most / p.size) + REACH
    image = np.diff(-np.diff(rows, append=0.0) / prefixes, prepend=0.0)  # TQ
    result = np.zeros(p.size)
    for t in np.exp(np.arange(first, last, STEP)).tolist():
        inverse = p / (t**2 + values * p)  # E⁻¹
        diagonal, beside = conductance + inverse, -conductance[:-1]  # of T + E⁻¹
        diagonal[1:] += conductance[:-1]
        ahead, ratios, _ = lapack.dpttrf(diagonal, beside)
        back = lapack.dpttrf(diagonal[::-1], beside[::-1])[0][::-1]
        result += t**3 * inverse**2 / (ahead + back - diagonal) / p + t * values * inverse
        if len(rows):
            solved = inverse * lapack.dpttrs(ahead, ratios, image.T)[0].T  # Yᵀ
            inside = np.linalg.solve(np.eye(len(rows)) + middle @ (solved @ rows.T), middle)  # C
            result += t**3 * np.einsum("aj,ab,bj->j", solved, inside, solved) / p
    return result * (STEP * 2 / np.pi)


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


def is_implicit(family: Family) -> bool:
    """Return whether the queries of a family on one attribute need not be written out."""
    return family.structure not in (Structure.ROWS, Structure.RULE)


def square_sum(family: Family, centre: Array, *, weighted: bool = True) -> float:
    """Return the sum over the family's queries q of (weight ×) (q·centre)², without listing all queries."""
    family = family if weighted else family.reweighted(None)
    if not weighted and family.weights is not None:
        return float(np.square(family.answers(centre)).sum())
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
