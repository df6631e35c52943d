"""Products of families over some cells only: what a group asks of the possible combinations of values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np

from querysmasher.arrays import Array, kronecker
from querysmasher.workload.family import Family, Indexes


@dataclass(frozen=True, eq=False, repr=False)
class Restricted(Family):
    """The products of the queries of some families, each a function of the cell.

    A query is a choice of one row per family, with the last family's row varying fastest. Its coefficient
    of a cell is the product of the rows' coefficients of the cells that `maps` assigns to it.
    """

    families: tuple[Family, ...]
    maps: tuple[Indexes, ...]
    """For each family, the index of its cell for every cell of this one."""

    name: ClassVar[str] = "restricted"

    @cached_property
    def closed_form(self) -> bool:  # type: ignore[override]  # here it follows from the families
        """Whether the families distinguish all cells, and those with a closed form have full rank."""
        if len(self.shape) > 1 or not all(family.closed_form for family in self.families):
            return False
        return len(np.unique(self._cells)) == self.cells

    @property
    def _cells(self) -> Indexes:
        """For every cell, that of the table on all cells of the families."""
        return np.ravel_multi_index(self.maps, [family.cells for family in self.families])

    @property
    def rows(self) -> int:
        return math.prod(family.rows for family in self.families)

    @cached_property
    def row_weights(self) -> Array | None:
        """The products of the families' weights."""
        if all(family.weights is None for family in self.families):
            return None
        return kronecker([family.query_weights() for family in self.families])

    @property
    def units(self) -> float:
        return math.prod(family.units for family in self.families)

    def _matrix(self) -> Array:
        product = np.ones((1, self.cells))
        for family, cells in zip(self.families, self.maps, strict=True):
            rows = family.matrix()[:, cells]
            product = (product[:, None, :] * rows[None]).reshape(-1, self.cells)
        return product

    def gram(self) -> Array:
        if self.instead is not None:
            return self.weighted_gram(self.instead)
        grams = (f.gram()[np.ix_(cells, cells)] for f, cells in zip(self.families, self.maps, strict=True))
        return reduce(np.multiply, grams)

    def answers(self, table: Array) -> Array:
        """Sum the table into one over the families' cells, which answers their queries."""
        rest = table.shape[len(self.shape) :]
        sizes = [family.cells for family in self.families]
        product = np.zeros((math.prod(sizes), *rest), dtype=table.dtype)
        np.add.at(product, self._cells, table.reshape(self.cells, *rest))
        product = product.reshape(*sizes, *rest)
        for axis, family in enumerate(self.families):
            first = np.moveaxis(product, axis, 0)
            answers = family.answers(first.reshape(*family.shape, *first.shape[1:]))
            product = np.moveaxis(answers, 0, axis)
        return product.reshape(self.rows, *rest)
