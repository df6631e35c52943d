"""Exact products of integer filters with integer tables, by fast Fourier transforms.

Tables and filters are cut into balanced digits, so small that the rounding error of a convolution of two
digits is below 1/4 in every entry; rounding to integers then makes it exact, and digits are combined as
integers.

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

γ is at most ‖t‖₁ + ‖h‖₁, which is quicker to compute: filters in several digits use that.

A balanced digit d of x in base 2^β, and the digits above it, have |d| ≤ |x| and |d| ≤ 2^(β−1). A table
whose absolute values sum to at most s therefore has ‖a‖₂² ≤ 2^(β−1)·min(s, n·2^(β−1)).
Only public numbers enter the choice of β: not the table itself.
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import Integers
from querysmasher.privacy.factors.reflection import Image, Reflection

UNIT = 8 * 2.0**-53
"""Rounding error per level of a transform, relative to ‖a‖₂(2(‖t‖₂ + ‖h‖₂) + γ)."""

CHUNK = 4_000_000
"""Number of entries that are transformed at a time."""

MOST_DIGITS = 8


def exact_product(reflection: Reflection, kernel: Integers, tables: Integers, bound: int) -> Integers:
    """Return the filter times tables, along their last axis, exactly.

    The absolute values of each table sum to at most `bound`, and the results are below 2⁶².
    """
    n = reflection.size
    length = 1 << max(3, (reflection.padding - 1).bit_length())
    table_bits, kernel_bits, images = _digits_of_both(reflection, kernel, length, bound)
    result = np.zeros(tables.shape, dtype=np.int64)
    count = _count(bound, table_bits)
    step = max(1, CHUNK // length)
    flat, out = tables.reshape(-1, n), result.reshape(-1, n)
    for first in range(0, len(flat), step):
        some = flat[first : first + step]
        for i, digit in enumerate(_digits(some, table_bits, count)):
            moved = np.fft.rfft(digit.astype(float), length)
            for j, image in enumerate(images):
                entries = np.rint(reflection.product(image, moved, length)).astype(np.int64)
                # a sum of digits may pass 64 bits on the way, where it wraps around; the result does not
                out[first : first + step] += entries << min(i * table_bits + j * kernel_bits, 63)
    return result


def _digits_of_both(
    reflection: Reflection, kernel: Integers, length: int, bound: int
) -> tuple[int, int, list[Image]]:
    """Return the bits per digit of tables and of the filter, with errors below 1/4 and least work.

    Also return the transforms of the filter's digits.
    """
    whole = reflection.image(kernel.astype(float), length)
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
            if error * math.sqrt(digit * min(bound, reflection.size * digit)) < 0.25:
                work = _count(bound, table_bits) * (1 + len(digits)) + 2 * len(digits)
                if best is None or work < best[0]:
                    best = work, table_bits, kernel_bits
                break
    if best is None:
        msg = f"filter: {reflection.size:,} values are too many for exact answers"
        raise PrivacyError(msg)
    _, table_bits, kernel_bits = best
    if kernel_bits == most:
        return table_bits, kernel_bits, [whole]
    images = [reflection.image(digit.astype(float), length) for digit in _digits(kernel, kernel_bits)]
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
