"""What is measured for one block of a subworkload, and how precisely queries follow from it.

A strategy stands for rows B with V = BᵀB and max_j V[j,j] = 1: measuring Bx with noise of variance σ²
costs 1/σ² of privacy budget and answers a query q in the span of B with variance σ² · q V† qᵀ.
Reconstruction goes through the pseudo-inverse, so that variance is the squared length of q B†.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from querysmasher.arrays import Array, along_axes, pseudo_inverse, solve_upper
from querysmasher.planning.lattice import Integers

Factor = tuple[tuple[int, ...], Array]
"""Axes of the block, increasing, and query rows over their cells; factors multiply to product queries."""

CHUNK = 20_000_000
"""How many numbers an intermediate array may hold."""

OUTSIDE = 1e-6
"""A query further than this fraction of its length from the span of a strategy is outside it."""


ROUNDING = 2e-16
"""The relative rounding error of a sum, per number added, at most."""


class Strategy(Protocol):
    """A strategy for one block."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the block's axes."""
        ...

    @property
    def rank(self) -> int:
        """How many numbers are measured."""
        ...

    def transform(self, rows: Array) -> Array:
        """Return q B† for tensors q over the block: its squared length is the variance of q at σ² = 1."""
        ...

    def variances(self, factors: Sequence[Factor]) -> Array:
        """Return the variance of every product of one row per factor, as an array with an axis per factor."""
        ...

    def contains(self, factors: Sequence[Factor]) -> bool:
        """Tell whether all products of the factors' rows lie in the span of the strategy."""
        ...


@dataclass(frozen=True, eq=False)
class DenseStrategy:
    """Any rows over the block's cells, linearly independent."""

    shape: tuple[int, ...]
    matrix: Array
    lattice: Integers | None = None
    """Whole-number rows with the same span, where that is not the whole residual space."""

    @property
    def rank(self) -> int:
        return len(self.matrix)

    @cached_property
    def _orthonormal(self) -> tuple[Array, Array]:
        """An orthonormal basis Q of the row space (cells × rank), and T with Bᵀ = Q T."""
        basis, triangle = np.linalg.qr(self.matrix.T)
        return basis, triangle

    @cached_property
    def inverse(self) -> Array:
        """The pseudo-inverse B† (cells × rank)."""
        basis, triangle = self._orthonormal
        return solve_upper(triangle, basis.T).T

    @cached_property
    def lattice_coefficients(self) -> Array:
        """The rows as combinations of the lattice's."""
        assert self.lattice is not None  # noqa: S101 - asked only where there is one
        return self.matrix @ pseudo_inverse(self.lattice.astype(float))

    def transform(self, rows: Array) -> Array:
        flat = rows.reshape(-1, math.prod(self.shape))
        return (flat @ self.inverse).reshape(*rows.shape[: rows.ndim - len(self.shape)], self.rank)

    def variances(self, factors: Sequence[Factor]) -> Array:
        return self._squares(self.inverse, factors)

    def contains(self, factors: Sequence[Factor]) -> bool:
        if self.rank == math.prod(n - 1 for n in self.shape):
            return True  # the whole residual space, in which the rows lie by construction
        lengths, basis = _lengths(factors), self._orthonormal[0]
        if len(factors) == 1:
            ((axes, rows),) = factors
            return _negligible(_lengths([(axes, rows - (rows @ basis) @ basis.T)]), lengths)
        rounding = ROUNDING * math.prod(self.shape) * lengths  # of sums over as many cells
        return _negligible(lengths - self._squares(basis, factors) - rounding, lengths)

    def _squares(self, root: Array, factors: Sequence[Factor]) -> Array:
        """Return the squared lengths of (product row) @ root."""
        if len(factors) == 1:
            image = factors[0][1] @ root
            return np.einsum("ij,ij->i", image, image)
        order = [axis for axes, _ in factors for axis in axes]
        tensor = root.reshape(*self.shape, -1).transpose(*order, -1)
        tensor = tensor.reshape(*(rows.shape[1] for _, rows in factors), -1)
        counts = [len(rows) for _, rows in factors]
        largest = max(math.prod(counts[:i]) * math.prod(tensor.shape[i:-1]) for i in range(len(counts) + 1))
        step = max(1, CHUNK // largest)
        result = np.zeros(counts)
        for start in range(0, tensor.shape[-1], step):
            image = tensor[..., start : start + step]
            for place, (_, rows) in enumerate(factors):
                image = np.moveaxis(np.tensordot(rows, image, axes=(1, place)), 0, place)
            result += np.einsum("...k,...k->...", image, image)
        return result


@dataclass(frozen=True, eq=False)
class DiagonalStrategy:
    """Rows √h[k] · (⊗ Bᵢ)[k]: one basis per axis, and a weight per product of basis rows."""

    bases: tuple[Array, ...]
    weights: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(b.shape[1] for b in self.bases)

    @property
    def rank(self) -> int:
        return self.weights.size

    @cached_property
    def inverses(self) -> tuple[Array, ...]:
        """The pseudo-inverse of every axis's basis."""
        return tuple(pseudo_inverse(b) for b in self.bases)

    def transform(self, rows: Array) -> Array:
        lead = rows.ndim - len(self.shape)
        rows = along_axes(rows, lead, self.inverses) / np.sqrt(self.weights)
        return rows.reshape(*rows.shape[:lead], -1)

    def variances(self, factors: Sequence[Factor]) -> Array:
        order = [axis for axes, _ in factors for axis in axes]
        result = (1 / self.weights).transpose(order)
        for place, (axes, rows) in enumerate(factors):
            image = along_axes(
                rows.reshape(-1, *(self.shape[a] for a in axes)), 1, [self.inverses[a] for a in axes]
            )
            kept = list(range(place, place + len(axes)))
            result = np.tensordot(image**2, result, axes=(list(range(1, 1 + len(axes))), kept))
            result = np.moveaxis(result, 0, place)
        return result

    def contains(self, factors: Sequence[Factor]) -> bool:
        if self.rank == math.prod(n - 1 for n in self.shape):
            return True
        projectors = [inverse @ basis for inverse, basis in zip(self.inverses, self.bases, strict=True)]
        for axes, rows in factors:
            image = along_axes(
                rows.reshape(-1, *(self.shape[a] for a in axes)), 1, [projectors[a] for a in axes]
            )
            outside = (axes, rows - image.reshape(rows.shape))
            if not _negligible(_lengths([outside]), _lengths([(axes, rows)])):
                return False
        return True


@dataclass(frozen=True, eq=False)
class FourierStrategy:
    """A filter: every cell is asked for the same sum of the cells around it, going round at the ends.

    V is diagonal in the Fourier basis, with entries `spectrum`, and B its root: the convolution with one
    real filter. All work is done by fast Fourier transforms; no matrix is ever written out.
    """

    spectrum: Array
    """|filter's Fourier transform|², zero wherever a frequency is zero along some axis."""

    @property
    def shape(self) -> tuple[int, ...]:
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

    def variances(self, factors: Sequence[Factor]) -> Array:
        return self._weighted(factors, self._inverse)

    def contains(self, factors: Sequence[Factor]) -> bool:
        outside = (self.spectrum == 0).astype(float)
        outside[np.ix_(*([0] for _ in self.shape))] = 0.0
        return _negligible(self._weighted(factors, outside), _lengths(factors))

    def _weighted(self, factors: Sequence[Factor], weights: Array) -> Array:
        """Return Σ over the frequencies of weight × energy, for every product of one row per factor."""
        result = weights.transpose([axis for axes, _ in factors for axis in axes])
        for place, (axes, rows) in enumerate(factors):
            tensor = rows.reshape(-1, *(self.shape[a] for a in axes))
            image = np.abs(np.fft.fftn(tensor, axes=range(1, tensor.ndim))) ** 2 / tensor[0].size
            kept = list(range(place, place + len(axes)))
            result = np.tensordot(image, result, axes=(list(range(1, tensor.ndim)), kept))
            result = np.moveaxis(result, 0, place)
        return result


def _negligible(outside: Array, lengths: Array) -> bool:
    """Tell whether squared lengths outside a span are rounding error, next to the whole lengths."""
    allowed = np.maximum(OUTSIDE**2 * lengths, 1e-24 * lengths.max(initial=0.0))
    return bool(np.all(outside <= allowed))


def _lengths(factors: Sequence[Factor]) -> Array:
    """Return the squared length of every product of one row per factor."""
    result = np.ones(())
    for _, rows in factors:
        result = np.multiply.outer(result, np.einsum("ij,ij->i", rows, rows))
    return result
