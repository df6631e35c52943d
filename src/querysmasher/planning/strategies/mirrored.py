"""Mirrored filters: strategies for attributes of up to a million values, by fast Fourier transforms.

V = D(S + UᵀU)D, where S is a filter that reflects at the ends of the attribute (`reflection`), D a
diagonal, and U has few rows, or none. With K = S⁻¹, a filter of the same kind, and r = 1/d,

    V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹,   Z = (I + UKUᵀ)^(-1/2) UK      (Woodbury).

The variances of all prefixes follow from sums below the diagonal (`halving`): with y_i = Σ_{j<i} K_ij r_j,
Var_i − Var_{i−1} = r_i(2y_i + r_i K_ii). The sum of the variances of all ranges, or circular ranges, is a
sum of r_i K_ij r_j times a polynomial in i and j below the diagonal, and follows from such sums too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.fields import floats, text
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.cuts import crossing
from querysmasher.planning.strategies.halving import sums_below
from querysmasher.planning.strategies.strategy import CLOSE, FAINTEST, LARGEST
from querysmasher.planning.strategies.unsplit import UnsplitStrategy
from querysmasher.privacy.factors import Mirrored, Reflection
from querysmasher.privacy.factors.mirrored import MOST_ROWS
from querysmasher.privacy.factors.reflection import NAMES
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.families import Circular, Identity, Prefix, Range
from querysmasher.workload.family import Family, Places
from querysmasher.workload.weighted import Weighted

DENSE = 2_000
"""Maximum number of values of an attribute whose V⁻¹ is written out for the variances of ranges."""

EXACT_WORK = 5e7
"""Maximum of values × distinct ends of ranges that are computed one by one, exactly."""

LEAST_DIAGONAL_BITS, LEAST_FILTER_BITS = 10, 9
"""With fewer, rounding costs more than for other strategies, so the filter takes some bits of theirs."""


@dataclass(frozen=True, eq=False)
class MirroredStrategy(UnsplitStrategy):
    """A filter that reflects at both ends of an attribute, and a few smooth rows, times a diagonal."""

    kind = "mirrored"

    ends: str
    """How the filter continues beyond the ends: a name of `reflection`."""
    spectrum: Array
    """The eigenvalues of S."""
    diagonal: Array
    extra: Array
    """U: a few further rows, possibly none."""

    @classmethod
    def normalised(cls, ends: str, spectrum: Array, extra: Array) -> Self:
        """Return the strategy whose diagonal makes V[j,j] = 1 for every value."""
        reflection = Reflection(ends, extra.shape[1])
        squares = reflection.diagonal(reflection.kernel(spectrum)) + np.square(extra).sum(axis=0)
        return cls(ends, spectrum, 1 / np.sqrt(squares), extra)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.diagonal.shape

    @cached_property
    def reflection(self) -> Reflection:
        """How the filter continues beyond the ends."""
        return Reflection(self.ends, self.diagonal.size)

    @property
    def rank(self) -> int:
        return self.diagonal.size

    @property
    def spread(self) -> float:
        return 1.0

    @cached_property
    def _kernel(self) -> Array:
        """The free lags of K = S⁻¹."""
        return self.reflection.kernel(1 / self.spectrum)

    @cached_property
    def _correction(self) -> Array:
        """Z: with it, V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹."""
        if not self.extra.size:
            return self.extra
        image = self.reflection.apply(self._kernel, self.extra)
        triangle = np.linalg.cholesky(np.eye(len(image)) + image @ self.extra.T)
        return np.asarray(np.linalg.solve(triangle, image))

    def covary(self, rows: Array) -> Array:
        scaled = rows / self.diagonal
        image = self.reflection.apply(self._kernel, scaled)
        if self.extra.size:
            image = image - (scaled @ self._correction.T) @ self._correction
        return np.asarray(image / self.diagonal)

    def transform(self, rows: Array) -> Array:
        image = self.covary(rows) * self.diagonal
        kernel = self.reflection.kernel(np.sqrt(self.spectrum))
        filtered = self.reflection.apply(kernel, image)
        return np.concatenate([filtered, image @ self.extra.T], axis=-1) if self.extra.size else filtered

    def orthonormal(self) -> MirroredStrategy:
        return MirroredStrategy(
            self.ends, np.ones_like(self.spectrum), np.ones_like(self.diagonal), self.extra[:0]
        )

    def written_out(self) -> Array:
        rows = self.reflection.matrix(self.reflection.kernel(np.sqrt(self.spectrum))) * self.diagonal
        return np.vstack([rows, self.extra * self.diagonal])

    # --- variances ---

    @cached_property
    def inverse_ones(self) -> Array:
        return self.covary(np.ones(self.rank))

    @cached_property
    def _inverse_diagonal(self) -> Array:
        """The diagonal of K."""
        return self.reflection.diagonal(self._kernel)

    def _below(self, *powers: int) -> list[Array]:
        """Return y_i = Σ_{j<i} K_ij (j/n)^power r_j for some powers."""
        r, place = 1 / self.diagonal, np.arange(self.rank) / self.rank
        return list(sums_below(self.reflection, self._kernel, np.stack([r * place**p for p in powers])))

    @cached_property
    def prefix_variances(self) -> Array:
        """The variance of every prefix."""
        r = 1 / self.diagonal
        (y,) = self._below(0)
        sums = np.cumsum(r * (2 * y + r * self._inverse_diagonal))
        for row in self._correction:
            sums -= np.cumsum(r * row) ** 2
        return np.asarray(sums)

    @cached_property
    def value_variances(self) -> Array:
        """The variance of every value's count."""
        r = 1 / self.diagonal
        return np.asarray(r**2 * (self._inverse_diagonal - np.square(self._correction).sum(axis=0)))

    def query_variances(self, family: Family) -> Array:
        if family.rows > limits().variances // 8:
            msg = (
                f"workload: {family.rows:,} variances ({family} of {self.rank:,} values) do not fit in "
                "memory; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        base = family.base if isinstance(family, Weighted) else family
        if isinstance(base, Identity):
            return self.value_variances
        if isinstance(base, Prefix):
            return self.prefix_variances
        spans = base.spans()
        if spans is None:
            rows = base.matrix()
            return np.einsum("ij,ij->i", rows, self.covary(rows))
        return self._of_spans(*spans)

    def _of_spans(self, first: Places, last: Places) -> Array:
        """Return the variances of sums of consecutive values."""
        n = self.rank
        around = first > last  # the complement of what lies between: its variance needs two cuts as well
        before, until = first - 1, last
        prefixes = np.append(self.prefix_variances, 0.0)  # index −1: nothing
        low, high = np.minimum(before, until), np.maximum(before, until)
        shared = np.zeros(first.shape)
        inner = low >= 0
        shared[inner] = self._between_prefixes(low[inner], high[inner])
        result = prefixes[low] + prefixes[high] - 2 * shared
        if around.any():  # 1 − (high prefix − low prefix)
            own = around
            covariance = np.append(np.cumsum(self.inverse_ones), 0.0)
            result[own] += covariance[n - 1] - 2 * (covariance[high[own]] - covariance[low[own]])
        return np.asarray(result)

    def _between_prefixes(self, low: Places, high: Places) -> Array:
        """Return the covariance of two prefixes."""
        if self.rank <= DENSE:
            return np.asarray(self._dense_cumulated[low, high])
        if min(np.unique(low).size, np.unique(high).size) * self.rank > EXACT_WORK:
            cut = crossing(self.reflection, 1 / self.spectrum, 1 / self.diagonal, low, high)
            for row in self._correction:
                sums = np.cumsum(row / self.diagonal)
                cut -= sums[low] * (sums[high] - sums[low])
            return np.asarray(self.prefix_variances[low] + cut)
        result = np.empty(low.shape)
        swap = np.unique(high).size < np.unique(low).size
        fixed, other = (high, low) if swap else (low, high)
        order = np.argsort(fixed, kind="stable")
        ends = np.flatnonzero(np.diff(fixed[order], append=-1))
        start = 0
        place = np.arange(self.rank)
        for end in ends.tolist():
            own = order[start : end + 1]
            running = np.cumsum(self.covary((place <= fixed[own[0]]).astype(float)))
            result[own] = running[other[own]]
            start = end + 1
        return result

    @cached_property
    def _dense_cumulated(self) -> Array:
        """The covariances of all prefixes."""
        inverse = self.reflection.matrix(self._kernel) - self._correction.T @ self._correction
        inverse /= np.outer(self.diagonal, self.diagonal)
        return np.asarray(inverse.cumsum(axis=0).cumsum(axis=1))

    def loss(self, family: Family, *, weighted: bool = True) -> float:
        base = family.base if isinstance(family, Weighted) else family
        weights = family.weights if weighted else None
        if weights is None and isinstance(base, Range):
            return self._all_ranges()
        if weights is None and isinstance(base, Circular):
            return self._all_circular()
        variances = self.query_variances(base)
        return float(variances.sum() if weights is None else weights @ variances)

    def _all_ranges(self) -> float:
        """Return Σ_ij V⁻¹_ij (min+1)(n−max)."""
        n, r, place = self.rank, 1 / self.diagonal, np.arange(self.rank)
        zero, one = self._below(0, 1)
        below = n * one + zero
        total = float((r * (n - place)) @ (2 * below + (place + 1) * r * self._inverse_diagonal))
        for row in self._correction:
            sums = np.append(np.cumsum(r * row), 0.0)
            total -= float((n + 1) * (sums @ sums) - sums.sum() ** 2)
        return total

    def _all_circular(self) -> float:
        """Return Σ_ij V⁻¹_ij (d² − nd + n(n+1)/2) with d = |i − j|."""
        n, r, place = self.rank, 1 / self.diagonal, np.arange(self.rank)
        zero, one, two = self._below(0, 1, 2)
        constant = n * (n + 1) / 2
        below = (place * (place - n) + constant) * zero + (n - 2 * place) * n * one + float(n) ** 2 * two
        total = float(r @ (2 * below + constant * r * self._inverse_diagonal))
        for row in self._correction:
            own = r * row
            sums, every = np.cumsum(own) - own, float(own.sum())
            squares = float(n * (sums @ sums) - sums.sum() ** 2)
            apart = float((2 * place - n + 1) @ sums)
            pairs = n * (n - 1) / 2
            total -= 2 * squares + pairs * every**2 - 2 * every * apart + n * every**2
        return total

    # --- integers ---

    @cached_property
    def _rounded(self) -> dict[int, IntegerStrategy]:
        """What `rounded` returned, by bits: planning and measuring ask for the same."""
        return {}

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        if bits not in self._rounded:
            self._rounded[bits] = self._round(bits)
        return self._rounded[bits]

    def _round(self, bits: int) -> IntegerStrategy:
        n = self.rank
        amplitude = self.reflection.kernel(np.sqrt(self.spectrum))
        filter_bits = max(bits, min(bits + 3, LEAST_FILTER_BITS)) + max(0, (n.bit_length() + 1) // 2 - 6)
        scale = 2.0**filter_bits / float(np.abs(amplitude).max())
        kernel = np.rint(scale * amplitude).astype(np.int64)
        finest = 2 ** max(bits, min(bits + 4, LEAST_DIAGONAL_BITS)) - 1
        diagonal = np.maximum(1, np.floor(self.diagonal * (finest / self.diagonal.max()) * (1 + 1e-12)))
        extra = np.rint(scale * self.extra).astype(np.int64)
        made = Mirrored(self.ends, kernel, diagonal.astype(np.int64), extra)
        if made.amplitudes.min() <= 0.0:
            msg = "max_records: it leaves too few bits for exact integer answers; lower max_records"
            raise PlanError(msg)
        return IntegerStrategy(self.shape, (((0,), made),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:  # noqa: ARG002
        return 1.0  # all rows have nearly the same size

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        line = strategy.factors[0][1].line  # only a mirrored filter has one, and it is the only factor
        if line is None:
            return None
        ends, amplitudes, diagonal, extra = line
        return cls(ends, amplitudes**2, diagonal, extra)

    @property
    def leverage(self) -> float:
        squares = self.reflection.diagonal(self.reflection.kernel(self.spectrum))
        squares = squares + np.square(self.extra).sum(axis=0)
        return float((self.diagonal**2 * squares).max())

    def is_sound(self) -> bool:
        if self.diagonal.ndim != 1 or not self.diagonal.size or self.spectrum.ndim != 1:
            return False
        if self.spectrum.size != self.reflection.frequencies:
            return False
        if self.extra.shape[1] != self.rank or len(self.extra) > MOST_ROWS:
            return False
        if self.extra.size and np.abs(self.extra).max() > LARGEST:
            return False
        arrays = (self.spectrum, self.diagonal)
        if not all(array.min() > FAINTEST and array.max() < LARGEST for array in arrays):
            return False
        return bool(self.spectrum.min() > CLOSE**2 * self.spectrum.max() / self.rank)

    def to_data(self) -> dict[str, Any]:
        return {
            "ends": self.ends,
            "spectrum": self.spectrum,
            "diagonal": self.diagonal,
            "extra": self.extra,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            text(data["ends"], NAMES),
            floats(data["spectrum"], 1),
            floats(data["diagonal"], 1),
            floats(data["extra"], 2),
        )
