"""Whether the parts of a plan fit together: one that comes from a file may have been put together by anyone.

A bug or a forgery in a plan costs no privacy, which measuring guards by itself. But its predictions, and the
answers, are right only for centres that sum to one, and for strategies inside the residual spaces around
these centres and of unit sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.planning.centre import Centre, Centres
from querysmasher.planning.planned import Planned
from querysmasher.planning.prediction import Measured
from querysmasher.planning.strategy import DenseStrategy, DiagonalStrategy, FourierStrategy, Strategy
from querysmasher.schema import Schema

CLOSE = 1e-6
"""How far planned numbers may be from what they should be, relative to their size."""

LARGEST_CENTRE = 1e3

LARGEST_GAP = 1e15

QUICK_QUERIES, QUICK_GROUPS = 20_000, 100
"""The loss of a workload with more queries or groups is not worked out again."""

FAINTEST = 1e-60
"""No weight or amplitude is smaller, unless it is zero."""

LARGEST_LATTICE = 2**50

DEPENDENT = 1e-14
"""Rows closer than this fraction of their length to the span of others are in it."""


def check_plan(plan: Planned) -> None:
    """Refuse a plan whose parts do not fit together."""
    check_centres(plan.workload.schema, plan.centres)
    for solution in plan.solutions:
        if not 0 <= solution.bound <= solution.reached * (1 + CLOSE) < math.inf:
            _refuse("a bound is above what is reached")
        _check_strategy(solution.strategy)
    if not plan.measured or len({m.attributes for m in plan.measured}) < len(plan.measured):
        _refuse("an attribute set is measured twice, or none is")
    known: set[object] = set()
    for measured in plan.measured:
        _check_measured(plan, measured, known)
    if not (math.isfinite(plan.weighted_loss) and 0 <= plan.gap < LARGEST_GAP and 0 < plan.tolerance < 1):
        _refuse("its error is no number")
    _check_loss(plan)


def _check_loss(plan: Planned) -> None:
    """Refuse losses that do not belong to the strategies, as far as it is quick to tell."""
    workload = plan.workload
    if workload.query_count > QUICK_QUERIES or len(workload.groups) > QUICK_GROUPS:
        return
    total = 0.0
    try:
        for group in workload:
            variances = plan.predictor.variances(group)
            for axis, family in enumerate(group.families):
                if family.weights is not None:
                    spread = [-1 if a == axis else 1 for a in range(variances.ndim)]
                    variances = variances * family.weights.reshape(spread)
            total += group.weight * float(variances.sum())
    except TooLargeError:
        return
    if not math.isclose(total, plan.weighted_loss, rel_tol=0.01):
        _refuse("its losses are not those of its strategies")


def check_centres(schema: Schema, centres: Centres) -> None:
    """Refuse centres that are not one vector per attribute, each of which sums to one."""
    if len(centres) != len(schema):
        _refuse("there is not one centre per attribute")
    for centre, size in zip(centres, schema.sizes, strict=True):
        if len(centre) != size:
            _refuse("a centre does not fit its attribute")
        if (
            np.abs(centre.weights).max() > LARGEST_CENTRE
            or abs(math.fsum(centre.weights.tolist()) - 1) > 1e-9
        ):
            _refuse("a centre does not sum to one")


def is_residual(rows: NDArray[np.generic], centres: Sequence[Centre]) -> bool:
    """Tell whether rows, as tensors over the axes after the first, vanish at the centre of each axis."""
    values = np.asarray(rows, dtype=float)
    for axis, centre in enumerate(centres, start=1):
        image = np.tensordot(values, centre.weights, axes=(axis, 0))
        size = np.tensordot(np.abs(values), np.abs(centre.weights), axes=(axis, 0))
        if np.any(np.abs(image) > CLOSE * size.max(initial=0.0)):
            return False
    return True


def _check_measured(plan: Planned, measured: Measured, known: set[object]) -> None:
    sizes, places = plan.workload.schema.sizes, measured.attributes
    if list(places) != sorted(set(places)) or not all(0 <= a < len(sizes) for a in places):
        _refuse("an attribute set is not given by increasing places")
    if sorted(a for axes, _ in measured.blocks for a in axes) != list(range(len(places))):
        _refuse("strategies do not cover every attribute of a set once")
    if not all(FAINTEST < number < 1 / FAINTEST for number in (measured.variance, measured.root_loss)):
        _refuse("a noise variance, or a loss, is no positive number")
    for axes, number in measured.blocks:
        if not 0 <= number < len(plan.solutions):
            _refuse("a strategy is missing")
        strategy = plan.solutions[number].strategy
        if strategy.shape != tuple(sizes[places[a]] for a in axes):
            _refuse("a strategy does not fit the attributes it stands on")
        centres = [plan.centres[places[a]] for a in axes]
        key = (number, *centres)
        if key not in known and not _stands_on(strategy, centres):
            _refuse("a strategy is not inside its residual space")
        known.add(key)


def _stands_on(strategy: Strategy, centres: Sequence[Centre]) -> bool:
    """Tell whether a strategy is inside the residual space around these centres."""
    if isinstance(strategy, DenseStrategy):
        return is_residual(strategy.matrix.reshape(-1, *strategy.shape), centres)
    if isinstance(strategy, DiagonalStrategy):
        return all(is_residual(basis, [c]) for basis, c in zip(strategy.bases, centres, strict=True))
    return all(np.ptp(centre.weights) <= CLOSE * centre.weights[0] for centre in centres)


def _check_strategy(strategy: Strategy) -> None:
    """Refuse a strategy that is none: dependent rows, no unit sensitivity."""
    if isinstance(strategy, DenseStrategy):
        fits = _is_dense(strategy)
        leverage = (strategy.matrix**2).sum(axis=0) if fits else np.zeros(1)
    elif isinstance(strategy, DiagonalStrategy):
        fits = _is_diagonal(strategy)
        leverage = along_axes(strategy.weights, 0, [b**2 for b in strategy.bases]) if fits else np.zeros(1)
    else:
        assert isinstance(strategy, FourierStrategy)  # noqa: S101 - there are three kinds
        fits = _is_fourier(strategy.spectrum)
        leverage = strategy.spectrum.mean(keepdims=True)
    if not fits or abs(float(leverage.max()) - 1) > CLOSE:
        _refuse("a strategy has dependent rows, or no unit sensitivity")


def _is_dense(strategy: DenseStrategy) -> bool:
    matrix, lattice, cells = strategy.matrix, strategy.lattice, math.prod(strategy.shape)
    if matrix.ndim != 2 or matrix.shape[1] != cells or not 0 < len(matrix) <= cells:
        return False
    if not (np.abs(matrix).max() <= 1 + CLOSE and are_rows(matrix)):
        return False
    if lattice is None:
        return True
    if lattice.shape != matrix.shape:
        return False
    if lattice.min() < -LARGEST_LATTICE or lattice.max() > LARGEST_LATTICE:
        return False
    whole = lattice.astype(float)
    inside = strategy.transform(whole.reshape(-1, *strategy.shape)) @ matrix
    return are_rows(whole) and bool(np.abs(inside - whole).max() <= CLOSE * np.abs(whole).max())


def _is_diagonal(strategy: DiagonalStrategy) -> bool:
    bases, weights = strategy.bases, strategy.weights
    if not bases or any(b.ndim != 2 or not 0 < len(b) <= b.shape[1] for b in bases):
        return False
    if (
        weights.shape != tuple(map(len, bases))
        or not FAINTEST < weights.min() <= weights.max() < 1 / FAINTEST
    ):
        return False
    return all(np.abs(b).max() < 1 / FAINTEST and are_rows(b) for b in bases)


def _is_fourier(spectrum: Array) -> bool:
    if not spectrum.ndim or not spectrum.size or spectrum.min() < 0 or spectrum.max() > 2 * spectrum.size:
        return False
    if not spectrum.any() or spectrum[spectrum > 0].min() < FAINTEST:
        return False
    mirrored = spectrum[np.ix_(*(-np.arange(n) % n for n in spectrum.shape))]
    at_zero = [np.take(spectrum, 0, axis=axis) for axis in range(spectrum.ndim)]
    even = np.abs(spectrum - mirrored).max() <= CLOSE * spectrum.max()
    return bool(even) and not any(part.any() for part in at_zero)


def are_rows(matrix: Array) -> bool:
    """Tell whether the rows are linearly independent, as far as floating point can tell."""
    lengths = np.sqrt((matrix**2).sum(axis=1))
    if len(matrix) > matrix.shape[1] or not np.all(lengths > 0):
        return False
    triangle = np.linalg.qr((matrix / lengths[:, None]).T, mode="r")
    return bool(np.abs(np.diagonal(triangle)).min() > DEPENDENT)


def _refuse(why: str) -> None:
    msg = f"plan: {why}"
    raise PlanError(msg)
