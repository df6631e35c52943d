"""The noises of a measurement, behind one interface.

``rounded`` (the default) and ``discrete`` are exact integer noises from `querysmasher.privacy.sampler`;
``opendp`` is OpenDP's discrete Gaussian; ``gaussian`` is ordinary floating-point noise for simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Numbers
from querysmasher.errors import MissingExtraError, PrivacyError, Remedy, as_given
from querysmasher.privacy.distributions import DISTRIBUTIONS, Distribution, distribution_of
from querysmasher.privacy.sampler import DiscreteGaussian, RoundedGaussian, checked_size, exact_variance


class NoiseSource(Protocol):
    """The interface of noise: independent draws with a given variance parameter."""

    @property
    def distribution(self) -> Distribution:
        """The distribution of the draws."""

    @property
    def description(self) -> str:
        """One sentence for the report: the distribution and the source of randomness."""

    def draw(self, variance: Fraction, size: int) -> Numbers:
        """Draw `size` independent numbers with the variance parameter σ²."""


SEEDED = Remedy("use noise='discrete' for a simulation", 'use [measure] noise = "discrete" for a simulation')


class OpenDPDiscreteGaussian:
    """OpenDP's sampler of the discrete Gaussian, from the package `opendp`: independent code, and slower.

    Formal guarantee: OpenDP's for `make_gaussian` on integers. It takes the standard deviation as a
    double, which is rounded up here, so the variance is never below the one asked for.
    """

    distribution = DISTRIBUTIONS["opendp"]
    description = distribution.description

    def __init__(self, *, seed: int | None = None) -> None:
        """Load OpenDP, or raise an error that says how to install it."""
        if seed is not None:
            raise PrivacyError("seed: OpenDP's noise does not support a seed", SEEDED)
        try:
            import opendp.prelude as opendp  # noqa: PLC0415 - an extra
        except ImportError:
            msg = "OpenDPDiscreteGaussian needs the package opendp: pip install 'querysmasher[opendp]'"
            raise MissingExtraError(msg) from None
        opendp.enable_features("contrib")
        self._opendp: Any = opendp

    def draw(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw `size` independent integers from N_Z(`variance`), or with a slightly larger variance."""
        opendp = self._opendp
        space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T=float)
        mechanism = opendp.m.make_gaussian(*space, scale=_root(exact_variance(variance)))
        return np.array(mechanism([0] * checked_size(size)), dtype=np.int64)


class FloatGaussian:
    """Ordinary Gaussian noise in floating point, for simulation only: it has NO guarantee."""

    distribution = DISTRIBUTIONS["gaussian"]
    description = distribution.description

    def __init__(self, *, seed: int | None = None) -> None:
        """Start a generator, from `seed` if one is given."""
        self._generator = np.random.default_rng(seed)

    def draw(self, variance: Fraction | float, size: int) -> NDArray[np.float64]:
        """Draw `size` independent numbers from N(0, `variance`)."""
        if isinstance(variance, bool) or not 0 < variance < math.inf:
            msg = f"variance: expected a positive number, got {variance!r}; zero noise is never allowed"
            raise PrivacyError(msg)
        return self._generator.normal(0.0, math.sqrt(float(variance)), checked_size(size))


SOURCES: dict[str, Callable[..., NoiseSource]] = {
    "rounded": RoundedGaussian,
    "discrete": DiscreteGaussian,
    "opendp": OpenDPDiscreteGaussian,
    "gaussian": FloatGaussian,
}


def noise_source(name: str, seed: int | None) -> NoiseSource:
    """Return the noise called `name`; a seed makes it a simulation."""
    distribution = distribution_of(name)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
        raise PrivacyError(f"seed: expected an integer of at least 0, or None, got {as_given(seed)}")
    return SOURCES[distribution.name](seed=seed)


def _root(variance: Fraction) -> float:
    """Return the square root, rounded up."""
    root = math.sqrt(variance)
    return root if Fraction(root) ** 2 >= variance else math.nextafter(root, math.inf)
