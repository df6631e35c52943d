"""Filters: integer combinations of the cells around every cell, the same for all cells.

A `Filter` goes round at the ends of each axis, so that all its columns are shifts of one another, and one of
them tells the sensitivity exactly.

A `Mirrored` filter reflects at the ends of a line, perhaps with a few more rows, times an integer diagonal:
B = [F; U]·diag(d) − g1ᵀ, where F is a filter (`reflection`), U has few rows, and g shifts every row by a
constant. Write A = [F; U]·diag(d). With F symmetric, AᵀA = diag(d)(F² + UᵀU)diag(d), and F² is a filter of
the same kind. Its diagonal is known exactly: with t₂ the lags of F², t₂(0) is a sum of squares, and the first
column of F², a product of integers, gives the others one after the other. So the squared length of column j
of A is d_j²(t₂(0) ± t₂(2j+shift) + Σ_k U_kj²), and that of B is less by 2(Aᵀg)_j − ‖g‖², with Aᵀg =
diag(d)(Fg₁ + Uᵀg₂) a product of integers too: exact integers, at any number of values.

Answers are convolutions, by transforms whose rounding error is bounded in advance (`convolution`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.privacy.factors.convolution import Torus, exact_product
from querysmasher.privacy.factors.factor import NEAR, WORD, Factor, Integers, given, largest_of, require
from querysmasher.privacy.factors.reflection import Reflection

LARGEST = 2**30
"""Bound on the size of a mirrored filter's integers: sums of a few squares fit into 64 bits."""

MOST_ROWS = 64
"""Maximum number of further rows."""


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
        return sum(int(b) ** 2 for b in self.kernel.ravel())

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
        # t(0) meets other lags only
        entry = others + max(first, others) if self.reflection.sign else max(first, others)
        return max(entry, self._further, 1) * largest_of(self.diagonal) + largest_of(self.shift)

    @cached_property
    def squares(self) -> Integers:
        """The diagonal of F², exactly."""
        lags, reflection = self.reflection.lags(self.kernel), self.reflection
        first = sum(lag**2 for lag in lags.tolist())
        require(4 * first < WORD, "strategy: the lags of a mirrored filter are too large")
        if not reflection.sign:
            return np.full(self.cells, first, dtype=np.int64)
        n = self.cells
        column = lags[:n] + reflection.sign * lags[reflection.shift : reflection.shift + n]  # of F
        bound = int(np.abs(column).sum())
        column = exact_product(reflection, self.kernel, column[None], bound)[0]
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
        further = np.square(self.extra.astype(float)).sum(axis=0)
        across = self._across()
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
        constant = sum(g**2 for g in self.shift.tolist())
        return max(d**2 * (s + sum(u**2 for u in own)) - 2 * d * a for d, s, a, own in columns) + constant

    def _across(self) -> Integers:
        """Return Fg₁ + Uᵀg₂, exactly."""
        bound = sum(map(abs, self.shift.tolist()))
        largest = max(largest_of(self.kernel), self._further)
        require(2 * bound * largest < WORD, "strategy: the shift of a mirrored filter is too large")
        first, further = self.shift[: self.cells], self.shift[self.cells :]
        return exact_product(self.reflection, self.kernel, first[None], bound)[0] + further @ self.extra

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
