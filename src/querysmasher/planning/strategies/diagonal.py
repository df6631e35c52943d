"""Rows that are products of one basis row per axis, each with its own weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes, pseudo_inverse
from querysmasher.errors import PlanError
from querysmasher.fields import floats, items
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers, project
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.rounding import FAINT, reduced, round_rows, scaled
from querysmasher.planning.strategies.span import Span
from querysmasher.planning.strategies.strategy import (
    FAINTEST,
    LARGEST,
    AxisRows,
    Strategy,
    is_negligible,
    is_residual,
    squared_lengths,
)
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy

GRAIN = 64
"""Noise variances within a diagonal strategy are integer multiples near 2^(level/64), so that few differ."""


@dataclass(frozen=True, eq=False)
class DiagonalStrategy(Strategy):
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

    def covary(self, rows: Array) -> Array:
        lead = rows.ndim - len(self.shape)
        return along_axes(
            along_axes(rows, lead, self.inverses) / self.weights, lead, [i.T for i in self.inverses]
        )

    def orthonormal(self) -> DiagonalStrategy:
        bases = tuple(np.ascontiguousarray(np.linalg.qr(b.T)[0].T) for b in self.bases)
        return DiagonalStrategy(bases, np.ones(self.weights.shape))

    def variances(self, factors: Sequence[AxisRows]) -> Array:
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

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        if self.rank == math.prod(n - 1 for n in self.shape):
            return True
        projectors = [inverse @ basis for inverse, basis in zip(self.inverses, self.bases, strict=True)]
        for axes, rows in factors:
            image = along_axes(
                rows.reshape(-1, *(self.shape[a] for a in axes)), 1, [projectors[a] for a in axes]
            )
            outside = (axes, rows - image.reshape(rows.shape))
            if not is_negligible(squared_lengths([outside]), squared_lengths([(axes, rows)])):
                return False
        return True

    @property
    def spread(self) -> float:
        squares = along_axes(self.weights, 0, [np.diag((b**2).sum(axis=1)) for b in self.bases])
        return math.sqrt(float(squares.max() / squares.min())) if squares.all() else math.inf

    def written_out(self) -> Array:
        product = reduce(_kron, self.bases, np.ones((1, 1)))
        return np.asarray(np.sqrt(self.weights).reshape(-1, 1) * product)

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        return _round(self, centres, bits)

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        spans = (Span.of(factor.written_out()) for _, factor in rounded.factors)
        squares = [span.coefficients(rows) ** 2 for rows, span in zip(self.bases, spans, strict=True)]
        noise = np.ones(rounded.rows) if rounded.multipliers is None else rounded.multipliers.astype(float)
        variances = along_axes(noise, 0, [s.T for s in squares]) * self.weights
        return float(variances.max()) * float(squared_sensitivity(rounded))

    def survives(self, rounded: IntegerStrategy) -> bool:
        return all(Span.of(factor.written_out()).is_independent() for _, factor in rounded.factors)

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        axes, factors = zip(*rounded.factors, strict=True)
        if axes != tuple((a,) for a in range(len(rounded.shape))):
            msg = "strategy: expected one factor on all axes in order, or one per axis"
            raise PlanError(msg)
        matrices = tuple(factor.written_out() for factor in factors)
        noise = np.ones(tuple(map(len, matrices))) if rounded.multipliers is None else rounded.multipliers
        return cls(matrices, 1.0 / noise)

    def undone(self, rounded: IntegerStrategy, answers: Array) -> Array:  # noqa: ARG002
        tensor = np.moveaxis(answers, 0, -1).reshape(*answers.shape[1:], *self.weights.shape)
        table = along_axes(tensor, answers.ndim - 1, [inverse.T for inverse in self.inverses])
        return table.reshape(*answers.shape[1:], -1)

    @property
    def leverage(self) -> float:
        return float(along_axes(self.weights, 0, [b**2 for b in self.bases]).max())

    def is_sound(self) -> bool:
        bases, weights = self.bases, self.weights
        if not bases or any(b.ndim != 2 or not 0 < len(b) <= b.shape[1] for b in bases):
            return False
        if weights.shape != tuple(map(len, bases)):
            return False
        if not FAINTEST < weights.min() <= weights.max() < LARGEST:
            return False
        return all(np.abs(b).max() < LARGEST and Span.of(b).is_independent() for b in bases)

    def stands_on(self, centres: Sequence[Centre]) -> bool:
        return all(is_residual(basis, [c]) for basis, c in zip(self.bases, centres, strict=True))


def _kron(one: Array, two: Array) -> Array:
    return np.asarray(np.kron(one, two), dtype=float)


def _round(strategy: DiagonalStrategy, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
    """Round the basis of every axis; the noise compensates for the lengths of its rows.

    If the rows of an axis do not span its residual space, cells that they do not distinguish are rounded as
    one, and faint rows complete the rest, so that rounding stays inside the measured space.
    """
    factors, squares, weights = [], [], strategy.weights
    for axis, (basis, centre) in enumerate(zip(strategy.bases, centres, strict=True)):
        rows, back = _merged_and_completed(basis, centre)
        lengths = np.abs(rows).max(axis=1)
        added = [(0, len(rows) - len(basis) if a == axis else 0) for a in range(weights.ndim)]
        spread = [-1 if a == axis else 1 for a in range(weights.ndim)]
        weights = np.pad(weights, added) * (lengths**2).reshape(spread)
        rows = rows / lengths[:, None]
        joined = np.zeros(rows.shape[1], dtype=np.int64)
        np.add.at(joined, back, centre)
        joined //= np.gcd.reduce(joined)
        factors.append(((axis,), Matrix(_round_axis(rows, joined, bits)[:, back])))
        squares.append(rows**2)
    faint = weights == 0
    if faint.any():
        leverage, more = (float(along_axes(w, 0, squares).max()) for w in (weights, faint.astype(float)))
        weights = np.where(faint, FAINT**2 * leverage / more, weights)
    levels = np.round(-GRAIN * np.log2(weights / weights.max()))
    multipliers = np.round(2.0 ** (10 + levels / GRAIN)).astype(np.int64)
    return IntegerStrategy(strategy.shape, tuple(factors), multipliers)


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


def _round_axis(rows: Array, centre: Integers, bits: int) -> Integers:
    if np.abs(centre).max() > limits().repaired_step:
        return reduced(project(scaled(rows, bits), (len(centre),), [centre]), bits)
    return round_rows(rows, centre, bits)
