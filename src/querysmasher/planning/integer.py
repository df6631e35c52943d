"""The plan in integers: what is really measured, so that the privacy proof needs no floating point.

Planned strategies are rounded to integers (`strategies`). The answers to integer rows are integers, and so
is the noise. `privacy.accounting` computes the squared sensitivity itself, exactly or rounded up.

The maximum number of bits of a row follows from a public cap on the number of records, so that every product
is exact. The true number of records plays no role.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from querysmasher.errors import PlanError, PrivacyError
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy

TOTAL_BITS = 14
"""The number of records is multiplied by 2^14, so that integer noise can be as fine as planned."""

WORD_BITS = 62
"""Answers stay below 2^62 in size, so that answer plus noise fits a word of 64 bits."""

MAX_RECORDS = 100_000_000
"""Default cap of `measure`: the planner refuses a plan that cannot be measured under it."""

SAFETY = 1 + Fraction(1, 2**40)
"""Factor by which variances exceed the planned ones: more than all floating-point rounding errors."""

MOST_VARIANCE = 2.0**100
"""Maximum variance of noise that can be drawn; see `privacy.noise`."""


def integer_plan(plan: Plan, privacy_cost: float, max_records: int) -> IntegerPlan:
    """Convert a plan to integers that spend at most `privacy_cost` (checked again when measuring)."""
    rounder = _Rounder(plan)
    patterns: dict[Blocks, Blocks] = {}
    stretch = Fraction(plan.budget.privacy_cost) / Fraction(privacy_cost) * SAFETY
    largest = _largest_variances(plan)
    for m in plan.measured:
        if m.blocks not in patterns:
            rounder.check(m)
            most = MOST_VARIANCE / (largest[m.blocks] * float(stretch))
            patterns[m.blocks] = rounder.blocks(
                m, WORD_BITS - max_records.bit_length(), most, limits().most_bits
            )
    patterns = rounder.with_one_centre(patterns)
    measured = []
    for m in plan.measured:
        blocks = patterns[m.blocks]
        squared = math.prod((rounder.sensitivities[n] for _, n in blocks), start=Fraction(1))
        variance = Fraction(m.variance) * stretch * squared
        grain = 1 if variance >= 2**20 else 2**20
        variance = max(Fraction(1), Fraction(math.ceil(variance * grain), grain))
        measured.append(IntegerMeasured(m.attributes, blocks, variance))
    used = sorted({number for m in measured for _, number in m.blocks})
    place = {number: i for i, number in enumerate(used)}
    renumbered = {blocks: tuple((axes, place[n]) for axes, n in blocks) for blocks in patterns.values()}
    return IntegerPlan(
        plan.workload.schema,
        plan.budget,
        tuple(rounder.strategies[number] for number in used),
        tuple(IntegerMeasured(m.attributes, renumbered[m.blocks], m.variance) for m in measured),
        max_records,
    )


def refusal(plan: Plan, max_records: int = MAX_RECORDS) -> PlanError | None:
    """Return why a plan could not be measured in integers under a cap on the number of records, if so."""
    try:
        check_measurable(plan, max_records)
    except PlanError as error:
        return error
    return None


def check_measurable(plan: Plan, max_records: int = MAX_RECORDS) -> None:
    """Refuse a plan that could not be measured in integers under a cap on the number of records.

    A plan that can be measured in fewer bits can be measured, so one rounding per solution often suffices.
    """
    rounder, largest = _Rounder(plan), _largest_variances(plan)
    room = WORD_BITS - max_records.bit_length()
    few = min(limits().most_bits, room // max([1, *map(len, largest)]))
    for m in {m.blocks: m for m in plan.measured}.values():
        most = MOST_VARIANCE / (largest[m.blocks] * 2)  # leaves room for a slightly smaller privacy cost
        try:
            rounder.blocks(m, room, most, few)
        except PlanError:
            rounder.blocks(m, room, most, limits().most_bits)


def _largest_variances(plan: Plan) -> dict[Blocks, float]:
    """Return the largest noise variance of every combination of strategies."""
    largest: dict[Blocks, float] = {}
    for m in plan.measured:
        if not 0 < m.variance < math.inf:
            msg = f"plan: expected a positive noise variance for every attribute set, got {m.variance}"
            raise PlanError(msg)
        largest[m.blocks] = max(m.variance, largest.get(m.blocks, 0.0))
    return largest


class _Rounder:
    """Rounds the solutions of a plan, each to as many bits as its attribute sets allow."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.strategies: list[IntegerStrategy] = []
        self.sensitivities: list[Fraction] = []
        self._bits: list[int] = []
        self._noises: list[float] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._found: dict[tuple[int, int, int], int | None] = {}
        self._losses: dict[int, float] = {}
        self._spreads: dict[int, float] = {}

    def blocks(self, measured: Measured, room: int, most: float, bits: int) -> Blocks:
        """Return the integer strategies of an attribute set, each with at most `bits` bits if these suffice.

        Their bits together fit into `room`, and no row multiplies the noise variance by more than `most`.
        """
        if most < 2:
            msg = (
                "budget: expected a noise variance of at most 2^100, got a larger one; use a larger budget "
                "or smaller targets"
            )
            raise PlanError(msg)
        if not measured.attributes:
            return (((), self._total(min(room - 1, int(math.log2(most)) // 2))),)
        why = "too few"
        bits = min(bits, room // len(measured.blocks))  # every strategy takes at least these
        for own in range(bits, limits().least_bits - 1, -1):
            numbers = [self._number(measured, axes, solution, own) for axes, solution in measured.blocks]
            if not self._fit(numbers, room, most):
                continue
            left = room - sum(map(self._bits.__getitem__, numbers))
            precise = [
                self._precise(measured, axes, solution, own, left + self._bits[number])
                for (axes, solution), number in zip(measured.blocks, numbers, strict=True)
            ]
            found = [n for n in precise if n is not None]
            if found == numbers or (len(found) == len(precise) and self._fit(found, room, most)):
                if own < limits().few_bits:
                    self._use_up(found, measured, own + 1, room, most)
                return tuple((axes, n) for (axes, _), n in zip(measured.blocks, found, strict=True))
            why = "in which some queries are lost: they differ too much in weight or size"
        names = ", ".join(self.plan.workload.schema.names[a] for a in measured.attributes)
        msg = (
            f"max_records: it leaves at most {room} bits for exact integer answers on ({names}), {why}; "
            "lower max_records, or plan fewer attributes at a time, or use weights that differ less, or rows "
            "of fewer digits"
        )
        raise PlanError(msg)

    def with_one_centre(self, patterns: Mapping[Blocks, Blocks]) -> dict[Blocks, Blocks]:
        """Return the same blocks, with every strategy that brings a centre rounded only once, most coarsely.

        The centre of an attribute must be the same on all sets that share it.
        """
        coarsest: dict[int, int] = {}
        own = {n for n, solution in enumerate(self.plan.solutions) if solution.strategy.own_centre}
        for planned, rounded in patterns.items():
            for (_, solution), (_, number) in zip(
                planned, rounded, strict=False
            ):  # the total has no solution
                best = coarsest.get(solution, number)
                coarsest[solution] = min(best, number, key=self._bits.__getitem__)
        return {
            planned: tuple(
                (axes, coarsest[planned[place][1]] if planned and planned[place][1] in own else number)
                for place, (axes, number) in enumerate(rounded)
            )
            for planned, rounded in patterns.items()
        }

    def _use_up(self, found: list[int], measured: Measured, bits: int, room: int, most: float) -> None:
        """Give the blocks of a set one more bit, one after the other, while there is room."""
        for place, (axes, solution) in enumerate(measured.blocks):
            before, finer = found[place], self._precise(measured, axes, solution, bits, room)
            if finer is not None and self._bits[finer] > self._bits[before]:
                found[place] = finer
                if not self._fit(found, room, most):
                    found[place] = before

    def _fit(self, numbers: list[int], room: int, most: float) -> bool:
        """Return whether the strategies' answers fit in a word, and their noise can be drawn."""
        noise = math.prod(map(self._noises.__getitem__, numbers), start=2.0)  # with room to round up
        return sum(map(self._bits.__getitem__, numbers)) <= room and noise <= most

    def _precise(
        self, measured: Measured, axes: tuple[int, ...], solution: int, bits: int, room: int
    ) -> int | None:
        """Return the strategy with the fewest bits, at least `bits`, at which rounding loses little, or None.

        Rows that are far apart need correspondingly more bits.
        """
        key = (solution, bits, room)
        if key not in self._found:
            self._found[key] = self._search(measured, axes, solution, bits, room)
        return self._found[key]

    def _search(
        self, measured: Measured, axes: tuple[int, ...], solution: int, bits: int, room: int
    ) -> int | None:
        apart = self._spread(solution)
        more = (
            bits + max(0, math.ceil(math.log2(apart / limits().ordinary_ratio)))
            if apart < math.inf
            else room + 1
        )
        found: list[tuple[float, int]] = []
        for own in range(more, room + 1, 2):
            try:
                loss, number = self._loss(measured, axes, solution, own)
            except (PlanError, PrivacyError):  # too many bits
                break
            fits = self._bits[number] <= room
            if fits or not found:
                found.append((loss, number))
            if loss <= limits().good_loss or not fits:
                break
        least = min(found, default=(math.inf, 0))[0]
        if least > limits().most_loss:
            return None
        return next(number for loss, number in found if loss <= limits().good_loss * least)

    def _loss(self, measured: Measured, axes: tuple[int, ...], solution: int, bits: int) -> tuple[float, int]:
        """Return the factor by which rounding to `bits` multiplies variances, and the rounded strategy."""
        number = self._number(measured, axes, solution, bits)
        if number not in self._losses:
            planned, rounded = self.plan.solutions[solution].strategy, self.strategies[number]
            if not planned.survives(rounded):
                self._losses[number] = math.inf  # answers to lost queries would be arbitrary
            elif self._spread(solution) <= limits().ordinary_ratio:
                self._losses[number] = 1.0  # or little more, as observed on all kinds of workloads
            else:
                self._losses[number] = planned.rounding_loss(rounded)
        return self._losses[number], number

    def _spread(self, solution: int) -> float:
        if solution not in self._spreads:
            self._spreads[solution] = self.plan.solutions[solution].strategy.spread
        return self._spreads[solution]

    def _add(self, strategy: IntegerStrategy) -> int:
        """Store a strategy, its size, and the largest factor by which a row multiplies the noise variance."""
        squared, multipliers = squared_sensitivity(strategy), strategy.multipliers
        self.strategies.append(strategy)
        self.sensitivities.append(squared)
        self._bits.append(strategy.bits)
        self._noises.append(float(squared) * (1 if multipliers is None else int(multipliers.max())))
        return len(self.strategies) - 1

    def _total(self, room: int) -> int:
        """Return the strategy that measures a multiple of the number of records."""
        multiple = 2 ** max(0, min(TOTAL_BITS, room))
        return self._add(IntegerStrategy((), (((), Matrix(np.array([[multiple]]))),)))

    def _number(self, measured: Measured, axes: tuple[int, ...], solution: int, bits: int) -> int:
        key = (solution, bits)
        if key not in self._numbers:
            centres = [self.plan.centres[measured.attributes[a]].exact for a in axes]
            rounded = self.plan.solutions[solution].strategy.rounded(centres, bits)
            self._numbers[key] = self._add(rounded)
        return self._numbers[key]

    def check(self, measured: Measured) -> None:
        """Refuse strategies that do not fit their attributes: a plan may come from a file."""
        sizes, solutions = self.plan.workload.schema.sizes, self.plan.solutions
        fit = sorted(a for axes, _ in measured.blocks for a in axes) == list(range(len(measured.attributes)))
        fit = fit and all(
            0 <= a < len(sizes) and len(self.plan.centres[a]) == sizes[a] for a in measured.attributes
        )
        for axes, number in measured.blocks if fit else ():
            shape = tuple(sizes[measured.attributes[a]] for a in axes)
            fit = fit and 0 <= number < len(solutions) and solutions[number].strategy.shape == shape
        if not fit:
            msg = f"plan: a strategy does not fit its attribute set {measured.attributes}"
            raise PlanError(msg)
