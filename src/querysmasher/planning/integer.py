"""Integer strategies: what is really measured, so that the privacy proof needs no floating point.

The rows of a planned strategy are scaled and rounded to whole numbers that stay inside the residual
space: along every attribute i they satisfy Σ_j k_j b_j = 0, with k the attribute's centre in whole
numbers. So rounding costs a little optimality and never bias. Answers to such rows are whole numbers, the
noise is a whole number, and the sensitivity is a whole number that `privacy.accounting` works out itself.

How many bits a row may have follows from a public cap on the number of records, so that every product
below is exact; the true number of records plays no part.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, along_axes
from querysmasher.errors import PlanError
from querysmasher.planning.centering import complement
from querysmasher.planning.lattice import Integers, integer_centre, project
from querysmasher.planning.plan import Plan
from querysmasher.planning.prediction import Measured
from querysmasher.planning.strategy import DenseStrategy, DiagonalStrategy, Strategy
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy

MOST_BITS = 14
"""More bits per block would gain nothing that can be seen."""

LATTICE_BITS = 6
"""Coefficients of lattice rows get as many more, as such rows can be nearly dependent."""

LEAST_BITS = 4
"""With fewer, rounding would be coarse."""

TOTAL_BITS = 10
"""The number of records is measured times 2^10, so that noise in whole numbers can be as fine as planned."""

WORD_BITS = 62
"""Answers stay below 2^62 in size, so that answer plus noise fits a word of 64 bits."""

FAINT = 2.0**-5
"""The weight of rows that are added only so that rounding cannot leave the measured space."""

COMPLETED_CELLS = 3_000

GRAIN = 16
"""Noise variances within a diagonal strategy are whole multiples near 2^(level/16), so that few differ."""

LARGEST_STEP = 2**12
"""Sums are repaired unit by unit for entries of the centre up to this; beyond, rows are projected."""

DEPENDENT = 1e-5
"""Rows closer than this fraction of their length to the span of others are looked at more closely."""


def as_strategy(strategy: IntegerStrategy) -> Strategy:
    """Return the same rows for predicting variances, their noise relative to the set's variance."""
    matrices = [matrix.astype(float) for _, matrix in strategy.factors]
    if strategy.multipliers is None:
        return DenseStrategy(strategy.shape, matrices[0])
    return DiagonalStrategy(tuple(matrices), 1.0 / strategy.multipliers)


def round_strategy(strategy: Strategy, centres: list[Integers], bits: int) -> IntegerStrategy:
    """Return whole-number rows close to a multiple of the strategy's, at most about 2^bits in size."""
    if isinstance(strategy, DenseStrategy):
        axes = tuple(range(len(strategy.shape)))
        return IntegerStrategy(strategy.shape, ((axes, _round_dense(strategy, centres, bits)),))
    assert isinstance(strategy, DiagonalStrategy)  # noqa: S101 - there are two kinds
    return _round_diagonal(strategy, centres, bits)


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
        factors.append(((axis,), _round_axis(rows, joined, bits)[:, back]))
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
    moves = _repairs(tuple(np.unique(np.abs(centre[centre != 0])).tolist()))
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


def integer_plan(plan: Plan, privacy_cost: float, max_records: int) -> IntegerPlan:
    """Turn a plan into whole numbers, spending at most `privacy_cost` (checked again when measuring)."""
    rounder = _Rounder(plan)
    patterns: dict[tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[tuple[int, ...], int], ...]] = {}
    stretch = Fraction(plan.budget.privacy_cost) / Fraction(privacy_cost) * (1 + Fraction(1, 2**40))
    measured = []
    for m in plan.measured:
        if not 0 < m.variance < math.inf:
            msg = f"plan: expected a positive noise variance for every attribute set, got {m.variance}"
            raise PlanError(msg)
        if m.blocks not in patterns:
            patterns[m.blocks] = rounder.blocks(m, WORD_BITS - max_records.bit_length())
        blocks = patterns[m.blocks]
        squared = math.prod((rounder.sensitivities[n] for _, n in blocks), start=Fraction(1))
        variance = Fraction(m.variance) * stretch * squared
        grain = 1 if variance >= 2**20 else 2**20
        variance = max(Fraction(1), Fraction(math.ceil(variance * grain), grain))
        measured.append(IntegerMeasured(m.attributes, blocks, variance))
    schema, budget = plan.workload.schema, plan.budget
    return IntegerPlan(schema, budget, tuple(rounder.strategies), tuple(measured), max_records)


class _Rounder:
    """Rounds the solutions of a plan, each to as many bits as the attribute sets it serves leave it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.strategies: list[IntegerStrategy] = []
        self.sensitivities: list[Fraction] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._whole: set[int] = set()

    def blocks(self, measured: Measured, room: int) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Return the integer strategies of an attribute set, whose bits together fit into `room`."""
        self._check(measured)
        if not measured.attributes:
            return (((), self._total(room)),)
        names = ", ".join(self.plan.workload.schema.names[a] for a in measured.attributes)
        for bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            numbers = [self._number(measured, axes, solution, bits) for axes, solution in measured.blocks]
            if sum(self.strategies[n].bits for n in numbers) <= room:
                for number in numbers:
                    self._check_rank(number, names, bits)
                return tuple((axes, n) for (axes, _), n in zip(measured.blocks, numbers, strict=True))
        msg = (
            f"max_records: it leaves {room} bits for exact integer answers on ({names}), which is too few; "
            "lower max_records, or plan fewer attributes at a time"
        )
        raise PlanError(msg)

    def _total(self, room: int) -> int:
        """Return the strategy that asks for a multiple of the number of records."""
        multiple = 2 ** max(0, min(TOTAL_BITS, room - 1))
        self.strategies.append(IntegerStrategy((), (((), np.array([[multiple]])),)))
        self.sensitivities.append(squared_sensitivity(self.strategies[-1]))
        return len(self.strategies) - 1

    def _number(self, measured: Measured, axes: tuple[int, ...], solution: int, bits: int) -> int:
        key = (solution, bits)
        if key not in self._numbers:
            centres = [integer_centre(self.plan.centres[measured.attributes[a]]) for a in axes]
            strategy = round_strategy(self.plan.solutions[solution].strategy, centres, bits)
            self._numbers[key] = len(self.strategies)
            self.strategies.append(strategy)
            self.sensitivities.append(squared_sensitivity(strategy))
        return self._numbers[key]

    def _check_rank(self, number: int, names: str, bits: int) -> None:
        """Refuse a strategy in which rounding has lost a query: its answers would be made up."""
        if number in self._whole:
            return
        if not all(_are_independent(matrix) for _, matrix in self.strategies[number].factors):
            msg = (
                f"max_records: it leaves {bits} bits for exact integer answers on ({names}), in which some "
                "queries are lost; lower max_records, or use weights that differ less"
            )
            raise PlanError(msg)
        self._whole.add(number)

    def _check(self, measured: Measured) -> None:
        """Refuse strategies that do not fit the attributes they stand on: a plan may come from a file."""
        sizes, solutions = self.plan.workload.schema.sizes, self.plan.solutions
        fit = sorted(a for axes, _ in measured.blocks for a in axes) == list(range(len(measured.attributes)))
        fit = fit and all(
            0 <= a < len(sizes) and self.plan.centres[a].shape == (sizes[a],) for a in measured.attributes
        )
        for axes, number in measured.blocks if fit else ():
            shape = tuple(sizes[measured.attributes[a]] for a in axes)
            fit = fit and 0 <= number < len(solutions) and solutions[number].strategy.shape == shape
        if not fit:
            msg = f"plan: a strategy does not fit the attribute set {measured.attributes} it stands on"
            raise PlanError(msg)


def _round_dense(strategy: DenseStrategy, centres: list[Integers], bits: int) -> Integers:
    if strategy.lattice is not None:
        # combinations of the lattice's rows, with rounded coefficients that keep the products in a word
        room = WORD_BITS - int(np.abs(strategy.lattice).sum(axis=0).max()).bit_length()
        coefficients = _scaled(strategy.lattice_coefficients, min(bits + LATTICE_BITS, room))
        return _reduced(coefficients @ strategy.lattice, bits)
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


def _are_independent(rows: Integers) -> bool:
    """Tell whether rounding has left the rows linearly independent."""
    lengths = np.sqrt((rows.astype(float) ** 2).sum(axis=1, keepdims=True))
    if not lengths.all():
        return False
    scaled = rows / lengths
    try:  # each pivot is the distance of a row from the span of those before
        pivots = np.diagonal(np.linalg.cholesky(scaled @ scaled.T))
    except np.linalg.LinAlgError:
        pivots = np.zeros(1)
    return bool(pivots.min() > DEPENDENT) or int(np.linalg.matrix_rank(scaled)) == len(rows)
