"""Variances of queries about one attribute, given V⁻¹: written out, or as a filter that reflects at the ends.

All ranges are the differences of two of n + 1 cuts X, the prefixes and nothing, so that the sum of their
variances is (n+1) Σ Var X − Var ΣX; circular ranges are these differences, and the total less them.

A filter has V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹ with K a filter, D a diagonal and Z of few rows (`line`). The variances of
all prefixes follow from sums below the diagonal: with r = 1/d and y_i = Σ_{j<i} K_ij r_j, Var_i − Var_{i−1} =
r_i(2y_i + r_i K_ii).

Sums below the diagonal, y_i = Σ_{j<i} K_ij·x_j, take O(n log² n). The part t(i−j) is one convolution. The
part t(i+j+shift) is cut in halves: the rows of the right half of a block see all of its left half, which is a
convolution again; all blocks of one size are done together.

Covariances of many pairs of prefixes take a few passes over the values. For l < h, the covariance of the
prefixes up to l and up to h is Var(l) plus the sum of r_i K_ij r_j over i ≤ l < j ≤ h. The eigenvalues of K
are a smooth function of those of the second difference, λ, except for the lowest ones: κ(λ) = c − Σ_m b_m/(λ
+ q_m) + ε, with poles q_m in a geometric sequence, fitted by least squares. The matrix with eigenvalues
1/(λ + q), q = 4 sinh²(φ/2), is the inverse of a tridiagonal one, a sum of exponentials of distances,

    (e^(−φd) + s·e^(−φ(P−d))) / (2 sinh φ·(1 − s·e^(−φP))),

with d = |i − j| and, with the sign of the reflection, d = i + j + shift; P is the period and s = ±1 its sign.
Each exponential is a product of a function of i and one of j, so that the sum follows from running sums. The
lowest frequencies are added one by one. What remains is the rounding error of integer filters at single high
frequencies: it changes variances by less than 1e-3 of their size at 14 bits, as they average over all
frequencies, and by up to a few percent at 7 bits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.privacy.factors import Reflection
from querysmasher.privacy.factors.reflection import smooth_length
from querysmasher.workload.line import LineErrors, Places

SMALL = 16
"""Blocks of fewer values than this are summed directly."""

LOWEST = 64
"""Number of frequencies that are added one by one."""

RATIO = 2.5
"""Ratio of consecutive poles: the error of the fit is of the order exp(−2π²/log RATIO)."""

SAMPLES = 2_000
"""Number of eigenvalues to which the function is fitted."""

CHUNK = 2_000_000
"""Number of entries that are transformed at a time."""


class LineVariances(LineErrors):
    """The variances of prefixes, values and ranges of one attribute."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of values."""

    @abstractmethod
    def covary(self, rows: Array) -> Array:
        """Return rows times V⁻¹."""

    @abstractmethod
    def between_prefixes(self, low: Places, high: Places) -> Array:
        """Return the covariances of pairs of prefixes."""

    def of_rows(self, rows: Array) -> Array:
        return np.einsum("ij,ij->i", rows, self.covary(rows))

    def of_spans(self, first: Places, last: Places) -> Array:
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
            total = np.append(self.of_total, 0.0)
            result[around] += total[-2] - 2 * (total[high[around]] - total[low[around]])
        return np.asarray(result)

    @cached_property
    def of_total(self) -> Array:
        """The covariance of every prefix with the total."""
        return np.cumsum(self.covary(np.ones(self.size)))

    def all_ranges(self) -> float:
        cuts = np.arange(self.size, 0.0, -1)  # the sum of all prefixes
        return float((self.size + 1) * self.prefixes.sum() - cuts @ self.covary(cuts))

    def all_circular(self) -> float:
        n, place = self.size, np.arange(1, self.size)
        cuts = np.arange(n - 1.0, -1, -1)  # the sum of all prefixes but the total
        within = n * self.prefixes[:-1].sum() - cuts @ self.covary(cuts)
        total = n * (n + 1) / 2 * self.of_total[-1] - 2 * ((2 * place - n + 1) @ self.of_total[:-1])
        return float(2 * within + total)


@dataclass(frozen=True, eq=False)
class WrittenVariances(LineVariances):
    """The same from V⁻¹ itself."""

    covariance: Array

    @property
    def size(self) -> int:
        return len(self.covariance)

    @cached_property
    def _cumulated(self) -> Array:
        """The covariances of all prefixes."""
        return np.asarray(self.covariance.cumsum(axis=0).cumsum(axis=1))

    @property
    def prefixes(self) -> Array:
        return np.diagonal(self._cumulated)

    @property
    def values(self) -> Array:
        return np.diagonal(self.covariance)

    def covary(self, rows: Array) -> Array:
        return rows @ self.covariance

    def between_prefixes(self, low: Places, high: Places) -> Array:
        return np.asarray(self._cumulated[low, high])


@dataclass(frozen=True, eq=False)
class FilterVariances(LineVariances):
    """The same from a filter, a diagonal and a few rows."""

    reflection: Reflection
    spectrum: Array
    """The eigenvalues of K."""
    diagonal: Array
    correction: Array
    """Z."""

    @property
    def size(self) -> int:
        return self.diagonal.size

    @cached_property
    def kernel(self) -> Array:
        """The free lags of K."""
        return self.reflection.kernel(self.spectrum)

    def covary(self, rows: Array) -> Array:
        scaled = rows / self.diagonal
        image = self.reflection.apply(self.kernel, scaled)
        if self.correction.size:
            image = image - (scaled @ self.correction.T) @ self.correction
        return np.asarray(image / self.diagonal)

    @cached_property
    def _inverse_diagonal(self) -> Array:
        """The diagonal of K."""
        return self.reflection.diagonal(self.kernel)

    @cached_property
    def prefixes(self) -> Array:
        r = 1 / self.diagonal
        y = sums_below(self.reflection, self.kernel, r)
        sums = np.cumsum(r * (2 * y + r * self._inverse_diagonal))
        for row in self.correction:
            sums -= np.cumsum(r * row) ** 2
        return np.asarray(sums)

    @cached_property
    def values(self) -> Array:
        r = 1 / self.diagonal
        return np.asarray(r**2 * (self._inverse_diagonal - np.square(self.correction).sum(axis=0)))

    def between_prefixes(self, low: Places, high: Places) -> Array:
        fixed, other = (high, low) if np.unique(high).size < np.unique(low).size else (low, high)
        ends, which = np.unique(fixed, return_inverse=True)
        if ends.size * self.size > limits().exact_range_work:
            cut = crossing(self.reflection, self.spectrum, 1 / self.diagonal, low, high)
            for row in self.correction:
                sums = np.cumsum(row / self.diagonal)
                cut -= sums[low] * (sums[high] - sums[low])
            return np.asarray(self.prefixes[low] + cut)
        result, place = np.empty(low.shape), np.arange(self.size)
        step = max(1, CHUNK // self.size)
        for start in range(0, ends.size, step):
            rows = (place <= ends[start : start + step, None]).astype(float)
            here = np.flatnonzero(which // step == start // step)
            result[here] = np.cumsum(self.covary(rows), axis=1)[which[here] - start, other[here]]
        return result


def sums_below(reflection: Reflection, kernel: Array, x: Array) -> Array:
    """Return Σ_{j<i} K_ij·x_j for the filter with these free lags."""
    n, lags = x.size, reflection.lags(kernel)
    length = smooth_length(2 * n - 1)
    straight = np.append(0.0, lags[1:n])
    result = np.fft.irfft(np.fft.rfft(straight, length) * np.fft.rfft(x, length), length)[:n]
    if reflection.sign:
        result = result + reflection.sign * _mirrored_below(lags[reflection.shift :], x)
    return np.asarray(result)


def _mirrored_below(lags: Array, x: Array) -> Array:
    """Return Σ_{j<i} lags[i+j]·x_j."""
    n = x.size
    levels = max(0, (n // SMALL).bit_length())
    block = -(-n // (1 << levels))
    size = block << levels
    padded, result = np.zeros(size), np.zeros(size)
    padded[:n] = x
    own = np.zeros(2 * size + 1)
    own[: min(lags.size, own.size)] = lags[: own.size]
    _add_small(own, padded, result, block)
    while block < size:
        _add_halves(own, padded, result, block)
        block *= 2
    return result[:n]


def _add_small(lags: Array, x: Array, result: Array, block: int) -> None:
    """Add what the values of each block add to later ones of the same block."""
    starts = np.arange(0, x.size, block)
    for a in range(1, block):
        for b in range(a):
            result[starts + a] += lags[2 * starts + a + b] * x[starts + b]


def _add_halves(lags: Array, x: Array, result: Array, half: int) -> None:
    """Add what the left half of each block of 2 × `half` values adds to its right half."""
    starts = np.arange(0, x.size, 2 * half)
    length = smooth_length(2 * half)
    window = np.arange(2 * half - 1)
    step = max(1, CHUNK // length)
    for first in range(0, starts.size, step):
        some = starts[first : first + step]
        seen = lags[(2 * some + half)[:, None] + window]
        left = x[some[:, None] + np.arange(half)[::-1]]  # reversed: a correlation is a convolution
        product = np.fft.irfft(np.fft.rfft(seen, length) * np.fft.rfft(left, length), length)
        result[some[:, None] + half + np.arange(half)] += product[:, half - 1 : 2 * half - 1]


def crossing(reflection: Reflection, inverse: Array, scales: Array, low: Places, high: Places) -> Array:
    """Return Σ r_i K_ij r_j over i ≤ low < j ≤ high, for many pairs, given K's eigenvalues and r."""
    squares, poles, weights, constant = _fitted(reflection, inverse)
    result = np.zeros(low.shape)
    for pole, weight in zip(poles, weights, strict=True):
        if weight:
            result += weight * _resolvent(reflection, float(pole), scales, low, high)
    count = min(LOWEST, squares.size)
    left = inverse[:count] - constant - (1 / (squares[:count, None] + poles)) @ weights
    for k in np.flatnonzero(np.abs(left) > 1e-12 * np.abs(inverse[:count])):
        for wave in reflection.waves(int(k)):
            sums = np.cumsum(scales * wave)
            result += left[k] * sums[low] * (sums[high] - sums[low])
    return result


def _fitted(reflection: Reflection, inverse: Array) -> tuple[Array, Array, Array, float]:
    """Return λ, the poles, their weights and the constant."""
    squares = reflection.second_differences
    first = min(LOWEST, squares.size // 2)
    least = max(float(squares[first]), 1e-14) / 100
    count = math.ceil(math.log(4_000 / least) / math.log(RATIO))
    poles = least * RATIO ** np.arange(count)
    chosen = np.unique(np.geomspace(first + 1, squares.size, SAMPLES).astype(np.int64)) - 1
    chosen = chosen[squares[chosen] > 0]
    basis = (
        np.column_stack([1 / (squares[chosen, None] + poles), np.ones(chosen.size)]) / inverse[chosen, None]
    )
    norms = np.sqrt((basis**2).sum(axis=0))
    solution = np.linalg.lstsq(basis / norms, np.ones(chosen.size), rcond=1e-13)[0] / norms
    return squares, np.asarray(poles, dtype=float), np.asarray(solution[:-1]), float(solution[-1])


def _resolvent(reflection: Reflection, pole: float, scales: Array, low: Places, high: Places) -> Array:
    """Return the same sum for the matrix with eigenvalues 1/(λ + pole)."""
    from scipy.signal import lfilter  # noqa: PLC0415 - loading it takes longer than a small plan

    place = np.arange(reflection.size)
    phi = 2 * math.asinh(math.sqrt(pole) / 2)
    decay = math.exp(-phi)
    ahead = lfilter([1.0], [1.0, -decay], scales)  # Σ_{i≤l} r_i e^(−φ(l−i))
    behind = lfilter([0.0, decay], [1.0, -decay], scales[::-1])[::-1]  # Σ_{j>l} r_j e^(−φ(j−l))
    result = ahead[low] * (behind[low] - np.exp(-phi * (high - low)) * behind[high])
    sign, period = reflection.period
    falling = np.cumsum(scales * np.exp(-phi * place))
    rising = np.cumsum(scales * np.exp(-phi * (period - place)))
    result = result + sign * falling[low] * (rising[high] - rising[low])
    if reflection.sign:
        far = math.exp(-phi * reflection.shift)
        result = result + reflection.sign * far * falling[low] * (falling[high] - falling[low])
        half = (period - reflection.shift) / 2
        back = np.cumsum(scales * np.exp(-phi * (half - place)))
        result = result + reflection.sign * sign * back[low] * (back[high] - back[low])
    return np.asarray(result / (2 * math.sinh(phi) * (1 - sign * math.exp(-phi * period))))
