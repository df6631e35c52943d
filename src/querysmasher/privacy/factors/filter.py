"""Filters: integer combinations of the cells around every cell, the same for all cells.

A `Filter` goes round at the ends of each axis, so that all its columns are shifts of one another, and one of
them gives the sensitivity exactly.

A `Mirrored` filter reflects at the ends of a line, perhaps with a few more rows, times an integer diagonal:
B = [F; U]·diag(d) − g1ᵀ, where F is a filter (`reflection`), U has few rows, and g shifts every row by a
constant. Write A = [F; U]·diag(d). With F symmetric, AᵀA = diag(d)(F² + UᵀU)diag(d), and F² is a filter of
the same kind. Its diagonal is known exactly: with t₂ the lags of F², t₂(0) is a sum of squares, and the first
column of F², a product of integers, gives the others one after the other. So the squared length of column j
of A is d_j²(t₂(0) ± t₂(2j+shift) + Σ_k U_kj²), and that of B is less by 2(Aᵀg)_j − ‖g‖², with Aᵀg =
diag(d)(Fg₁ + Uᵀg₂) a product of integers too: exact integers, at any number of values.

Answers are exact, by fast Fourier transforms. Tables and filters are cut into balanced digits, so small that
the rounding error of a convolution of two digits is below 1/4 in every entry; rounding to integers then makes
it exact, and digits are combined as integers.

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
from functools import cached_property
from typing import ClassVar

import numpy as np

from querysmasher.arrays import CHUNK, Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.factor import (
    NEAR,
    WORD,
    Factor,
    Integers,
    exact_sum,
    given,
    largest_of,
    require,
    sum_of_squares,
)
from querysmasher.privacy.factors.reflection import Image, Reflection, Spectrum
from querysmasher.privacy.pairs import MOST_CELLS, Products

UNIT = 8 * 2.0**-53
"""Rounding error per level of a transform, relative to ‖a‖₂(2(‖t‖₂ + ‖h‖₂) + γ)."""

MOST_DIGITS = 8

LARGEST = 2**30
"""Bound on the size of a mirrored filter's integers: sums of a few squares fit into 64 bits."""

MOST_ROWS = 64
"""Maximum number of rows of U."""


@dataclass(frozen=True, eq=False)
class Filter(Factor):
    """A filter over axes of the kernel's shape: column c is the kernel, shifted by c."""

    kind = "filter"
    stored: ClassVar = {"kernel": given}
    stands_alone = True

    kernel: Integers

    def __post_init__(self) -> None:
        """Check that the kernel holds 64-bit integers, and keep a read-only copy."""
        self._keep(kernel=None)

    @property
    def rows(self) -> int:
        return int(self.kernel.size)

    @property
    def cells(self) -> int:
        return self.rows

    @cached_property
    def largest(self) -> int:  # cached, as every attribute set needs it
        return largest_of(self.kernel)

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return self.kernel.shape == sizes != ()

    def squared_column(self) -> int:
        """Return the squared length of every column, exactly."""
        return sum_of_squares(self.kernel)

    def exact_answers(self, tables: Numbers, bound: int) -> Integers:
        columns = np.ascontiguousarray(tables.T).astype(np.int64)
        return exact_product(Torus(self.kernel.shape), self.kernel, columns, bound).T

    def transposed(self, answers: Array) -> Array:
        shape = self.kernel.shape
        axes = range(len(shape))
        image = np.fft.fftn(answers.reshape(*shape, -1), axes=axes)
        image *= np.conj(np.fft.fftn(self.kernel.astype(float)))[..., None]
        return np.ascontiguousarray(np.fft.ifftn(image, axes=axes).real).reshape(answers.shape)


@dataclass(frozen=True, eq=False)
class Mirrored(Factor):
    """Rows of a filter that reflects at both ends of an attribute, and a few others, times a diagonal."""

    kind = "mirrored"
    stored = dict.fromkeys(("ends", "kernel", "diagonal", "extra", "shift"), given)
    stands_alone = True

    ends: str
    """How the filter continues beyond the ends: a name of `reflection`."""
    kernel: Integers
    """The free lags of the filter."""
    diagonal: Integers
    """Positive multiples of the values."""
    extra: Integers
    """Further rows, before the diagonal multiplies them: possibly none."""
    shift: Integers
    """What is subtracted from every entry of each row."""

    def __post_init__(self) -> None:
        """Check the integers, and keep read-only copies."""
        self._keep(kernel=1, diagonal=1, shift=1)
        if type(self.extra) is not np.ndarray or self.extra.size:
            self._keep(extra=2)
        extra, free = self.extra, self.reflection.free
        require(self.kernel.size == free, f"strategy: expected {free} lags of a mirrored filter")
        fits = extra.ndim == 2 and extra.shape[1] == self.cells and len(extra) <= MOST_ROWS
        require(fits, f"strategy: expected at most {MOST_ROWS} further rows of a mirrored filter")
        require(self.shift.size == self.rows, "strategy: expected a shift for every row of a mirrored filter")
        require(self.diagonal.min() >= 1, "strategy: expected a positive diagonal of a mirrored filter")
        largest = max(largest_of(self.kernel), largest_of(self.diagonal), self._further)
        small = largest < LARGEST and largest_of(self.shift) < LARGEST**2 // 2
        require(small, "strategy: the integers of a mirrored filter are too large")

    @property
    def _further(self) -> int:
        """The largest absolute value in further rows."""
        return largest_of(self.extra) if self.extra.size else 0

    @cached_property
    def reflection(self) -> Reflection:
        """How the filter continues beyond the ends."""
        return Reflection(self.ends, int(self.diagonal.size))

    @property
    def rows(self) -> int:
        return self.cells + len(self.extra)

    @property
    def cells(self) -> int:
        return int(self.diagonal.size)

    @cached_property
    def largest(self) -> int:
        first, others = abs(int(self.kernel[0])), int(np.abs(self.kernel[1:]).max(initial=0))
        # t(0) is added to other lags only
        entry = others + max(first, others) if self.reflection.sign else max(first, others)
        return max(entry, self._further, 1) * largest_of(self.diagonal) + largest_of(self.shift)

    @cached_property
    def squares(self) -> Integers:
        """The diagonal of F², exactly."""
        lags, reflection = self.reflection.lags(self.kernel), self.reflection
        first = sum_of_squares(lags)
        require(4 * first < WORD, "strategy: the lags of a mirrored filter are too large")
        if not reflection.sign:
            return np.full(self.cells, first, dtype=np.int64)
        n = self.cells
        column = lags[:n] + reflection.sign * lags[reflection.shift : reflection.shift + n]  # of F
        sizes = int(np.abs(column).sum()), largest_of(column)
        column = exact_product(reflection, self.kernel, column[None], *sizes)[0]
        free = np.zeros(reflection.free, dtype=np.int64)  # of F²
        free[0] = first
        if reflection.name == "range":  # column[i] = t(i) − t(i+2): even lags; odd ones are on no diagonal
            free[2::2] = first - np.cumsum(column[::2])
        else:  # column[i] = t(i) + t(i+1)
            signs = np.where(np.arange(n) % 2, -1, 1)
            free[1:] = signs * (np.cumsum(signs * column) - first)
        return np.asarray(reflection.diagonal(free))

    def squared_column(self) -> int:
        # Errors in floating point are below 2⁻⁴⁰ of the largest of all terms, far below NEAR of it, so that
        # no column but those nearly as long can be the longest.
        further, across = np.square(self.extra.astype(float)).sum(axis=0), self._across
        squares = self.diagonal.astype(float) ** 2 * (self.squares + further)
        change = 2 * self.diagonal.astype(float) * across.astype(float)
        rough = squares - change
        nearly = np.flatnonzero(rough >= rough.max() - NEAR * (squares.max() + np.abs(change).max()))
        columns = zip(
            self.diagonal[nearly].tolist(),
            self.squares[nearly].tolist(),
            across[nearly].tolist(),
            self.extra[:, nearly].T.tolist(),
            strict=True,
        )
        constant = sum_of_squares(self.shift)
        return max(d**2 * (s + sum(u**2 for u in rows)) - 2 * d * a for d, s, a, rows in columns) + constant

    @cached_property
    def _across(self) -> Integers:
        """Fg₁ + Uᵀg₂, exactly."""
        bound = exact_sum(np.abs(self.shift))
        largest = max(largest_of(self.kernel), self._further)
        require(2 * bound * largest < WORD, "strategy: the shift of a mirrored filter is too large")
        first, further = self.shift[: self.cells], self.shift[self.cells :]
        product = exact_product(self.reflection, self.kernel, first[None], bound, largest_of(first))
        return product[0] + further @ self.extra

    def column_products(self) -> Products:
        if self.cells <= max(1, MOST_CELLS):
            return super().column_products()
        reflection, d = self.reflection, self.diagonal.astype(float)
        squared = reflection.kernel(np.square(reflection.eigenvalues(self.kernel.astype(float))))
        least = least_product(reflection, squared, d, self.extra.astype(float), d * self._across)
        return Products.bounded((least + float(sum_of_squares(self.shift))) / self.squared_column())

    def exact_answers(self, tables: Numbers, bound: int) -> Integers:
        whole = tables.T.astype(np.int64)
        x = np.ascontiguousarray(whole * self.diagonal)
        first = exact_product(self.reflection, self.kernel, x, bound * largest_of(self.diagonal))
        both = np.concatenate([first, x @ self.extra.T], axis=1)  # sums stay below `bound` × `largest`
        return (both - self.shift * whole.sum(axis=1, keepdims=True)).T

    def transposed(self, answers: Array) -> Array:
        first = np.ascontiguousarray(answers[: self.cells].T)
        image = self.reflection.apply(self.kernel.astype(float), first)
        image = image + answers[self.cells :].T @ self.extra
        return np.asarray((image * self.diagonal).T - self.shift.astype(float) @ answers)


INTERVALS = 512
"""Number of intervals into which values are cut to bound products of columns."""


def least_product(reflection: Reflection, lags: Array, diagonal: Array, extra: Array, offset: Array) -> float:
    """Return a lower bound on d_u d_v(t(u−v) ± t(u+v+shift) + Σ_k U_ku U_kv) − a_u − a_v over values u ≠ v.

    The values are cut into intervals. For two of them, every factor is bounded by its extremes there. Lags
    are those of a transform, with errors far below what accounting allows for.
    """
    n, sign = reflection.size, reflection.sign
    step = -(-n // INTERVALS)
    starts = np.arange(0, n, step)
    count = len(starts)
    t = np.asarray(reflection.lags(lags), dtype=float)

    def extremes(values: Array) -> tuple[Array, Array]:
        return np.minimum.reduceat(values, starts, axis=-1), np.maximum.reduceat(values, starts, axis=-1)

    lags_of = [t[max(1, (k - 1) * step) : min(n, (k + 1) * step)] for k in range(count)]
    near = np.array([between.min(initial=math.inf) for between in lags_of])  # none if u = v is the only pair
    total = near[np.abs(np.subtract.outer(np.arange(count), np.arange(count)))]
    if sign:
        beyond = sign * t[reflection.shift : reflection.shift + 2 * n - 1]
        ends = [beyond[min(k * step, 2 * n - 2) : (k + 2) * step].min() for k in range(2 * count - 1)]
        total = total + np.array(ends)[np.add.outer(np.arange(count), np.arange(count))]
    for low, high in zip(*extremes(extra), strict=True) if len(extra) else ():
        total = total + np.minimum.reduce([np.multiply.outer(a, b) for a in (low, high) for b in (low, high)])
    smallest, largest = extremes(diagonal)
    scale = np.where(total > 0, np.multiply.outer(smallest, smallest), np.multiply.outer(largest, largest))
    _, most = extremes(offset)
    return float((scale * total - np.add.outer(most, most)).min())


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


def exact_product(
    ends: Reflection | Torus, kernel: Integers, tables: Integers, bound: int, largest: int = WORD
) -> Integers:
    """Return the filter times tables, along their last axis, exactly.

    The absolute values of each table are at most `largest` and sum to at most `bound`. Both are public, and
    the results are below 2⁶².
    """
    n, largest = ends.size, min(largest, bound)
    length = 1 << max(3, (ends.padding - 1).bit_length())
    table_bits, kernel_bits, images = _digits_of_both(ends, kernel, length, bound, largest)
    result = np.zeros(tables.shape, dtype=np.int64)
    count = _count(largest, table_bits)
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
    ends: Reflection | Torus, kernel: Integers, length: int, bound: int, largest: int
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
        for table_bits in range(min(60, max(largest, 1).bit_length() + 1), 1, -1):
            digit = 2 ** (table_bits - 1)
            if error * math.sqrt(digit * min(bound, ends.size * digit)) < 0.25:
                work = _count(largest, table_bits) * (1 + len(digits)) + 2 * len(digits)
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


def _count(largest: int, bits: int) -> int:
    """Return the number of balanced digits of integers of at most `largest` in absolute value."""
    count = 1
    while largest > 2 ** (bits - 1) - 1:
        largest = (largest + 2 ** (bits - 1)) >> bits
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
