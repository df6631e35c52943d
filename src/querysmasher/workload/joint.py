"""Families on several attributes that are not products: comparisons, random queries, and any rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.fields import floats, number, text, whole
from querysmasher.formatting import written_name
from querysmasher.workload.family import (
    Family,
    Structure,
    frozen_array,
    one_of,
    optional,
    row_weights,
    said_of,
    strings,
)


class _Comparison(Family):
    """A comparison of two attributes, on the indexes of their values, with every bound c."""

    axes: ClassVar[int | None] = 2
    is_growing: ClassVar[bool] = True
    combined: ClassVar[Any]
    label: ClassVar[str]
    predicate: ClassVar[str]

    @property
    def is_symmetric(self) -> bool:
        return self.shape[0] == self.shape[1]

    def _matrix(self) -> Array:
        compared = np.abs(self.combined.outer(*map(np.arange, self.shape))).ravel()
        return (compared <= np.arange(self.rows)[:, None]).astype(float)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        a, b = (attribute.name for attribute in attributes)
        return [self.label.format(a, b, c) for c in range(self.rows)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        """Return the comparisons of indexes, which are the values themselves if they count from 0."""
        a, b = names = [written_name(attribute.name) for attribute in attributes]
        if not all(tuple(a.values) == tuple(range(a.size)) for a in attributes):
            a, b = (f"index of {name}" for name in names)
        return [self.predicate.format(a, b, c, -c) for c in range(self.rows)]


class Affine(_Comparison):
    """`a + b <= c` on value indexes, for c = 0 .. n_a + n_b - 2."""

    name: ClassVar[str] = "affine"
    pattern: ClassVar[str] = "{a} + {b} ≤ {x}"
    combined: ClassVar[Any] = np.add
    label: ClassVar[str] = "{} + {} <= {}"
    predicate: ClassVar[str] = label

    @property
    def rows(self) -> int:
        return sum(self.shape) - 1


class AbsDifference(_Comparison):
    """`|a - b| <= c` on value indexes, for c = 0 .. max(n_a, n_b) - 1."""

    name: ClassVar[str] = "abs"
    pattern: ClassVar[str] = "|{a} − {b}| ≤ {x}"
    combined: ClassVar[Any] = np.subtract
    label: ClassVar[str] = "|{} - {}| <= {}"
    predicate: ClassVar[str] = "({3} <= {0} - {1} <= {2})"  # no cell of a file may start with a minus

    @property
    def rows(self) -> int:
        return max(self.shape)

    def __str__(self) -> str:
        """Name the family as its builder is named."""
        return "abs_difference"


@dataclass(frozen=True, eq=False, repr=False)
class RandomQueries(Family):
    """Counting queries that contain each cell with probability p, drawn from a seed."""

    count: int
    p: float
    seed: int

    name: ClassVar[str] = "random"
    readers: ClassVar = {
        "count": partial(whole, low=1),
        "seed": whole,
        "p": partial(number, low=5e-324, high=1),
    }

    @property
    def rows(self) -> int:
        return self.count

    @cached_property
    def _drawn(self) -> NDArray[np.bool_]:
        """Which cells each query contains."""
        generator = np.random.default_rng(self.seed)
        matrix = np.empty((self.count, self.cells), dtype=bool)
        for row in matrix:  # row by row: no array of floats of the same size
            row[:] = generator.random(self.cells) < self.p
        return matrix

    def _matrix(self) -> Array:
        return self._drawn.astype(float)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        names = ", ".join(a.name for a in attributes)
        return [f"random query {i} on {names}" for i in range(self.count)]


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Family):
    """Any rows, as a matrix over the cells in row-major order."""

    array: Array
    row_weights: Array | None = None
    row_labels: tuple[str, ...] | None = field(default=None, compare=False)
    title: str = field(default="rows", compare=False)

    name: ClassVar[str] = "rows"
    readers: ClassVar = {"array": floats, "title": text, "row_labels": optional(strings)}
    structure: ClassVar[Structure] = Structure.ROWS

    def __post_init__(self) -> None:
        """Check the rows and the weights; keep read-only copies."""
        array = frozen_array("matrix", self.array, ndim=2)
        if array.shape[0] == 0:
            raise WorkloadError("matrix: expected at least one row")
        if array.shape[1] != self.cells:
            raise WorkloadError(
                f"matrix: expected {self.cells} columns, one per cell of a marginal of shape "
                f"{self.shape}, got {array.shape[1]}"
            )
        weights = row_weights(self.row_weights, len(array), "query")
        if self.row_labels is not None and len(self.row_labels) != len(array):
            raise WorkloadError(f"labels: expected {len(array)}, one per query, got {len(self.row_labels)}")
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "row_weights", weights)

    @property
    def rows(self) -> int:
        return len(self.array)

    def _matrix(self) -> Array:
        return self.array

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        if self.row_labels is not None:
            return list(self.row_labels)
        names = ", ".join(a.name for a in attributes)
        return [f"query {i} on {names}" for i in range(self.rows)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        """Return each query as a list of values if it counts some of them, unless the user has named it."""
        named = self.row_labels is not None
        if named or len(attributes) != 1 or not np.isin(self.array, (0, 1)).all():
            return self.labels(attributes)
        (a,) = attributes
        return [one_of(a, [a.literals[value] for value in np.flatnonzero(row)]) for row in self.array]

    def ends(self) -> NDArray[np.int64] | None:
        """Return the first and last value of each query that counts a range of values."""
        if len(self.shape) > 1:
            return None
        inside = self.array == 1
        first = inside.argmax(axis=1)
        last = self.cells - 1 - inside[:, ::-1].argmax(axis=1)
        is_range = (inside | (self.array == 0)).all(axis=1) & (inside.sum(axis=1) == last - first + 1)
        return np.where((is_range & inside.any(axis=1))[:, None], np.stack([first, last], axis=1), -1)

    def counted(self, attribute: Attribute) -> list[str | None]:
        """Return the values that each query counts, or its label if it is not a plain count."""
        said: list[str | None] = [said_of(attribute.name, label) for label in self.labels([attribute])]
        for query in np.flatnonzero(np.isin(self.array, (0, 1)).all(axis=1)):
            inside = np.flatnonzero(self.array[query])
            is_range = attribute.ordered and len(inside) and inside[-1] - inside[0] == len(inside) - 1
            most = [attribute.labels[i] for i in inside[:12]]
            most += [f"… {len(inside):,} values"] if len(inside) > 12 else []
            said[query] = None if len(inside) == 1 or is_range else f"[{', '.join(most)}]"
        return said

    def __str__(self) -> str:
        """Name the family by its title."""
        return self.title
