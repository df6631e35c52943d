"""Filters on a line, which reflect at its ends: symmetric matrices t(i−j) ± t(i+j+shift), not written out.

With n values, four ways to continue a filter t beyond the ends keep all filters diagonal in one basis, so
that products, roots and inverses of filters are filters again:

========  =========================  ===========================  ====================================
name      matrix                     lags                         basis, diagonalises
========  =========================  ===========================  ====================================
prefix    t(i−j) + t(i+j+1)          t(2n+1−d) = −t(d)            DCT-VIII, Gram matrix of all prefixes
range     t(i−j) − t(i+j+2)          t(2n+2−d) = t(d)             DST-I, Gram matrix of all ranges
cosine    t(i−j) + t(i+j+1)          t(2n−d) = t(d)               DCT-II, centred prefixes
circular  t(i−j)                     t(n−d) = t(d)                DFT, circular ranges
========  =========================  ===========================  ====================================

Eigenvalues are in the order of increasing frequency. For `circular`, each stands for a frequency and its
mirror image. Everything here is ordinary floating point; exact products are those of `filter`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import CHUNK, Array
from querysmasher.errors import PrivacyError

Entries = TypeVar("Entries", bound=NDArray[Any])
"""An array of integers or of floating-point numbers."""

Spectrum = NDArray[np.complex128]

Image = tuple[Array | Spectrum, Spectrum | None]
"""The transforms of t(i−j), real if t is even, and of ±t(i+j+shift), or None if there is no such part."""

ENDS = {
    "prefix": (1, 1, -1, (2, 1), 0.5),
    "range": (-1, 2, 1, (2, 2), 1.0),
    "cosine": (1, 1, 1, (2, 0), 0.0),
    "circular": (0, 0, 1, (1, 0), 0.0),
}
"""The sign (0: none) and the shift of t(i+j+shift); s, a and b of t(P−d) = s·t(d) with P = an + b; and the
first frequency k of waves with the angle 2πk/P."""

NAMES = tuple(ENDS)
"""The ways to continue a filter beyond the ends."""


@dataclass(frozen=True)
class Reflection:
    """One way to continue filters on `size` values beyond the ends."""

    name: str
    size: int

    def __post_init__(self) -> None:
        """Refuse an unknown name, or a size that is not a positive integer."""
        if self.name not in NAMES or type(self.size) is not int or self.size < 1:
            raise PrivacyError(f"filter: expected one of {', '.join(NAMES)} and a positive number of values")

    @property
    def sign(self) -> int:
        """Sign of the term t(i+j+shift): 0 if there is none."""
        return ENDS[self.name][0]

    @property
    def shift(self) -> int:
        """The shift of the reflected term."""
        return ENDS[self.name][1]

    @property
    def period(self) -> tuple[int, int]:
        """The sign s and the period P with t(P − d) = s·t(d)."""
        _, _, sign, (times, more), _ = ENDS[self.name]
        return sign, times * self.size + more

    @property
    def free(self) -> int:
        """Number of lags d = 0, 1, … that determine a filter."""
        return self.period[1] // 2 + 1

    @property
    def frequencies(self) -> int:
        """Number of eigenvalues that are stored."""
        return self.free if self.name == "circular" else self.size

    @cached_property
    def _angles(self) -> Array:
        """Half the angle of every frequency."""
        return np.asarray((np.arange(self.frequencies) + ENDS[self.name][-1]) * (np.pi / self.period[1]))

    @cached_property
    def second_differences(self) -> Array:
        """The eigenvalues of the second difference: 4 sin² of half the angle of every frequency."""
        return np.asarray(4 * np.sin(self._angles) ** 2)

    def waves(self, k: int) -> list[Array]:
        """Return the eigenvectors of one frequency, each of length one: cosines, sines, or both."""
        phase = self._angles[k] * (2 * np.arange(self.size) + self.shift)
        waves = {-1: [np.sin(phase)], 1: [np.cos(phase)], 0: [np.cos(phase), np.sin(phase)]}[self.sign]
        return [wave / np.linalg.norm(wave) for wave in waves if np.abs(wave).max() > 1e-6]

    def lags(self, kernel: Entries) -> Entries:
        """Return t(d) for one period of lags, from the free ones."""
        sign, period = self.period
        both: Any = np.concatenate([kernel, sign * kernel[period - self.free : 0 : -1]])
        return both

    def eigenvalues(self, kernel: Array) -> Array:
        """Return the eigenvalues of a filter, given its free lags."""
        t = np.asarray(kernel, dtype=float)
        if self.name == "prefix":  # (−1)^d t(d) has the odd period 2n+1
            return np.ascontiguousarray(_even_transform(_alternating(t), self.period[1])[:0:-1])
        first = int(ENDS[self.name][-1])
        return _even_transform(t, self.period[1])[first : first + self.frequencies].copy()

    def kernel(self, eigenvalues: Array) -> Array:
        """Return the free lags of the filter with these eigenvalues."""
        period = self.period[1]
        if self.name == "prefix":
            return _alternating(_even_transform(np.append(eigenvalues, 0.0)[::-1], period) / period)
        image = np.zeros(self.free)
        first = int(ENDS[self.name][-1])
        image[first : first + self.frequencies] = eigenvalues
        return _even_transform(image, period) / period

    def diagonal(self, kernel: Entries) -> Entries:
        """Return the diagonal of the filter's matrix."""
        t = self.lags(kernel)
        beyond: Any = t[self.shift : self.shift + 2 * self.size - 1 : 2]
        same: Any = np.full(self.size, t[0]) if not self.sign else t[0] + self.sign * beyond
        return same

    def image(self, kernel: Array, length: int) -> Image:
        """Return the transform of a filter for `product`, padded to `length` (at least `padding`)."""
        t, n = self.lags(kernel), self.size
        padded = np.zeros(length)
        padded[:n] = t[:n]
        padded[length - n + 1 :] = t[n - 1 : 0 : -1]
        straight = np.fft.rfft(padded).real  # of an even function
        if not self.sign:
            return straight, None
        padded[:] = 0.0
        padded[: 2 * n - 1] = self.sign * t[self.shift : self.shift + 2 * n - 1]
        return straight, np.fft.rfft(padded)

    @property
    def padding(self) -> int:
        """Minimum length of transforms without wrapping around."""
        return 2 * self.size - 1

    def product(self, image: Image, moved: Spectrum, length: int) -> Array:
        """Return a filter times tables along their last axis, from their transforms.

        The part t(i−j) is a convolution, and t(i+j+shift) one with the reversed table, whose transform is the
        conjugate of that of the table.
        """
        straight, reflected = image
        both = moved * straight
        if reflected is not None:
            both += moved.conj() * reflected
        return np.fft.irfft(both, length)[..., : self.size]

    def spread(self, tables: Entries) -> Entries:
        """Return the tables: unlike a `Torus`, a line needs no room beyond its ends."""
        return tables

    def gathered(self, products: Entries) -> Entries:
        """Return the products, which are over the values already."""
        return products

    def apply(self, kernel: Array, tables: Array) -> Array:
        """Return the product of a filter with tables along their last axis."""
        length = smooth_length(self.padding)
        image = self.image(kernel, length)
        flat = tables.reshape(-1, self.size)
        result = np.empty_like(flat, dtype=float)
        step = max(1, CHUNK // length)
        for first in range(0, len(flat), step):
            some = flat[first : first + step].astype(float)
            result[first : first + step] = self.product(image, np.fft.rfft(some, length), length)
        return result.reshape(tables.shape)


def smooth_length(least: int) -> int:
    """Return the least length from `least` on that is k·2^a, k = 1, 3, 5, 25 or 27: quick to transform."""
    power = 1 << max(0, (least - 1).bit_length())
    return min(n for k in (20, 24, 25, 27, 32) if (n := power * k // 32) >= least)


def _even_transform(entries: Array, period: int) -> Array:
    """Return Σ_d x(d)·cos(2πdk/P) over one period of x(P−d) = x(d), at k = 0 … P/2, from x(0) … x(P/2).

    If P has prime factors above 128, a convolution is quicker: exp(−2πidk/P) = c(d)·c(k)/c(k−d).
    """
    if pow(math.factorial(128), period.bit_length(), period) == 0:
        return np.fft.hfft(entries, period)[: entries.size]
    chirp, image = _chirp(entries.size, period)
    twice = 2 * entries * chirp
    twice[0] /= 2
    if period % 2 == 0:
        twice[-1] /= 2
    image = np.fft.fft(twice, image.size) * image
    return np.asarray((np.fft.ifft(image)[: entries.size] * chirp).real)


@lru_cache(maxsize=1)
def _chirp(count: int, period: int) -> tuple[Spectrum, Spectrum]:
    """Return c(d) = exp(−iπd²/P) for `count` lags, and the transform of 1/c on both sides of zero."""
    chirp = np.exp(np.arange(count) ** 2 % (2 * period) * (-1j * np.pi / period))
    length = smooth_length(2 * count - 1)
    around = np.zeros(length, dtype=complex)
    around[:count] = chirp.conj()
    around[length - count + 1 :] = around[count - 1 : 0 : -1]
    return chirp, np.fft.fft(around)


def _alternating(array: Array) -> Array:
    """Return (−1)^d × array[d]."""
    result = array.copy()
    result[1::2] *= -1
    return result
