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
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
from querysmasher.workload.families import Intervals
from querysmasher.workload.family import Family, Places, Structure

STEP = 0.6
"""Step in log t: the error of the trapezoidal rule is of the order exp(−π²/STEP), below 1e-7."""

REACH = 15.0
"""How far log t goes beyond the range of the eigenvalues."""

SURE = 1 - 2e-6
"""Bounds are multiplied by this, more than all errors of quadrature and rounding."""

EASY = 1e-10
"""Smallest weight of a prefix, relative to the largest, that recurrences take."""


@dataclass(frozen=True, eq=False)
class Path:
    """The Gram matrix of weighted prefixes, plus a diagonal, plus QJQᵀ."""

    prefixes: Array
    values: Array | None = None
    rows: Array | None = None
    """Qᵀ."""
    middle: Array | float = 0.0
    """J."""
    added: float = 0.0
    """The sum of what was added to the weights of prefixes so that none is too small."""
    ends: Places | None = None
    """The last value of every one, if some of them are several values merged."""

    @property
    def surplus(self) -> float:
        """What weights that were added contribute at most to a bound.

        tr (A + B)^½ ≤ tr A^½ + tr B^½, and at any p the latter is at most the root of the least loss of these
        prefixes alone: all prefixes can be answered with variances of at most (1 + log(n)/π)².
        """
        return float(np.sqrt(self.added) * (1 + np.log(self.size) / np.pi))

    @property
    def size(self) -> int:
        """Number of values."""
        return self.prefixes.size

    def shared(self, p: Array) -> Array:
        """Return the weights of merged values, given those of all."""
        if self.ends is None or self.size == p.size:
            return p
        return np.asarray(np.add.reduceat(p, np.append(0, self.ends[:-1] + 1)))

    def root_diagonal(self, p: Array) -> Array:
        """Return the diagonal of H^½, of which the sum is a bound."""
        conductance, values = 1 / self.prefixes, 0.0 if self.values is None else self.values
        most = float(2 * self.prefixes.max() * self.size**2 + np.max(values))
        first = 0.5 * math.log(float((self.prefixes * p).min()) / 8) - REACH
        last = 0.5 * math.log(most / self.size) + REACH
        result = np.zeros(self.size)
        for t in np.exp(np.arange(first, last, STEP)).tolist():
            inverse = p / (t**2 + values * p)  # E⁻¹
            diagonal, beside = conductance + inverse, -conductance[:-1]  # of T + E⁻¹
            diagonal[1:] += conductance[:-1]
            ahead, ratios = _factored(diagonal, beside)
            back = _factored(diagonal[::-1], beside[::-1])[0][::-1]
            result += t**3 * inverse**2 / (ahead + back - diagonal) / p + t * values * inverse
            if self.rows is not None:
                result += t**3 * self._low_rank(inverse, ahead, ratios) / p
        return result * (STEP * 2 / np.pi)

    def _low_rank(self, inverse: Array, ahead: Array, ratios: Array) -> Array:
        """Return the diagonal of YCYᵀ, given the factors of T + E⁻¹."""
        from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

        assert self.rows is not None  # noqa: S101 - callers check
        flow = -np.diff(self.rows, append=0.0) / self.prefixes
        image = np.diff(flow, prepend=0.0)  # TQ
        solved = inverse * lapack.dpttrs(ahead, ratios, image.T)[0].T
        inside = np.eye(len(solved)) + self.middle @ (solved @ self.rows.T)
        return np.asarray(np.einsum("aj,ab,bj->j", solved, np.linalg.solve(inside, self.middle), solved))


def _factored(diagonal: Array, beside: Array) -> tuple[Array, Array]:
    """Return the pivots of a tridiagonal matrix, and the ratios of its factor."""
    from scipy.linalg import lapack  # noqa: PLC0415 - loading it takes longer than a small plan

    return (diagonal, beside) if diagonal.size == 1 else lapack.dpttrf(diagonal, beside)[:2]


def path_bound(path: Path, start: Array) -> float:
    """Return the largest tr H^½ found for distributions near `start`: a lower bound on √loss."""
    p, best = start / start.sum(), 0.0
    for _ in range(4):
        root = path.root_diagonal(p)
        best = max(best, float(root.sum()) * SURE - path.surplus)
        p = p * (root / p) ** 1.5
        p /= p.sum()
    return best


Asked = tuple[Family, float]
"""A family of queries about the attribute, and what multiplies their weights."""

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
        prefixes, values = np.zeros(size), np.zeros(size)
        every = {Structure.RANGES: 0.0, Structure.CIRCLE: 0.0}
        others: list[Asked] = []
        for family, coefficient in asked:
            if family.structure in every and family.weights is None:
                every[family.structure] += coefficient
                continue
            spans = None if family.structure in every else family.original.spans()
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
                ranges = (first[rest], last[rest], weights[rest])
                others += [(Intervals((size,), *ranges), coefficient)] if rest.any() else []
        return cls(
            size,
            tuple(asked),
            total,
            prefixes if prefixes.any() else None,
            values if values.any() else None,
            every[Structure.RANGES],
            every[Structure.CIRCLE],
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

    def path(self) -> Path | None:
        """Return the families with a closed form as weighted prefixes, for bounds; None if there are no such.

        Values that hardly any prefix distinguishes are one.
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
        if plain and self.values is None:
            ends = np.flatnonzero(weights > EASY * weights.max())
            weights = weights[ends]
        least = EASY * weights.max()
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


def is_implicit(family: Family) -> bool:
    """Return whether the queries of a family on one attribute need not be written out."""
    return family.structure not in (Structure.ROWS, Structure.RULE)


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
