"""Exact products of integer filters with integer tables, by fast Fourier transforms.

Tables and filters are cut into balanced digits, so small that the rounding error of a convolution of two
digits is below 1/4 in every entry; rounding to integers then makes it exact, and digits are combined as
integers.

The bound. Let a be a digit of an extended table, b a digit of the lags, both padded to N = 2^L. A transform
of length N has a relative error of at most η = 6.7·L·u in the Euclidean norm (Higham, Accuracy and
Stability of Numerical Algorithms, theorem 24.2; u = 2⁻⁵³): ‖δâ‖₂ ≤ η√N‖a‖₂, likewise for b. Products of
complex numbers have a relative error below 3u. So the computed product z differs from âb̂ by

    ‖z − âb̂‖₁ ≤ ‖δâ‖₂‖b̂‖₂ + ‖â‖₂‖δb̂‖₂ + … ≤ N‖a‖₂‖b‖₂(2η + η² + 3u(1+η)²),

and the inverse transform of this difference is at most that divided by N in every entry. The inverse
transform itself adds an error of at most η‖a∗b‖₂ ≤ η‖a‖₂‖b‖₁ (Young), up to terms of order η². For L ≥ 3
the whole error is below 8·L·u·‖a‖₂(2‖b‖₂ + ‖b‖₁).

A balanced digit d of x in base 2^β, and the digits above it, have |d| ≤ |x| and |d| ≤ 2^(β−1). A table
whose absolute values sum to at most s, reflected once, therefore has ‖a‖₂² ≤ 2^(β−1)·min(2s, 2n·2^(β−1)).
Only public numbers enter the choice of β: not the table itself.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Integers
from querysmasher.privacy.factors.reflection import Reflection

UNIT = 8 * 2.0**-53
"""Rounding error per level of a transform, relative to ‖a‖₂(2‖b‖₂ + ‖b‖₁)."""

CHUNK = 4_000_000
"""Number of entries that are transformed at a time."""

MOST_DIGITS = 8


def exact_product(reflection: Reflection, kernel: Integers, tables: Integers, bound: int) -> Integers:
    """Return the filter times tables, along their last axis, exactly.

    The absolute values of each table sum to at most `bound`, and the results are below 2⁶².
    """
    n = reflection.size
    length = 1 << max(3, (reflection.padding - 1).bit_length())
    lags = reflection.lags(kernel)
    table_bits, kernel_bits = _bits(lags, n, length, bound)
    free = _digits(kernel, kernel_bits)
    images = [reflection.image(digit.astype(float), length) for digit in free]
    result = np.zeros(tables.shape, dtype=np.int64)
    count = _count(bound, table_bits)
    step = max(1, CHUNK // length)
    flat, out = tables.reshape(-1, n), result.reshape(-1, n)
    for first in range(0, len(flat), step):
        some = flat[first : first + step]
        for i, digit in enumerate(_digits(some, table_bits, count)):
            moved = np.fft.rfft(reflection.extended(digit.astype(float), length))
            for j, image in enumerate(images):
                linear = np.fft.irfft(moved * image, length)
                kept = linear[:, reflection.start : reflection.start + n]
                shift = i * table_bits + j * kernel_bits
                # a sum of digits may pass 64 bits on the way, where it wraps around; the result does not
                out[first : first + step] += np.rint(kept).astype(np.int64) << min(shift, 63)
    return result


def _bits(lags: Integers, size: int, length: int, bound: int) -> tuple[int, int]:
    """Return the bits per digit of tables and of the filter: errors below 1/4, with least work."""
    best: tuple[int, int, int] | None = None
    unit = UNIT * (length.bit_length() - 1)
    most = max(1, int(np.abs(lags).max()).bit_length() + 1)
    for pieces in range(1, MOST_DIGITS + 1):
        if best is not None and 2 * pieces + 1 >= best[0]:
            break  # no fewer transforms than before
        kernel_bits = max(2, -(-most // pieces))
        norms = [_norms(digit) for digit in _digits(lags, kernel_bits)]
        for table_bits in range(min(60, max(bound, 1).bit_length() + 1), 1, -1):
            digit = 2 ** (table_bits - 1)
            euclid = math.sqrt(digit * min(2 * bound, 2 * size * digit))
            if max(unit * euclid * (2 * two + one) for one, two in norms) < 0.25:
                work = _count(bound, table_bits) * (1 + len(norms)) + len(norms)
                if best is None or work < best[0]:
                    best = work, table_bits, kernel_bits
                break
    if best is None:
        msg = f"filter: {size:,} values are too many for exact answers"
        raise PrivacyError(msg)
    return best[1], best[2]


def _norms(digit: Integers) -> tuple[float, float]:
    """Return upper bounds on ‖b‖₁ and ‖b‖₂ of a padded filter, in which a lag occurs at most twice."""
    exact = np.abs(digit)
    squares = np.square(exact.astype(float)).sum()
    return 2.0 * float(exact.sum()), math.sqrt(2.0 * float(squares)) * (1 + 2.0**-20)


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
