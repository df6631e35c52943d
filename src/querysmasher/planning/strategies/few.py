"""Lines of which a few rows are asked, such as the sum of a number: nothing else is measured of them.

With R the rows and A the rows R and 1, V = AᵀMA, and V⁺ = A⁺M⁻¹(A⁺)ᵀ. What `line` says of an invertible V
holds for queries in the span of A, with V⁺ in place of V⁻¹. Around the centre, V_A = NᵀSN with N = R − (Rw)1ᵀ
and S the block of M on R. In integers the rows are T(R − g1ᵀ) with an integer triangle T, TᵀT near S, and
any integers g near Rw: they say nothing at another centre w', around which they split exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.fields import floats, integers
from querysmasher.planning.lattice import LARGEST, RANK, Integers, integer_rows
from querysmasher.planning.strategies.line import AxisStrategy
from querysmasher.planning.strategies.strategy import AxisRows, is_inside, squared_lengths
from querysmasher.privacy.factors import Few
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.workload.family import Family

SPARE = 7
"""Number of bits by which triangles are coarser than the rows of other strategies."""


ASIDE = 1e-3
"""What rows leave at least on other attributes, relative to their largest entry, if no totals are asked."""


@dataclass(frozen=True, eq=False)
class FewStrategy(AxisStrategy):
    """Combinations of a few integer rows on one attribute."""

    kind = "few"
    stored: ClassVar = {"lattice": partial(integers, ndim=2), "weights": partial(floats, ndim=2)}

    lattice: Integers
    """R: linearly independent, also of the row of ones."""
    weights: Array
    """M, for the rows of R divided by their largest entries, and the row of ones."""
    moved: Array | None = None

    @classmethod
    def of(cls, queries: Array, rows: Array, *, counted: bool) -> Self | None:
        """Return BᵀB for rows B that queries and ones span, or None if the queries have no small integers.

        If totals are not asked for (`counted`), the centre may be where no query leaves anything, so that
        nothing would be known of totals. It is then moved by `ASIDE`.
        """
        whole = integer_rows(queries)
        if whole is None:
            return None
        kept, basis = list[Integers](), np.full((1, rows.shape[1]), rows.shape[1] ** -0.5)
        for row in whole:
            rest = row.astype(float)
            for _ in range(2):
                rest = rest - (rest @ basis.T) @ basis
            if np.linalg.norm(rest) > RANK * np.linalg.norm(row):
                kept.append(row)
                basis = np.vstack([basis, rest / np.linalg.norm(rest)])
        made = cls(np.array(kept), np.eye(len(kept) + 1))
        basis, triangle = made._decomposed
        root = np.linalg.solve(triangle, (rows @ basis).T).T
        made = replace(made, weights=root.T @ root)
        return made if counted else made.aside()

    def aside(self) -> Self:
        """Return a strategy around a centre where every row of R leaves something."""
        left = (self.lattice @ self.balance) / self._sizes[:-1]
        around = np.eye(self.rank + 1)
        around[:-1, -1] = -np.where(np.abs(left) < ASIDE, np.copysign(ASIDE, left), left)
        apart = np.zeros_like(self.weights)
        apart[:-1, :-1], apart[-1, -1] = self.weights[:-1, :-1], 1 / self.total_variance
        made = replace(self, weights=around.T @ apart @ around)
        return made.scaled(1 / float(made.squares.max()))

    @cached_property
    def _sizes(self) -> Array:
        """The largest entries of R, and 1."""
        return np.append(np.abs(self.lattice).max(axis=1), 1.0)

    @cached_property
    def _decomposed(self) -> tuple[Array, Array]:
        """Q with orthonormal columns and a triangle T, so that A = (QT)ᵀ."""
        rows = np.vstack([self.lattice, np.ones((1, self.shape[0]))]) / self._sizes[:, None]
        return np.linalg.qr(rows.T)

    @property
    def _basis(self) -> Array:
        return self._decomposed[0]

    @cached_property
    def _root(self) -> Array:
        """Y with B = (QY)ᵀ."""
        return np.asarray(self._decomposed[1] @ np.linalg.cholesky(self.weights))

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.lattice.shape[1],)

    @property
    def rank(self) -> int:
        return len(self.lattice)

    def scaled(self, factor: float) -> Self:
        return replace(self, weights=self.weights * factor)

    def answers_whole(self, tables: Array) -> Array:
        return np.asarray(tables @ self._basis @ self._root)

    @property
    def squares(self) -> Array:
        return np.asarray(np.square(self._basis @ self._root).sum(axis=1))

    def covary_whole(self, rows: Array) -> Array:
        inverse = np.linalg.inv(self._root)
        return np.asarray((rows @ self._basis) @ (inverse.T @ inverse) @ self._basis.T)

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        ((_, rows),) = factors
        return is_inside(np.square(rows @ self._basis).sum(axis=1), squared_lengths(factors), self.shape[0])

    def whole_variances(self, family: Family) -> Array:
        beyond = family.closed_form and self.rank + 1 < family.cells  # these tell all values apart
        if beyond or not family.fits_memory or not self.contains([((0,), family.matrix())]):
            raise OutsideMeasuredSpaceError(
                "the queries cannot be answered: the plan measures only sums there. Add these queries to the "
                "planned workload"
            )
        return np.square(np.linalg.solve(self._root, (family.matrix() @ self._basis).T)).sum(axis=0)

    def written_out(self) -> Array:
        rows = (self._basis @ self._root).T
        return np.asarray(rows - (rows @ self.centre)[:, None])

    def orthonormal(self) -> Self:
        inverse = np.linalg.inv(self._decomposed[1])
        return replace(self, weights=inverse @ inverse.T)

    # --- integers ---

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        sizes = self._sizes[:-1]
        triangle = np.linalg.cholesky(self.weights[:-1, :-1]).T / sizes
        # one row needs no digits, several need some in the shortest
        least = 1.0 if len(sizes) == 1 else 2.0 ** max(2, bits - SPARE)
        whole = np.rint(triangle * (least / np.abs(np.diagonal(triangle)).min())).astype(np.int64)
        rows = whole @ self.lattice
        shift = np.rint(rows @ self.centre).astype(np.int64)
        return self._in_integers(Few(rows - shift[:, None]))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        again = self.of_integers(rounded)
        return float(again.variances([((0,), self.written_out())]).max()) * again.leverage

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        ((_, factor),) = rounded.factors
        rows = factor.written_out().astype(np.int64)
        squares = np.square(rows.astype(float))
        return cls(rows, np.diag(np.append(squares.max(axis=1), squares.sum(axis=0).max())))

    def _is_sound(self) -> bool:
        count, cells = self.lattice.shape
        if not 0 < count < cells or np.abs(self.lattice).max() > LARGEST or not self._sizes.all():
            return False
        if self.weights.shape != (count + 1, count + 1) or not np.allclose(self.weights, self.weights.T):
            return False
        pivots = np.abs(np.diagonal(self._decomposed[1]))
        if pivots.min() <= RANK * math.sqrt(cells):
            return False
        try:
            return bool(np.isfinite(self._root).all())
        except np.linalg.LinAlgError:
            return False
