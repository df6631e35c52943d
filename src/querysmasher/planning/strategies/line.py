"""Strategies on one attribute that determine its centre on their attribute set: up to a million values.

Such a strategy is known by an invertible V over the values. Around the centre w = V⁻¹1/τ, τ = 1ᵀV⁻¹1, it
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

from querysmasher.arrays import CHUNK, Array
from querysmasher.errors import TooLargeError
from querysmasher.fields import floats
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.lines.gram import LineGram
from querysmasher.planning.strategies.dense import Span, reduced, scaled
from querysmasher.planning.strategies.strategy import LARGEST, AxisRows, Strategy
from querysmasher.privacy.factors import Factor, Matrix
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.family import Family, Indexes


class AxisStrategy(Strategy):
    """A strategy on one attribute, which determines the centre of that attribute on its set."""

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
    def answers_whole(self, tables: Array) -> Array:
        """Return Bx for tables along their last axis, with BᵀB = V."""

    @property
    @abstractmethod
    def squares(self) -> Array:
        """The diagonal of V."""

    @abstractmethod
    def covary_whole(self, rows: Array) -> Array:
        """Return rows times V⁻¹."""

    def of_rows(self, rows: Array) -> Array:
        """Return q V⁻¹ qᵀ of any queries, given as rows."""
        step = max(1, CHUNK // self.shape[0])
        some = (rows[start : start + step] for start in range(0, len(rows), step))
        return np.concatenate([np.zeros(0), *(np.einsum("ij,ij->i", q, self.covary_whole(q)) for q in some)])

    @abstractmethod
    def whole_variances(self, family: Family) -> Array:
        """Return q V⁻¹ qᵀ for every query of a family on the attribute."""

    def whole_loss(self, gram: LineGram) -> float:
        """Return the sum of weight × q V⁻¹ qᵀ over all queries, and over the total."""
        losses = (weight * (f.query_weights() @ self.whole_variances(f)) for f, weight in gram.families)
        return math.fsum(losses) + (gram.total * self.total_variance if gram.total else 0.0)

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
        dropped = family.answers(self.balance)
        return np.maximum(self.whole_variances(family) - self.total_variance * dropped**2, 0.0)

    def loss(self, family: Family) -> float:
        """Return the sum of weight × these variances, without listing all queries."""
        gram, w = LineGram.of(self.shape[0], [(family, 1.0)]), self.balance
        return max(self.whole_loss(gram) - self.total_variance * float(gram.times(w[None])[0] @ w), 0.0)

    def _balanced(self, rows: Array) -> Array:
        return np.asarray(rows - (rows @ self.balance)[..., None])

    def transform(self, rows: Array) -> Array:
        return self.answers_whole(self.covary(rows))

    def covary(self, rows: Array) -> Array:
        return self.covary_whole(self._balanced(rows))

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        ((_, rows),) = factors
        return self.of_rows(self._balanced(rows))

    def contains(self, factors: Sequence[AxisRows]) -> bool:  # noqa: ARG002
        return True

    def written_out(self) -> Array:
        rows = self.answers_whole(np.eye(self.shape[0])).T
        return np.ascontiguousarray(rows - (rows @ self.centre)[:, None])

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
        """Return a strategy over parts of the values that gives their counts the same covariances."""
        return self


def is_line(strategy: Strategy) -> TypeGuard[AxisStrategy]:
    """Return whether a strategy determines the centre of its attribute."""
    return isinstance(strategy, AxisStrategy)


class LineStrategy(AxisStrategy):
    """A strategy on the values of a line, with quick variances of queries about consecutive values."""

    @property
    @abstractmethod
    def prefixes(self) -> Array:
        """The variance of every prefix."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """The variance of every value's count."""

    @abstractmethod
    def between_prefixes(self, low: Indexes, high: Indexes) -> Array:
        """Return the covariances of pairs of prefixes."""

    def of_spans(self, first: Indexes, last: Indexes) -> Array:
        """Return the variances of sums of consecutive values."""
        around = first > last  # wraps: the complement of a range, which also needs two prefixes
        before, until = first - 1, last
        prefixes = np.append(self.prefixes, 0.0)  # index −1: nothing
        low, high = np.minimum(before, until), np.maximum(before, until)
        common = np.zeros(first.shape)
        single = first == last
        inner = (low >= 0) & ~single
        common[inner] = self.between_prefixes(low[inner], high[inner])
        result = np.where(single, self.values[first], prefixes[low] + prefixes[high] - 2 * common)
        if around.any():  # 1 − (high prefix − low prefix)
            total = np.append(np.cumsum(self.inverse_ones), 0.0)  # covariances of prefixes with it
            result[around] += total[-2] - 2 * (total[high[around]] - total[low[around]])
        return np.asarray(result)

    def whole_variances(self, family: Family) -> Array:
        if family.rows > limits().variances // 8:
            raise TooLargeError(
                f"workload: {family.rows:,} variances ({family} of {self.shape[0]:,} values) do not fit in "
                "memory; ask for fewer at a time"
            )
        spans = family.spans()
        if spans is None:
            return self.of_rows(family.matrix())
        return self.of_spans(*spans) if spans[0].any() else self.prefixes[spans[1]]

    def whole_loss(self, gram: LineGram) -> float:
        path, rows, middle = gram.path
        loss = float(np.vdot(middle, rows @ self.covary_whole(rows).T)) if len(rows) else 0.0
        loss += float(gram.values @ self.values) if gram.values.any() else 0.0
        loss += float(path @ self.prefixes) if path.any() else 0.0
        return loss + super().whole_loss(replace(gram, families=gram.others))


@dataclass(frozen=True, eq=False)
class MatrixAxis(LineStrategy):
    """A line of few values, written out: V = BᵀB for any square matrix B of full rank.

    Rows in integers need no shift. The result N of rounding B − (Bw)1ᵀ says next to nothing along one
    direction, the centre of N, and splits exactly around that. So does NᵀN + c11ᵀ for any c, around the same
    centre and with the same V_A. A c as large as V itself keeps it far from singular.
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

    def answers_whole(self, tables: Array) -> Array:
        return tables @ self.matrix.T

    @property
    def squares(self) -> Array:
        return np.asarray(np.square(self.matrix).sum(axis=0))

    @cached_property
    def _covariance(self) -> Array:
        """V⁻¹."""
        inverse = np.linalg.inv(self.matrix)
        return np.asarray(inverse @ inverse.T)

    @cached_property
    def _cumulated(self) -> Array:
        """The covariances of all prefixes."""
        return np.asarray(self._covariance.cumsum(axis=0).cumsum(axis=1))

    @property
    def prefixes(self) -> Array:
        return np.diagonal(self._cumulated)

    @property
    def values(self) -> Array:
        return np.diagonal(self._covariance)

    def between_prefixes(self, low: Indexes, high: Indexes) -> Array:
        return np.asarray(self._cumulated[low, high])

    def covary_whole(self, rows: Array) -> Array:
        return rows @ self._covariance

    def orthonormal(self) -> MatrixAxis:
        return MatrixAxis(np.eye(self.shape[0]))

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        return self._in_integers(Matrix(reduced(scaled(self.written_out(), bits), bits)))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        again = self.of_integers(rounded)
        if not again.is_sound():
            return math.inf
        return float(again.variances([((0,), self.written_out())]).max()) * again.leverage

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        rows = factor.written_out()
        total = np.full((1, len(rows)), math.sqrt(np.square(rows).sum(axis=0).max()))
        return cls(np.asarray(np.linalg.qr(np.vstack([rows, total]), mode="r")))

    def _is_sound(self) -> bool:
        matrix = self.matrix
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
            return False
        return bool(np.abs(matrix).max() < LARGEST) and Span.of(matrix).is_independent()
