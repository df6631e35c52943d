"""The weight design of few queries on many cells, in single precision and on the cells that matter.

A step of the fixed point over N cells and r independent queries takes N·r² operations, and a sparse optimum
takes many steps. Here they are cheap. Queries are turned so that equal weights give the identity: then single
precision keeps seven digits of every direction, however far apart their sizes are, and M(p) and its root are
found in double precision. After a few steps on all cells, others follow on the cells with the largest
weights alone; then cells whose leverage is too large join, and cells without weight leave.

Weights are all that is returned. Every weight vector proves a bound and gives a strategy (`design`), in
double precision: rounding errors here cost accuracy of the optimum, never of its certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.design import Progress, fixed_point

Single = NDArray[np.float32]

CHUNK = 4_000_000
"""Maximum number of entries of an intermediate array, unless rows are long."""

RANK = 1e-12
"""Eigenvalues of the queries' Gram matrix below this fraction of the largest are rounding errors."""


@dataclass(frozen=True, eq=False)
class Turned:
    """Independent queries R = turn · rows over many cells, with R Rᵀ / cells = diag(squares)."""

    turn: Array
    squares: Array

    @classmethod
    def of(cls, rows: Array, scales: Array) -> Turned:
        """Turn rows, each times a scale: any that differ in length by little."""
        gram = weighted_gram(rows, np.full(rows.shape[1], 1.0 / rows.shape[1]))
        values, vectors = np.linalg.eigh(gram * np.outer(scales, scales))
        sure = values > RANK * values[-1]
        return cls(np.asarray(vectors[:, sure].T * scales, dtype=float), values[sure])

    @property
    def rank(self) -> int:
        """Number of independent queries."""
        return len(self.squares)

    def unit_columns(self, rows: Array) -> Single:
        """Return the columns of R, divided by the roots of its squares, as rows of single precision."""
        turn = self.turn / np.sqrt(self.squares)[:, None]
        result = np.empty((rows.shape[1], self.rank), dtype=np.float32)
        for piece in pieces(rows):
            result[piece] = (turn @ rows[:, piece]).T
        return result


@dataclass(frozen=True, eq=False)
class WideDesign:
    """What weights of the cells prove, and the strategy that follows from them, in double precision."""

    matrix: Array
    """Rows of unit sensitivity."""
    value: float
    """A lower bound on √L."""
    upper: float
    """What the strategy reaches."""

    @classmethod
    def at(cls, rows: Array, turned: Turned, p: Array) -> WideDesign:
        """Evaluate weights that sum to one."""
        squares, vectors = np.linalg.eigh(turned.turn @ weighted_gram(rows, p) @ turned.turn.T)
        s = np.sqrt(np.maximum(squares, squares[-1] * 1e-30))
        matrix = ((vectors / np.sqrt(s)).T @ turned.turn) @ rows
        leverage = max(
            float(np.einsum("ij,ij->j", matrix[:, piece], matrix[:, piece]).max()) for piece in pieces(rows)
        )
        matrix /= math.sqrt(leverage)
        value = float(s.sum())
        return cls(matrix, value, math.sqrt(value * leverage))


@dataclass(frozen=True, eq=False)
class _Step:
    weights: Array
    leverages: Array
    value: float

    @property
    def gap(self) -> float:
        return float(np.sqrt(self.leverages.max() / self.value)) - 1


@dataclass
class _Effort:
    """Number of cells evaluated so far, and at most."""

    most: float
    spent: int = 0


def wide_weights(rows: Array, turned: Turned, tolerance: float, progress: Progress | None = None) -> Array:
    """Return weights of the cells that sum to one, with a gap of about `tolerance` or the least found."""
    columns = turned.unit_columns(rows)
    cells, rank = columns.shape
    effort = _Effort(max(limits().wide_steps * cells, limits().wide_work / rank**2))
    whole = _evaluator(columns, turned.squares, effort)
    best = fixed_point(whole, np.ones(cells), tolerance, limits().wide_first_steps, progress)
    following = best.weights * (best.leverages / best.value) ** 2
    active = np.sort(np.argsort(following)[-limits().active_cells * rank :])
    weights, stalled = following[active], 0
    while best.gap > tolerance and effort.spent < effort.most and stalled < limits().wide_patience:
        own = _evaluator(columns[active], turned.squares, effort)
        found = fixed_point(own, weights, tolerance / 2, limits().wide_inner_steps, progress)
        p = np.zeros(cells)
        p[active] = found.weights
        at = whole(p)
        stalled = stalled + 1 if at.gap > limits().wide_narrowing * best.gap else 0
        best = min(best, at, key=lambda step: step.gap)
        following = p * (at.leverages / at.value) ** 2  # not p, from which the same steps would be repeated
        too_large = at.leverages > at.value * (1 + tolerance)
        too_large[active] = False
        joining = np.flatnonzero(too_large)
        joining = joining[np.argsort(at.leverages[joining])[-limits().joining_cells * rank :]]
        heavy = found.weights > limits().leaving_weight * found.weights.max()
        following[joining] = np.median(found.weights[heavy]) / 100
        active = np.union1d(active[heavy], joining)
        weights = following[active]
    return best.weights


def _evaluator(columns: Single, squares: Array, effort: _Effort) -> Callable[[Array], _Step]:
    """Return what evaluates weights on cells with these columns."""
    import scipy.linalg  # noqa: PLC0415 - loading it takes longer than a small plan

    roots = np.sqrt(squares)
    step = max(1, CHUNK // len(roots))

    def at(p: Array) -> _Step:
        effort.spent += len(columns)
        own = np.sqrt(p).astype(np.float32)
        unit = np.zeros((len(roots), len(roots)))
        for i in range(0, len(columns), step):
            scaled = columns[i : i + step] * own[i : i + step, None]
            unit += scaled.T @ scaled
        values, vectors = np.linalg.eigh(unit * np.outer(roots, roots))
        s = np.sqrt(np.maximum(values, values[-1] * 1e-24))
        root = np.asarray(np.linalg.qr((vectors.T / np.sqrt(s)[:, None]) * roots, mode="r"))
        triangle = np.asfortranarray(root.astype(np.float32))
        leverages = np.empty(len(columns))
        for i in range(0, len(columns), step):
            image = scipy.linalg.blas.strmm(1.0, triangle, columns[i : i + step].T)
            leverages[i : i + step] = np.einsum("ij,ij->j", image, image)
        return _Step(p, leverages, float(s.sum()))

    return at


def weighted_gram(rows: Array, p: Array) -> Array:
    """Return rows · diag(p) · rowsᵀ."""
    gram = np.zeros((len(rows), len(rows)))
    for piece in pieces(rows):
        scaled = rows[:, piece] * np.sqrt(p[piece])
        gram += scaled @ scaled.T
    return gram


def pieces(rows: Array) -> list[slice]:
    """Return slices of few columns."""
    step = max(1, CHUNK // len(rows))
    return [slice(start, start + step) for start in range(0, rows.shape[1], step)]
