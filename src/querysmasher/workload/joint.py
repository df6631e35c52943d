"""Families on several attributes that are not products: comparisons, random queries."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.fields import number, whole
from querysmasher.names import written_name
from querysmasher.workload.family import Family

KEPT_CELLS = 2_000_000
"""Maximum number of queries times cells of random queries that are kept, not drawn again every time."""


@dataclass(frozen=True)
class Affine(Family):
    """`a + b <= c` on value indexes, for c = 0 .. n_a + n_b - 2."""

    name: ClassVar[str] = "affine"
    axes: ClassVar[int | None] = 2
    is_growing: ClassVar[bool] = True

    @property
    def is_symmetric(self) -> bool:
        return self.shape[0] == self.shape[1]

    @property
    def rows(self) -> int:
        return sum(self.shape) - 1

    def _matrix(self) -> Array:
        total = np.add.outer(*map(np.arange, self.shape)).ravel()
        return (total <= np.arange(self.rows)[:, None]).astype(float)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        a, b = attributes
        return [f"{a.name} + {b.name} <= {c}" for c in range(self.rows)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        a, b = _written(attributes)
        return [f"{a} + {b} <= {c}" for c in range(self.rows)]


@dataclass(frozen=True)
class AbsDifference(Family):
    """`|a - b| <= c` on value indexes, for c = 0 .. max(n_a, n_b) - 1."""

    name: ClassVar[str] = "abs"
    axes: ClassVar[int | None] = 2
    is_growing: ClassVar[bool] = True

    @property
    def is_symmetric(self) -> bool:
        return self.shape[0] == self.shape[1]

    @property
    def rows(self) -> int:
        return max(self.shape)

    def _matrix(self) -> Array:
        apart = np.abs(np.subtract.outer(*map(np.arange, self.shape))).ravel()
        return (apart <= np.arange(self.rows)[:, None]).astype(float)

    def __str__(self) -> str:
        """Name the family as its builder is named."""
        return "abs_difference"

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        a, b = attributes
        return [f"|{a.name} - {b.name}| <= {c}" for c in range(self.rows)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        a, b = _written(attributes)
        return [f"({-c} <= {a} - {b} <= {c})" for c in range(self.rows)]  # no cell may start with a minus


@dataclass(frozen=True)
class Random(Family):
    """Counting queries that contain each cell with probability p, drawn again from a seed when needed."""

    count: int
    p: float
    seed: int

    name: ClassVar[str] = "random"

    @property
    def rows(self) -> int:
        return self.count

    @property
    def key(self) -> Hashable:
        return (self.name, self.shape, self.count, self.p, self.seed)

    def _matrix(self) -> Array:
        drawn = _kept if self.count * self.cells <= KEPT_CELLS else _drawn
        return drawn(self.count, self.cells, self.p, self.seed).astype(float)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        names = ", ".join(a.name for a in attributes)
        return [f"random query {i} on {names}" for i in range(self.count)]

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "count": self.count, "p": self.p, "seed": self.seed}

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        whole(fields["count"], 1)
        whole(fields["seed"])
        return fields | {"p": number(fields["p"], 5e-324, 1)}


def _drawn(count: int, cells: int, p: float, seed: int) -> NDArray[np.bool_]:
    """Return which cells each query contains."""
    generator = np.random.default_rng(seed)
    matrix = np.empty((count, cells), dtype=bool)
    for row in matrix:  # row by row: no array of floats of the same size
        row[:] = generator.random(cells) < p
    return matrix


_kept = lru_cache(maxsize=4)(_drawn)


def _written(attributes: Sequence[Attribute]) -> list[str]:
    """Return the indexes of values, which these families compare: the names if they are the values."""
    names = [written_name(a.name) for a in attributes]
    if all(tuple(a.values) == tuple(range(a.size)) for a in attributes):
        return names
    return [f"index of {name}" for name in names]
