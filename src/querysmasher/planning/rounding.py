"""Strategies in whole numbers that stay inside the residual space.

The rows of a planned strategy are scaled and rounded: along every attribute i they satisfy
Σ_j k_j b_j = 0, with k the attribute's centre in whole numbers. Where a strategy spans only a part of its
residual space, so does the rounded one, or it spans more. So rounding costs a little optimality and never
bias.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes, solve_upper
from querysmasher.errors import PlanError
from querysmasher.planning.centering import complement
from querysmasher.planning.lattice import Integers, project
from querysmasher.planning.strategy import DenseStrategy, DiagonalStrategy, FourierStrategy, Strategy
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import WORD, Filter, Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy

LATTICE_BITS = 6
"""Coefficients of lattice rows get as many more, as such rows can be nearly dependent."""

FAINT = 2.0**-5
"""The weight of rows that are added only so that rounding cannot leave the measured space."""

COMPLETED_CELLS = 3_000

GRAIN = 64
"""Noise variances within a diagonal strategy are whole multiples near 2^(level/64), so that few differ."""

LARGEST_STEP = 2**12
"""Sums are repaired unit by unit for entries of the centre up to this; beyond, rows are projected."""

DEPENDENT = 1e-5
"""Rows closer than this fraction of their length to the span of others are looked at more closely."""


def round_strategy(strategy: Strategy, centres: list[Integers], bits: int) -> IntegerStrategy:
    """Return whole-number rows close to a multiple of the strategy's, at most about 2^bits in size."""
    if isinstance(strategy, DenseStrategy):
        axes = tuple(range(len(strategy.shape)))
        return IntegerStrategy(strategy.shape, ((axes, Matrix(_round_dense(strategy, centres, bits))),))
    if isinstance(strategy, FourierStrategy):
        axes = tuple(range(len(strategy.shape)))
        return IntegerStrategy(strategy.shape, ((axes, _round_filter(strategy, bits)),))
    assert isinstance(strategy, DiagonalStrategy)  # noqa: S101 - there are three kinds
    return _round_diagonal(strategy, centres, bits)


def _round_filter(strategy: FourierStrategy, bits: int) -> Filter:
    """Round the filter whose amplitudes are the roots of the spectrum; it sums to zero along every axis."""
    shape = strategy.shape
    kernel = np.fft.ifftn(np.sqrt(strategy.spectrum)).real.reshape(1, -1)
    ones = [np.ones(n, dtype=np.int64) for n in shape]
    if len(shape) == 1:
        rounded = round_rows(kernel, ones[0], bits)
    else:
        rounded = _reduced(project(_scaled(kernel, bits), shape, ones), bits)
    made = Filter(np.ascontiguousarray(rounded.reshape(shape)))
    if np.any((made.spectrum == 0) & (strategy.spectrum > 0)):
        msg = "max_records: it leaves too few bits for exact integer answers; lower max_records"
        raise PlanError(msg)
    return made


def _round_dense(strategy: DenseStrategy, centres: list[Integers], bits: int) -> Integers:
    if strategy.lattice is not None:
        # combinations of the lattice's rows, with rounded coefficients that keep the products in a word
        room = WORD.bit_length() - 1 - int(np.abs(strategy.lattice).sum(axis=0).max()).bit_length()
        coefficients = _scaled(strategy.lattice_coefficients, min(bits + LATTICE_BITS, room))
        return _reduced(coefficients @ strategy.lattice, bits)
    growth = sum((2 * int(np.abs(k).sum())).bit_length() for k in centres) if len(centres) > 1 else 1
    if bits + growth >= WORD.bit_length():
        msg = f"max_records: {bits} bits are more than integer rows on {len(centres)} attributes can have"
        raise PlanError(msg)
    rows = strategy.matrix
    missing = math.prod(n - 1 for n in strategy.shape) - len(rows)
    if missing > 0:
        rows = _completed(rows, strategy.shape, centres)
    if len(strategy.shape) == 1:
        return round_rows(rows, centres[0], bits)
    return _reduced(project(_scaled(rows, bits), strategy.shape, centres), bits)


def _completed(rows: Array, shape: tuple[int, ...], centres: list[Integers]) -> Array:
    """Add faint rows for the rest of the residual space, so that rounding stays inside what is measured."""
    cells = math.prod(shape)
    if cells > COMPLETED_CELLS:
        msg = (
            f"queries with fractional coefficients on {cells:,} cells cannot be measured exactly; give them "
            "in whole numbers (times a common factor), or on fewer values"
        )
        raise PlanError(msg)
    inside: Array = np.ones((1, 1))
    for k in centres:
        inside = np.asarray(np.kron(inside, complement(k / k.sum())), dtype=float)
    basis, _ = np.linalg.qr(inside @ rows.T, mode="complete")
    rest = basis[:, len(rows) :].T @ inside
    length = math.sqrt(float((rows**2).sum(axis=0).max()))
    return np.concatenate([rows, FAINT * length * rest])


def _round_diagonal(strategy: DiagonalStrategy, centres: list[Integers], bits: int) -> IntegerStrategy:
    """Round the basis of every axis; the noise makes up for the lengths of its rows.

    Where the rows of an axis leave a part of its residual space out, cells that they do not tell apart are
    rounded as one, and faint rows fill up the rest, so that rounding stays inside what is measured.
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
    """Return rows over merged cells, for all that can be asked of those, and each cell's place among them."""
    if len(basis) == basis.shape[1] - 1:
        return basis, np.arange(basis.shape[1])
    scaled = np.round(basis / np.abs(basis).max(axis=1, keepdims=True), 10) + 0.0
    _, first, back = np.unique(scaled, axis=1, return_index=True, return_inverse=True)
    roots = np.sqrt(np.bincount(back))  # in these coordinates rows have the lengths they have over the cells
    taken = np.concatenate([np.bincount(back, weights=centre)[None, :] / roots, basis[:, first] * roots])
    turned, _ = np.linalg.qr(taken.T, mode="complete")
    return np.concatenate([basis[:, first], turned[:, len(taken) :].T / roots]), back


def _round_axis(rows: Array, centre: Integers, bits: int) -> Integers:
    if np.abs(centre).max() > LARGEST_STEP:
        return _reduced(project(_scaled(rows, bits), (len(centre),), [centre]), bits)
    return round_rows(rows, centre, bits)


def round_rows(rows: Array, centre: Integers, bits: int) -> Integers:
    """Round rows over one attribute to whole numbers b with Σ_j centre[j]·b[j] = 0.

    Entries are rounded to the nearest, then the sum is repaired by as few single units as possible, each
    where it hurts least. The centre's entries must have no common divisor.
    """
    target = _enlarged(rows, bits)
    rounded = np.round(target).astype(np.int64)
    moves = _repairs(tuple(sorted(set(np.abs(centre[centre != 0]).tolist()))))
    largest = int(np.abs(centre).max())
    for row, ideal in zip(rounded, target, strict=True):
        off = int(row @ centre)
        while off:
            # one unit at an entry k of the centre moves the sum by k
            step = moves[off] if off in moves else int(math.copysign(largest, off))
            places = np.flatnonzero(np.abs(centre) == abs(step))
            signs = np.sign(centre[places]) * (1 if step > 0 else -1)
            hurt = signs * (ideal[places] - row[places])
            best = int(np.argmin(hurt))
            row[places[best]] -= signs[best]
            off -= step
    return _reduced(rounded, bits)


@cache
def _repairs(steps: tuple[int, ...]) -> dict[int, int]:
    """Return, for every sum off by at most the largest step, the first of the fewest steps that mend it."""
    largest = steps[-1]
    first = {0: 0}
    frontier = [0]
    while frontier:  # breadth first, back from zero
        reached = []
        for value in frontier:
            for step in (*steps, *(-s for s in steps)):
                if abs(value + step) <= 2 * largest and value + step not in first:
                    first[value + step] = step
                    reached.append(value + step)
        frontier = reached
    return first


def _scaled(rows: Array, bits: int) -> Integers:
    return np.round(_enlarged(rows, bits)).astype(np.int64)


def _enlarged(rows: Array, bits: int) -> Array:
    """Return the rows times a number that makes their largest entry just fit into so many bits."""
    with np.errstate(all="ignore"):
        enlarged = rows * ((2**bits - 1) / np.abs(rows).max())
    if not np.isfinite(enlarged).all():
        msg = "plan: a strategy holds numbers that cannot be rounded"
        raise PlanError(msg)
    return enlarged


def _reduced(rows: Integers, bits: int) -> Integers:
    """Divide by the greatest common divisor, then double rows that became small while they fit into `bits`.

    Noise is a whole number: next to large answers that costs nothing.
    """
    rows = rows // max(1, int(np.gcd.reduce(rows, axis=None)))
    return rows << max(0, bits - int(np.abs(rows).max()).bit_length())


def spread(strategy: Strategy) -> float:
    """Return how far apart in size a strategy's rows are, or the noise of rows of one size."""
    if isinstance(strategy, DenseStrategy):
        lengths = np.linalg.norm(strategy.matrix, axis=1)
        return float(lengths.max() / lengths.min()) if lengths.all() else math.inf
    if isinstance(strategy, DiagonalStrategy):
        squares = along_axes(strategy.weights, 0, [np.diag((b**2).sum(axis=1)) for b in strategy.bases])
        return math.sqrt(float(squares.max() / squares.min())) if squares.all() else math.inf
    return 1.0


def rounding_loss(strategy: Strategy, rounded: IntegerStrategy) -> float:
    """Return by how much rounding multiplies the variance of a planned row, at most.

    The rounding error of a long row is made up for by the short ones, at their noise: with rows that are far
    apart it takes more bits for that not to matter.
    """
    if not isinstance(strategy, DenseStrategy | DiagonalStrategy):
        return 1.0
    factors = [factor.written_out() for _, factor in rounded.factors]
    planned = (strategy.matrix,) if isinstance(strategy, DenseStrategy) else strategy.bases
    squares = [_coefficients(rows, factor) ** 2 for rows, factor in zip(planned, factors, strict=True)]
    noise = np.ones(rounded.rows) if rounded.multipliers is None else rounded.multipliers.astype(float)
    variances = along_axes(noise, 0, [s.T for s in squares])
    if isinstance(strategy, DiagonalStrategy):
        variances = variances * strategy.weights
    return float(variances.max()) * float(squared_sensitivity(rounded))


def _coefficients(rows: Array, factor: Array) -> Array:
    """Return the rows as combinations of independent others, whose lengths may be far apart."""
    lengths = np.linalg.norm(factor, axis=1)
    basis, triangle = np.linalg.qr((factor / lengths[:, None]).T)
    return solve_upper(triangle, (rows @ basis).T).T / lengths


def are_independent(rows: Array) -> bool:
    """Tell whether rounding has left the rows linearly independent."""
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    if not lengths.all():
        return False
    scaled = rows / lengths
    try:  # each pivot is the distance of a row from the span of those before
        pivots = np.diagonal(np.linalg.cholesky(scaled @ scaled.T))
    except np.linalg.LinAlgError:
        pivots = np.zeros(1)
    return bool(pivots.min() > DEPENDENT) or int(np.linalg.matrix_rank(scaled)) == len(rows)
