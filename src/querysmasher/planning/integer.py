"""The plan in integers: what is really measured, so that the privacy proof needs no floating point.

Planned strategies are rounded to integers (`strategies`). The answers to integer rows are integers, and so
is the noise. `privacy.accounting` computes the squared sensitivity itself, exactly or rounded up.

The maximum number of bits of a row follows from a public cap on the number of records, so that every product
is exact. The true number of records plays no role.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import attrgetter

import numpy as np

from querysmasher.errors import PlanError, PrivacyError
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.planning.strategies import Strategy, is_line
from querysmasher.privacy.accounting import LARGEST_VARIANCE, column_products, squared_sensitivity
from querysmasher.privacy.accounting import privacy_cost as accounted_cost
from querysmasher.privacy.factors import WORD, Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy

MAX_RECORDS = 100_000_000
"""Default cap of `measure`: the planner refuses a plan that cannot be measured under it."""

SAFETY = 1 + Fraction(1, 2**40)
"""Factor by which variances exceed the planned ones: more than all floating-point rounding errors."""


def integer_plan(plan: Plan, privacy_cost: float, max_records: int) -> IntegerPlan:
    """Convert a plan to integers that spend at most `privacy_cost` (checked again when measuring)."""
    plan = plan.inner
    stretch = Fraction(plan.budget.privacy_cost) / Fraction(privacy_cost) * SAFETY
    patterns = _rounded_patterns(plan, max_records, float(stretch))
    if isinstance(patterns, PlanError):
        raise patterns
    # a strategy that determines a centre is rounded once for all sets, to the fewest bits of any
    lines = [r for pattern in patterns.values() for r in pattern if r.planned and is_line(r.planned)]
    coarsest = {r.planned: r for r in sorted(lines, key=lambda r: -r.strategy.bits)}
    patterns = {blocks: [coarsest.get(r.planned, r) for r in pattern] for blocks, pattern in patterns.items()}
    used = list(dict.fromkeys(rounded for pattern in patterns.values() for rounded in pattern))
    measured = []
    for m in plan.measured:
        pattern = patterns[m.blocks]
        axes = [axes for axes, _ in m.blocks] or [()]  # the total has no solution
        square = math.prod((rounded.squared for rounded in pattern), start=Fraction(1))
        blocks = tuple(zip(axes, map(used.index, pattern), strict=True))
        variance = rounded_up(Fraction(m.variance) * stretch * square)
        measured.append(IntegerMeasured(m.attributes, blocks, variance))
    strategies = tuple(rounded.strategy for rounded in used)
    made = IntegerPlan(plan.workload.schema, plan.budget, strategies, tuple(measured), max_records)
    if not plan.budget.unit.total_is_public:
        return made
    cost = accounted_cost(made) / Fraction(privacy_cost) * SAFETY  # rounding moves the worst pair
    measured = [replace(m, variance=rounded_up(m.variance * cost)) for m in measured]
    return replace(made, measured=tuple(measured))


def rounded_up(variance: Fraction | float) -> Fraction:
    """Round a variance up to a short fraction that is at least 1."""
    grain = 1 if variance >= 2**20 else 2**20
    return max(Fraction(1), Fraction(math.ceil(Fraction(variance) * grain), grain))


def refusal(plan: Plan, max_records: int = MAX_RECORDS) -> PlanError | None:
    """Return why a plan cannot be measured in integers under a cap on the number of records, or None."""
    patterns = _rounded_patterns(plan, max_records, 2.0)  # room for a lower privacy cost
    return patterns if isinstance(patterns, PlanError) else None


def _rounded_patterns(
    plan: Plan, max_records: int, stretch: float
) -> dict[Blocks, list[_Rounded]] | PlanError:
    """Round every combination of strategies, for variances times `stretch`; return an error if one fails."""
    noisiest: dict[Blocks, Measured] = {}
    for m in plan.measured:
        if not 0 < m.variance < math.inf:
            allowed = "expected a positive noise variance for every attribute set"
            return PlanError(f"plan: {allowed}, got {m.variance}")
        noisiest[m.blocks] = max(noisiest.get(m.blocks, m), m, key=attrgetter("variance"))
    rounder, patterns = _Rounder(plan, max_records), {}
    for blocks, m in sorted(noisiest.items(), key=lambda item: -len(item[0])):  # the fewest bits first
        rounded = rounder.blocks(m, LARGEST_VARIANCE / (m.variance * stretch))
        if isinstance(rounded, PlanError):
            return rounded
        patterns[blocks] = rounded
    return patterns


@dataclass(frozen=True, eq=False)
class _Rounded:
    """A strategy in integers."""

    planned: Strategy | None
    """None for the total."""
    strategy: IntegerStrategy
    pairs: bool
    """Whether records are replaced, so that the largest distance of two columns is the cost."""

    @cached_property
    def squared(self) -> Fraction:
        """Squared sensitivity."""
        return squared_sensitivity(self.strategy)

    @cached_property
    def noise(self) -> float:
        """The largest factor by which a row multiplies the noise variance."""
        multipliers = self.strategy.multipliers
        return float(self.squared) * (1 if multipliers is None else int(multipliers.max()))

    @cached_property
    def loss(self) -> float:
        """The largest factor by which rounding multiplies the variance of a planned row, or a pair."""
        if self.planned is None:
            return 1.0
        loss = self.planned.rounding_loss(self.strategy) / self.planned.leverage
        if self.pairs and len(parts := column_products(self.strategy)) == 1:
            ((_, products),), planned = parts, self.planned.column_products()
            if products.gram is not None and planned.gram is not None and planned.farthest > 0:
                loss = max(loss, products.farthest / planned.farthest)
        return loss


class _Rounder:
    """Rounds the solutions of a plan, each to as many bits as its attribute sets allow."""

    def __init__(self, plan: Plan, max_records: int) -> None:
        self.plan = plan
        self.room = WORD.bit_length() - 1 - max_records.bit_length()
        """Number of bits that the strategies of a set have together."""
        self._known: dict[tuple[int, int], _Rounded] = {}
        self._lines: dict[int, int] = {}
        """The fewest bits of a set so far, by the solution that is a line: other sets need no more."""

    def blocks(self, measured: Measured, most: float) -> list[_Rounded] | PlanError:
        """Return integer strategies of a set whose rows multiply variances by at most `most`, or an error."""
        if most < 2:
            return PlanError(
                "budget: expected a noise variance of at most 2^100, got a larger one; use a larger budget "
                "or smaller targets"
            )
        if not measured.attributes:
            finest = min(limits().most_bits, self.room - 1, int(math.log2(most)) // 2)
            multiple = 2 ** max(0, finest)  # for noise as fine as planned
            return [_Rounded(None, IntegerStrategy((), (((), Matrix(np.array([[multiple]]))),)), pairs=False)]
        solutions = [number for _, number in measured.blocks]
        for number in solutions:
            if obstacle := self.plan.solutions[number].strategy.obstacle():
                return PlanError(obstacle)
        why = "too few"
        for start in range(min(limits().most_bits, self.room // len(solutions)), limits().least_bits - 1, -1):
            bits = [min(start, self._lines.get(number, start)) for number in solutions]
            rounded = [self._rounded(measured, block, bits[block]) for block in range(len(solutions))]
            if self._fit(rounded, most):
                self._refine(measured, rounded, dict(enumerate(bits)), most)
                if all(block.loss <= limits().most_loss for block in rounded):
                    lines = [b for b, block in enumerate(rounded) if block.planned and is_line(block.planned)]
                    self._lines |= {solutions[b]: bits[b] for b in lines}
                    return rounded
                why = "in which some queries are lost: they differ too much in weight or size"
        names = ", ".join(self.plan.workload.schema.names[a] for a in measured.attributes)
        return PlanError(
            f"max_records: it leaves at most {self.room} bits for exact integer answers on ({names}), {why}; "
            "lower max_records, or plan fewer attributes at a time, or use weights that differ less, or rows "
            "of fewer digits"
        )

    def _refine(self, measured: Measured, rounded: list[_Rounded], bits: dict[int, int], most: float) -> None:
        """Give more bits to the block that loses most, while they fit, and keep what loses least.

        More bits may lose more: how well nearly dependent rows are rounded is a matter of chance.
        """
        tried = [[block] for block in rounded]
        while losing := [block for block in bits if rounded[block].loss > limits().good_loss]:
            worst = max(losing, key=lambda block: rounded[block].loss)
            before, more = rounded[worst], 4 if rounded[worst].loss > limits().most_loss else 1
            if fits := bits[worst] + more <= self.room:
                rounded[worst] = self._rounded(measured, worst, bits[worst] + more)
                fits = self._fit(rounded, most)
            if fits:
                bits[worst] += more
                tried[worst].append(rounded[worst])
            else:
                rounded[worst] = before
                del bits[worst]
        rounded[:] = [min(reversed(every), key=lambda block: block.loss) for every in tried]

    def _fit(self, rounded: list[_Rounded], most: float) -> bool:
        """Return whether the strategies' answers fit in a word, and their noise can be drawn."""
        if sum(block.strategy.bits for block in rounded) > self.room:
            return False
        return math.prod((block.noise for block in rounded), start=2.0) <= most  # with room to round up

    def _rounded(self, measured: Measured, block: int, bits: int) -> _Rounded:
        axes, solution = measured.blocks[block]
        if (solution, bits) not in self._known:
            centres = [self.plan.centres[measured.attributes[a]].exact for a in axes]
            planned = self.plan.solutions[solution].strategy
            if planned.shape != tuple(map(len, centres)):
                raise PrivacyError("plan: a strategy does not fit its attributes")
            pairs = self.plan.budget.unit.total_is_public
            self._known[solution, bits] = _Rounded(planned, planned.rounded(centres, bits), pairs)
        return self._known[solution, bits]
