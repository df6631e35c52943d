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
mirror image. Everything here is ordinary floating point; exact products are those of `convolution`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.errors import PrivacyError

Entries = TypeVar("Entries", bound=NDArray[Any])
"""An array of integers or of floating-point numbers."""

Spectrum = NDArray[np.complex128]

Image = tuple[Array | Spectrum, Spectrum | None]
"""The transforms of t(i−j), real if t is even, and of ±t(i+j+shift), or None if there is no such part."""

NAMES = ("prefix", "range", "cosine", "circular")
"""The ways to continue a filter beyond the ends."""


@dataclass(frozen=True)
class Reflection:
    """One way to continue filters on `size` values beyond the ends."""

    name: str
    size: int

    def __post_init__(self) -> None:
        """Refuse an unknown name, or a size that is not a positive integer."""
        if self.name not in NAMES or type(self.size) is not int or self.size < 1:
            msg = f"filter: expected one of {', '.join(NAMES)} and a positive number of values"
            raise PrivacyError(msg)

    @property
    def sign(self) -> int:
        """Sign of the term t(i+j+shift): 0 if there is none."""
        return {"prefix": 1, "range": -1, "cosine": 1, "circular": 0}[self.name]

    @property
    def shift(self) -> int:
        """The shift of the reflected term."""
        return 2 if self.name == "range" else 1

    @property
    def free(self) -> int:
        """Number of lags d = 0, 1, … that determine a filter."""
        n = self.size
        return {"prefix": n + 1, "range": n + 2, "cosine": n + 1, "circular": n // 2 + 1}[self.name]

    @property
    def frequencies(self) -> int:
        """Number of eigenvalues that are stored."""
        return self.size // 2 + 1 if self.name == "circular" else self.size

    @cached_property
    def multiplicity(self) -> Array:
        """How often each stored eigenvalue occurs."""
        count = np.ones(self.frequencies)
        if self.name == "circular":
            count[1 : (self.size + 1) // 2] = 2.0
        return count

    @property
    def period(self) -> tuple[int, int]:
        """The sign s and the period P with t(P − d) = s·t(d)."""
        n = self.size
        return {"prefix": (-1, 2 * n + 1), "range": (1, 2 * n + 2), "cosine": (1, 2 * n), "circular": (1, n)}[
            self.name
        ]

    @cached_property
    def second_differences(self) -> Array:
        """The eigenvalues of the second difference: 4 sin² of half the angle of every frequency."""
        n = self.size
        if self.name == "prefix":
            angles = (2 * np.arange(n) + 1) * (np.pi / (2 * (2 * n + 1)))
        elif self.name == "range":
            angles = np.arange(1, n + 1) * (np.pi / (2 * (n + 1)))
        else:
            angles = np.arange(self.frequencies) * (np.pi / self.period[1])
        return np.asarray(4 * np.sin(angles) ** 2)

    def waves(self, k: int) -> list[Array]:
        """Return the eigenvectors of one frequency, each of length one."""
        n, place = self.size, np.arange(self.size)
        if self.name == "prefix":
            return [np.cos((2 * k + 1) * (2 * place + 1) * (np.pi / (4 * n + 2))) * (2 / np.sqrt(2 * n + 1))]
        if self.name == "range":
            return [np.sin((k + 1) * (place + 1) * (np.pi / (n + 1))) * np.sqrt(2 / (n + 1))]
        single = k == 0 or (self.name == "circular" and 2 * k == n)
        if self.name == "cosine":
            return [np.cos(k * (2 * place + 1) * (np.pi / (2 * n))) * np.sqrt((1 if k == 0 else 2) / n)]
        angles = 2 * np.pi * k * place / n
        if single:
            return [np.cos(angles) / np.sqrt(n)]
        return [np.cos(angles) * np.sqrt(2 / n), np.sin(angles) * np.sqrt(2 / n)]

    def lags(self, kernel: Entries) -> Entries:
        """Return t(d) for all lags that the matrix has, from the free ones: 0 … 2n, or n−1 if circular."""
        n = self.size
        back: Any = {
            "circular": kernel[(n + 1) // 2 - 1 : 0 : -1],
            "prefix": -kernel[n:0:-1],
            "range": kernel[n:1:-1],
            "cosine": kernel[n - 1 :: -1],
        }[self.name]
        both: Any = np.concatenate([kernel, back])
        return both

    def eigenvalues(self, kernel: Array) -> Array:
        """Return the eigenvalues of a filter, given its free lags."""
        t = self.lags(np.asarray(kernel, dtype=float))
        n = self.size
        if self.name == "prefix":  # (−1)^d t(d) has the odd period 2n+1
            return np.ascontiguousarray(np.fft.rfft(_alternating(t)).real[:0:-1])
        if self.name == "range":  # lags 0 … 2n+1, of which the last is t(1)
            return np.ascontiguousarray(np.fft.rfft(np.append(t, t[1])).real[1 : n + 1])
        if self.name == "cosine":
            return np.ascontiguousarray(np.fft.rfft(t[: 2 * n]).real[:n])
        return np.fft.rfft(t).real

    def kernel(self, eigenvalues: Array) -> Array:
        """Return the free lags of the filter with these eigenvalues."""
        n = self.size
        if self.name == "prefix":
            image = np.fft.irfft(np.append(eigenvalues, 0.0)[::-1], 2 * n + 1)
            return _alternating(image[: self.free])
        if self.name == "range":
            return np.fft.irfft(np.concatenate([[0.0], eigenvalues, [0.0]]), 2 * n + 2)[: self.free]
        if self.name == "cosine":
            return np.fft.irfft(np.append(eigenvalues, 0.0), 2 * n)[: self.free]
        return np.fft.irfft(eigenvalues, n)[: self.free]

    def diagonal(self, kernel: Entries) -> Entries:
        """Return the diagonal of the filter's matrix."""
        t = self.lags(kernel)
        beyond: Any = t[self.shift : self.shift + 2 * self.size - 1 : 2]
        same: Any = np.full(self.size, t[0]) if not self.sign else t[0] + self.sign * beyond
        return same

    def matrix(self, kernel: Entries) -> Entries:
        """Return the filter's matrix, which takes memory: for few values and for tests."""
        t, place = self.lags(kernel), np.arange(self.size)
        matrix: Any = t[np.abs(np.subtract.outer(place, place))]
        if self.sign:
            matrix = matrix + self.sign * t[np.add.outer(place, place) + self.shift]
        return matrix

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
        """Return tables as they are transformed."""
        return tables

    def gathered(self, products: Entries) -> Entries:
        """Return products over the values: they are."""
        return products

    def apply(self, kernel: Array, tables: Array) -> Array:
        """Return the product of a filter with tables along their last axis."""
        length = smooth_length(self.padding)
        image = self.image(kernel, length)
        flat = tables.reshape(-1, self.size)
        result = np.empty_like(flat, dtype=float)
        step = max(1, 4_000_000 // length)
        for first in range(0, len(flat), step):
            some = flat[first : first + step].astype(float)
            result[first : first + step] = self.product(image, np.fft.rfft(some, length), length)
        return result.reshape(tables.shape)


def smooth_length(least: int) -> int:
    """Return the smallest length from `least` on that is 2^a, 3·2^a or 5·2^a: transforms of it are fast."""
    power = 1 << max(0, (least - 1).bit_length())
    return min(n for n in (power, power * 3 // 4, power * 5 // 8) if n >= least)


def _alternating(array: Array) -> Array:
    """Return (−1)^d × array[d]."""
    result = array.copy()
    result[1::2] *= -1
    return result
