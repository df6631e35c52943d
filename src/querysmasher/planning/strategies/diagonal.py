"""Strategies that are diagonal in a product basis: one weight per product of basis rows, one row per axis.

V = Σ_k h[k] b_k b_kᵀ. With β the dual basis, a query q has the coefficients q·β_k, its variance is
Σ_k (q·β_k)²/h[k], and products of queries have products of coefficients.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import TIE, Array, along_axes, pseudo_inverse
from querysmasher.errors import PlanError
from querysmasher.fields import floats, items
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.planning.strategies.dense import FAINT, Span, round_rows
from querysmasher.planning.strategies.strategy import (
    CLOSE,
    LARGEST,
    AxisRows,
    Strategy,
    is_inside,
    is_residual,
    squared_lengths,
)
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Filter, Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy

GRAIN = 64
"""Noise variances within a diagonal strategy are integer multiples near 2^(level/64), so that few differ."""


class BasisStrategy(Strategy):
    """A strategy that is diagonal in a product basis."""

    weights: Array
    """h, zero where nothing is measured."""

    @abstractmethod
    def _analysed(self, rows: Array, lead: int) -> Array:
        """Return the coefficients of tensors over the axes after the first `lead`."""

    @abstractmethod
    def _combined(self, coefficients: Array, lead: int) -> Array:
        """Return the combination of dual rows: the transpose of `_analysed`."""

    @abstractmethod
    def _energies(self, rows: Array, axes: Sequence[int]) -> Array:
        """Return the squared coefficients of rows over some axes, with an axis for each."""

    @property
    def rank(self) -> int:
        return int(np.count_nonzero(self.weights))

    @cached_property
    def _inverse(self) -> Array:
        """1/h, zero where nothing is measured."""
        return np.divide(1, self.weights, out=np.zeros(self.weights.shape), where=self.weights > 0)

    def transform(self, rows: Array) -> Array:
        lead = rows.ndim - len(self.shape)
        return (self._analysed(rows, lead) * np.sqrt(self._inverse)).reshape(*rows.shape[:lead], -1)

    def covary(self, rows: Array) -> Array:
        lead = rows.ndim - len(self.shape)
        return self._combined(self._analysed(rows, lead) * self._inverse, lead)

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        result = self._inverse.transpose([axis for axes, _ in factors for axis in axes])
        for number, (axes, rows) in enumerate(factors):
            energies = self._energies(rows.reshape(-1, *(self.shape[a] for a in axes)), axes)
            kept = range(number, number + len(axes))
            result = np.tensordot(energies, result, axes=(range(1, energies.ndim), kept))
            result = np.moveaxis(result, 0, number)
        return result

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        if self.rank == math.prod(n - 1 for n in self.shape):
            return True
        inside = self.orthonormal().variances(factors)
        return is_inside(inside, squared_lengths(factors), math.prod(self.shape))


@dataclass(frozen=True, eq=False)
class DiagonalStrategy(BasisStrategy):
    """Rows √h[k] · (⊗ Bᵢ)[k]: one basis per axis, and a weight per product of basis rows."""

    kind = "diagonal"
    stored: ClassVar = {
        "bases": lambda bases: tuple(floats(basis, 2) for basis in items(bases)),
        "weights": floats,
    }

    bases: tuple[Array, ...]
    weights: Array

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(b.shape[1] for b in self.bases)

    @cached_property
    def inverses(self) -> tuple[Array, ...]:
        """The pseudo-inverse of every axis's basis."""
        return tuple(pseudo_inverse(b) for b in self.bases)

    def _analysed(self, rows: Array, lead: int) -> Array:
        return along_axes(rows, lead, self.inverses)

    def _combined(self, coefficients: Array, lead: int) -> Array:
        return along_axes(coefficients, lead, [inverse.T for inverse in self.inverses])

    def _energies(self, rows: Array, axes: Sequence[int]) -> Array:
        return np.asarray(along_axes(rows, 1, [self.inverses[a] for a in axes]) ** 2)

    def orthonormal(self) -> DiagonalStrategy:
        bases = tuple(np.ascontiguousarray(np.linalg.qr(b.T)[0].T) for b in self.bases)
        return DiagonalStrategy(bases, np.ones(self.weights.shape))

    def written_out(self) -> Array:
        product = reduce(lambda left, right: np.asarray(np.kron(left, right)), self.bases)
        return np.asarray(np.sqrt(self.weights).reshape(-1, 1) * product)

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        """Round the basis of every axis; the noise compensates for the lengths of its rows.

        If the rows of an axis do not span its residual space, cells that they do not distinguish are rounded
        as one, and faint rows complete the rest, so that rounding stays inside the measured space.
        """
        factors, squares, weights = [], [], self.weights
        for axis, (basis, centre) in enumerate(zip(self.bases, centres, strict=True)):
            rows, back = _merged_and_completed(basis, centre)
            lengths = np.abs(rows).max(axis=1)
            added = [(0, len(rows) - len(basis) if a == axis else 0) for a in range(weights.ndim)]
            spread = [-1 if a == axis else 1 for a in range(weights.ndim)]
            weights = np.pad(weights, added) * (lengths**2).reshape(spread)
            rows = rows / lengths[:, None]
            joined = np.zeros(rows.shape[1], dtype=np.int64)
            np.add.at(joined, back, centre)
            joined //= np.gcd.reduce(joined)
            factors.append(((axis,), Matrix(round_rows(rows, [joined], bits)[:, back])))
            squares.append(rows**2)
        faint = weights == 0
        if faint.any():
            leverage, more = (float(along_axes(w, 0, squares).max()) for w in (weights, faint.astype(float)))
            weights = np.where(faint, FAINT**2 * leverage / more, weights)
        levels = np.round(-GRAIN * np.log2(weights / weights.max()))
        multipliers = np.round(2.0 ** (10 + levels / GRAIN)).astype(np.int64)
        return IntegerStrategy(self.shape, tuple(factors), multipliers)

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        again = self.of_integers(rounded)
        spans = [Span.of(basis) for basis in again.bases]
        if not all(span.is_independent() for span in spans):
            return math.inf
        squares = [(rows @ span.inverse) ** 2 for rows, span in zip(self.bases, spans, strict=True)]
        variances = along_axes(1 / again.weights, 0, [s.T for s in squares]) * self.weights
        return float(variances.max()) * float(squared_sensitivity(rounded))

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        axes, factors = zip(*rounded.factors, strict=True)
        if axes != tuple((a,) for a in range(len(rounded.shape))):
            raise PlanError("strategy: expected one factor on all axes in order, or one per axis")
        matrices = tuple(factor.written_out() for factor in factors)
        noise = np.ones(tuple(map(len, matrices))) if rounded.multipliers is None else rounded.multipliers
        return cls(matrices, 1.0 / noise)

    def undone(self, rounded: IntegerStrategy, answers: Array) -> Array:  # noqa: ARG002
        tensor = np.moveaxis(answers, 0, -1).reshape(*answers.shape[1:], *self.weights.shape)
        return self._combined(tensor, answers.ndim - 1).reshape(*answers.shape[1:], -1)

    @property
    def leverage(self) -> float:
        return float(along_axes(self.weights, 0, [b**2 for b in self.bases]).max())

    def _is_sound(self) -> bool:
        bases, weights = self.bases, self.weights
        if not bases or weights.shape != tuple(map(len, bases)) or not weights.size:
            return False
        if not 1 / LARGEST < weights.min() <= weights.max() < LARGEST:
            return False
        return all(np.abs(b).max(initial=0.0) < LARGEST and Span.of(b).is_independent() for b in bases)

    def stands_on(self, centres: Sequence[Centre]) -> bool:
        return all(is_residual(basis, [c]) for basis, c in zip(self.bases, centres, strict=True))


@dataclass(frozen=True, eq=False)
class FourierStrategy(BasisStrategy):
    """A filter: each row is the same weighted sum of the cells around one cell, wrapping at the ends.

    V is diagonal in the Fourier basis, with entries `weights`, and B its root: the convolution with one
    real filter. Fast Fourier transforms do all the work; no matrix is written out.
    """

    kind = "filter"
    stored: ClassVar = {"weights": floats}

    weights: Array
    """|filter's Fourier transform|², zero wherever a frequency is zero along some axis."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.weights.shape

    def _analysed(self, rows: Array, lead: int) -> Array:
        """Return Hartley's transform: real and orthonormal, with the energy of Fourier's."""
        image = np.fft.fftn(rows, axes=range(lead, rows.ndim), norm="ortho")
        return np.asarray(image.real - image.imag)

    def _combined(self, coefficients: Array, lead: int) -> Array:
        return self._analysed(coefficients, lead)

    def _energies(self, rows: Array, axes: Sequence[int]) -> Array:  # noqa: ARG002
        return np.abs(np.fft.fftn(rows, axes=range(1, rows.ndim), norm="ortho")) ** 2

    def orthonormal(self) -> FourierStrategy:
        return FourierStrategy((self.weights > 0).astype(float))

    def written_out(self) -> Array:
        cells = self.weights.size
        image = self._analysed(np.eye(cells).reshape(cells, *self.shape), 1)
        return self._combined(image * np.sqrt(self.weights), 1).reshape(cells, cells)

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        """Round the filter with the roots of the spectrum as amplitudes; it sums to zero along every axis."""
        kernel = np.fft.ifftn(np.sqrt(self.weights)).real.reshape(1, -1)
        ones = [np.ones(n, dtype=np.int64) for n in self.shape]
        rows = round_rows(kernel, ones, bits).reshape(self.shape)
        return self._in_integers(Filter(np.ascontiguousarray(rows)))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        lost = (self.of_integers(rounded).weights == 0) & (self.weights > 0)
        return math.inf if lost.any() else 1.0

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        assert isinstance(factor, Filter)  # noqa: S101 - the registry chooses by kind
        return cls(_spectrum(factor))

    @property
    def leverage(self) -> float:
        return float(self.weights.mean())

    def _is_sound(self) -> bool:
        spectrum = self.weights
        if not spectrum.ndim or not spectrum.any() or spectrum.min() < 0 or spectrum.max() > LARGEST:
            return False
        mirrored = spectrum[np.ix_(*(-np.arange(n) % n for n in spectrum.shape))]
        if np.abs(spectrum - mirrored).max() > CLOSE * spectrum.max():
            return False
        if any(np.take(spectrum, 0, axis=axis).any() for axis in range(spectrum.ndim)):
            return False
        return bool(spectrum[spectrum > 0].min() >= 1 / LARGEST)

    def stands_on(self, centres: Sequence[Centre]) -> bool:
        return all(np.ptp(centre.weights) <= CLOSE * centre.weights[0] for centre in centres)


def _merged_and_completed(basis: Array, centre: Integers) -> tuple[Array, NDArray[np.intp]]:
    """Return rows over merged cells that span their residual space, and the merged cell of every cell."""
    if len(basis) == basis.shape[1] - 1:
        return basis, np.arange(basis.shape[1])
    scaled = np.round(basis / np.abs(basis).max(axis=1, keepdims=True), 10) + 0.0
    _, first, back = np.unique(scaled, axis=1, return_index=True, return_inverse=True)
    roots = np.sqrt(np.bincount(back))  # in these coordinates rows have the lengths they have over the cells
    taken = np.concatenate([np.bincount(back, weights=centre)[None, :] / roots, basis[:, first] * roots])
    turned, _ = np.linalg.qr(taken.T, mode="complete")
    return np.concatenate([basis[:, first], turned[:, len(taken) :].T / roots]), back


def _spectrum(factor: Filter) -> Array:
    """Return the squared amplitudes of a filter, zero where they are rounding error."""
    amplitudes = np.abs(np.fft.fftn(factor.kernel.astype(float)))
    return np.asarray(np.where(amplitudes > TIE * amplitudes.max(), amplitudes, 0.0) ** 2)
