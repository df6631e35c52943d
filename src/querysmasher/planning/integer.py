"""The plan in whole numbers: what is really measured, so that the privacy proof needs no floating point.

Planned strategies are rounded to whole numbers (`rounding`). Answers to such rows are whole numbers, the
noise is a whole number, and the sensitivity is a whole number that `privacy.accounting` works out itself.

How many bits a row may have follows from a public cap on the number of records, so that every product
is exact; the true number of records plays no part.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from querysmasher.errors import PlanError
from querysmasher.planning.lattice import integer_centre
from querysmasher.planning.plan import Plan
from querysmasher.planning.prediction import Measured
from querysmasher.planning.rounding import are_independent, round_strategy
from querysmasher.planning.strategy import DenseStrategy, DiagonalStrategy, FourierStrategy, Strategy
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy

MOST_BITS = 14
"""More bits per block would gain nothing that can be seen."""

LEAST_BITS = 4
"""With fewer, rounding would be coarse."""

TOTAL_BITS = 10
"""The number of records is measured times 2^10, so that noise in whole numbers can be as fine as planned."""

WORD_BITS = 62
"""Answers stay below 2^62 in size, so that answer plus noise fits a word of 64 bits."""

MOST_VARIANCE = 2**100
"""Noise of a larger variance cannot be drawn; see `privacy.sampler`."""


def as_strategy(strategy: IntegerStrategy) -> Strategy:
    """Return the same rows for predicting variances, their noise relative to the set's variance."""
    every = tuple(range(len(strategy.shape)))
    axes, factors = zip(*strategy.factors, strict=True)
    if axes == (every,) and strategy.multipliers is None:
        (factor,) = factors
        if factor.spectrum is not None:
            return FourierStrategy(np.abs(factor.spectrum) ** 2)
        return DenseStrategy(strategy.shape, factor.written_out())
    if axes != tuple((a,) for a in every):
        msg = "strategy: expected one factor on all axes in order, or one per axis"
        raise PlanError(msg)
    matrices = tuple(factor.written_out() for factor in factors)
    rows = tuple(map(len, matrices))
    return DiagonalStrategy(
        matrices, np.ones(rows) if strategy.multipliers is None else 1.0 / strategy.multipliers
    )


def integer_plan(plan: Plan, privacy_cost: float, max_records: int) -> IntegerPlan:
    """Turn a plan into whole numbers, spending at most `privacy_cost` (checked again when measuring)."""
    rounder = _Rounder(plan)
    patterns: dict[tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[tuple[int, ...], int], ...]] = {}
    stretch = Fraction(plan.budget.privacy_cost) / Fraction(privacy_cost) * (1 + Fraction(1, 2**40))
    largest: dict[tuple[tuple[tuple[int, ...], int], ...], float] = {}
    for m in plan.measured:
        if not 0 < m.variance < math.inf:
            msg = f"plan: expected a positive noise variance for every attribute set, got {m.variance}"
            raise PlanError(msg)
        largest[m.blocks] = max(m.variance, largest.get(m.blocks, 0.0))
    measured = []
    for m in plan.measured:
        if m.blocks not in patterns:
            most = MOST_VARIANCE / (Fraction(largest[m.blocks]) * stretch)
            patterns[m.blocks] = rounder.blocks(m, WORD_BITS - max_records.bit_length(), most)
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

    def blocks(
        self, measured: Measured, room: int, most: Fraction
    ) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Return the integer strategies of an attribute set.

        Their bits together fit into `room`, and no row multiplies the noise variance by more than `most`.
        """
        self._check(measured)
        if most < 2:
            msg = "budget: it asks for more noise than can be drawn, of a variance above 2^100"
            raise PlanError(msg)
        if not measured.attributes:
            return (((), self._total(min(room - 1, (math.floor(most).bit_length() - 1) // 2))),)
        names = ", ".join(self.plan.workload.schema.names[a] for a in measured.attributes)
        for bits in range(MOST_BITS, LEAST_BITS - 1, -1):
            numbers = [self._number(measured, axes, solution, bits) for axes, solution in measured.blocks]
            noise = math.prod((self._noise(n) for n in numbers), start=Fraction(2))  # with room to round up
            if sum(self.strategies[n].bits for n in numbers) <= room and noise <= most:
                for number in numbers:
                    self._check_rank(number, names, bits)
                return tuple((axes, n) for (axes, _), n in zip(measured.blocks, numbers, strict=True))
        msg = (
            f"max_records: it leaves at most {room} bits for exact integer answers on ({names}), too few; "
            "lower max_records, or plan fewer attributes at a time"
        )
        raise PlanError(msg)

    def _noise(self, number: int) -> Fraction:
        """Return by how much a strategy's rows multiply the noise variance, at most."""
        multipliers = self.strategies[number].multipliers
        return self.sensitivities[number] * (1 if multipliers is None else int(multipliers.max()))

    def _total(self, room: int) -> int:
        """Return the strategy that asks for a multiple of the number of records."""
        multiple = 2 ** max(0, min(TOTAL_BITS, room))
        self.strategies.append(IntegerStrategy((), (((), Matrix(np.array([[multiple]]))),)))
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
        factors = [factor for _, factor in self.strategies[number].factors]
        if not all(f.rank < f.rows or are_independent(f.written_out()) for f in factors):
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
