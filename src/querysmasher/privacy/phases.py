"""Measurements in phases: each is planned after the noisy results of those before it, under one budget.

Formal guarantee. Let β be the privacy cost that the budget allows with the noise used. However each phase is
chosen from the noisy results of earlier phases, all results together satisfy the budget, because `Phases`
adds the exact cost of a phase to what is spent, and refuses it if the sum would exceed β, before anything of
it is counted.

Proof, for Gaussian noise. Fix neighbours x, x'. Number all noisy values of all phases in the order in which
they are drawn. Given the values before it, the k-th is f_k + σ_k Z_k with Z_k standard normal and independent
of the past, where f_k and σ_k are known from the past, and f_k differs between x and x' by d_k, say, in units
of σ_k. (Rounding is post-processing: f_k is an integer, so f_k + round(σ_k Z_k) = round(f_k + σ_k Z_k), and
earlier values are used only after rounding.) The log-likelihood ratio of all values under x is
L = Σ_k (d_k Z_k + d_k²/2). By the accounting Σ_k d_k² <= β for every course of events; draw one more value
that nobody reads, with d² = β - Σ_k d_k², so that Σ_k d_k² = β always. For real θ the products
Π_{k<=n} exp(iθ d_k Z_k + θ² d_k²/2) are a martingale in n, because d_k depends on the past only. Hence
E exp(iθ Σ_k d_k Z_k) = exp(-θ²β/2): the sum is normal with variance β, although the d_k are random. So L is
N(β/2, β) under x, and N(-β/2, β) under x' by symmetry: exactly the log-likelihood ratio of N(√β, 1) and
N(0, 1). The results are √β-Gaussian DP, as if all phases had been fixed in advance. Nothing is lost by
adaptivity, and no approximation is used. Every other budget follows from this one distribution.

Proof, for discrete Gaussian noise (zCDP). Given the past, the k-th value has Rényi divergence at most
α d_k²/2 of every order α > 1. So Π_{k<=n} exp((α - 1)(L_k - α d_k²/2)), with L_k the k-th log-likelihood
ratio, is a supermartingale under x, and E exp((α - 1) L) <= exp((α - 1) α β/2): the results are β/2-zCDP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from querysmasher.arrays import Numbers
from querysmasher.errors import DataError, PrivacyError
from querysmasher.privacy.accounting import Distances, Dropped, distances_cost, privacy_cost
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.counts import Counter, Counts
from querysmasher.privacy.factors import Integers
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.measurement import (
    exact_counts,
    measure_distances,
    measure_dropped,
    measure_table,
)
from querysmasher.privacy.noise import NoiseSource
from querysmasher.schema import Schema


class Phases:
    """One table, measured in phases that together spend at most one budget."""

    def __init__(
        self, schema: Schema, budget: Budget, counter: Counter, noise: NoiseSource, max_records: int
    ) -> None:
        """Start with nothing spent."""
        self.schema = schema
        self.budget = budget
        self._counter = counter
        self._noise = noise
        self.max_records = max_records
        self._allowed = Fraction(noise.distribution.allowed_cost(budget))
        self._spent = Fraction(0)

    def __repr__(self) -> str:
        """Return what is spent, and nothing about the table."""
        return f"Phases(spent {float(self._spent):.4g} of {float(self._allowed):.4g})"

    @property
    def spent(self) -> Fraction:
        """The exact privacy cost of all phases so far, including one that failed."""
        return self._spent

    @property
    def left(self) -> Fraction:
        """The privacy cost that later phases may spend."""
        return self._allowed - self._spent

    def public_total(self) -> int | None:
        """Return the number of records if the neighbours make it public, else None."""
        if not self.budget.unit.total_is_public:
            return None
        records = self._counter.records()
        if records > self.max_records:
            raise DataError(f"data: the table has more records than max_records = {self.max_records:,}")
        return records

    def exact(
        self, public: tuple[Counts, ...] | None = None, progress: bool | None = None
    ) -> tuple[Counts, ...]:
        """Return the counts that the neighbours make public, on the sets that the unit of privacy names."""
        unit = self.budget.unit
        if not unit.exact:
            return ()
        return exact_counts(self.schema, unit, self._counter, self.max_records, public, progress)

    def measure(self, plan: IntegerPlan, progress: bool | None = None) -> dict[int, Numbers]:
        """Return the noisy answers of a phase, by the index of their attribute set."""
        return dict(self.answers(plan, progress))

    def answers(self, plan: IntegerPlan, progress: bool | None = None) -> Iterator[tuple[int, Numbers]]:
        """Iterate over the noisy answers of a phase, each with the index of its attribute set."""
        self._check(plan)
        self._spend(privacy_cost(plan))
        return measure_table(plan, self._counter, self._noise, progress)

    def dropped(self, phase: Dropped, progress: bool | None = None) -> Numbers:
        """Return how many records, or persons in each bin, were left out, with noise."""
        self._spend(phase.cost)
        return measure_dropped(phase, self.budget, self._counter, self._noise, progress)

    def distances(
        self, phase: Distances, targets: Callable[[int], Integers], progress: bool | None = None
    ) -> Numbers:
        """Return noisy distances, in order; `targets` maps an index to integers, without data."""
        self._check(phase)
        self._spend(distances_cost(phase))
        return measure_distances(phase, targets, self._counter, self._noise, progress)

    def _check(self, phase: IntegerPlan | Distances) -> None:
        """Refuse a phase for another domain, unit of privacy or number of records."""
        if phase.schema != self.schema or phase.budget.unit != self.budget.unit:
            raise PrivacyError("phase: its schema or its unit of privacy differs from that of the budget")
        if phase.max_records != self.max_records:
            raise PrivacyError(f"phase: expected max_records = {self.max_records}, got {phase.max_records}")

    def _spend(self, cost: Fraction) -> None:
        """Add the cost of a phase, before it; refuse it if the sum exceeds the budget."""
        if self._spent + cost > self._allowed:
            raise PrivacyError(
                f"phase: it costs {float(cost):.6g}, and {float(self.left):.6g} of "
                f"{float(self._allowed):.6g} is left; nothing of it was measured"
            )
        self._spent += cost
