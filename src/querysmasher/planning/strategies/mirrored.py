"""Mirrored filters: strategies for attributes of up to a million values, by fast Fourier transforms.

V = D(S + UᵀU)D, where S is a filter that reflects at the ends of the attribute (`reflection`), D a
diagonal, and U has few rows, or none. With K = S⁻¹, a filter of the same kind, and r = 1/d,

    V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹,   Z = (I + UKUᵀ)^(-1/2) UK      (Woodbury).

The variances of queries follow from these (`line_variances`). What is measured is V around its own centre
(`axis`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.fields import floats, text
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.axis import AxisStrategy
from querysmasher.planning.strategies.line_variances import LineVariances
from querysmasher.planning.strategies.strategy import CLOSE, FAINTEST, LARGEST
from querysmasher.privacy.factors import Mirrored, Reflection
from querysmasher.privacy.factors.mirrored import MOST_ROWS
from querysmasher.privacy.factors.reflection import NAMES
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.family import Family


@dataclass(frozen=True, eq=False)
class MirroredStrategy(AxisStrategy):
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
    moved: Array | None = None

    @classmethod
    def normalised(cls, ends: str, spectrum: Array, extra: Array) -> Self:
        """Return the strategy whose diagonal makes V[j,j] = 1 for every value."""
        reflection = Reflection(ends, extra.shape[1])
        squares = reflection.diagonal(reflection.kernel(spectrum)) + np.square(extra).sum(axis=0)
        return cls(ends, spectrum, 1 / np.sqrt(squares), extra)

    def scaled(self, factor: float) -> Self:
        """Return the strategy with factor × V."""
        return replace(self, diagonal=self.diagonal * np.sqrt(factor))

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.diagonal.shape

    @cached_property
    def reflection(self) -> Reflection:
        """How the filter continues beyond the ends."""
        return Reflection(self.ends, self.diagonal.size)

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

    def transform_whole(self, rows: Array) -> Array:
        image = self.covary_whole(rows) * self.diagonal
        filtered = self.reflection.apply(self._root, image)
        return np.concatenate([filtered, image @ self.extra.T], axis=-1) if self.extra.size else filtered

    @property
    def _root(self) -> Array:
        """The free lags of S^½."""
        return self.reflection.kernel(np.sqrt(self.spectrum))

    def covary_whole(self, rows: Array) -> Array:
        return self.line.covary(rows)

    def orthonormal(self) -> MirroredStrategy:
        return MirroredStrategy(
            self.ends, np.ones_like(self.spectrum), np.ones_like(self.diagonal), self.extra[:0]
        )

    def written_out(self) -> Array:
        rows = self.reflection.matrix(self._root) * self.diagonal
        rows = np.vstack([rows, self.extra * self.diagonal])
        return rows - (rows @ self.centre)[:, None]

    @cached_property
    def line(self) -> LineVariances:
        """The variances of queries under V."""
        return LineVariances(
            self.reflection, 1 / self.spectrum, self._kernel, self.diagonal, self._correction
        )

    def whole_variances(self, family: Family) -> Array:
        if family.rows > limits().variances // 8:
            msg = (
                f"workload: {family.rows:,} variances ({family} of {self.diagonal.size:,} values) do not fit "
                "in memory; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        return family.original.variances_on(self.line)

    def whole_loss(self, family: Family, *, weighted: bool = True) -> float:
        weights = family.weights if weighted else None
        if weights is None:
            return family.original.loss_on(self.line)
        return float(weights @ self.whole_variances(family.original))

    # --- integers ---

    @property
    def spread(self) -> float:
        return 1.0

    @cached_property
    def _rounded(self) -> dict[int, IntegerStrategy]:
        """What `rounded` returned, by bits: planning and measuring ask for the same."""
        return {}

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        if bits not in self._rounded:
            self._rounded[bits] = self._round(bits)
        return self._rounded[bits]

    def _round(self, bits: int) -> IntegerStrategy:
        n = self.diagonal.size
        amplitude = self._root
        filter_bits = max(bits, min(bits + 3, limits().filter_bits)) + max(0, (n.bit_length() + 1) // 2 - 6)
        scale = 2.0**filter_bits / float(np.abs(amplitude).max())
        kernel = np.rint(scale * amplitude).astype(np.int64)
        finest = 2 ** max(bits, min(bits + 4, limits().diagonal_bits)) - 1
        diagonal = np.maximum(1, np.floor(self.diagonal * (finest / self.diagonal.max()) * (1 + 1e-12)))
        extra = np.rint(scale * self.extra).astype(np.int64)
        shift = np.zeros(n + len(extra), dtype=np.int64)
        plain = Mirrored(self.ends, kernel, diagonal.astype(np.int64), extra, shift)
        if plain.amplitudes.min() <= 0.0:
            msg = "max_records: it leaves too few bits for exact integer answers; lower max_records"
            raise PlanError(msg)
        centre = self._of_factor(plain).balance
        shift = np.rint(plain.plain_answers(centre)).astype(np.int64)
        return IntegerStrategy(self.shape, (((0,), replace(plain, shift=shift)),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:  # noqa: ARG002
        return 1.0  # all rows have nearly the same size

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        factor = strategy.factors[0][1]
        if not isinstance(factor, Mirrored):
            return None
        found = cls._of_factor(factor)
        ahead = found.covary_whole(factor.plain_transposed(factor.shift.astype(float)))  # ĝ
        return replace(found, moved=ahead + (1 - float(ahead.sum())) * found.balance)

    @classmethod
    def _of_factor(cls, factor: Mirrored) -> Self:
        """Return V of integer rows, before they are shifted."""
        inverse = factor.inverse_kernel if factor.rank else None
        return cls(
            factor.ends,
            factor.amplitudes**2,
            factor.diagonal.astype(float),
            factor.extra.astype(float),
            inverse,
        )

    @property
    def leverage(self) -> float:
        squares = self.reflection.diagonal(self.reflection.kernel(self.spectrum))
        squares = squares + np.square(self.extra).sum(axis=0)
        return float((self.diagonal**2 * squares).max()) - 1 / self.total_variance

    def is_sound(self) -> bool:
        if self.diagonal.ndim != 1 or not self.diagonal.size or self.spectrum.ndim != 1:
            return False
        if self.spectrum.size != self.reflection.frequencies:
            return False
        n = self.diagonal.size
        if self.extra.shape[1] != n or len(self.extra) > MOST_ROWS:
            return False
        if self.extra.size and np.abs(self.extra).max() > LARGEST:
            return False
        arrays = (self.spectrum, self.diagonal)
        if not all(array.min() > FAINTEST and array.max() < LARGEST for array in arrays):
            return False
        return bool(self.spectrum.min() > CLOSE**2 * self.spectrum.max() / n)

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
