"""Mirrored filters: strategies for attributes of up to a million values, by fast Fourier transforms.

V = D(S + UᵀU)D, where S is a filter that reflects at the ends of the attribute (`reflection`), D a diagonal,
and U has few rows, or none. With K = S⁻¹, a filter of the same kind, and r = 1/d,

    V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹,   Z = (I + UKUᵀ)^(-1/2) UK      (Woodbury).

The variances of all prefixes follow from sums below the diagonal: with y_i = Σ_{j<i} K_ij r_j, Var_i −
Var_{i−1} = r_i(2y_i + r_i K_ii) if there is no U.

Sums below the diagonal, y_i = Σ_{j<i} K_ij·x_j, take O(n log² n). The part t(i−j) is one convolution. The
part t(i+j+shift) is cut in halves: the right half sees all of the left half, which is a convolution again;
all blocks of one size are transformed together.

Covariances of many pairs of prefixes take a few passes over the values. For l < h, the covariance of the
prefixes up to l and up to h is Var(l) plus the sum of r_i K_ij r_j over i ≤ l < j ≤ h. The eigenvalues of K
are a smooth function of those of the second difference, λ, except for the lowest ones: κ(λ) = c − Σ_m b_m/(λ
+ q_m) + ε, with poles q_m in a geometric sequence, fitted by least squares. The matrix with eigenvalues
1/(λ + q), q = 4 sinh²(φ/2), is the inverse of a tridiagonal one, a sum of exponentials of distances,

    (e^(−φd) + s·e^(−φ(P−d))) / (2 sinh φ·(1 − s·e^(−φP))),

with d = |i − j| and, with the sign of the reflection, d = i + j + shift; P is the period and s = ±1 its sign.
Each exponential is a product of a function of i and one of j, so that the sum follows from running sums. The
lowest frequencies are added one by one. Where κ is not smooth, the ends of ranges are taken one by one. What
remains is the rounding error of integer filters at single high frequencies: it changes variances by less than
1e-3 of their size at 14 bits, as they average over all frequencies, and by up to a few percent at 7 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import ClassVar, Self, cast

import numpy as np

from querysmasher.arrays import CHUNK, Array
from querysmasher.fields import floats, text
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.line import LineStrategy
from querysmasher.planning.strategies.strategy import CLOSE, LARGEST
from querysmasher.privacy.factors import Mirrored, Reflection
from querysmasher.privacy.factors.filter import MOST_ROWS, least_product
from querysmasher.privacy.factors.reflection import NAMES, smooth_length
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.privacy.pairs import MOST_CELLS, Products
from querysmasher.workload.family import Indexes

LOWEST = 64
"""Number of frequencies that are added one by one, and of values up to which sums are written out."""

RATIO = 2.5
"""Ratio of consecutive poles: the error of the fit is of the order exp(−2π²/log RATIO)."""

SMOOTH = 0.1
"""Maximum misfit at which κ counts as smooth: filters in 4 bits have up to 0.07, moving sums over 0.2."""


@dataclass(frozen=True, eq=False)
class MirroredStrategy(LineStrategy):
    """A filter that reflects at both ends of an attribute, and a few smooth rows, times a diagonal."""

    kind = "mirrored"
    stored: ClassVar = {
        "ends": partial(text, allowed=NAMES),
        "spectrum": partial(floats, ndim=1),
        "diagonal": partial(floats, ndim=1),
        "extra": partial(floats, ndim=2),
    }

    ends: str
    """How the filter continues beyond the ends: a name of `reflection`."""
    spectrum: Array
    """The eigenvalues of S."""
    diagonal: Array
    extra: Array
    """U: a few further rows, possibly none."""
    moved: Array | None = None

    def scaled(self, factor: float) -> Self:
        scaled = replace(self, diagonal=self.diagonal * np.sqrt(factor))
        known = {"_inverse": self._inverse, "_correction": self._correction, "plain": self.plain}
        vars(scaled).update(known)  # these do not depend on the diagonal
        if "prefixes" in vars(self):
            vars(scaled)["prefixes"] = self.prefixes / factor
        return scaled

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.diagonal.shape

    @cached_property
    def reflection(self) -> Reflection:
        """How the filter continues beyond the ends."""
        return Reflection(self.ends, self.diagonal.size)

    @cached_property
    def plain(self) -> Array:
        """The diagonal of S."""
        return self.reflection.diagonal(self.reflection.kernel(self.spectrum))

    @cached_property
    def _root(self) -> Array:
        """The free lags of S^½."""
        return self.reflection.kernel(np.sqrt(self.spectrum))

    def answers_whole(self, tables: Array) -> Array:
        image = tables * self.diagonal
        filtered = self.reflection.apply(self._root, image)
        return np.concatenate([filtered, image @ self.extra.T], axis=-1) if self.extra.size else filtered

    @property
    def squares(self) -> Array:
        return np.asarray(self.diagonal**2 * (self.plain + np.square(self.extra).sum(axis=0)))

    @cached_property
    def _inverse(self) -> Array:
        """The free lags of K."""
        return self.reflection.kernel(1 / self.spectrum)

    @cached_property
    def _correction(self) -> Array:
        """Z."""
        if not self.extra.size:
            return self.extra
        image = self.reflection.apply(self._inverse, self.extra)  # UK
        triangle = np.linalg.cholesky(np.eye(len(image)) + image @ self.extra.T)
        return np.asarray(np.linalg.solve(triangle, image))

    def _column_products(self) -> Products:
        if self.diagonal.size <= MOST_CELLS:
            return super()._column_products()
        lags, none = self.reflection.kernel(self.spectrum), np.zeros_like(self.diagonal)
        least = least_product(self.reflection, lags, self.diagonal, self.extra, none)
        return Products.bounded((least - 1 / self.total_variance) / self.leverage)

    def orthonormal(self) -> Self:
        ones = np.ones_like(self.spectrum), np.ones_like(self.diagonal)
        return replace(self, spectrum=ones[0], diagonal=ones[1], extra=self.extra[:0], moved=None)

    # --- variances ---

    def covary_whole(self, rows: Array) -> Array:
        scaled = rows / self.diagonal
        image = self.reflection.apply(self._inverse, scaled)
        if self._correction.size:
            image = image - (scaled @ self._correction.T) @ self._correction
        return np.asarray(image / self.diagonal)

    @cached_property
    def prefixes(self) -> Array:
        r = 1 / self.diagonal
        y = sums_below(self.reflection, self._inverse, r)
        sums = np.cumsum(r * (2 * y + r * self.reflection.diagonal(self._inverse)))
        for row in self._correction:
            sums -= np.cumsum(r * row) ** 2
        return np.asarray(sums)

    @cached_property
    def values(self) -> Array:
        r = 1 / self.diagonal
        plain = self.reflection.diagonal(self._inverse)
        return np.asarray(r**2 * (plain - np.square(self._correction).sum(axis=0)))

    def of_spans(self, first: Indexes, last: Indexes) -> Array:
        width = 1 + int((last - first).max(initial=0))
        if np.any(first > last) or width * max(self.diagonal.size, first.size) > limits().exact_range_work:
            return super().of_spans(first, last)
        result, n = np.zeros(first.shape), self.diagonal.size
        r, rows = 1 / self.diagonal, self._correction / self.diagonal
        lags = self.reflection.lags(self._inverse)
        sign, shift = self.reflection.sign, self.reflection.shift
        for d in range(width):  # short ranges: along the diagonals of V⁻¹
            band = np.full(n - d, lags[d])
            if sign:
                band += sign * lags[d + shift : 2 * n - d + shift - 1 : 2]
            band = r[: n - d] * r[d:] * band - np.einsum("ij,ij->j", rows[:, : n - d], rows[:, d:])
            sums = np.append(0.0, np.cumsum(band))
            wide = last - first >= d
            result[wide] += (2 if d else 1) * (sums[last[wide] - d + 1] - sums[first[wide]])
        return result

    @cached_property
    def _fit(self) -> tuple[Array, Array, float, float]:
        """κ(λ) as a sum of poles: these, their weights, the constant, and the mean relative error."""
        squares, inverse = self.reflection.second_differences, 1 / self.spectrum
        first = min(LOWEST, squares.size // 2)
        least = max(float(squares[first]), 1e-14) / 100
        count = math.ceil(math.log(4_000 / least) / math.log(RATIO))
        poles = least * RATIO ** np.arange(count, dtype=float)
        chosen = np.unique(np.geomspace(first + 1, squares.size, 32 * LOWEST).astype(np.int64)) - 1
        chosen = chosen[squares[chosen] > 0]
        basis = np.column_stack([1 / (squares[chosen, None] + poles), np.ones(chosen.size)])
        basis /= inverse[chosen, None]
        norms = np.sqrt((basis**2).sum(axis=0))
        solution = np.linalg.lstsq(basis / norms, np.ones(chosen.size), rcond=1e-13)[0] / norms
        misfit = float(np.sqrt(np.square(basis @ solution - 1).mean()))
        return poles, np.asarray(solution[:-1]), float(solution[-1]), misfit

    def _crossing(self, low: Indexes, high: Indexes) -> Array:
        """Return the sum of V⁻¹_ij over i ≤ low < j ≤ high, for many pairs."""
        poles, weights, constant, _ = self._fit
        scales, result = 1 / self.diagonal, np.zeros(low.shape)
        for pole, weight in zip(poles.tolist(), weights.tolist(), strict=True):
            if weight:
                result += weight * _resolvent(self.reflection, pole, scales, low, high)
        lowest = self.reflection.second_differences[:LOWEST, None]
        exact = 1 / self.spectrum[:LOWEST]
        left = exact - constant - (1 / (lowest + poles)) @ weights
        terms = [(-1.0, row) for row in self._correction]
        for k in np.flatnonzero(np.abs(left) > 1e-12 * np.abs(exact)).tolist():
            terms += [(left[k], wave) for wave in self.reflection.waves(k)]
        for factor, row in terms:
            sums = np.cumsum(scales * row)
            result += factor * sums[low] * (sums[high] - sums[low])
        return result

    def between_prefixes(self, low: Indexes, high: Indexes) -> Array:
        fixed, other = (high, low) if np.unique(high).size < np.unique(low).size else (low, high)
        ends, which = np.unique(fixed, return_inverse=True)
        if ends.size * self.diagonal.size > limits().exact_range_work and self._fit[-1] < SMOOTH:
            return np.asarray(self.prefixes[low] + self._crossing(low, high))
        result, values = np.empty(low.shape), np.arange(self.diagonal.size)
        step = max(1, CHUNK // self.diagonal.size)
        for start in range(0, ends.size, step):
            rows = (values <= ends[start : start + step, None]).astype(float)
            here = np.flatnonzero(which // step == start // step)
            result[here] = np.cumsum(self.covary_whole(rows), axis=1)[which[here] - start, other[here]]
        return result

    # --- integers ---

    @cached_property
    def _rounded(self) -> Callable[[int], IntegerStrategy]:
        """Rounds to some bits; cached, because it takes seconds, and both planning and measuring need it."""
        return cache(lambda bits: self._in_integers(self._round(bits)))

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        return self._rounded(max(bits, (bits + 12) // 2))  # filters need more bits than other strategies

    def _round(self, bits: int) -> Mirrored:
        n, amplitude = self.diagonal.size, self._root
        scale = 2.0 ** (bits + max(0, (n.bit_length() + 1) // 2 - 6)) / float(np.abs(amplitude).max())
        finest = 2**bits - 1
        diagonal = np.maximum(1, np.floor(self.diagonal * (finest / self.diagonal.max()) * (1 + 1e-12)))
        exact = self.extra * (self.diagonal * finest / (self.diagonal.max() * diagonal))  # so that UD is
        kernel, extra = (np.rint(scale * rows).astype(np.int64) for rows in (amplitude, exact))
        shift = np.zeros(n + len(extra), dtype=np.int64)
        plain = Mirrored(self.ends, kernel, diagonal.astype(np.int64), extra, shift)
        whole = self._unshifted(plain)
        if whole.spectrum.min() <= 0.0:
            return plain  # frequencies are lost
        return replace(plain, shift=np.rint(whole.answers_whole(whole.balance)).astype(np.int64))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        factor = cast("Mirrored", rounded.factors[0][1])
        kept = factor.shift.any() or self._unshifted(factor).spectrum.min() > 0  # if not, none is shifted
        return 1.0 if kept else math.inf

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        assert isinstance(factor, Mirrored)  # noqa: S101 - the registry chooses by kind
        whole = cls._unshifted(factor)
        return whole.around_shift(factor, factor.shift) if whole.spectrum.min() > 0 else whole

    @classmethod
    def _unshifted(cls, factor: Mirrored) -> Self:
        """Return V of integer rows before they are shifted; a filter's negative eigenvalues stay negative."""
        root = factor.kernel.astype(float)
        amplitudes = factor.reflection.eigenvalues(root)
        spectrum = amplitudes * np.abs(amplitudes)
        whole = cls(factor.ends, spectrum, factor.diagonal.astype(float), factor.extra.astype(float))
        vars(whole)["_root"] = root  # known, unless an amplitude is negative
        return whole

    def _is_sound(self) -> bool:
        n, arrays = self.diagonal.size, (self.spectrum, self.diagonal)
        if not n or self.diagonal.ndim != 1 or self.spectrum.shape != (self.reflection.frequencies,):
            return False
        if self.extra.shape[1] != n or len(self.extra) > MOST_ROWS:
            return False
        if np.abs(self.extra).max(initial=0.0) > LARGEST:
            return False
        if not all(array.min() > 1 / LARGEST and array.max() < LARGEST for array in arrays):
            return False
        return bool(self.spectrum.min() > CLOSE**2 * self.spectrum.max() / n)


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
    """Return Σ_{j<i} lags[i+j]·x_j: directly within small blocks, else by convolutions."""
    levels = (x.size // LOWEST).bit_length()
    half = -(-x.size // 2**levels)
    size = half << levels
    values, lags = (np.append(array, np.zeros(2 * size))[: 2 * size] for array in (x, lags))
    values, result = values[:size], np.zeros(size)
    for i in range(1, half):
        within = lags.reshape(-1, 2 * half)[:, i : 2 * i], values.reshape(-1, half)[:, :i]
        result[i::half] = np.einsum("ij,ij->i", *within)
    while half < size:
        length = smooth_length(2 * half)
        seen = np.fft.rfft(lags.reshape(-1, 4 * half)[:, half : 3 * half - 1], length)
        left = np.fft.rfft(values.reshape(-1, 2 * half)[:, :half], length)
        result.reshape(-1, 2 * half)[:, half:] += np.fft.irfft(seen * left.conj(), length)[:, :half]
        half *= 2
    return result[: x.size]


def _resolvent(reflection: Reflection, pole: float, scales: Array, low: Indexes, high: Indexes) -> Array:
    """Return the sum of r_i K_ij r_j over i ≤ low < j ≤ high, for K with eigenvalues 1/(λ + pole)."""
    from scipy.signal import lfilter  # noqa: PLC0415 - loading it takes longer than a small plan

    values = np.arange(reflection.size)
    phi = 2 * math.asinh(math.sqrt(pole) / 2)
    decay = math.exp(-phi)
    ahead = lfilter([1.0], [1.0, -decay], scales)  # Σ_{i≤l} r_i e^(−φ(l−i))
    behind = lfilter([0.0, decay], [1.0, -decay], scales[::-1])[::-1]  # Σ_{j>l} r_j e^(−φ(j−l))
    result = ahead[low] * (behind[low] - np.exp(-phi * (high - low)) * behind[high])
    sign, period = reflection.period
    falling = np.cumsum(scales * np.exp(-phi * values))
    rising = np.cumsum(scales * np.exp(-phi * (period - values)))
    result = result + sign * falling[low] * (rising[high] - rising[low])
    if reflection.sign:
        far = math.exp(-phi * reflection.shift)
        result = result + reflection.sign * far * falling[low] * (falling[high] - falling[low])
        half = (period - reflection.shift) / 2
        back = np.cumsum(scales * np.exp(-phi * (half - values)))
        result = result + reflection.sign * sign * back[low] * (back[high] - back[low])
    return np.asarray(result / (2 * math.sinh(phi) * (1 - sign * math.exp(-phi * period))))
