"""The discrete Gaussian sampler: its distribution, its exact decisions, and each step of its proof.

Statistical tests raise a false alarm with probability `ALARM` or less. Seeds are fixed wherever the
source allows it, so that a test which passes once passes always.
"""

import math
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from querysmasher.errors import PrivacyError
from querysmasher.privacy import noise as noises
from querysmasher.privacy.budget import root_up
from querysmasher.privacy.noise import (
    DiscreteGaussian,
    FloatGaussian,
    NoiseSource,
    OpenDPDiscreteGaussian,
    RoundedGaussian,
)
from tests.builders import ALARM

VARIANCES = [
    Fraction(1, 100),
    Fraction(1, 10),
    Fraction(1, 2),
    Fraction(5, 7),  # the last variance with t = 1
    Fraction(1),
    Fraction(7, 3),
    Fraction(10),
    Fraction(1000),
    Fraction(12345, 7),
    Fraction(10**6),
    Fraction(10**30 + 7, 10**24 + 1),
]


def bins(variance, count):
    """Edges and probabilities of bins of consecutive integers that each expect 20 of `count` or more."""
    reach = math.ceil(10 * math.sqrt(variance)) + 2
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x.astype(float) ** 2) / (2 * float(variance)))
    p /= p.sum()  # what is left out has probability below 1e-20
    edges, chances, chance = [], [], 0.0
    least = max(20 / count, 0.005)
    for value, share in zip(x, p, strict=True):
        chance += share
        if chance >= least:
            edges.append(value + 0.5)
            chances.append(chance)
            chance = 0.0
    chances[-1] += chance
    return np.array([-np.inf, *edges[:-1], np.inf]), np.array(chances)


def check_distribution(sample, variance):
    edges, chances = bins(variance, sample.size)
    seen, _ = np.histogram(sample, edges)
    if len(chances) == 1:
        # Nothing but zero is likely enough to be counted.
        assert np.mean(sample == 0) > 1 - 20 / sample.size
        return
    assert stats.chisquare(seen, chances * sample.size).pvalue > ALARM


# --- the distribution --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_distribution(variance):
    check_distribution(DiscreteGaussian(seed=11).draw(variance, 400_000), variance)


def test_distribution_of_the_cryptographic_source():
    check_distribution(DiscreteGaussian().draw(Fraction(7, 3), 400_000), Fraction(7, 3))


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(10), Fraction(10**6)], ids=str)
def test_moments_and_symmetry(variance):
    sample = DiscreteGaussian(seed=12).draw(variance, 400_000).astype(float)
    z = stats.norm.isf(ALARM / 2)
    x = np.arange(-20_000, 20_001, dtype=float)
    p = np.exp(-(x**2) / (2 * float(variance)))
    second, fourth = (float(np.sum(x**r * p) / np.sum(p)) for r in (2, 4))
    count = math.sqrt(sample.size)
    assert abs(sample.mean()) < z * math.sqrt(second) / count
    assert abs(np.mean(sample**2) - second) < z * math.sqrt(fourth - second**2) / count
    positive, negative = np.sum(sample > 0), np.sum(sample < 0)
    assert stats.binomtest(int(positive), int(positive + negative)).pvalue > ALARM
    assert abs(np.mean(sample[1:] * sample[:-1])) < z * second / count  # neighbours in the stream


@pytest.mark.parametrize("variance", [Fraction(10**15), Fraction(2**100)], ids=str)
def test_huge_variance(variance):
    sample = DiscreteGaussian(seed=13).draw(variance, 200_000)
    scaled = sample.astype(float) / math.sqrt(variance)
    assert stats.kstest(scaled, "norm").pvalue > ALARM
    last_digits = np.bincount(sample % 16, minlength=16)  # the grain is one
    assert stats.chisquare(last_digits).pvalue > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(10), Fraction(10_000)], ids=str)
def test_agrees_with_opendp(variance):
    ours = DiscreteGaussian(seed=14).draw(variance, 200_000)
    theirs = OpenDPDiscreteGaussian().draw(variance, 20_000)
    edges, _ = bins(variance, 20_000)
    table = np.array([np.histogram(sample, edges)[0] for sample in (ours, theirs)])
    assert stats.chi2_contingency(table).pvalue > ALARM


# --- the rounded Gaussian ----------------------------------------------------------------------

ROUNDED = [Fraction(1), Fraction(7, 3), Fraction(10), Fraction(12345, 7), Fraction(10**6)]


def check_rounded(sample, variance):
    """Bins of whole integers, with the probabilities of the normal distribution on [x - ½, x + ½]."""
    deviation = math.sqrt(variance)
    quantiles = stats.norm.ppf(np.linspace(0, 1, 101)[1:-1], scale=deviation)
    cuts = np.unique(np.floor(quantiles)) + 0.5
    chances = np.diff(np.concatenate([[0.0], stats.norm.cdf(cuts, scale=deviation), [1.0]]))
    seen, _ = np.histogram(sample, np.concatenate([[-np.inf], cuts, [np.inf]]))
    assert stats.chisquare(seen, chances * sample.size).pvalue > ALARM


@pytest.mark.parametrize("variance", ROUNDED, ids=str)
def test_rounded_distribution(variance):
    check_rounded(RoundedGaussian(seed=31).draw(variance, 400_000), variance)


@pytest.mark.slow
@pytest.mark.parametrize("variance", ROUNDED[:3], ids=str)
def test_rounded_exact_path_has_the_distribution(variance, monkeypatch):
    monkeypatch.setattr(noises, "_MARGIN", 2.0)
    check_rounded(RoundedGaussian(seed=32).draw(variance, 4_000), variance)


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1), Fraction(10**12 + 1, 3), Fraction(2**100)], ids=str)
def test_rounded_paths_decide_alike(variance, monkeypatch):
    fast = RoundedGaussian(seed=33).draw(variance, 2_000)
    monkeypatch.setattr(noises, "_MARGIN", 2.0)
    np.testing.assert_array_equal(RoundedGaussian(seed=33).draw(variance, 2_000), fast)


@pytest.mark.slow
def test_rounded_variance_is_that_of_the_gaussian_and_a_twelfth():
    sample = RoundedGaussian(seed=34).draw(Fraction(1), 2_000_000).astype(float)
    z = stats.norm.isf(ALARM / 2)
    assert abs(np.mean(sample**2) - 13 / 12) < z * 1.6 / math.sqrt(sample.size)
    assert abs(sample.mean()) < z * 1.05 / math.sqrt(sample.size)


def test_rounded_refuses_a_variance_below_one():
    with pytest.raises(PrivacyError, match=r"from 1 to 2\^100"):
        RoundedGaussian().draw(Fraction(1, 2), 1)


def test_fractions_that_decide_late_are_revealed():
    """U agrees with the bound in its first 44 bits, so bits of f beyond the first 64 are needed."""
    source = RoundedGaussian(seed=1)
    asked = []

    def word():
        asked.append(1)
        return 0

    source._word = word
    variance, offset, fraction = Fraction(1), 1, 2**63 + 12345
    x = 1 + Fraction(fraction, 2**64)
    low, _ = noises._exp_bounds(x * x / 2, 44)
    m, accepted = source._decide(variance, 1, offset, (low << noises._STREAM_BITS) | 1, fraction)
    assert asked
    assert (m, accepted) == (1, True)


# --- the exact path ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(7, 3), Fraction(12345, 7)], ids=str)
def test_exact_path_has_the_distribution(variance, monkeypatch):
    monkeypatch.setattr(noises, "_MARGIN", 2.0)  # nothing is decided in floating point
    check_distribution(DiscreteGaussian(seed=15).draw(variance, 4_000), variance)


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(7, 3), Fraction(1000)], ids=str)
def test_continued_streams_have_the_distribution(variance, monkeypatch):
    monkeypatch.setattr(noises, "_STREAM_BITS", 1)  # every other stream for v has to be continued
    check_distribution(DiscreteGaussian(seed=16).draw(variance, 4_000), variance)


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1), Fraction(10**12 + 1, 3)], ids=str)
def test_both_paths_decide_alike(variance, monkeypatch):
    fast = DiscreteGaussian(seed=17).draw(variance, 2_000)
    monkeypatch.setattr(noises, "_MARGIN", 2.0)
    np.testing.assert_array_equal(DiscreteGaussian(seed=17).draw(variance, 2_000), fast)


@pytest.mark.slow
def test_exp_bounds_enclose():
    generator = np.random.default_rng(18)
    gammas = [Fraction(0), Fraction(1), Fraction(1, 10**30), Fraction(1000), Fraction(2**64 + 1, 2**58)]
    gammas += [
        Fraction(int(generator.integers(1, 10**9)), int(generator.integers(1, 10**8))) for _ in range(100)
    ]
    with mpmath.workdps(700):
        for gamma in gammas:
            for bits in (1, 44, 63, 108, 1000):
                low, high = noises._exp_bounds(gamma, bits)
                exact = mpmath.ldexp(mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator), bits)
                assert low <= exact <= high <= low + 2
    assert noises._exp_bounds(Fraction(0), 44) == (2**44, 2**44)


def test_decisions_are_exact():
    """Uniforms that agree with the bound in 44 bits, or in 108, are still decided rightly."""
    generator = np.random.default_rng(19)
    outcomes = []
    with mpmath.workdps(200):
        for _ in range(150):
            v = int(generator.integers(0, 4))
            gamma = v + Fraction(int(generator.integers(1, 10**9)), int(generator.integers(10**8, 10**10)))
            bound = mpmath.ldexp(mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator), v)
            digits = int(mpmath.floor(mpmath.ldexp(bound, 172)))
            for agree, shift in [(44, -1), (44, 0), (44, 1), (108, -1), (108, 0), (108, 1)]:
                start = (digits >> (172 - agree)) + shift
                full = (start << (172 - agree)) | int(generator.integers(0, 2**63)) << 1
                full %= 2**172
                words = iter([full >> 64 & (2**64 - 1), full & (2**64 - 1), 0, 0, 0])
                verdict = noises._is_below(full >> 128, 44, v, lambda g=gamma: (g, g), words.__next__)
                assert verdict == (mpmath.ldexp(full, -172) < bound)
                outcomes.append(verdict)
    assert 0.3 < np.mean(outcomes) < 0.7


def test_zero_is_always_accepted():
    assert noises._is_below(2**44 - 1, 44, 0, lambda: (Fraction(0), Fraction(0)), iter([]).__next__)


# --- the steps of the proof --------------------------------------------------------------------


def test_block_is_the_smallest():
    for variance in (Fraction(n, d) for n in range(1, 200) for d in (1, 3, 70)):
        assert noises._block(variance) == next(k for k in range(64) if 4**k >= Fraction(7, 5) * variance)


def test_seven_tenths_exceed_log_two():
    assert mpmath.mpf(7) / 10 > mpmath.log(2)


@pytest.mark.parametrize("variance", [*VARIANCES, noises.SMALLEST_VARIANCE, noises.LARGEST_VARIANCE], ids=str)
def test_floating_point_stays_within_half_the_margin(variance):
    generator = np.random.default_rng(20)
    k = noises._block(variance)
    assert k == next(k for k in range(64) if 4**k >= Fraction(7, 5) * variance)
    assert 2**k * noises._STREAM_BITS < 2**56
    with mpmath.workdps(60):
        worst = mpmath.mpf(0)
        for v in range(20):
            for offset in {0, 2**k - 1, *map(int, generator.integers(0, 2**k, 20))}:
                m = offset + (v << k)
                real = np.array([m]).astype(np.float64)
                a = np.exp(real * real * -float(1 / (2 * variance)))[0] * 2.0**v
                gamma = m * m / (2 * variance)
                exact = mpmath.ldexp(mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator), v)
                assert gamma < 2**29
                assert exact <= 1
                assert exact * gamma.numerator / gamma.denominator <= 1
                worst = max(worst, abs(mpmath.mpf(float(a)) - exact))
    assert worst < 2.0**-41
    assert worst < 2.0**-50  # what this machine does: the assumption has room to spare


def test_a_result_beyond_64_bits_raises(monkeypatch):
    monkeypatch.setattr(noises, "_MARGIN", 2.0)
    monkeypatch.setattr(DiscreteGaussian, "_decide", lambda *_: (2**63, True))
    with pytest.raises(OverflowError):
        DiscreteGaussian(seed=1).draw(Fraction(1), 1)


def test_a_stream_of_zeros_is_followed_to_its_end():
    source = DiscreteGaussian(seed=1)
    source._word = iter([0, 0, 2**5, 1]).__next__  # 20 + 64 + 64 + 5 zeros, and U is not quite zero
    assert source._decide(Fraction(1), 1, 1, 0, None) == (1 + 2 * 153, False)


# --- all noises behind one interface -------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        DiscreteGaussian,
        lambda: DiscreteGaussian(seed=3),
        RoundedGaussian,
        lambda: RoundedGaussian(seed=3),
        OpenDPDiscreteGaussian,
    ],
)
class TestNoiseSourceContract:
    def test_shape_and_type(self, make):
        source: NoiseSource = make()
        for size in (0, 1, 1000):
            drawn = source.draw(Fraction(9, 2), size)
            assert drawn.shape == (size,)
            assert drawn.dtype == np.int64
        assert source.distribution.is_private
        assert drawn.dtype == source.distribution.dtype
        assert noises.noise_source(source.distribution.name, None).distribution is source.distribution
        assert source.description.endswith(".")

    def test_scale(self, make):
        drawn = make().draw(Fraction(10_000), 2_000).astype(float)
        ratio = np.sum(drawn**2) / 10_000
        assert stats.chi2.ppf(ALARM / 2, 2_000) < ratio < stats.chi2.isf(ALARM / 2, 2_000)

    def test_draws_differ(self, make):
        source = make()
        assert (source.draw(Fraction(10**12), 9) != source.draw(Fraction(10**12), 9)).any()

    @pytest.mark.parametrize("variance", [0, -1, Fraction(0), Fraction(-1, 2)], ids=repr)
    def test_zero_noise_is_refused(self, make, variance):
        for size in (0, 5):
            with pytest.raises(PrivacyError, match=r"^variance: .*zero noise is never allowed"):
                make().draw(variance, size)

    @pytest.mark.parametrize("variance", [0.5, True, "1", None, math.nan], ids=repr)
    def test_inexact_variance_is_refused(self, make, variance):
        with pytest.raises(PrivacyError, match=r"^variance: expected an exact number"):
            make().draw(variance, 5)

    @pytest.mark.parametrize("variance", [Fraction(1, 2**21), 2**100 + 1, 10**400, Fraction(1, 10**400)])
    def test_variance_out_of_range_is_refused(self, make, variance):
        with pytest.raises(PrivacyError, match=r"^variance: expected a number from (1|2\^-20) to 2\^100"):
            make().draw(variance, 5)

    @pytest.mark.parametrize("size", [-1, 1.0, True, None], ids=repr)
    def test_bad_size_is_refused(self, make, size):
        with pytest.raises(PrivacyError, match=r"^size: "):
            make().draw(Fraction(1), size)


def test_seed_makes_it_reproducible():
    first, second = (DiscreteGaussian(seed=5).draw(Fraction(1000), 100_000) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (DiscreteGaussian(seed=6).draw(Fraction(1000), 100_000) != first).any()
    assert "NOT private" in DiscreteGaussian(seed=5).description


def test_the_default_is_cryptographic(monkeypatch):
    asked = []

    def urandom(count, real=noises.os.urandom):
        asked.append(count)
        return real(count)

    monkeypatch.setattr(noises.os, "urandom", urandom)
    first, second = (DiscreteGaussian().draw(Fraction(1000), 1000) for _ in range(2))
    assert (first != second).any()
    assert sum(asked) >= 2 * 1000 * 16
    assert "cryptographic" in DiscreteGaussian().description


@pytest.mark.parametrize(
    "variance", [Fraction(2), Fraction(1, 3), Fraction(4), Fraction(10**29 + 1), *VARIANCES]
)
def test_opendp_variance_is_rounded_up(variance):
    assert variance <= Fraction(root_up(variance)) ** 2 <= variance * (1 + Fraction(1, 2**50))


def test_opendp_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"pip install 'querysmasher\[opendp\]'"):
        OpenDPDiscreteGaussian()


def test_float_gaussian():
    drawn = FloatGaussian(seed=1).draw(4.0, 100_000)
    assert drawn.dtype == np.float64
    assert stats.kstest(drawn, "norm", (0, 2)).pvalue > ALARM
    np.testing.assert_array_equal(drawn, FloatGaussian(seed=1).draw(4.0, 100_000))
    assert "NOT private" in FloatGaussian().description
    assert not FloatGaussian().distribution.is_private
    assert FloatGaussian().distribution.dtype == np.float64


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf, True])
def test_float_gaussian_refuses(variance):
    with pytest.raises(PrivacyError, match="zero noise"):
        FloatGaussian(seed=1).draw(variance, 1)
