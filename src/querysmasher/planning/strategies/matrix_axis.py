"""Lines of few values, written out: V = BᵀB for any square matrix B of full rank.

Rows in integers need no shift beside them. B − (Bw)1ᵀ is rounded as it is: the result N says next to nothing
along its own centre, and splits exactly around that. So does NᵀN + c11ᵀ for any c, around the same centre and
with the same V_A. A c as large as V itself keeps it far from singular.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.fields import floats
from querysmasher.planning.lattice import Integers
from querysmasher.planning.strategies.axis import AxisStrategy
from querysmasher.planning.strategies.rounding import reduced, scaled
from querysmasher.planning.strategies.strategy import LARGEST, are_rows
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.family import Family
from querysmasher.workload.line import Places


@dataclass(frozen=True, eq=False)
class MatrixAxis(AxisStrategy):
    """Any independent rows over the values of an attribute, as many as values."""

    kind = "line"

    matrix: Array
    """B."""
    moved: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.matrix.shape[1],)

    def scaled(self, factor: float) -> MatrixAxis:
        """Return the strategy with factor × V."""
        return MatrixAxis(self.matrix * math.sqrt(factor))

    @cached_property
    def _inverse(self) -> Array:
        """B⁻¹."""
        return np.asarray(np.linalg.inv(self.matrix))

    @cached_property
    def _covariance(self) -> Array:
        """V⁻¹."""
        return np.asarray(self._inverse @ self._inverse.T)

    @cached_property
    def _of_prefixes(self) -> Array:
        """The covariances of all prefixes, after a row and a column of zeros."""
        found = np.zeros([self.shape[0] + 1] * 2)
        found[1:, 1:] = self._covariance.cumsum(axis=0).cumsum(axis=1)
        return found

    def covary_whole(self, rows: Array) -> Array:
        return rows @ self._covariance

    def transform_whole(self, rows: Array) -> Array:
        return rows @ self._inverse

    def whole_variances(self, family: Family) -> Array:
        base = family.original
        spans = base.spans()
        if spans is None:
            image = base.matrix() @ self._inverse
            return np.einsum("ij,ij->i", image, image)
        return self._of_spans(*spans)

    def _of_spans(self, first: Places, last: Places) -> Array:
        """Return the variances of sums of consecutive values, perhaps around the end."""
        found = self._of_prefixes
        low, high = first, last + 1
        result = found[low, low] + found[high, high] - 2 * found[low, high]
        around = first > last  # the total less what lies between
        if around.any():
            n = self.shape[0]
            across = found[low[around], n] - found[high[around], n]
            result[around] += found[n, n] - 2 * across
        return np.asarray(result)

    def whole_loss(self, family: Family, *, weighted: bool = True) -> float:
        own = family if weighted else family.original
        if own.closed_form:
            return float(np.vdot(own.gram(), self._covariance))
        weights = own.weights if weighted else None
        variances = self.whole_variances(own)
        return float(variances.sum() if weights is None else weights @ variances)

    def orthonormal(self) -> MatrixAxis:
        return MatrixAxis(np.eye(self.shape[0]))

    def written_out(self) -> Array:
        return self.matrix - (self.matrix @ self.centre)[:, None]

    @property
    def spread(self) -> float:
        lengths = np.linalg.norm(self.matrix, axis=1)
        return float(lengths.max() / lengths.min()) if lengths.all() else math.inf

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        rows = scaled(self.written_out(), bits)
        left = self.matrix @ self.balance  # the combination of rows that is nothing before they are rounded
        along, place = float(left @ (rows @ self.balance)), np.abs(left).argmax()
        if abs(along) < abs(left[place]) / 2:  # a unit more keeps them independent
            rows[place] += 1 if along * left[place] > 0 else -1
        return IntegerStrategy(self.shape, (((0,), Matrix(reduced(rows, bits))),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        own = type(self).of_integers(rounded)
        assert own is not None  # noqa: S101 - rounded by this class
        change = own.variances([((0,), self.written_out())]).max()
        return float(change) * own.leverage

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        (axes, factor), *others = strategy.factors
        square = isinstance(factor, Matrix) and factor.rows == factor.cells > 1
        if others or len(axes) != 1 or strategy.multipliers is not None or not square:
            return None
        rows = factor.written_out()
        total = np.full((1, len(rows)), math.sqrt(np.square(rows).sum(axis=0).max()))
        return cls(np.asarray(np.linalg.qr(np.vstack([rows, total]), mode="r")))

    @property
    def leverage(self) -> float:
        return float((self.written_out() ** 2).sum(axis=0).max())

    def is_sound(self) -> bool:
        matrix = self.matrix
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
            return False
        return bool(np.abs(matrix).max() < LARGEST) and are_rows(matrix)

    def to_data(self) -> dict[str, Any]:
        return {"matrix": self.matrix}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(floats(data["matrix"], 2))
