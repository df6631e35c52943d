"""The distributions of noise and their properties; `noise` draws from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from querysmasher.errors import PrivacyError, not_one_of
from querysmasher.privacy.budget import Budget


@dataclass(frozen=True)
class Distribution:
    """A distribution of noise with a variance parameter σ².

    Args:
        name: the short name that selects it, and that a release stores.
        description: one sentence for readers, of a draw without a seed: which noise, from which source.
        is_private: whether the noise protects anyone, provided that its random bits are secret.
        is_gaussian: whether a noisy answer is post-processing of the Gaussian mechanism, so that every
            guarantee of the Gaussian mechanism holds for it.
        extra_variance: maps σ² to the variance of a draw minus σ².
        dtype: the type of a draw.
    """

    name: str
    description: str
    is_private: bool
    is_gaussian: bool
    extra_variance: Callable[[float], float]
    dtype: type[np.int64 | np.float64] = np.int64

    def allowed_cost(self, budget: Budget) -> float:
        """Return the privacy cost that this noise may spend under a budget.

        Rounded Gaussian noise (and float noise, in simulations) is post-processing of Gaussian noise, so
        every budget follows the Gaussian formulas. Discrete Gaussian noise is accounted through zCDP.
        """
        return budget.privacy_cost if self.is_gaussian else budget.discrete_privacy_cost


def _rounded_extra(variance: float) -> float:
    """Return Var(round(X)) - σ² for X ~ N(0, σ²) and σ² >= 1.

    With P(round(X) = k) written as a Fourier series in the period 1, it is
    1/12 + Σ_{j>=1} (-1)ʲ (4σ² + 1/(πj)²) exp(-2π²j²σ²), whose third term is below 10⁻³⁴ for σ² >= 1.
    """
    terms = (
        (-1) ** j * (4 * variance + 1 / (math.pi * j) ** 2) * math.exp(-2 * (math.pi * j) ** 2 * variance)
        for j in (1, 2)
    )
    return math.fsum((1 / 12, *terms))


def _discrete_extra(variance: float) -> float:
    """Return Var(K) - σ² for K ~ N_Z(σ²), with probabilities proportional to exp(-k²/2σ²).

    By Poisson's summation formula it is -4π²σ⁴ Σ j² q^(j²) / Σ q^(j²) over all integers j, with
    q = exp(-2π²σ²). Below σ² = 1 the probabilities themselves are summed.
    """
    small = variance < 1
    j = np.arange(1.0, 40.0)
    weights = np.exp(-(j**2) / (2 * variance) if small else -2 * (np.pi * j) ** 2 * variance)
    second = float(2 * (j**2) @ weights / (1 + 2 * weights.sum()))
    return second - variance if small else -4 * math.pi**2 * variance**2 * second


_SOURCE = "sampled exactly from the operating system's cryptographic source"

DISTRIBUTIONS = {
    distribution.name: distribution
    for distribution in (
        Distribution(
            "rounded",
            f"Gaussian rounded to integers, {_SOURCE}.",
            is_private=True,
            is_gaussian=True,
            extra_variance=_rounded_extra,
        ),
        Distribution(
            "discrete",
            f"Discrete Gaussian, {_SOURCE}.",
            is_private=True,
            is_gaussian=False,
            extra_variance=_discrete_extra,
        ),
        Distribution(
            "opendp",
            "Discrete Gaussian, sampled by OpenDP from a cryptographic source.",
            is_private=True,
            is_gaussian=False,
            extra_variance=_discrete_extra,
        ),
        Distribution(
            "gaussian",
            "Gaussian noise in floating point: a simulation, NOT private.",
            is_private=False,
            is_gaussian=True,
            extra_variance=lambda _: 0.0,
            dtype=np.float64,
        ),
    )
}
"""The distributions by name; callers use their properties and do not compare names."""


def distribution_of(name: object) -> Distribution:
    """Return the distribution of this name."""
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise PrivacyError(f"noise: {not_one_of(DISTRIBUTIONS, name)}")
    return DISTRIBUTIONS[name]
