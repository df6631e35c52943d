"""All noises behind one interface: their contract, seeds, and what each refuses."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.builders import ALARM
from tests.privacy.test_noise import VARIANCES

from querysmasher.errors import PrivacyError
from querysmasher.privacy import noise
from querysmasher.privacy.budget import root_up
from querysmasher.privacy.noise import (
    DiscreteGaussian,
    FloatGaussian,
    NoiseSource,
    OpenDPDiscreteGaussian,
    RoundedGaussian,
)


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
        assert noise.noise_source(source.distribution.name, None).distribution is source.distribution
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

    def urandom(count, real=noise.os.urandom):
        asked.append(count)
        return real(count)

    monkeypatch.setattr(noise.os, "urandom", urandom)
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
