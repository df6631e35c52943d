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

from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.rates import epsilon, zcdp_epsilon


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
