"""Mirrored filters: an integer filter on a line, and perhaps a few more rows, times an integer diagonal.

B = [F; U]·diag(d) − g1ᵀ, where F is a filter that reflects at the ends of the line (`reflection`), U has few
rows, and g shifts every row by a constant. Write A = [F; U]·diag(d). With F symmetric, AᵀA = diag(d)(F² +
UᵀU)diag(d), and F² is a filter of the same kind. Its diagonal is known exactly: with t₂ the lags of F², t₂(0)
is a sum of squares, and the first column of F², a product of integers, gives the others one after the other.
So the squared length of column j of A is d_j²(t₂(0) ± t₂(2j+shift) + Σ_k U_kj²), and that of B is less by
2(Aᵀg)_j − ‖g‖², with Aᵀg = diag(d)(Fg₁ + Uᵀg₂) a product of integers too: exact integers, at any number of
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import PrivacyError
from querysmasher.privacy.factors.convolution import exact_product
from querysmasher.privacy.factors.factor import WORD, Factor, Integers, largest_of, words
from querysmasher.privacy.factors.reflection import Reflection

NEAR = 1e-6
"""Columns whose squared lengths differ by less than this fraction may change places in floating point."""

LARGEST = 2**30
"""Bound on the size of all integers: sums of a few squares fit into 64 bits."""

MOST_ROWS = 64
"""Maximum number of further rows."""


@dataclass(frozen=True, eq=False)
class Mirrored(Factor):
    """Rows of a filter that reflects at both ends of an attribute, and a few others, times a diagonal."""

    kind = "mirrored"
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
        for name in ("kernel", "diagonal"):
            kept = words(f"strategy: the {name} of a mirrored filter", getattr(self, name), 1)
            object.__setattr__(self, name, kept)
        if self.kernel.size != self.reflection.free:
            msg = "strategy: a mirrored filter has another number of lags than its values determine"
            raise PrivacyError(msg)
        extra = np.zeros((0, self.cells), dtype=np.int64)
        if type(self.extra) is not np.ndarray or self.extra.size:
            extra = words("strategy: the further rows of a mirrored filter", self.extra, 2)
        if self.extra.shape != extra.shape or extra.shape[1] != self.cells or len(extra) > MOST_ROWS:
            msg = f"strategy: expected at most {MOST_ROWS} further rows over the values of a mirrored filter"
            raise PrivacyError(msg)
        object.__setattr__(self, "extra", extra)
        object.__setattr__(self, "shift", words("strategy: the shift of a mirrored filter", self.shift, 1))
        if self.shift.size != self.rows:
            msg = "strategy: expected a shift for every row of a mirrored filter"
            raise PrivacyError(msg)
        largest = max(map(largest_of, (self.kernel, self.diagonal, *([extra] if extra.size else []))))
        if self.diagonal.min() < 1 or largest >= LARGEST or largest_of(self.shift) >= LARGEST**2 // 2:
            msg = "strategy: a mirrored filter has too large integers, or a diagonal that is not positive"
            raise PrivacyError(msg)

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
        entry = first + others if self.reflection.sign else max(first, others)  # t(0) meets other lags only
        if self.reflection.sign:
            entry = max(entry, 2 * others)
        further = largest_of(self.extra) if self.extra.size else 0
        return max(entry, further, 1) * largest_of(self.diagonal) + largest_of(self.shift)

    @cached_property
    def squares(self) -> Integers:
        """The diagonal of F², exactly."""
        lags, reflection = self.reflection.lags(self.kernel), self.reflection
        cycle: Integers = lags if reflection.name != "range" else np.append(lags, lags[1])  # one period
        if reflection.name == "cosine":
            cycle = lags[:-1]
        first = sum(_sums_of_squares(cycle).tolist())
        if 4 * first >= 2**62:
            msg = "strategy: the lags of a mirrored filter are too large"
            raise PrivacyError(msg)
        if not reflection.sign:
            return np.full(self.cells, first, dtype=np.int64)
        n = self.cells
        column = lags[:n] + reflection.sign * lags[reflection.shift : reflection.shift + n]  # of F
        bound = int(np.abs(column).sum())
        column = exact_product(reflection, self.kernel, column[None], bound)[0]
        lags = np.empty(2 * self.cells + 1, dtype=np.int64)
        lags[0] = first
        if reflection.name == "range":  # column[i] = t(i) − t(i+2): even lags follow from t(0)
            lags[2 : self.cells + 2 : 2] = first - np.cumsum(column[: self.cells : 2])
            lags[self.cells + 2 :] = 0
            free = lags[: reflection.free].copy()
            free[1::2] = 0  # odd lags are on no diagonal
            if self.cells % 2:  # t(n+1) is an even lag, which the last entry gives
                free[self.cells + 1] = lags[self.cells + 1]
        else:  # column[i] = t(i) + t(i+1)
            signs = np.where(np.arange(self.cells) % 2, -1, 1)
            ahead = np.cumsum(signs * column)
            lags[1 : self.cells + 1] = signs * (ahead - first)
            free = lags[: reflection.free]
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
        constant = sum(g**2 for g in self.shift.tolist()) if self.shift.any() else 0
        return max(d**2 * (s + sum(u**2 for u in own)) - 2 * d * a for d, s, a, own in columns) + constant

    def _across(self) -> Integers:
        """Return Fg₁ + Uᵀg₂, exactly."""
        first, further = self.shift[: self.cells], self.shift[self.cells :]
        if not self.shift.any():
            return np.zeros(self.cells, dtype=np.int64)
        bound = int(np.abs(first.astype(object)).sum())
        reach = (
            (bound + int(np.abs(further.astype(object)).sum()))
            * 2
            * max(largest_of(self.kernel), largest_of(self.extra) if self.extra.size else 0)
        )
        if reach >= WORD:
            msg = "strategy: the shift of a mirrored filter is too large"
            raise PrivacyError(msg)
        image = exact_product(self.reflection, self.kernel, first[None], bound)[0]
        for row, multiple in zip(self.extra, further.tolist(), strict=True):
            image = image + multiple * row
        return np.asarray(image)

    def exact_answers(self, tables: Numbers, bound: int) -> Integers:
        x = np.asarray(tables).astype(np.int64) * self.diagonal[:, None]
        result = np.empty((self.rows, x.shape[1]), dtype=np.int64)
        bound *= largest_of(self.diagonal)
        result[: self.cells] = exact_product(self.reflection, self.kernel, np.ascontiguousarray(x.T), bound).T
        for place, row in enumerate(self.extra, start=self.cells):  # sums stay below `bound` × `largest`
            result[place] = row @ x
        total = np.asarray(tables).astype(np.int64).sum(axis=0)
        return result - self.shift[:, None] * total

    def transposed(self, answers: Array) -> Array:
        return self.plain_transposed(answers) - self.shift.astype(float) @ answers

    def plain_answers(self, table: Array) -> Array:
        """Return A·x in floating point, before the shift."""
        scaled = table * self.diagonal
        image = self.reflection.apply(self.kernel.astype(float), scaled)
        return np.concatenate([image, self.extra.astype(float) @ scaled])

    def plain_transposed(self, answers: Array) -> Array:
        """Return Aᵀz, before the shift."""
        image = self.reflection.apply(
            self.kernel.astype(float), np.ascontiguousarray(answers[: self.cells].T)
        )
        if self.extra.size:
            image = image + answers[self.cells :].T @ self.extra
        return np.asarray((image * self.diagonal).T)

    @cached_property
    def amplitudes(self) -> Array:
        """The eigenvalues of F."""
        return self.reflection.eigenvalues(self.kernel.astype(float))

    @property
    def rank(self) -> int:
        return self.cells if np.all(self.amplitudes != 0) else 0

    @cached_property
    def inverse_kernel(self) -> Array:
        """The free lags of F⁻²."""
        return self.reflection.kernel(self._sure() ** -2.0)

    def undone(self, answers: Array) -> Array:
        """Return B†z = diag(d)⁻¹(F² + UᵀU)⁻¹(F·first + Uᵀ·further), by the formula of Woodbury.

        The lags of F⁻² are known already wherever variances are, so F⁻¹ = F·F⁻² is quicker than its own lags.
        """
        moved = np.moveaxis(answers, 0, -1)
        lead = moved.shape[:-1]
        flat = np.ascontiguousarray(moved[..., : self.cells]).reshape(-1, self.cells)
        image = self.reflection.apply(self.inverse_kernel, flat)
        image = self.reflection.apply(self.kernel.astype(float), image)
        if self.extra.size:
            own = self.extra.astype(float)
            inside = self.reflection.apply(self.inverse_kernel, own)  # U F⁻²
            left = moved[..., self.cells :].reshape(-1, len(own)) - image @ own.T
            image = image + np.linalg.solve(np.eye(len(own)) + inside @ own.T, left.T).T @ inside
        return np.asarray((image / self.diagonal).reshape(*lead, self.cells))

    def _sure(self) -> Array:
        if not np.all(self.amplitudes):
            msg = "strategy: a mirrored filter has no inverse"
            raise PrivacyError(msg)
        return self.amplitudes

    def to_data(self) -> dict[str, Any]:
        return {
            "ends": self.ends,
            "kernel": self.kernel,
            "diagonal": self.diagonal,
            "extra": self.extra,
            "shift": self.shift,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["ends"], data["kernel"], data["diagonal"], data["extra"], data["shift"])


def _sums_of_squares(integers: Integers) -> Integers:
    """Return sums of squares of some of the entries at a time, each below 2⁶³ for entries below 2³⁰."""
    return np.add.reduceat(integers**2, np.arange(0, integers.size, 8))
