"""The noise of a measurement: exact samplers of the rounded and the discrete Gaussian, and two others.

The discrete Gaussian N_Z(σ²) gives the integer x the probability exp(-x²/2σ²) / Σ_y exp(-y²/2σ²).
`DiscreteGaussian` draws from exactly this distribution; the proof is four short steps.

1. Proposal. Let t = 2ᵏ be the smallest power of two, k >= 0, with t² >= 1.4 σ² (compared in exact
   arithmetic). Independent fair bits give a sign s, an offset r uniform on 0 .. t - 1, and v, the
   number of zeros before the first one in a stream of bits: P(v) = 2^-(v+1). Every integer m >= 0
   is r + t v in one way only, so it is proposed, with either sign, with probability 2^-(v+2) / t.

2. Acceptance. Accept with probability a = 2ᵛ exp(-γ), where γ = m²/2σ². This is a probability:
   m >= t v gives γ >= 0.7 v² >= v ln 2. Then (s, m) is proposed and accepted with probability
   exp(-m²/2σ²) / 4t, which is the target up to a constant. Of +0 and -0 the second is thrown away,
   so that zero counts once. Trials are independent and the first accepted ones are returned, in
   order, hence the result is independent and exactly N_Z(σ²).

3. Decision. "With probability a" means U < a for U uniform on [0, 1), revealed bit by bit. The
   first 44 bits say u <= U < u + 2⁻⁴⁴. Floating point yields a number a' with |a' - a| < 2⁻⁴¹
   (step 4). If a' - u > 2⁻⁴⁰ then U < a for certain, if a' - u < -2⁻⁴⁰ then U > a for certain.
   In between, or if none of the first 20 bits of the stream for v is a one, nothing is decided in
   floating point: `_is_below` reveals more bits of U and encloses a between rationals with integer
   arithmetic until the two are apart. Rounding thus decides how long a decision takes, never which.

4. Margin. Assume that conversion, product and difference of doubles round with relative error at
   most 2⁻⁵² (IEEE 754 in any rounding mode, fused or not), and that exp is within a relative 2⁻⁴²
   (a thousand units in the last place; real libraries err by four at most). Five roundings make γ' =
   m · m · (1/2σ²) wrong by at most 2⁻⁴⁹ γ, where γ < 2²⁹ as v < 20 and σ² >= 2⁻²⁰; hence exp(-γ') is
   within a relative 2⁻⁴⁸ γ + 2⁻⁴² + 2⁻⁶¹. The product with 2ᵛ is exact, but for underflow, which
   loses less than 2⁻¹⁰⁰⁰. As a <= 1 and γ a <= 1 (for v <= 1, γ a <= 2γ exp(-γ) < 1; for v >= 2,
   v ln 2 <= γ/v <= γ/2 and γ exp(-γ/2) < 1), |a' - a| < 2⁻⁴⁸ + 2⁻⁴² + 2⁻⁶⁰ < 2⁻⁴¹. Together with
   the 2⁻⁴⁴ of u, which is itself exact, and the rounding of a' - u, that is below 2⁻⁴⁰.

5. Rounding. `RoundedGaussian` draws the nearest integer to a real X ~ N(0, σ²). It proposes |X| = m + f,
   with f uniform on [0, 1) and revealed bit by bit like U, and accepts with probability
   2ᵛ exp(-(m + f)²/2σ²), again at most 1. So (s, m, f) is accepted with density proportional to
   exp(-(m + f)²/2σ²): X is exactly Gaussian, and the first bit of f says which integer is nearest (ties
   have probability zero). Nothing is thrown away, as X = 0 has probability zero. In floating point f is
   cut to 64 bits and then rounded, an error below 2⁻⁵², and so is m + f, a relative 2⁻⁵²: they move γ by
   at most 2⁻⁵¹ (√(2γ)/σ + 2γ), and as σ² >= 1 is required here and √γ a <= 1, the margin of step 4 still
   holds with room. In the exact path γ is enclosed by the bits of f known so far.

Overflow. σ² <= 2¹⁰⁰ means t <= 2⁵¹, so v < 20 keeps m below 2⁵⁶. The slow path uses unbounded
integers; a result beyond 64 bits, of probability below 2^-1000000, would raise OverflowError.
Not covered: how long the sampler takes depends, very slightly, on what it draws.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import MissingExtraError, PrivacyError, Remedy, as_given
from querysmasher.privacy.budget import root_up
from querysmasher.privacy.distributions import DISTRIBUTIONS, Distribution, distribution_of

SMALLEST_VARIANCE = Fraction(1, 2**20)
LARGEST_VARIANCE = Fraction(2**100)

_MARGIN = 2.0**-40  # step 3; tests raise it to send every decision down the exact path
_STREAM_BITS = 20  # bits of a coin that start the stream for v; the other 44 start U
_CHUNK = 2**15  # proposals at a time: the working arrays stay in the processor's cache

Words = NDArray[np.uint64]


class _ExactSampler:
    """Rejection from a proposal made of fair bits; see the proof at the top of this file."""

    distribution: Distribution
    smallest = SMALLEST_VARIANCE
    title = ""
    is_whole = True
    """Whether the values are integers before they are rounded: no fractions f are drawn."""

    def __init__(self, *, seed: int | None = None) -> None:
        """Draw bits from the operating system's cryptographic source, or from a seeded generator."""
        self.seed = seed
        self._generator = None if seed is None else np.random.PCG64(seed)

    def _words(self, count: int) -> Words:
        """Return words of 64 bits."""
        if self._generator is None:
            return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)

    @property
    def description(self) -> str:
        """One sentence for the report: which distribution, fed by which randomness."""
        if self.seed is None:
            return self.distribution.description
        return f"{self.title} from a generator with seed {self.seed}: a simulation, NOT private."

    def draw(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw `size` independent integers with the given variance parameter σ²."""
        variance = exact_variance(variance, self.smallest)
        k = _block(variance)
        noise = np.empty(checked_size(size), dtype=np.int64)
        done = 0
        while done < size:
            accepted = self._trials(variance, k, min(_CHUNK, 2 * (size - done) + 16))
            taken = accepted[: size - done]
            noise[done : done + taken.size] = taken
            done += taken.size
        return noise

    def _trials(self, variance: Fraction, k: int, count: int) -> NDArray[np.int64]:
        """Make `count` trials and return the accepted values."""
        word, coin = self._words(2 * count).reshape(2, count)
        fraction = None if self.is_whole else self._words(count)  # the first bits of f
        negative = word >> np.uint64(63) == 1
        offset = (word & np.uint64(2**k - 1)).astype(np.int64)
        stream = coin & np.uint64(2**_STREAM_BITS - 1)
        power = stream & (~stream + np.uint64(1))  # 2^v, the lowest one of the stream
        v = np.bitwise_count(power - np.uint64(1)).astype(np.int64)
        u = (coin >> np.uint64(_STREAM_BITS)).astype(np.float64) * 2.0 ** (_STREAM_BITS - 64)

        m = offset + (v << k)
        real = m.astype(np.float64)
        if fraction is not None:
            real += fraction.astype(np.float64) * 2.0**-64
        with np.errstate(under="ignore"):
            a = np.exp(real * real * -float(1 / (2 * variance))) * power.astype(np.float64)
        difference = a - u
        accepted = difference > 0
        for i in np.flatnonzero((np.abs(difference) <= _MARGIN) | (stream == 0)).tolist():
            known = None if fraction is None else int(fraction[i])
            m[i], accepted[i] = self._decide(variance, k, int(offset[i]), int(coin[i]), known)
        if fraction is None:
            accepted &= ~negative | (m != 0)
        else:
            m += (fraction >> np.uint64(63)).astype(np.int64)
        return np.where(negative, -m, m)[accepted]

    def _decide(
        self, variance: Fraction, k: int, offset: int, coin: int, fraction: int | None
    ) -> tuple[int, bool]:
        """Finish one trial exactly: the whole part of the magnitude, and whether it is accepted."""
        stream, v = coin % 2**_STREAM_BITS, 0
        if stream == 0:
            v = _STREAM_BITS
            while (stream := self._word()) == 0:
                v += 64
        v += (stream & -stream).bit_length() - 1  # the position of the lowest one
        m = offset + (v << k)
        known, width = fraction, 0

        def gamma() -> tuple[Fraction, Fraction]:
            nonlocal known, width
            if known is None:
                return (exact := m * m / (2 * variance)), exact
            known, width = (known, 64) if width == 0 else (known << 64 | self._word(), width + 64)
            low, high = m + Fraction(known, 2**width), m + Fraction(known + 1, 2**width)
            return low * low / (2 * variance), high * high / (2 * variance)

        uniform, bits = coin >> _STREAM_BITS, 64 - _STREAM_BITS
        return m, _is_below(uniform, bits, v, gamma, self._word)

    def _word(self) -> int:
        return int(self._words(1)[0])


class DiscreteGaussian(_ExactSampler):
    """The discrete Gaussian, sampled exactly.

    Formal guarantee: whatever the inputs, `draw` returns independent draws from exactly
    N_Z(variance), provided that the source's bits are independent and fair. Added to an integer
    answer of squared sensitivity Δ² this is ρ-zCDP with ρ = Δ²/(2 variance) (Canonne, Kamath,
    Steinke 2020). With a seed the bits can be recomputed, hence there is no privacy: a seed is for
    tests and simulation only.
    """

    distribution = DISTRIBUTIONS["discrete"]
    title = "Discrete Gaussian"


class RoundedGaussian(_ExactSampler):
    """The Gaussian rounded to the nearest integer, sampled exactly.

    Formal guarantee: `draw` returns independent draws of the nearest integer to X ~ N(0, variance),
    exactly, provided that the source's bits are independent and fair. An integer answer plus the rounded
    noise is the rounding of the answer plus X: a post-processing of the Gaussian mechanism. Hence every
    guarantee of Gaussian noise holds as it stands: Gaussian DP with μ² = Δ²/variance, ρ-zCDP with
    ρ = Δ²/(2 variance), and the exact (ε, δ) curve. The variance of the noise is
    variance + 1/12 but for less than 2·10⁻⁸ (`distributions` has it exactly). With a seed there is no
    privacy.
    """

    distribution = DISTRIBUTIONS["rounded"]
    title = "Gaussian rounded to integers"
    smallest = Fraction(1)
    is_whole = False


def exact_variance(variance: object, smallest: Fraction = SMALLEST_VARIANCE) -> Fraction:
    """Return the variance as a fraction, or refuse it."""
    if isinstance(variance, bool) or not isinstance(variance, Rational):
        raise PrivacyError(f"variance: expected an exact number (Fraction or int), got {variance!r}")
    if variance <= 0:
        msg = f"variance: expected a positive number, got {variance}; zero noise is never allowed"
        raise PrivacyError(msg)
    if not smallest <= variance <= LARGEST_VARIANCE:
        least = "1" if smallest == 1 else "2^-20"
        exponent = math.log2(variance.numerator) - math.log2(variance.denominator)
        raise PrivacyError(f"variance: expected a number from {least} to 2^100, got about 2^{exponent:.2f}")
    return Fraction(variance)


def _block(variance: Fraction) -> int:
    """Return the smallest k >= 0 with 4ᵏ >= 1.4 `variance` (step 1)."""
    return ((math.ceil(variance * 7 / 5) - 1).bit_length() + 1) // 2


def checked_size(size: int) -> int:
    """Return how many draws are asked for, or refuse the number."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
        raise PrivacyError(f"size: expected an integer of at least 0, got {size!r}")
    return int(size)


def _is_below(
    uniform: int,
    bits: int,
    v: int,
    gamma: Callable[[], tuple[Fraction, Fraction]],
    word: Callable[[], int],
) -> bool:
    """Tell whether U < 2ᵛ exp(-γ), for U whose first bits are given and whose others `word` reveals.

    U starts with the `bits` bits of `uniform`. `gamma` returns bounds on γ, closer at every call where γ
    itself depends on bits still to be revealed. The loop ends with probability one: U is almost never
    equal to the bound, and the enclosure of the bound shrinks with every word.
    """
    while True:
        least, most = gamma()
        low, high = _exp_bounds(most, bits + v)[0], _exp_bounds(least, bits + v)[1]
        if uniform + 1 <= low:
            return True
        if uniform >= high:
            return False
        uniform, bits = uniform << 64 | word(), bits + 64


def _exp_bounds(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Return integers low <= 2^bits exp(-γ) <= high, a few units apart at most, for γ >= 0.

    With g = γ / 2^h < 1, exp(-g) = y_1 where y_j = 1 - (g/j) y_(j+1). Each y_j is an alternating series
    with shrinking terms that starts with 1, hence in [0, 1]; the recursion starts from that enclosure
    far out and rounds every step outwards. Squaring h times leads back to exp(-γ).
    """
    h = math.floor(gamma).bit_length()
    guard = h + 8
    work = bits + guard
    unit = 1 << work
    scaled = gamma * unit / 2**h
    g_low, g_high = math.floor(scaled), math.ceil(scaled)
    low, high = 0, unit
    for j in range(work // 3 + 12, 0, -1):
        low, high = unit + (-g_high * high // (j * unit)), unit - (g_low * low // (j * unit))
    for _ in range(h):
        low, high = low * low >> work, -(-high * high >> work)
    return low >> guard, -(-high >> guard)


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
        mechanism = opendp.m.make_gaussian(*space, scale=root_up(exact_variance(variance)))
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


NoiseSource = RoundedGaussian | DiscreteGaussian | OpenDPDiscreteGaussian | FloatGaussian
"""Independent draws with a given variance parameter."""

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
