"""Filters: every cell is asked for the same whole-number combination of the cells around it.

A filter goes round at the ends of each axis, so all its columns are shifts of one another, and one of them
tells the sensitivity exactly. Its answers are convolutions, worked out by fast Fourier transforms whose
rounding error is bounded in advance, so that rounding to integers makes them exact.

The bound. Transforms of length n = 2^L have a relative error of at most L·6.7u in the Euclidean norm
(Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2; u = 2⁻⁵³), and arrays are padded to
powers of two for it to hold. Two transforms, a product and a transform back are then off by at most
(3·6.7·L + 3)·u·‖x‖₁·‖k‖₁ < 48·L·u·‖x‖₁·‖k‖₁ in any entry. Both sides are cut into digits for which
this is below 1/4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Factor, Integers, largest_of, words

CONSTANT = 48 * 2.0**-53

NOTHING = 1e-9
"""Frequencies whose amplitude is below this fraction of the largest are not passed on by a filter."""


@dataclass(frozen=True, eq=False)
class Filter(Factor):
    """A whole-number filter over axes of the kernel's shape: column c is the kernel, shifted by c."""

    kind = "filter"
    stands_alone = True

    kernel: Integers

    def __post_init__(self) -> None:
        """Check that the kernel holds words, and keep a copy that cannot be changed."""
        object.__setattr__(self, "kernel", words("strategy: the kernel of a filter", self.kernel))

    @property
    def rows(self) -> int:
        """How many numbers are asked for: one per cell."""
        return int(self.kernel.size)

    @property
    def cells(self) -> int:
        return self.rows

    @cached_property
    def largest(self) -> int:  # kept, as it is asked for every attribute set
        return largest_of(self.kernel)

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return self.kernel.shape == sizes != ()

    def squared_column(self) -> int:
        """Return the squared length of every column, exactly."""
        return sum(int(b) ** 2 for b in self.kernel.ravel())

    def exact_answers(self, tables: Numbers, bound: int) -> Integers:
        shape = self.kernel.shape
        x = np.moveaxis(tables.astype(np.int64).reshape(*shape, -1), -1, 0)
        total = np.zeros(x.shape, dtype=np.int64)
        padded = tuple(1 << (2 * n - 2).bit_length() for n in shape)
        room = 0.25 / (CONSTANT * max(1, sum(n.bit_length() - 1 for n in padded)))
        table_bits, kernel_bits = _digits(bound, self.kernel, room)
        axes = tuple(range(1, x.ndim))
        digits = _pieces(self.kernel, kernel_bits)
        kernels = [np.fft.rfftn(k, s=padded, axes=range(len(shape))) for k in digits]
        for i, table in enumerate(_pieces(x, table_bits)):
            image = np.fft.rfftn(table, s=padded, axes=axes)
            for j, kernel in enumerate(kernels):
                linear = np.rint(np.fft.irfftn(image * kernel, s=padded, axes=axes)).astype(np.int64)
                total += _wrapped(linear, shape) << (i * table_bits + j * kernel_bits)
        return np.moveaxis(total, 0, -1).reshape(self.rows, -1)

    def transposed(self, answers: Array) -> Array:
        return self._passed(answers, np.conj(np.fft.fftn(self.kernel.astype(float)))).T

    @cached_property
    def spectrum(self) -> NDArray[np.complex128]:
        """The kernel's Fourier transform, zero where it is rounding error."""
        image = np.fft.fftn(self.kernel.astype(float))
        image[np.abs(image) <= NOTHING * np.abs(image).max()] = 0.0
        return image

    @property
    def rank(self) -> int:
        return int(np.count_nonzero(self.spectrum))

    def undone(self, answers: Array) -> Array:
        """Divide the amplitudes out."""
        amplitudes = self.spectrum
        return self._passed(
            answers, np.divide(1, amplitudes, out=np.zeros_like(amplitudes), where=amplitudes != 0)
        )

    def _passed(self, answers: Array, amplitudes: NDArray[np.complex128]) -> Array:
        """Multiply frequencies along the first axis, which goes to the end."""
        shape = self.kernel.shape
        moved = np.moveaxis(answers, 0, -1)
        axes = range(moved.ndim - 1, moved.ndim - 1 + len(shape))
        image = np.fft.fftn(moved.reshape(*moved.shape[:-1], *shape), axes=axes) * amplitudes
        return np.ascontiguousarray(np.fft.ifftn(image, axes=axes).real).reshape(moved.shape)

    def to_data(self) -> dict[str, Any]:
        return {"kernel": self.kernel}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["kernel"])


def _digits(bound: int, kernel: Integers, room: float) -> tuple[int, int]:
    """Return how many bits of the table and of the kernel one transform can take."""
    cells = kernel.size
    most = max(1, int(np.abs(kernel).max()).bit_length())
    for table_bits in range(62, 0, -1):
        largest = max(1, min(bound, cells << table_bits))
        kernel_bits = math.floor(math.log2(max(1.0, room / (largest * cells))))
        if kernel_bits >= min(4, most):
            return table_bits, min(kernel_bits, 62)
    msg = f"filter: {cells:,} cells are too many for exact answers"
    raise PrivacyError(msg)


def _pieces(array: Integers, bits: int) -> list[Integers]:
    """Return digits d with array = Σ d[i]·2^(i·bits); the last one carries the sign."""
    pieces: list[Integers] = []
    while True:
        if int(np.abs(array).max(initial=0)) < 2**bits:
            return [*pieces, array]
        low = array & (2**bits - 1)
        pieces.append(low)
        array = (array - low) >> bits


def _wrapped(linear: Integers, shape: tuple[int, ...]) -> Integers:
    """Fold what lies beyond the end of each axis back onto its beginning."""
    for axis, n in enumerate(shape, start=1):
        head, tail = np.split(linear, [n], axis=axis)
        spread = [slice(None)] * linear.ndim
        spread[axis] = slice(0, n - 1)
        folded = head.copy()
        folded[tuple(spread)] += tail[tuple(spread)]
        linear = folded
    return linear
