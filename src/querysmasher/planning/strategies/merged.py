"""Any rows over cells of which many share a column: the strategy of few queries that are not split.

With E the cells' columns (cells × columns, 0/1), D the sizes of the columns and M the stored rows, B = M·Eᵀ.
U = E·D^(-½) has orthonormal columns, so B† = U·(M·D^½)†: a query enters by its sums over the cells of each
column, divided by the root of their number. All work is done over columns and coarse cells (`CoarseCells`),
in pieces: the rows themselves are the only large array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from querysmasher.arrays import Array, quadratic_forms
from querysmasher.errors import PrivacyError
from querysmasher.fields import floats, integers, items, wholes
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import Integers
from querysmasher.planning.limits import limits
from querysmasher.planning.strategies.coarse import CHUNK, CoarseCells, count
from querysmasher.planning.strategies.rounding import completed, fits_rows, reduced, round_on_lattice, scaled
from querysmasher.planning.strategies.span import Span
from querysmasher.planning.strategies.strategy import (
    CLOSE,
    LARGEST,
    AxisRows,
    Strategy,
    is_negligible,
    squared_lengths,
)
from querysmasher.privacy.accounting import squared_sensitivity
from querysmasher.privacy.factors import Merged, Partition
from querysmasher.privacy.integer_plan import IntegerStrategy

FAR_BELOW = 1e-8
"""Variances below this fraction of a cell's are not computed from covariances, which would cancel."""


@dataclass(frozen=True, eq=False)
class MergedStrategy(Strategy):
    """Linearly independent rows over the distinct columns of a block's cells."""

    kind = "merged"
    whole = True

    shape: tuple[int, ...]
    maps: tuple[Integers, ...]
    """The class of every value, by axis."""
    labels: Integers
    """The column of every coarse cell, a combination of classes."""
    matrix: Array
    """The rows on the distinct columns (rows × columns)."""
    lattice: Integers | None = None
    """Integer rows over the columns with the same span, where that is not the space of all columns."""

    @cached_property
    def partition(self) -> Partition:
        """Which cells share a column."""
        return Partition(self.maps, self.labels)

    @property
    def rank(self) -> int:
        return len(self.matrix)

    @cached_property
    def _cells(self) -> CoarseCells:
        return CoarseCells(self.partition)

    @property
    def _root_sizes(self) -> Array:
        """The diagonal of D^½."""
        return self._cells.root_sizes

    @cached_property
    def _span(self) -> Span:
        """The span of the rows of M·D^½."""
        return Span(self.matrix, self._root_sizes)

    def transform(self, rows: Array) -> Array:
        lead = rows.shape[: rows.ndim - len(self.shape)]
        coarse = self._cells.of_values(rows, range(len(self.shape)))
        columns = self._cells.on_columns(coarse.reshape(len(coarse), -1))
        return self._span.coefficients(columns).reshape(*lead, self.rank)

    def covary(self, rows: Array) -> Array:
        image = self.transform(rows).reshape(-1, self.rank)
        columns = self._span.transposed_coefficients(image) / self._root_sizes
        return columns[:, self.partition.of_cells()].reshape(rows.shape)

    def orthonormal(self) -> MergedStrategy:
        basis = self._span.orthonormal() / self._root_sizes
        return MergedStrategy(self.shape, self.maps, self.labels, basis)

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        cells = self._cells
        if cells.size <= limits().covariance_cells and count(factors) > 2 * cells.size:
            image = self._span.coefficients(cells.on_columns(np.eye(cells.size)))
            own = [(axes, cells.of_values(rows, axes)) for axes, rows in factors]
            many = quadratic_forms(image @ image.T, cells.shape, own)
            if many.min() > FAR_BELOW * np.einsum("ij,ij->i", image, image).max():
                return many
        result = np.empty(count(factors))
        for place, coarse in cells.products(factors):
            image = self._span.coefficients(cells.on_columns(coarse))
            result[place] = np.einsum("ij,ij->i", image, image)
        return result.reshape([len(rows) for _, rows in factors])

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        """Return whether product queries are equal on the cells of a column, and combinations of the rows."""
        outside = self._cells.within_classes(factors)
        for place, coarse in self._cells.products(factors):
            columns = self._cells.on_columns(coarse)
            outside[place] += self._cells.within_columns(coarse, columns) + self._found(columns)[1]
        return is_negligible(outside, squared_lengths(factors).ravel())

    def variances_if_contained(self, asked: Iterable[Sequence[AxisRows]]) -> Iterator[Array | None]:
        for few in self._cells.batches(asked):
            if self._cells.are_few(sum(map(count, few))):
                yield from self._together(few)
            else:
                yield from super().variances_if_contained(few)

    def _together(self, asked: Sequence[Sequence[AxisRows]]) -> Iterator[Array | None]:
        """Do the same for few products, while the rows are read twice."""
        coarse = np.concatenate([own for factors in asked for _, own in self._cells.products(factors)])
        columns = self._cells.on_columns(coarse)
        variances, outside = self._found(columns)
        outside += self._cells.within_columns(coarse, columns)
        start = 0
        for factors in asked:
            own = slice(start, start := start + count(factors))
            rest = outside[own] + self._cells.within_classes(factors)
            inside = is_negligible(rest, squared_lengths(factors).ravel())
            yield variances[own].reshape([len(rows) for _, rows in factors]) if inside else None

    def _found(self, columns: Array) -> tuple[Array, Array]:
        """Return the variances of rows on the columns, and the squared lengths of what the span lacks."""
        image = self._span.coefficients(columns)
        variances, outside = np.einsum("ij,ij->i", image, image), np.zeros(len(columns))
        if self.rank < self.partition.columns:
            rest = self._span.outside(columns, image)
            outside = np.einsum("ij,ij->i", rest, rest)
        return variances, outside

    def on_classes(self) -> tuple[tuple[Integers, ...], Array]:
        return self.maps, np.take(self.matrix, self.labels, axis=1)

    def combinations(self, rows: Array) -> Array:
        parts = [self._span.coefficients(rows[part] * self._root_sizes) for part in _parts(rows)]
        return np.concatenate(parts)

    @property
    def spread(self) -> float:
        """The ratio of row lengths, or of those of the lattice, whose coefficients are rounded."""
        spans = [self._span] if self.lattice is None else [self._span, Span(self.lattice, self._root_sizes)]
        every = [span.lengths for span in spans]
        if not all(lengths.all() for lengths in every):
            return math.inf
        return max(float(lengths.max() / lengths.min()) for lengths in every)

    def written_out(self) -> Array:
        return self.matrix[:, self.partition.of_cells()]

    def rounded(self, centres: Sequence[Integers], bits: int) -> IntegerStrategy:  # noqa: ARG002
        """Return integer rows on the same columns: there is no residual space in which to stay."""
        axes = tuple(range(len(self.shape)))
        return IntegerStrategy(self.shape, ((axes, Merged(self.maps, self.labels, _round(self, bits))),))

    def rounding_loss(self, rounded: IntegerStrategy) -> float:
        ((_, factor),) = rounded.factors
        own = Span(factor.distinct_columns(), self._root_sizes).combinations(self.matrix)
        return float((own**2).sum(axis=1).max()) * float(squared_sensitivity(rounded))

    @classmethod
    def of_integers(cls, strategy: IntegerStrategy) -> Self | None:
        (axes, factor), *others = strategy.factors
        classes = factor.classes
        whole = not others and axes == tuple(range(len(strategy.shape)))
        if classes is None or not whole or strategy.multipliers is not None:
            return None
        return cls(strategy.shape, *classes, factor.distinct_columns())

    @property
    def leverage(self) -> float:
        return float(np.einsum("ij,ij->j", self.matrix, self.matrix).max())

    def is_sound(self) -> bool:
        try:
            fits = self.partition.shape == self.shape
        except PrivacyError:
            return False
        matrix, columns = self.matrix, self.partition.columns
        if not fits or matrix.ndim != 2 or matrix.shape[1] != columns or not 0 < len(matrix) <= columns:
            return False
        sound = matrix.min() > -LARGEST and matrix.max() < LARGEST and self._span.is_independent()
        return bool(sound) and self._has_sound_lattice()

    def _has_sound_lattice(self) -> bool:
        """Return whether the lattice, if there is one, spans what the rows span."""
        if self.lattice is None:
            return True
        if not fits_rows(self.lattice, self.matrix):
            return False
        if not Span(self.lattice, self._root_sizes).is_independent():
            return False
        for part in _parts(self.lattice):
            whole = self.lattice[part] * self._root_sizes
            outside = self._span.outside(whole, self._span.coefficients(whole))
            if np.any((outside**2).sum(axis=1) > CLOSE**2 * (whole**2).sum(axis=1)):
                return False
        return True

    def stands_on(self, centres: Sequence[Centre]) -> bool:  # noqa: ARG002
        """Return False: queries that are not split lie in no residual space, whatever the centres."""
        return False

    def to_data(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "maps": list(self.maps),
            "labels": self.labels,
            "matrix": self.matrix,
            "lattice": self.lattice,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            wholes(data["shape"]),
            tuple(integers(one, 1) for one in items(data["maps"])),
            integers(data["labels"]),
            floats(data["matrix"], 2),
            None if data["lattice"] is None else integers(data["lattice"], 2),
        )


def _round(strategy: MergedStrategy, bits: int) -> Integers:
    """Round the rows, or their coefficients in the rows of a lattice, over the columns."""
    rows, lattice = strategy.matrix, strategy.lattice
    if lattice is None:
        if len(rows) < rows.shape[1]:
            rows = completed(rows)
        return reduced(scaled(rows, bits), bits)
    span = Span(lattice, np.ones(lattice.shape[1]))
    return round_on_lattice(span.combinations(rows), lattice, bits)


def _parts(rows: Array | Integers) -> Iterator[slice]:
    """Iterate over slices of few rows."""
    step = max(1, CHUNK // rows.shape[1])
    return (slice(start, start + step) for start in range(0, len(rows), step))
