"""Which values exist: noisy counts, of which those above a threshold are published.

Let c_v be the count of a value v: of the records that have it or, with persons, of the persons of whom it is
counted, at most k values of each (`bound.ValueBound`). For every value with c_v >= 1 independent integer
noise Z_v of variance σ² is drawn, and v is published with c_v + Z_v if that is at least the threshold T.
Nothing is said of any other value.

*Approximately.* A mechanism M has cost β *up to δ* if for neighbours x, x' there are pairs of distributions
with M(x) = (1 - δ) G + δ Q and M(x') = (1 - δ) G' + δ Q', such that G and G' are as hard to distinguish as
the noise's cost β says: as N(√β, 1) and N(0, 1) for rounded Gaussian noise, and β/2-zCDP for discrete. (With
zCDP, this is δ-approximate β/2-zCDP of Bun, Steinke 2016.) `entries.Total` adds such costs up.

Formal guarantee. The published values and counts have cost `Discovery.cost` up to `Discovery.delta`.

Proof. Let V be the values that exist in both x and x'. Call E the event that no value outside V is published
from x, and E' the same for x'.

1. Given E, what is published from x is a function of the noisy counts of V alone, and so it is given E' from
   x', because the noise of different values is independent. These counts differ in squared length by at most
   - r², if at most r records are added or removed: a sum of r unit vectors;
   - k, if all records of a person are added or removed: at most k counts change, by 1 each;
   - 2r², if r records are replaced: by a - b, where a and b are counts of r records each, and a·b >= 0.
   So given E and E' the results are hard to distinguish at cost (squared length)/σ², as in every measurement
   (`accounting`); the threshold is post-processing.
2. Values outside V belong to the records that differ. Let F(c) = P(c + Z >= T). With persons, at most k such
   values exist in x, each with count 1: the probability that one is published is at most k·F(1). Without,
   their counts sum to at most r: the probability is at most Σ F(c_i) with Σ c_i <= r. The bound used for F
   (below) is convex on [0, r], so F(c)/c is largest at c = 1 or c = r, and the sum at most max(r·F(1),
   F(r)). The threshold is the least one at which this is at most δ (`Discovery.own` lists the cases).
3. So P(E) and P(E') are at least 1 - δ. E and E' depend on the noise of values outside V only. Shrink the
   more probable one by an independent coin, so that both have probability 1 - δ exactly: G and G' are the
   results given E and E'. ∎

The tail. For m >= σ + 1/2, both noises satisfy P(Z >= m) <= P(N(0, σ²) >= m - 1/2).

- Rounded Gaussian noise reaches m if and only if the Gaussian reaches m - 1/2: this is an equation.
- The discrete Gaussian has P(Z >= m) = Σ_{x >= m} g(x) / Σ_x g(x) with g(x) = exp(-x²/2σ²). By Poisson's
  summation formula the denominator is at least ∫ g = √(2πσ²). For |x| >= σ the function g is convex, so that
  g(x) <= ∫ g from x - 1/2 to x + 1/2 for every x >= m, and the numerator is at most ∫ g from m - 1/2 on.

As a function of c, P(N(0, σ²) >= T - c - 1/2) is convex as long as T - c - 1/2 >= 0. The threshold satisfies
T - c >= σ + 1/2 for every count c in `own`, the largest of which is r.

Which noisy counts are published says nothing but themselves: the result is in the order of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from querysmasher.errors import BudgetError, PrivacyError
from querysmasher.privacy.accounting import LARGEST_VARIANCE
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import Distribution

SLACK = 1e-11
"""Relative error assumed for the tail: with at most 38 standard deviations, ten times what rounding makes."""

LEAST_DELTA = 1e-290
"""Minimum probability for which there is a threshold: below, the tail is not a normal double."""

GRAIN = 2**10
"""Variances are multiples of 1/GRAIN."""


@dataclass(frozen=True)
class Discovery:
    """How values are discovered: the noise, and the probability δ that the threshold may fail.

    Attributes:
        budget: what may be spent, and for which neighbours.
        most: maximum number of values of one person that are counted, or None if records are counted.
        variance: the variance σ² of the noise of each count.
        delta: maximum probability that a value is published that only one person has.
    """

    budget: Budget
    most: int | None
    variance: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        """Check the types; refuse numbers for which there is no noise or no threshold."""
        if type(self.variance) is not Fraction or type(self.delta) is not Fraction:
            raise PrivacyError("discovery: expected a variance and a delta as Fractions")
        if self.most is not None and (type(self.most) is not int or self.most < 1):
            raise PrivacyError("discovery: expected a positive number of values per person, or None")
        if self.most is not None and self.budget.unit.total_is_public:
            raise PrivacyError("discovery: with replace_one neighbours persons are not distinguished")
        if not 1 <= self.variance <= LARGEST_VARIANCE:
            raise PrivacyError("discovery: expected a noise variance from 1 to 2^100")
        if not 0 < self.delta < 1:
            raise PrivacyError("discovery: expected a delta between 0 and 1")
        _ = self.threshold  # refuses a δ that is too small for one

    @classmethod
    def planned(cls, budget: Budget, most: int | None, delta: Fraction, noise: Distribution) -> Discovery:
        """Return the discovery with the least noise within a budget, of which the threshold takes δ."""
        if not noise.is_private:
            raise PrivacyError(f"noise: expected integer noise, got {noise.name!r}, which protects nobody")
        allowed = Fraction(noise.allowed_cost(budget.without(delta)))
        variance = squared_change(budget, most) / allowed
        if variance > LARGEST_VARIANCE:
            raise BudgetError(f"budget: {budget!r} is too small to discover anything")
        return cls(budget, most, max(Fraction(1), Fraction(math.ceil(variance * GRAIN), GRAIN)), delta)

    @property
    def cost(self) -> Fraction:
        """The exact privacy cost β of everything that is published, up to δ."""
        return squared_change(self.budget, self.most) / self.variance

    @property
    def own(self) -> tuple[tuple[int, int], ...]:
        """What one person may add to values that nobody else has: a count, and of how many values."""
        records = self.budget.unit.records_per_person
        return ((1, records), (records, 1)) if self.most is None else ((1, self.most),)

    @cached_property
    def threshold(self) -> int:
        """The least T for which every case of `own` is published with probability at most δ."""
        return max(count + reach(self.variance, self.delta / times) for count, times in self.own)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that states what is spent, for whom."""
        return {
            "budget": self.budget.to_json(),
            "values_per_person": self.most,
            "variance": str(self.variance),
            "delta": str(self.delta),
        }


def squared_change(budget: Budget, most: int | None) -> Fraction:
    """Return the largest squared change of the counts of values that exist in both of two neighbours."""
    unit = budget.unit
    if most is not None:
        return Fraction(most)
    return Fraction((2 if unit.total_is_public else 1) * unit.records_per_person**2)


def tail(variance: Fraction, least: int) -> Fraction:
    """Return an upper bound on P(Z >= least) for rounded and for discrete noise, where least >= σ + 1/2."""
    from scipy.special import erfcx  # noqa: PLC0415 - loads slowly, and only this needs it

    x = (least - 0.5) / math.sqrt(variance)
    return Fraction(math.exp(-x * x / 2) * float(erfcx(x / math.sqrt(2))) / 2 * (1 + SLACK))


def reach(variance: Fraction, delta: Fraction) -> int:
    """Return the least m >= σ + 1/2 for which noise reaches m with probability at most δ."""
    if delta < LEAST_DELTA:
        raise BudgetError(f"delta: expected at least {LEAST_DELTA:g} per value, got {float(delta):.3g}")
    low = math.isqrt(math.floor(variance)) + 1  # at most σ + 1
    high = low + 1
    while tail(variance, high) > delta:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        is_enough = (2 * middle - 1) ** 2 >= 4 * variance and tail(variance, middle) <= delta
        low, high = (low, middle) if is_enough else (middle + 1, high)
    return low
