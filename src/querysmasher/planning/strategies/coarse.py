"""Lines on classes of values: if queries do not distinguish some values, only their sums are measured.

With L the sums over classes and V the inner strategy over classes, this one is LᵀVL, and its pseudo-inverse
L†V⁻¹(L†)ᵀ: the variance of a query that is constant on classes is that of its values on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.fields import integers, text
from querysmasher.planning.lattice import Integers
from querysmasher.planning.lines.gram import on_classes
from querysmasher.planning.strategies.line import AxisStrategy, MatrixAxis
from querysmasher.planning.strategies.mirrored import MirroredStrategy
from querysmasher.planning.strategies.strategy import AxisRows, is_negligible, squared_lengths
from querysmasher.privacy.factors import Coarse
from querysmasher.privacy.factors.matrix import OnClasses
from querysmasher.privacy.integer_plan import IntegerStrategy
from querysmasher.privacy.pairs import Products
from querysmasher.workload.family import Family

INNER: dict[str, type[AxisStrategy]] = {kind.kind: kind for kind in (MatrixAxis, MirroredStrategy)}
"""Kinds of the inner strategy, by name."""


class ClassedStrategy(OnClasses, AxisStrategy):
    """A strategy on one attribute that may not distinguish all values: it measures sums over classes."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.classes.shape

    @property
    def rank(self) -> int:
        return self.partition.columns - 1

    def means(self, rows: Array) -> Array:
        """Return the mean of rows over the values of every class."""
        sums = self.partition.sums(rows.reshape(-1, self.shape[0]).T)
        return (sums / self.partition.sizes[:, None]).T.reshape(*rows.shape[:-1], -1)

    def spread(self, tables: Array) -> Array:
        """Return tables over classes, divided evenly among the values of each."""
        return np.asarray(self.partition.spread(tables / self.partition.sizes))

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        ((_, rows),) = factors
        outside = rows - self.means(rows)[:, self.classes]
        return is_negligible(np.einsum("ij,ij->i", outside, outside), squared_lengths(factors))

    def contained(self, family: Family) -> Array:
        """Return the rows of a family, or refuse them if they divide a class."""
        rows = family.matrix()
        if not self.contains([((0,), rows)]):
            self.refuse()
        return rows

    def refuse(self) -> NoReturn:
        raise OutsideMeasuredSpaceError(
            "the queries cannot be answered: the plan measures coarser groups of values. Add these queries "
            "to the planned workload"
        )


def _inner(data: Any) -> AxisStrategy:
    return INNER[text(data["kind"], tuple(INNER))].from_data(data)


@dataclass(frozen=True, eq=False)
class CoarseStrategy(ClassedStrategy):
    """A line whose values are classes of the values of an attribute."""

    kind = "coarse"
    stored: ClassVar = {"classes": partial(integers, ndim=1), "inner": _inner}

    classes: Integers
    """The class of every value, in order."""
    inner: AxisStrategy

    def scaled(self, factor: float) -> Self:
        return replace(self, inner=self.inner.scaled(factor))

    def answers_whole(self, tables: Array) -> Array:
        sums = self.partition.sums(tables.reshape(-1, self.classes.size).T)
        return self.inner.answers_whole(sums.T.reshape(*tables.shape[:-1], -1))

    @property
    def squares(self) -> Array:
        return self.inner.squares[self.classes]

    def covary_whole(self, rows: Array) -> Array:
        return self.spread(self.inner.covary_whole(self.means(rows)))

    @property
    def moved(self) -> Array | None:  # type: ignore[override]
        return None if self.inner.moved is None else self.spread(self.inner.moved)

    def orthonormal(self) -> Self:
        return replace(self, inner=MatrixAxis(np.diag(self.partition.sizes**-0.5)))

    def whole_variances(self, family: Family) -> Array:
        if family.spans() is None:
            return self.inner.of_rows(self.means(self.contained(family)))
        coarse = on_classes(family, self.classes)
        return self.refuse() if coarse is None else self.inner.whole_variances(coarse)

    def _column_products(self) -> Products:
        return self.inner.column_products().spread(lambda: self.classes, self.classes.size)

    # --- integers ---

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:
        ((_, factor),) = self.inner.rounded(centres, bits).factors
        return self._in_integers(Coarse(self.classes, factor))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        return self.inner.rounding_loss(_coarse(rounded)[1])

    @classmethod
    def of_integers(cls, rounded: IntegerStrategy) -> Self:
        factor, inner = _coarse(rounded)
        return cls(factor.classes, INNER.get(factor.inner.kind, MatrixAxis).of_integers(inner))

    # --- files ---

    def _is_sound(self) -> bool:
        fits = self.partition.columns == self.inner.shape[0]
        return fits and bool(np.all(np.diff(self.classes) >= 0)) and self.inner.is_sound()


def _coarse(rounded: IntegerStrategy) -> tuple[Coarse, IntegerStrategy]:
    """Return the only factor, and its inner rows in integers, over classes."""
    ((axes, factor),) = rounded.factors
    assert isinstance(factor, Coarse)  # noqa: S101 - the registry chooses by kind
    return factor, IntegerStrategy((factor.inner.cells,), ((axes, factor.inner),))
