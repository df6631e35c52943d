"""Any rows over cells of which many share a column: the strategy of few queries that are not split.

With E the cells' columns (cells × columns, 0/1), D the sizes of the columns and M the stored rows, B = M·Eᵀ.
U = E·D^(-½) has orthonormal columns, so B† = U·(M·D^½)†: a query enters by its sums over the cells of each
column, divided by the root of their number. All work is done over columns and coarse cells (`Partition`), in
pieces: the rows themselves are the only large array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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

CHUNK = 10_000_000
"""Maximum number of entries of an intermediate array."""

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
    def _root_sizes(self) -> Array:
        """The diagonal of D^½."""
        return np.sqrt(self.partition.sizes)

    @cached_property
    def _shares(self) -> Array:
        """What a coarse cell adds to its column, both as unit vectors: √(its cells / the column's cells)."""
        return np.sqrt(self.partition.coarse_sizes) / self._root_sizes[self.labels.ravel()]

    @cached_property
    def _span(self) -> Span:
        """The span of the rows of M·D^½."""
        return Span(self.matrix, self._root_sizes)

    def transform(self, rows: Array) -> Array:
        lead = rows.shape[: rows.ndim - len(self.shape)]
        coarse = self._merged_values(rows.reshape(-1, *self.shape), range(len(self.shape)))
        return self._span.coefficients(self._merged_cells(coarse.reshape(len(coarse), -1))).reshape(
            *lead, self.rank
        )

    def covary(self, rows: Array) -> Array:
        image = self.transform(rows).reshape(-1, self.rank)
        columns = self._span.transposed_coefficients(image) / self._root_sizes
        return columns[:, self.partition.of_cells()].reshape(rows.shape)

    def orthonormal(self) -> MergedStrategy:
        basis = self._span.orthonormal() / self._root_sizes
        return MergedStrategy(self.shape, self.maps, self.labels, basis)

    def variances(self, factors: Sequence[AxisRows]) -> Array:
        size = self.labels.size
        if size <= limits().covariance_cells and math.prod(len(rows) for _, rows in factors) > 2 * size:
            image = self._span.coefficients(self._merged_cells(np.eye(size)))
            own = [(axes, self._merged_values(self._tensor(axes, rows), axes)) for axes, rows in factors]
            many = quadratic_forms(image @ image.T, self.labels.shape, own)
            if many.min() > FAR_BELOW * np.einsum("ij,ij->i", image, image).max():
                return many
        result = np.empty(math.prod(len(rows) for _, rows in factors))
        for place, coarse in self._products(factors):
            image = self._span.coefficients(self._merged_cells(coarse))
            result[place] = np.einsum("ij,ij->i", image, image)
        return result.reshape([len(rows) for _, rows in factors])

    def contains(self, factors: Sequence[AxisRows]) -> bool:
        """Return whether product queries are equal on the cells of a column, and combinations of the rows."""
        outside = self._within_classes(factors).ravel()
        for place, coarse in self._products(factors):
            columns = self._merged_cells(coarse)
            rest = coarse - self._shares * np.take(columns, self.labels.ravel(), axis=1)
            outside[place] += np.einsum("ij,ij->i", rest, rest)
            if self.rank < self.partition.columns:
                rest = self._span.outside(columns, self._span.coefficients(columns))
                outside[place] += np.einsum("ij,ij->i", rest, rest)
        return is_negligible(outside, squared_lengths(factors).ravel())

    def _tensor(self, axes: Sequence[int], rows: Array) -> Array:
        """Return rows with an axis for each of the axes that they are over."""
        return rows.reshape(-1, *(self.shape[a] for a in axes))

    def _merged_values(self, tensor: Array, axes: Sequence[int]) -> Array:
        """Return inner products with unit vectors of the classes, for axes of the block after the first."""
        for place, axis in enumerate(axes, start=1):
            sums = self.partition.class_sums(tensor, place, axis)
            roots = np.sqrt(self.partition.class_sizes[axis].astype(float))
            tensor = sums / roots.reshape([-1 if i == place else 1 for i in range(tensor.ndim)])
        return tensor

    def _merged_cells(self, coarse: Array) -> Array:
        """Return inner products with unit vectors of the columns, given those of the coarse cells."""
        return self.partition.column_sums(coarse * self._shares, 1)

    def _products(self, factors: Sequence[AxisRows]) -> Iterator[tuple[slice, Array]]:
        """Iterate over slices of all products of one row per factor, with their coarse cells."""
        coarse = [self._coarse_rows(axes, rows) for axes, rows in factors]
        counts = [len(rows) for rows in coarse]
        step = max(1, CHUNK // self.labels.size)
        for start in range(0, math.prod(counts), step):
            stop = min(start + step, math.prod(counts))
            product = np.ones(1)
            for rows, chosen in zip(
                coarse, np.unravel_index(np.arange(start, stop), counts) if counts else (), strict=True
            ):
                product = product * rows[chosen]
            yield (
                slice(start, stop),
                np.broadcast_to(product, (stop - start, *self.labels.shape)).reshape(stop - start, -1),
            )

    def _coarse_rows(self, axes: tuple[int, ...], rows: Array) -> Array:
        """Return rows over some axes on the coarse cells, with an axis of length one for every other."""
        coarse = self._merged_values(self._tensor(axes, rows), axes)
        return coarse.reshape(
            len(rows), *(n if axis in axes else 1 for axis, n in enumerate(self.labels.shape))
        )

    def _within_classes(self, factors: Sequence[AxisRows]) -> Array:
        """Return the squared length of what varies within the classes, for all products of rows.

        Each factor is a sum of what is equal within classes and an orthogonal rest. So the squared length of
        the product's rest is a sum over the factors: the rest of one, times what is equal of those before,
        times all of those after.
        """
        equal, total = np.ones(()), np.zeros(())
        for axes, rows in factors:
            coarse = self._merged_values(self._tensor(axes, rows), axes)
            own_equal = (coarse.reshape(len(rows), -1) ** 2).sum(axis=1)
            own_rest = ((rows - self._spread_out(coarse, axes).reshape(rows.shape)) ** 2).sum(axis=1)
            total = np.multiply.outer(total, own_equal + own_rest) + np.multiply.outer(equal, own_rest)
            equal = np.multiply.outer(equal, own_equal)
        return total

    def _spread_out(self, coarse: Array, axes: Sequence[int]) -> Array:
        """Return the combination of unit vectors of the classes: the transpose of `_merged_values`."""
        for place, axis in enumerate(axes, start=1):
            roots = np.sqrt(self.partition.class_sizes[axis].astype(float))
            coarse = coarse / roots.reshape([-1 if i == place else 1 for i in range(coarse.ndim)])
            coarse = np.take(coarse, self.maps[axis], axis=place)
        return coarse

    def on_classes(self) -> tuple[tuple[Integers, ...], Array]:
        return self.maps, np.take(self.matrix, self.labels, axis=1)

    def combinations(self, rows: Array) -> Array:
        parts = [self._span.coefficients(rows[part] * self._root_sizes) for part in _parts(rows)]
        return np.concatenate(parts)

    @property
    def spread(self) -> float:
        lengths = self._span.lengths
        return float(lengths.max() / lengths.min()) if lengths.all() else math.inf

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
