"""Strategies on one attribute that bring a centre of their own: lines of up to a million values.

Such a strategy is known by an invertible V over the values. Around its own centre w = V⁻¹1/τ, τ = 1ᵀV⁻¹1, it
splits exactly, V = 11ᵀ/τ + V_A with V_A w = 0, and only V_A is measured: rows B − (Bw)1ᵀ with BᵀB = V. A
query q leaves (q·w) on the set without the attribute, and its variance here is

    q V⁻¹ qᵀ − τ(q·w)².

In integers the rows are B − g1ᵀ for any integers g close to Bw. With ĝ = V⁻¹Bᵀg and γ = 1ᵀĝ the centre is
then w' = ĝ + (1 − γ)w: the rows B − g1ᵀ split exactly around w', and what they say of the rest has the same
variance as before, whatever g is. (They say a little about the total too, which is not used.) Multiples of w
that are added to ĝ cancel, so that (B − g1ᵀ)ᵀ does as well as Bᵀ, also for estimates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Self, TypeGuard

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import PlanError, TooLargeError
from querysmasher.fields import floats, text
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import square_sum
from querysmasher.planning.strategies.line_variances import FilterVariances, LineVariances, WrittenVariances
from querysmasher.planning.strategies.rounding import reduced, scaled
from querysmasher.planning.strategies.span import Span
from querysmasher.planning.strategies.strategy import CLOSE, FAINTEST, LARGEST, AxisRows, Strategy
from querysmasher.privacy.factors import Factor, Matrix, Mirrored, Reflection
from querysmasher.privacy.factors.filter import MOST_ROWS
from querysmasher.privacy.factors.reflection import NAMES
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.family import Family


class AxisStrategy(Strategy):
    """A strategy on one attribute, around a centre of its own."""

    own_centre = True

    moved: Array | None
    """The centre w' of rows in integers; None if it is w."""

    @property
    def rank(self) -> int:
        return self.shape[0] - 1

    # --- what is known of V ---

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """Return the strategy with factor × V."""

    @abstractmethod
    def whole_rows(self) -> Array:
        """Return B, with BᵀB = V, which takes memory."""

    @property
    @abstractmethod
    def squares(self) -> Array:
        """The diagonal of V."""

    @abstractmethod
    def covary_whole(self, rows: Array) -> Array:
        """Return rows times V⁻¹."""

    @abstractmethod
    def transform_whole(self, rows: Array) -> Array:
        """Return rows times B†."""

    @abstractmethod
    def whole_variances(self, family: Family) -> Array:
        """Return q V⁻¹ qᵀ for every query of a family on the attribute."""

    def whole_loss(self, family: Family, *, weighted: bool = True) -> float:
        """Return the sum over the family's queries of (weight ×) q V⁻¹ qᵀ."""
        weights = family.weights if weighted else None
        variances = self.whole_variances(family.original)
        return float(variances.sum() if weights is None else weights @ variances)

    @cached_property
    def inverse_ones(self) -> Array:
        """V⁻¹1."""
        return self.covary_whole(np.ones(self.shape))

    @property
    def total_variance(self) -> float:
        """τ = 1ᵀV⁻¹1."""
        return float(self.inverse_ones.sum())

    @property
    def balance(self) -> Array:
        """w, around which V splits."""
        return np.asarray(self.inverse_ones / self.total_variance)

    @property
    def at_balance(self) -> Array:
        """Bw = (1ᵀB†)ᵀ/τ."""
        return self.transform_whole(np.ones(self.shape)) / self.total_variance

    # --- what is measured around the centre ---

    @property
    def centre(self) -> Array:
        """The centre around which queries are split."""
        return self.balance if self.moved is None else self.moved

    def around_shift(self, factor: Factor, shift: Integers) -> Self:
        """Return the strategy around the centre of integer rows from which g was subtracted."""
        ahead = self.covary_whole(factor.transposed(shift.astype(float)[:, None])[:, 0])  # ĝ
        return replace(self, moved=ahead + (1 - float(ahead.sum())) * self.balance)  # type: ignore[type-var]

    def query_variances(self, family: Family) -> Array:
        """Return the variances of what the queries of a family leave on the attribute."""
        shares = family.original.answers(self.balance)
        return np.maximum(self.whole_variances(family) - self.total_variance * shares**2, 0.0)

    def loss(self, family: Family, *, weighted: bool = True) -> float:
        """Return the sum of (weight ×) these variances, without listing all queries."""
        total = self.total_variance * square_sum(family, self.balance, weighted=weighted)
        return max(self.whole_loss(family, weighted=weighted) - total, 0.0)

    def _balanced(self, rows: Array) -> Array:
        return np.asarray(rows - (rows @ self.balance)[..., None])

    def transform(self, rows: Array) -> Array:
        return self.transform_whole(self._balanced(rows))

    def covary(self, rows: Array) -> Array:
        return self.covary_whole(self._balanced(rows))

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        ((_, rows),) = factors
        own = self._balanced(rows)
        return np.einsum("ij,ij->i", own, self.covary_whole(own))

    def contains(self, factors: Sequence[AxisRows]) -> bool:  # noqa: ARG002
        return True

    def orthonormal(self) -> AxisStrategy:
        (n,) = self.shape
        return MirroredStrategy("circular", np.ones(n // 2 + 1), np.ones(n), np.empty((0, n)))  # V = I

    def written_out(self) -> Array:
        rows = self.whole_rows()
        return rows - (rows @ self.centre)[:, None]

    @property
    def leverage(self) -> float:
        return float(self.squares.max()) - 1 / self.total_variance

    def stands_on(self, centres: Sequence[Centre]) -> bool:  # noqa: ARG002
        return True

    # --- fewer values ---

    def parts(self, groups: Integers) -> Integers:  # noqa: ARG002
        """Return the part of every value: the fewest parts that `pruned` accepts within groups of values."""
        return np.arange(self.shape[0])

    def pruned(self, parts: Integers) -> AxisStrategy:  # noqa: ARG002
        """Return a strategy over parts of the values that knows as much about them."""
        return self


def has_own_centre(strategy: Strategy) -> TypeGuard[AxisStrategy]:
    """Return whether a strategy says that it brings its own centre."""
    return strategy.own_centre


class LineStrategy(AxisStrategy):
    """A strategy on the values of a line: queries about consecutive values have quick variances."""

    @property
    @abstractmethod
    def line(self) -> LineVariances:
        """The variances of queries under V."""

    def covary_whole(self, rows: Array) -> Array:
        return self.line.covary(rows)

    def whole_variances(self, family: Family) -> Array:
        if family.rows > limits().variances // 8:
            msg = (
                f"workload: {family.rows:,} variances ({family} of {self.shape[0]:,} values) do not fit in "
                "memory; ask for fewer at a time"
            )
            raise TooLargeError(msg)
        return family.original.variances_on(self.line)

    def whole_loss(self, family: Family, *, weighted: bool = True) -> float:
        if weighted and family.weights is not None:
            return super().whole_loss(family)
        return family.original.loss_on(self.line)


@dataclass(frozen=True, eq=False)
class MatrixAxis(LineStrategy):
    """A line of few values, written out: V = BᵀB for any square matrix B of full rank.

    Rows in integers need no shift beside them. B − (Bw)1ᵀ is rounded as it is: the result N says next to
    nothing along its own centre, and splits exactly around that. So does NᵀN + c11ᵀ for any c, around the
    same centre and with the same V_A. A c as large as V itself keeps it far from singular.
    """

    kind = "line"
    stored: ClassVar = {"matrix": partial(floats, ndim=2)}

    matrix: Array
    """B."""
    moved: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.matrix.shape[1],)

    def scaled(self, factor: float) -> Self:
        return replace(self, matrix=self.matrix * math.sqrt(factor))

    def whole_rows(self) -> Array:
        return self.matrix

    @property
    def squares(self) -> Array:
        return np.asarray(np.square(self.matrix).sum(axis=0))

    @cached_property
    def _inverse(self) -> Array:
        """B⁻¹."""
        return np.asarray(np.linalg.inv(self.matrix))

    @cached_property
    def line(self) -> LineVariances:
        return WrittenVariances(self._inverse @ self._inverse.T)

    def transform_whole(self, rows: Array) -> Array:
        return rows @ self._inverse

    @property
    def spread(self) -> float:
        lengths = np.linalg.norm(self.matrix, axis=1)
        return float(lengths.max() / lengths.min()) if lengths.all() else math.inf

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        rows = reduced(scaled(self.written_out(), bits), bits)
        return IntegerStrategy(self.shape, (((0,), Matrix(rows)),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        own = self.of_integers(rounded)
        return float(own.variances([((0,), self.written_out())]).max()) * own.leverage

    def survives(self, rounded: IntegerStrategy) -> bool:
        return self.of_integers(rounded).is_sound()

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        rows = factor.written_out()
        total = np.full((1, len(rows)), math.sqrt(np.square(rows).sum(axis=0).max()))
        return cls(np.asarray(np.linalg.qr(np.vstack([rows, total]), mode="r")))

    def is_sound(self) -> bool:
        matrix = self.matrix
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
            return False
        return bool(np.abs(matrix).max() < LARGEST) and Span.of(matrix).is_independent()


@dataclass(frozen=True, eq=False)
class MirroredStrategy(LineStrategy):
    """A filter that reflects at both ends of an attribute, and a few smooth rows, times a diagonal.

    V = D(S + UᵀU)D, where S is a filter (`reflection`), D a diagonal, and U has few rows, or none. With K =
    S⁻¹, a filter of the same kind, and r = 1/d, all by fast Fourier transforms,

        V⁻¹ = D⁻¹(K − ZᵀZ)D⁻¹,   Z = (I + UKUᵀ)^(-1/2) UK      (Woodbury).
    """

    kind = "mirrored"
    stored: ClassVar = {
        "ends": partial(text, allowed=NAMES),
        "spectrum": partial(floats, ndim=1),
        "diagonal": partial(floats, ndim=1),
        "extra": partial(floats, ndim=2),
    }

    ends: str
    """How the filter continues beyond the ends: a name of `reflection`."""
    spectrum: Array
    """The eigenvalues of S."""
    diagonal: Array
    extra: Array
    """U: a few further rows, possibly none."""
    moved: Array | None = None

    @classmethod
    def normalised(cls, ends: str, spectrum: Array, extra: Array) -> Self:
        """Return the strategy whose diagonal makes V[j,j] = 1 for every value."""
        plain = cls(ends, spectrum, np.ones(extra.shape[1]), extra)
        return replace(plain, diagonal=1 / np.sqrt(plain.squares))

    def scaled(self, factor: float) -> Self:
        return replace(self, diagonal=self.diagonal * np.sqrt(factor))

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.diagonal.shape

    @cached_property
    def reflection(self) -> Reflection:
        """How the filter continues beyond the ends."""
        return Reflection(self.ends, self.diagonal.size)

    @property
    def _root(self) -> Array:
        """The free lags of S^½."""
        return self.reflection.kernel(np.sqrt(self.spectrum))

    def whole_rows(self) -> Array:
        return np.vstack([self.reflection.matrix(self._root), self.extra]) * self.diagonal

    @property
    def squares(self) -> Array:
        plain = self.reflection.diagonal(self.reflection.kernel(self.spectrum))
        return np.asarray(self.diagonal**2 * (plain + np.square(self.extra).sum(axis=0)))

    @cached_property
    def line(self) -> LineVariances:
        plain = FilterVariances(self.reflection, 1 / self.spectrum, self.diagonal, self.extra)
        if not self.extra.size:
            return plain
        image = self.reflection.apply(plain.kernel, self.extra)  # UK
        triangle = np.linalg.cholesky(np.eye(len(image)) + image @ self.extra.T)
        return replace(plain, correction=np.linalg.solve(triangle, image))

    def transform_whole(self, rows: Array) -> Array:
        return self._answers(self.covary_whole(rows))

    @property
    def at_balance(self) -> Array:
        return self._answers(self.balance)

    def _answers(self, tables: Array) -> Array:
        """Return Bx for tables along their last axis."""
        image = tables * self.diagonal
        filtered = self.reflection.apply(self._root, image)
        return np.concatenate([filtered, image @ self.extra.T], axis=-1) if self.extra.size else filtered

    @cached_property
    def _rounded(self) -> dict[int, IntegerStrategy]:
        """What `rounded` returned, by bits: planning and measuring ask for the same."""
        return {}

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        if bits not in self._rounded:
            self._rounded[bits] = IntegerStrategy(self.shape, (((0,), self._round(bits)),))
        return self._rounded[bits]

    def _round(self, bits: int) -> Mirrored:
        n, amplitude = self.diagonal.size, self._root
        filter_bits = max(bits, min(bits + 3, limits().filter_bits)) + max(0, (n.bit_length() + 1) // 2 - 6)
        scale = 2.0**filter_bits / float(np.abs(amplitude).max())
        finest = 2 ** max(bits, min(bits + 4, limits().diagonal_bits)) - 1
        diagonal = np.maximum(1, np.floor(self.diagonal * (finest / self.diagonal.max()) * (1 + 1e-12)))
        kernel, extra = (np.rint(scale * own).astype(np.int64) for own in (amplitude, self.extra))
        shift = np.zeros(n + len(extra), dtype=np.int64)
        plain = Mirrored(self.ends, kernel, diagonal.astype(np.int64), extra, shift)
        found = self._unshifted(plain)
        if found.spectrum.min() <= 0.0:
            msg = "max_records: it leaves too few bits for exact integer answers; lower max_records"
            raise PlanError(msg)
        return replace(plain, shift=np.rint(found.at_balance).astype(np.int64))

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        assert isinstance(factor, Mirrored)  # noqa: S101 - the registry has seen to it
        found = cls._unshifted(factor)
        return found.around_shift(factor, factor.shift) if found.spectrum.min() > 0 else found

    @classmethod
    def _unshifted(cls, factor: Mirrored) -> Self:
        """Return V of integer rows before they are shifted; a filter's negative eigenvalues stay negative."""
        amplitudes = factor.reflection.eigenvalues(factor.kernel.astype(float))
        spectrum = amplitudes * np.abs(amplitudes)
        return cls(factor.ends, spectrum, factor.diagonal.astype(float), factor.extra.astype(float))

    def is_sound(self) -> bool:
        n, arrays = self.diagonal.size, (self.spectrum, self.diagonal)
        if not n or self.diagonal.ndim != 1 or self.spectrum.shape != (self.reflection.frequencies,):
            return False
        if self.extra.shape[1] != n or len(self.extra) > MOST_ROWS:
            return False
        if np.abs(self.extra).max(initial=0.0) > LARGEST:
            return False
        if not all(array.min() > FAINTEST and array.max() < LARGEST for array in arrays):
            return False
        return bool(self.spectrum.min() > CLOSE**2 * self.spectrum.max() / n)
