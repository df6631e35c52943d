"""Classes of attribute sets whose share is a single Kronecker product, all of them at once.

The optimum of a product is the product of the optima, so such a class costs f·√c·Πρ, where f counts its sets,
ρ is the √L of each part alone, and the coefficient c = Σ weight·Πσ is made of the squares σ that families
leave on no attribute. A workload on a hundred attributes has thousands of such classes and a few dozen parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.centres.roles import SetClass
from querysmasher.planning.split import Kept

PartKey = tuple[int, Kept]
"""A role family (its number), and the axes its part keeps."""


class Products:
    """The sum of f·√c·Πρ over classes with one term each, and its derivatives by every ρ and σ."""

    def __init__(self, classes: Sequence[SetClass], factors: Sequence[float], families: int) -> None:
        """Take the classes, f of each, and the number of role families."""
        numbers: dict[PartKey, int] = {}
        terms = [term for c in classes for term in c.terms]
        used = [
            [numbers.setdefault((use.family, use.kept), len(numbers)) for use in term.uses] for term in terms
        ]
        made = [(place, *product) for place, term in enumerate(terms) for product in term.coefficients]
        self.parts: tuple[PartKey, ...] = tuple(numbers)
        """The parts whose ρ is needed."""
        self._factors = np.array(factors, dtype=float)
        self._used = _padded(used, len(numbers))
        self._class = np.array([place for place, _, _ in made], dtype=np.intp)
        self._weights = np.array([weight for _, weight, _ in made], dtype=float)
        self._dropped = _padded([dropped for _, _, dropped in made], families)

    def at(self, squares: Sequence[float], roots: Mapping[PartKey, float]) -> tuple[float, Array, Array]:
        """Return the sum, and its derivatives by the squares and by the roots, in the order of `parts`.

        A part that is nothing has no root, and classes that would use it cost nothing.
        """
        sigma = np.array([*squares, 1.0])
        rho = np.array([*(roots.get(key, 0.0) for key in self.parts), 1.0])
        by_product, without_square = _products(sigma[self._dropped])
        # without any class, bincount counts integers
        c = np.bincount(self._class, self._weights * by_product, len(self._factors)).astype(float)
        by_class, without_root = _products(rho[self._used])
        scale = self._factors * np.sqrt(c)
        by_coefficient = np.divide(
            self._factors * by_class, 2 * np.sqrt(c), out=np.zeros_like(c), where=c > 0
        )
        on_products = by_coefficient[self._class] * self._weights
        by_squares = _gathered(self._dropped, on_products[:, None] * without_square, len(sigma))
        by_roots = _gathered(self._used, scale[:, None] * without_root, len(rho))
        return float(scale @ by_class), by_squares, by_roots


def _padded(rows: Iterable[Sequence[int]], filler: int) -> NDArray[np.intp]:
    """Return rows of unequal length as one array."""
    known = list(rows)
    result = np.full((len(known), max(map(len, known), default=0)), filler, dtype=np.intp)
    for place, row in enumerate(known):
        result[place, : len(row)] = row
    return result


def _products(table: Array) -> tuple[Array, Array]:
    """Return the product of every row, and for each entry the product of the others in its row."""
    before, after = np.ones_like(table), np.ones_like(table)
    for column in range(1, table.shape[1]):
        before[:, column] = before[:, column - 1] * table[:, column - 1]
        after[:, -column - 1] = after[:, -column] * table[:, -column]
    return table.prod(axis=1), before * after


def _gathered(numbers: NDArray[np.intp], values: Array, count: int) -> Array:
    """Return the sum of the values by number, without the filler's, which is the last."""
    return np.asarray(np.bincount(numbers.ravel(), values.ravel(), minlength=count)[:-1], dtype=float)
