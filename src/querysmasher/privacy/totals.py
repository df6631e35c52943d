"""What several measurements spend together.

Costs add. Gaussian mechanisms of privacy costs β_1, …, β_n, each chosen after the results of those before it
were seen, protect together as one Gaussian mechanism of cost Σβ_i does: μ² adds (Dong, Roth, Su 2022; Smith,
Thakurta 2022 if the costs are chosen on the way, too), and so does ρ = β/2 of zCDP (Bun, Steinke 2016;
Whitehouse, Ramdas, Rogers, Wu 2023 if the costs are chosen on the way). Hence

- if all noises are Gaussian (`Distribution.is_gaussian`), the total is √(Σβ)-Gaussian DP, and its ε at a δ is
  that of the Gaussian mechanism, exactly: no composition theorem loses anything;
- if one is a discrete Gaussian, the total is (Σβ/2)-zCDP, and ε at a δ follows from zCDP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from querysmasher.privacy.budget import ApproxDP, Budget
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.rates import epsilon, readable, zcdp_epsilon

DELTA = 1e-6
"""The δ at which ε is reported for limits without δ."""

LEAST_LEFT = 1e-6
"""The smallest part of a limit, and the smallest cost and ε, of which is said that it is left."""


@dataclass(frozen=True)
class Total:
    """The exact sum of privacy costs, and whether all noise was Gaussian."""

    cost: Fraction = Fraction(0)
    is_gaussian: bool = True

    @classmethod
    def of(cls, spent: Iterable[tuple[Fraction, Distribution]]) -> Total:
        """Add up measurements, each with its cost and its noise."""
        total = cls()
        for cost, noise in spent:
            total = total.plus(cost, noise)
        return total

    def plus(self, cost: Fraction, noise: Distribution) -> Total:
        """Return the total after one more measurement."""
        return Total(self.cost + cost, self.is_gaussian and noise.is_gaussian)

    def allowed(self, limit: Budget) -> Fraction:
        """Return the cost that may be spent in total under a limit, with the noises used."""
        return Fraction(limit.privacy_cost if self.is_gaussian else limit.discrete_privacy_cost)

    def left(self, limit: Budget) -> Fraction:
        """Return the cost that is left under a limit, with the noises used."""
        return max(self.allowed(limit) - self.cost, Fraction(0))

    def epsilon_left(self, limit: Budget, delta: float) -> float:
        """Return an ε such that one more measurement of (ε, δ) fits, in four digits; 0 if none was found.

        It has noise of the kind that the total is about: Gaussian, or a discrete Gaussian. Such a measurement
        costs at most what is left; it is tried.
        """
        left = self.left(limit)
        if left < LEAST_LEFT:
            return 0.0
        largest = Total(left, self.is_gaussian).epsilon_at(delta)
        for share in (1.0, 1 - 1e-4):
            for up in (True, False):
                tried = readable(share * largest, up=up, digits=4)
                if tried >= LEAST_LEFT and self.allowed(ApproxDP(tried, delta)) <= left:
                    return tried
        return 0.0

    def left_words(self, limit: Budget, delta: float | None = None) -> str:
        """Return what is left under a limit, rounded down; at the δ of the limit, unless another is given.

        >>> from querysmasher.privacy.budget import zCDP
        >>> Total(Fraction(3, 2)).left_words(zCDP(1))
        'rho = 0.25 of 1: one more release may have epsilon = 3.307 at delta = 1e-06 (default noise)'
        """
        delta = delta or limit.stated_delta or DELTA
        allowed, left = self.allowed(limit), self.left(limit)
        rho, of = (readable(_down(cost / 2), up=False) for cost in (left, allowed))
        if left < LEAST_LEFT * allowed:  # what rounding has left
            return f"rho = 0 of {of:.6g}"
        epsilon = self.epsilon_left(limit, delta)
        noise = "default" if self.is_gaussian else "discrete"
        more = f": one more release may have epsilon = {epsilon:g} at delta = {delta!r} ({noise} noise)"
        return f"rho = {rho:.6g} of {of:.6g}{more if epsilon else ''}"

    @property
    def rho(self) -> Fraction:
        """The ρ of zCDP."""
        return self.cost / 2

    @property
    def mu(self) -> float | None:
        """The μ of Gaussian DP, rounded up, or None if the noise was not only Gaussian."""
        if not self.is_gaussian:
            return None
        root = math.sqrt(self.cost)
        return root if Fraction(root) ** 2 >= self.cost else math.nextafter(root, math.inf)

    def epsilon_at(self, delta: float) -> float:
        """Return the ε at this δ, rounded up: tight for Gaussian noise, by zCDP otherwise."""
        if not self.cost:
            return 0.0
        return epsilon(_up(self.cost), delta) if self.is_gaussian else zcdp_epsilon(_up(self.rho), delta)


def _up(exact: Fraction) -> float:
    """Return the fraction as a float, rounded up."""
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _down(exact: Fraction) -> float:
    """Return the fraction as a float, rounded down."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)
