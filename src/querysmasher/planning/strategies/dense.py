"""Any rows over the cells of a block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, in_order, solve_upper
from querysmasher.errors import PlanError
from querysmasher.fields import floats, integers, wholes
from querysmasher.planning.centre import Centre, complement
from querysmasher.planning.lattice import Integers, project
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.rounding import (
    are_independent,
    coefficients,
    completed,
    fits_rows,
    reduced,
    round_on_lattice,
    round_rows,
    scaled,
)
from querysmasher.planning.strategies.strategy import (
    CLOSE,
    LARGEST,
    AxisRows,
    Strategy,
    are_rows,
    is_negligible,
    is_residual,
    squared_lengths,
)
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import WORD, Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy

CHUNK = 20_000_000
"""Maximum number of entries of an intermediate array."""

ROUNDING = 2e-16
"""Maximum relative rounding error of a sum, per number added."""

SCALES = tuple(np.linspace(1.0, 0.52, 25).tolist())
"""Scales to try: the largest entry keeps its number of bits."""


@dataclass(frozen=True, eq=False)
class DenseStrategy(Strategy):
    """Any linearly independent rows over the block's cells."""

    kind = "dense"

    shape: tuple[int, ...]
    matrix: Array
    lattice: Integers | None = None
    """Integer rows with the same span, if that is not the whole residual space."""

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
        """The coefficients of the rows in terms of the lattice's rows."""
        assert self.lattice is not None  # noqa: S101 - used only if there is one
        return coefficients(self.matrix, self.lattice.astype(float))

    def transform(self, rows: Array) -> Array:
        flat = rows.reshape(-1, math.prod(self.shape))
        return (flat @ self.inverse).reshape(*rows.shape[: rows.ndim - len(self.shape)], self.rank)

    @cached_property
    def _covariance(self) -> Array:
        """The covariance B† B†ᵀ (cells × cells)."""
        return self.inverse @ self.inverse.T

    def covary(self, rows: Array) -> Array:
        cells = math.prod(self.shape)
        flat = rows.reshape(-1, cells)
        if len(flat) > cells and 2 * self.rank > cells:
            return (flat @ self._covariance).reshape(rows.shape)
        return (self.transform(rows) @ self.inverse.T).reshape(rows.shape)

    def orthonormal(self) -> DenseStrategy:
        return DenseStrategy(self.shape, np.ascontiguousarray(self._orthonormal[0].T))

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        return self._squares(self.inverse, factors)

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        if self.rank == math.prod(n - 1 for n in self.shape):
            return True  # the whole residual space, in which the rows lie by construction
        lengths, basis = squared_lengths(factors), self._orthonormal[0]
        if len(factors) == 1:
            ((axes, rows),) = factors
            return is_negligible(squared_lengths([(axes, rows - (rows @ basis) @ basis.T)]), lengths)
        rounding = ROUNDING * math.prod(self.shape) * lengths  # of sums over as many cells
        return is_negligible(lengths - self._squares(basis, factors) - rounding, lengths)

    def _squares(self, root: Array, factors: Sequence[AxisRows]) -> Array:
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

    @property
    def spread(self) -> float:
        """The ratio of row lengths, or of those of the lattice, whose coefficients are rounded."""
        rounded = [self.matrix] if self.lattice is None else [self.matrix, self.lattice]
        every = [np.linalg.norm(rows, axis=1) for rows in rounded]
        if not all(lengths.all() for lengths in every):
            return math.inf
        return max(float(lengths.max() / lengths.min()) for lengths in every)

    def written_out(self) -> Array:
        return self.matrix

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        axes = tuple(range(len(self.shape)))
        return IntegerStrategy(self.shape, ((axes, Matrix(_round(self, centres, bits))),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        ((_, factor),) = rounded.factors
        squares = coefficients(self.matrix, factor.written_out()) ** 2
        return float(squares.sum(axis=1).max()) * float(squared_sensitivity(rounded))

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        (axes, factor), *others = strategy.factors
        if others or axes != tuple(range(len(strategy.shape))) or strategy.multipliers is not None:
            return None
        return cls(strategy.shape, factor.written_out())

    @property
    def leverage(self) -> float:
        return float((self.matrix**2).sum(axis=0).max())

    def is_sound(self) -> bool:
        matrix, cells = self.matrix, math.prod(self.shape)
        if matrix.ndim != 2 or matrix.shape[1] != cells or not 0 < len(matrix) <= cells:
            return False
        return bool(np.abs(matrix).max() < LARGEST) and are_rows(matrix) and self._has_sound_lattice()

    def _has_sound_lattice(self) -> bool:
        """Return whether the lattice, if there is one, spans the same space as the rows."""
        if self.lattice is None:
            return True
        if not fits_rows(self.lattice, self.matrix):
            return False
        whole = self.lattice.astype(float)
        inside = self.transform(whole.reshape(-1, *self.shape)) @ self.matrix
        return are_rows(whole) and bool(np.abs(inside - whole).max() <= CLOSE * np.abs(whole).max())

    def stands_on(self, centres: Sequence[Centre]) -> bool:
        return is_residual(self.matrix.reshape(-1, *self.shape), centres)

    def to_data(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "matrix": self.matrix, "lattice": self.lattice}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        lattice = None if data["lattice"] is None else integers(data["lattice"], 2)
        return cls(wholes(data["shape"]), floats(data["matrix"], 2), lattice)


def _round(strategy: DenseStrategy, centres: Sequence[Integers], bits: int) -> Integers:
    """Round the rows, or their coefficients in terms of a lattice's rows."""
    if strategy.lattice is not None:
        return round_on_lattice(strategy.lattice_coefficients, strategy.lattice, bits)
    growth = sum((2 * int(np.abs(k).sum())).bit_length() for k in centres) if len(centres) > 1 else 1
    if bits + growth >= WORD.bit_length():
        msg = f"max_records: {bits} bits are more than integer rows on {len(centres)} attributes can have"
        raise PlanError(msg)
    rows = strategy.matrix
    missing = math.prod(n - 1 for n in strategy.shape) - len(rows)
    if missing > 0:
        rows = completed(rows, [complement(k / k.sum()) for k in centres])
    if len(strategy.shape) == 1:
        scales = SCALES if bits < limits().scaled_bits and rows.shape[1] <= limits().scaled_cells else (1.0,)
        tried = [round_rows(rows, centres[0], bits, scale) for scale in scales]
        return tried[0 if len(tried) == 1 else in_order([_mean_loss(rows, found) for found in tried])[0]]
    return reduced(project(scaled(rows, bits), strategy.shape, centres), bits)


def _mean_loss(rows: Array, rounded: Integers) -> float:
    """Return the mean factor by which rounding multiplies the rows' variances, up to a constant."""
    factor = rounded.astype(float)
    if not are_independent(factor):
        return math.inf
    return float((coefficients(rows, factor) ** 2).sum() * (factor**2).sum(axis=0).max())
