"""Filters: rows that are shifts of one another, by fast Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError
from querysmasher.fields import floats
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers, project
from querysmasher.planning.strategies.rounding import reduced, round_rows, scaled
from querysmasher.planning.strategies.strategy import (
    CLOSE,
    FAINTEST,
    LARGEST,
    AxisRows,
    Strategy,
    is_negligible,
    squared_lengths,
)
from querysmasher.privacy.factors import Filter
from querysmasher.privacy.integer_plan import IntegerStrategy

NOTHING = 1e-9
"""Frequencies whose amplitude is below this fraction of the largest are not passed on by a filter."""


@dataclass(frozen=True, eq=False)
class FourierStrategy(Strategy):
    """A filter: each row is the same weighted sum of the cells around one cell, wrapping at the ends.

    V is diagonal in the Fourier basis, with entries `spectrum`, and B its root: the convolution with one
    real filter. Fast Fourier transforms do all the work; no matrix is written out.
    """

    kind = "fourier"
    stored: ClassVar = {"spectrum": floats}

    spectrum: Array
    """|filter's Fourier transform|², zero wherever a frequency is zero along some axis."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.spectrum.shape

    @property
    def rank(self) -> int:
        return int(np.count_nonzero(self.spectrum))

    @cached_property
    def _inverse(self) -> Array:
        """The entries of V†."""
        return np.divide(1, self.spectrum, out=np.zeros(self.shape), where=self.spectrum > 0)

    def transform(self, rows: Array) -> Array:
        axes = range(rows.ndim - len(self.shape), rows.ndim)
        image = np.fft.ifftn(np.fft.fftn(rows, axes=axes) * np.sqrt(self._inverse), axes=axes).real
        return np.ascontiguousarray(image).reshape(*rows.shape[: axes[0]], -1)

    def covary(self, rows: Array) -> Array:
        axes = range(rows.ndim - len(self.shape), rows.ndim)
        return np.fft.ifftn(np.fft.fftn(rows, axes=axes) * self._inverse, axes=axes).real

    def orthonormal(self) -> FourierStrategy:
        return FourierStrategy((self.spectrum > 0).astype(float))

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        return self._weighted(factors, self._inverse)

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        outside = (self.spectrum == 0).astype(float)
        outside[np.ix_(*([0] for _ in self.shape))] = 0.0
        return is_negligible(self._weighted(factors, outside), squared_lengths(factors))

    def _weighted(self, factors: Sequence[AxisRows], weights: Array) -> Array:
        """Return Σ over the frequencies of weight × energy, for every product of one row per factor."""
        result = weights.transpose([axis for axes, _ in factors for axis in axes])
        for place, (axes, rows) in enumerate(factors):
            tensor = rows.reshape(-1, *(self.shape[a] for a in axes))
            image = np.abs(np.fft.fftn(tensor, axes=range(1, tensor.ndim))) ** 2 / tensor[0].size
            kept = list(range(place, place + len(axes)))
            result = np.tensordot(image, result, axes=(list(range(1, tensor.ndim)), kept))
            result = np.moveaxis(result, 0, place)
        return result

    @property
    def spread(self) -> float:
        return 1.0

    def written_out(self) -> Array:
        cells = self.spectrum.size
        every = np.eye(cells).reshape(cells, *self.shape)
        axes = range(1, every.ndim)
        image = np.fft.ifftn(np.fft.fftn(every, axes=axes) * np.sqrt(self.spectrum), axes=axes).real
        return np.ascontiguousarray(image.reshape(cells, cells).T)

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        axes = tuple(range(len(self.shape)))
        return IntegerStrategy(self.shape, ((axes, _round(self, bits)),))

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        assert isinstance(factor, Filter)  # noqa: S101 - the registry has seen to it
        return cls(_energies(factor))

    @property
    def leverage(self) -> float:
        return float(self.spectrum.mean())

    def is_sound(self) -> bool:
        spectrum = self.spectrum
        if not spectrum.ndim or not spectrum.size or not spectrum.any():
            return False
        if spectrum.min() < 0 or spectrum.max() > LARGEST:
            return False
        mirrored = spectrum[np.ix_(*(-np.arange(n) % n for n in spectrum.shape))]
        if np.abs(spectrum - mirrored).max() > CLOSE * spectrum.max():
            return False
        if any(np.take(spectrum, 0, axis=axis).any() for axis in range(spectrum.ndim)):
            return False
        return bool(spectrum[spectrum > 0].min() >= FAINTEST)

    def stands_on(self, centres: Sequence[Centre]) -> bool:
        return all(np.ptp(centre.weights) <= CLOSE * centre.weights[0] for centre in centres)


def _energies(factor: Filter) -> Array:
    """Return the squared amplitudes of a filter, zero where they are rounding error."""
    amplitudes = np.abs(np.fft.fftn(factor.kernel.astype(float)))
    return np.asarray(np.where(amplitudes > NOTHING * amplitudes.max(), amplitudes, 0.0) ** 2)


def _round(strategy: FourierStrategy, bits: int) -> Filter:
    """Round the filter whose amplitudes are the roots of the spectrum; it sums to zero along every axis."""
    shape = strategy.shape
    kernel = np.fft.ifftn(np.sqrt(strategy.spectrum)).real.reshape(1, -1)
    ones = [np.ones(n, dtype=np.int64) for n in shape]
    if len(shape) == 1:
        rounded = round_rows(kernel, ones[0], bits)
    else:
        rounded = reduced(project(scaled(kernel, bits), shape, ones), bits)
    made = Filter(np.ascontiguousarray(rounded.reshape(shape)))
    if np.any((_energies(made) == 0) & (strategy.spectrum > 0)):
        msg = "max_records: it leaves too few bits for exact integer answers; lower max_records"
        raise PlanError(msg)
    return made
