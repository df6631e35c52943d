"""Exact products of integer filters with integer tables, by fast Fourier transforms.

Filters reflect at the ends of a line (`Reflection`), or go round at the ends of every axis (`Torus`). Tables
and filters are cut into balanced digits, so small that the rounding error of a convolution of two digits is
below 1/4 in every entry; rounding to integers then makes it exact, and digits are combined as integers.

The bound. Let a be a digit of a table; t the lags −(n−1) … n−1 of a digit of the filter and h those that
reflect, all padded to N = 2^L ≥ 2n − 1. The product is a∗t + a′∗h with a′ the table reversed, whose
transform is the conjugate of â. A transform of length N has a relative error of at most η = 6.7·L·u in the
Euclidean norm (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2; u = 2⁻⁵³): ‖δâ‖₂ ≤
η√N‖a‖₂, likewise for t and h. (t̂ is real; dropping the imaginary part of what is computed only lowers its
error.) Products of complex numbers have a relative error below 3u, and their sum adds one more u. So the
computed z differs from ât̂ + â*ĥ by

    ‖z − (ât̂ + â*ĥ)‖₁ ≤ N‖a‖₂(‖t‖₂ + ‖h‖₂)(2η + η² + 4u(1+η)²),

and the inverse transform of this difference is at most that divided by N in every entry. The inverse
transform itself adds an error of at most η‖a∗t + a′∗h‖₂ ≤ η‖a‖₂γ with γ = max(|t̂| + |ĥ|) over all
frequencies (Parseval), up to terms of order η². As ‖t‖₂ ≤ max|t̂| and ‖h‖₂ ≤ max|ĥ|, the computed γ is wrong
by a factor of at most 1 ± 2η√N, less than 1e-6 for L ≤ 40. Altogether, for L ≥ 3, the error is below

    8·L·u·‖a‖₂(2(‖t‖₂ + ‖h‖₂) + γ).

A filter that goes round is a convolution a∗t too, without h: several axes, each padded to hold what goes
beyond its end, are written one after the other as one line, and what is beyond the ends is added back to the
beginning of its axis after rounding. Its t̂ is complex, which changes nothing above.

γ is at most ‖t‖₁ + ‖h‖₁, which is quicker to compute: filters in several digits use that.

A balanced digit d of x in base 2^β, and the digits above it, have |d| ≤ |x| and |d| ≤ 2^(β−1). A table
whose absolute values sum to at most s therefore has ‖a‖₂² ≤ 2^(β−1)·min(s, n·2^(β−1)).
Only public numbers enter the choice of β: not the table itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Integers
from querysmasher.privacy.factors.reflection import CHUNK, Image, Reflection, Spectrum

UNIT = 8 * 2.0**-53
"""Rounding error per level of a transform, relative to ‖a‖₂(2(‖t‖₂ + ‖h‖₂) + γ)."""

MOST_DIGITS = 8


@dataclass(frozen=True)
class Torus:
    """Axes whose ends meet."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def padding(self) -> int:
        """Minimum length of transforms without wrapping around."""
        return math.prod(2 * n - 1 for n in self.shape)

    def spread(self, tables: Integers) -> Integers:
        """Return tables over the cells on one line, with room beyond the end of every axis."""
        padded = np.zeros((len(tables), *(2 * n - 1 for n in self.shape)), dtype=np.int64)
        padded[(slice(None), *map(slice, self.shape))] = tables.reshape(-1, *self.shape)
        return padded.reshape(len(tables), -1)

    def image(self, kernel: Array, length: int) -> Image:
        """Return the transform of a filter for `product`, padded to `length`."""
        return np.fft.rfft(self.spread(kernel.astype(np.int64)[None])[0].astype(float), length), None

    def product(self, image: Image, moved: Spectrum, length: int) -> Array:
        """Return a filter times tables on the line, from their transforms."""
        return np.fft.irfft(moved * image[0], length)[..., : self.padding]

    def gathered(self, products: Integers) -> Integers:
        """Return products over the cells: what is beyond the end of an axis goes to its beginning."""
        folded = products.reshape(-1, *(2 * n - 1 for n in self.shape))
        for axis, n in enumerate(self.shape, start=1):
            whole = np.moveaxis(folded, axis, 0)
            head = whole[:n].copy()
            head[: n - 1] += whole[n:]
            folded = np.moveaxis(head, 0, axis)
        return folded.reshape(len(products), -1)


def exact_product(ends: Reflection | Torus, kernel: Integers, tables: Integers, bound: int) -> Integers:
    """Return the filter times tables, along their last axis, exactly.

    The absolute values of each table sum to at most `bound`, and the results are below 2⁶².
    """
    n = ends.size
    length = 1 << max(3, (ends.padding - 1).bit_length())
    table_bits, kernel_bits, images = _digits_of_both(ends, kernel, length, bound)
    result = np.zeros(tables.shape, dtype=np.int64)
    count = _count(bound, table_bits)
    step = max(1, CHUNK // length)
    flat, out = tables.reshape(-1, n), result.reshape(-1, n)
    for first in range(0, len(flat), step):
        some = flat[first : first + step]
        for i, digit in enumerate(_digits(some, table_bits, count)):
            moved = np.fft.rfft(ends.spread(digit).astype(float), length)
            for j, image in enumerate(images):
                entries = np.rint(ends.product(image, moved, length)).astype(np.int64)
                # a sum of digits may pass 64 bits on the way, where it wraps around; the result does not
                shift = min(i * table_bits + j * kernel_bits, 63)
                out[first : first + step] += ends.gathered(entries) << shift
    return result


def _digits_of_both(
    ends: Reflection | Torus, kernel: Integers, length: int, bound: int
) -> tuple[int, int, list[Image]]:
    """Return the bits per digit of tables and of the filter, with errors below 1/4 and least work.

    Also return the transforms of the filter's digits.
    """
    whole = ends.image(kernel.astype(float), length)
    straight, reflected = whole
    gain = float((np.abs(straight) if reflected is None else np.abs(straight) + np.abs(reflected)).max())
    best: tuple[int, int, int] | None = None
    most = max(1, int(np.abs(kernel).max()).bit_length() + 1)
    for pieces in range(1, MOST_DIGITS + 1):
        if best is not None and 3 * pieces + 1 >= best[0]:
            break  # no fewer transforms than before
        kernel_bits = max(2, -(-most // pieces))
        digits = [kernel] if pieces == 1 else _digits(kernel, kernel_bits)
        error = max(_error(digit, gain if pieces == 1 else None) for digit in digits)
        error *= UNIT * (length.bit_length() - 1)
        for table_bits in range(min(60, max(bound, 1).bit_length() + 1), 1, -1):
            digit = 2 ** (table_bits - 1)
            if error * math.sqrt(digit * min(bound, ends.size * digit)) < 0.25:
                work = _count(bound, table_bits) * (1 + len(digits)) + 2 * len(digits)
                if best is None or work < best[0]:
                    best = work, table_bits, kernel_bits
                break
    if best is None:
        raise PrivacyError(f"filter: {ends.size:,} values are too many for exact answers")
    _, table_bits, kernel_bits = best
    if kernel_bits == most:
        return table_bits, kernel_bits, [whole]
    images = [ends.image(digit.astype(float), length) for digit in _digits(kernel, kernel_bits)]
    return table_bits, kernel_bits, images


def _error(digit: Integers, gain: float | None) -> float:
    """Return an upper bound on 2(‖t‖₂ + ‖h‖₂) + γ of a filter; γ is `gain` if that is known.

    A free lag occurs at most twice in t and in h, or four times in t if h is empty.
    """
    exact = np.abs(digit).astype(float)
    euclid = 2 * math.sqrt(2.0 * float(np.square(exact).sum()))
    if gain is None:
        gain = 4.0 * float(exact.sum())
    return (2 * euclid + gain) * (1 + 2.0**-20)


def _count(bound: int, bits: int) -> int:
    """Return the number of balanced digits of integers of at most `bound` in absolute value."""
    count = 1
    while bound > 2 ** (bits - 1) - 1:
        bound = (bound + 2 ** (bits - 1)) >> bits
        count += 1
    return count


def _digits(array: Integers, bits: int, count: int | None = None) -> list[Integers]:
    """Return digits d in [−2^(bits−1), 2^(bits−1)) with array = Σ d[i]·2^(i·bits).

    There are `count` of them, or as many as it takes.
    """
    half = 1 << (bits - 1)
    digits: list[Integers] = []
    while count is None or len(digits) < count:
        low = ((array + half) & ((1 << bits) - 1)) - half
        digits.append(low)
        array = (array - low) >> bits
        if count is None and not array.any():
            break
    return digits
