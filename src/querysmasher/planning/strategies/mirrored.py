"""Mirrored filters: strategies for attributes of up to a million values, by fast Fourier transforms.

V = D(S + UᵀU)D, where S is a filter that reflects at the ends of the attribute (`reflection`), D a
diagonal, and U has few rows, or none. With K = S⁻¹, a filter of the same kind, and r = 1/d,

    V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹,   Z = (I + UKUᵀ)^(-1/2) UK      (Woodbury).

The variances of queries follow from these (`line_variances`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.fields import floats, text
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.line_variances import LineVariances
from querysmasher.planning.strategies.on_line import LineStrategy
from querysmasher.planning.strategies.strategy import CLOSE, FAINTEST, LARGEST
from querysmasher.privacy.factors import Mirrored, Reflection
from querysmasher.privacy.factors.mirrored import MOST_ROWS
from querysmasher.privacy.factors.reflection import NAMES
from querysmasher.privacy.integer_plan import IntegerStrategy


@dataclass(frozen=True, eq=False)
class MirroredStrategy(LineStrategy):
    """A filter that reflects at both ends of an attribute, and a few smooth rows, times a diagonal."""

    kind = "mirrored"

    ends: str
    """How the filter continues beyond the ends: a name of `reflection`."""
    spectrum: Array
    """The eigenvalues of S."""
    diagonal: Array
    extra: Array
    """U: a few further rows, possibly none."""
    inverse: Array | None = None
    """The free lags of K = S⁻¹, if they are known already."""

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

    @cached_property
    def _kernel(self) -> Array:
        """The free lags of K = S⁻¹."""
        return self.reflection.kernel(1 / self.spectrum) if self.inverse is None else self.inverse

    @cached_property
    def _correction(self) -> Array:
        """Z: with it, V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹."""
        if not self.extra.size:
            return self.extra
        image = self.reflection.apply(self._kernel, self.extra)
        triangle = np.linalg.cholesky(np.eye(len(image)) + image @ self.extra.T)
        return np.asarray(np.linalg.solve(triangle, image))

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

    @cached_property
    def of_line(self) -> LineVariances:
        """The variances of queries."""
        return LineVariances(
            self.reflection, 1 / self.spectrum, self._kernel, self.diagonal, self._correction
        )

    # --- integers ---

    def _round(self, bits: int) -> IntegerStrategy:
        n = self.rank
        amplitude = self.reflection.kernel(np.sqrt(self.spectrum))
        filter_bits = max(bits, min(bits + 3, limits().filter_bits)) + max(0, (n.bit_length() + 1) // 2 - 6)
        scale = 2.0**filter_bits / float(np.abs(amplitude).max())
        kernel = np.rint(scale * amplitude).astype(np.int64)
        finest = 2 ** max(bits, min(bits + 4, limits().diagonal_bits)) - 1
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
        ends, amplitudes, diagonal, extra, inverse = line
        return cls(ends, amplitudes**2, diagonal, extra, inverse)

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
