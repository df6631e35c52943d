"""Query families: rows of linear queries over one attribute, or over a few jointly.

A family provides its queries as a matrix, and the Gram matrix WᵀDW without that matrix: all n² circular
ranges of an attribute cost no more to state than one query.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.names import written_name
from querysmasher.workload.stating import between_in, bracketed, one_of, said_of

Places = NDArray[np.int64]
"""Indexes of values."""

MAX_MATRIX_ENTRIES = 400_000_000
"""Maximum number of entries of a query matrix (3.2 GB)."""


@dataclass(frozen=True)
class Family:
    """Queries over cells arranged in `shape`, one axis per attribute."""

    shape: tuple[int, ...]

    name: ClassVar[str] = ""
    closed_form: ClassVar[bool] = False
    """Whether the Gram matrix is known without the rows."""
    looks_alike: ClassVar[bool] = False
    """Whether the queries are known to look the same from every value."""
    is_consecutive: ClassVar[bool] = False
    """Whether each query is about consecutive values of one attribute: `spans` returns them."""
    is_tree: ClassVar[bool] = False
    """Whether the queries are about the nodes of a tree over the values of one attribute."""

    @property
    def rows(self) -> int:
        """Number of queries in the family."""
        raise NotImplementedError

    @property
    def cells(self) -> int:
        """Number of cells of a query of the family."""
        return math.prod(self.shape)

    @property
    def key(self) -> Hashable:
        """A key that two families share if and only if they have the same queries with the same weights."""
        return (self.name, self.shape)

    @property
    def is_symmetric(self) -> bool:
        """Whether exchanging axes preserves the queries."""
        return False

    @property
    def weights(self) -> Array | None:
        """Weights of the queries, or None if all are 1."""
        return None

    @property
    def fits_memory(self) -> bool:
        """Whether the queries can be written out as rows."""
        return self.rows * self.cells <= MAX_MATRIX_ENTRIES

    def matrix(self) -> Array:
        """Return the queries as rows over the cells in row-major order."""
        if not self.fits_memory:
            msg = (
                f"{self}: writing out {self.rows:,} queries over {self.cells:,} cells would take "
                f"{self.rows * self.cells * 8 / 1e9:.0f} GB; use fewer values or a coarser binning"
            )
            raise WorkloadError(msg)
        return self._matrix()

    def _matrix(self) -> Array:
        raise NotImplementedError

    def gram(self) -> Array:
        """Return WᵀDW, the sum over queries of weight × (row outer row)."""
        W = self.matrix()
        return W.T @ W if self.weights is None else (W.T * self.weights) @ W

    def answers(self, table: Array) -> Array:
        """Answer tables whose first axes are the family's; an axis of queries replaces them."""
        flat = table.reshape(self.cells, -1)
        return (self.matrix() @ flat).reshape(self.rows, *table.shape[len(self.shape) :])

    def spans(self) -> tuple[Places, Places] | None:
        """Return the first and the last value of every query if each is about consecutive values, else None.

        A first value behind the last one goes around the end.
        """
        return None

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        """Return each query in words: attribute, operator, value."""
        raise NotImplementedError

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        """Return each query as a predicate that `where` accepts; in words if no predicate states it."""
        return self.labels(attributes)

    def values(self) -> list[int] | None:
        """Return the index of the value that each query is about, or None if that is no single value.

        A query that counts all values up to one is about that one.
        """
        return None

    def ends(self) -> NDArray[np.int64] | None:
        """Return the indexes of the first and last value of each query on one attribute, or None.

        They are -1 for a query that does not count a range of values. If the first is after the last, the
        range goes around the circle.
        """
        spans = self.spans()
        return None if spans is None else np.stack(spans, axis=1)

    def counted(self, attribute: Attribute) -> Sequence[str | None]:
        """Return what each query on one attribute counts, in a few words; None if `ends` says it best."""
        if self.ends() is not None:
            return [None] * self.rows
        return [said_of(attribute.name, label) for label in self.labels([attribute])]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, possibly with arrays."""
        return {"family": self.name, "shape": list(self.shape)}

    def __str__(self) -> str:
        """Name the family."""
        return self.name


@dataclass(frozen=True)
class _OneAttribute(Family):
    """A family on a single attribute of `n` values."""

    closed_form: ClassVar[bool] = True
    is_consecutive: ClassVar[bool] = True

    @classmethod
    def of(cls, n: int) -> _OneAttribute:
        """Build the family for an attribute of `n` values."""
        return cls((n,))

    @property
    def n(self) -> int:
        """The number of values."""
        return self.shape[0]

    @property
    def rows(self) -> int:
        return self.n


@dataclass(frozen=True)
class Identity(_OneAttribute):
    """`a == c` for every value c: the marginal."""

    name: ClassVar[str] = "identity"
    looks_alike: ClassVar[bool] = True

    def _matrix(self) -> Array:
        return np.eye(self.n)

    def gram(self) -> Array:
        return np.eye(self.n)

    def answers(self, table: Array) -> Array:
        return table

    def spans(self) -> tuple[Places, Places]:
        place = np.arange(self.n)
        return place, place

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        return [a.exactly(a.name, place) for place in range(a.size)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        return [bracketed(a.exactly(written_name(a.name), place)) for place in range(a.size)]

    def values(self) -> list[int]:
        return list(range(self.n))


@dataclass(frozen=True)
class Prefix(_OneAttribute):
    """`a <= c` for every value c."""

    name: ClassVar[str] = "prefix"

    def _matrix(self) -> Array:
        return np.tri(self.n)

    def gram(self) -> Array:
        place = np.arange(self.n)
        return self.n - np.maximum.outer(place, place).astype(float)

    def answers(self, table: Array) -> Array:
        return table.cumsum(axis=0)

    def spans(self) -> tuple[Places, Places]:
        return np.zeros(self.n, dtype=np.int64), np.arange(self.n)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        return [a.up_to(a.name, place) for place in range(a.size)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        if not a.ordered:
            return [one_of(a, a.literals[: place + 1]) for place in range(a.size)]
        return [a.up_to(written_name(a.name), place) for place in range(a.size)]

    def values(self) -> list[int]:
        return list(range(self.n))


@dataclass(frozen=True)
class Range(_OneAttribute):
    """`b <= a <= c` for every pair b <= c."""

    name: ClassVar[str] = "range"

    @property
    def rows(self) -> int:
        return self.n * (self.n + 1) // 2

    def _matrix(self) -> Array:
        low, high = np.triu_indices(self.n)
        place = np.arange(self.n)
        return ((low[:, None] <= place) & (place <= high[:, None])).astype(float)

    def gram(self) -> Array:
        place = np.arange(self.n)
        low = np.minimum.outer(place, place)
        high = np.maximum.outer(place, place)
        return (low + 1.0) * (self.n - high)

    def answers(self, table: Array) -> Array:
        return answers_of_spans(self.spans(), table)

    def spans(self) -> tuple[Places, Places]:
        low, high = np.triu_indices(self.n)
        return low, high

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        return [a.between(a.name, b, c) for b in range(self.n) for c in range(b, self.n)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        between = between_in(a)
        return [between(b, c) for b in range(self.n) for c in range(b, self.n)]


@dataclass(frozen=True)
class Circular(_OneAttribute):
    """Ranges that may wrap around: every start, every length from 1 to n."""

    name: ClassVar[str] = "circular"
    looks_alike: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.n * self.n

    def _matrix(self) -> Array:
        start, length = np.divmod(np.arange(self.rows), self.n)
        offset = (np.arange(self.n) - start[:, None]) % self.n
        return (offset <= length[:, None]).astype(float)

    def gram(self) -> Array:
        n = self.n
        place = np.arange(n)
        step = np.abs(np.subtract.outer(place, place))
        near = np.minimum(step, n - step).astype(float)
        # of n arcs of length m, max(0, m - near) contain both cells one way, max(0, m - n + near) the other
        return (n - near) * (n - near + 1) / 2 + near * (near + 1) / 2

    def answers(self, table: Array) -> Array:
        return answers_of_spans(self.spans(), table)

    def spans(self) -> tuple[Places, Places]:
        start, length = np.divmod(np.arange(self.rows), self.n)
        return start, (start + length) % self.n

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        n, v = self.n, a.literals
        return [f"{a.name} in {v[s]} .. {v[(s + m) % n]}" for s in range(n) for m in range(n)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        between = between_in(a)
        return [between(s, (s + m) % self.n) for s in range(self.n) for m in range(self.n)]


def answers_of_spans(spans: tuple[Places, Places], table: Array) -> Array:
    """Return the sum of the table, along its first axis, over consecutive values from one to another."""
    first, last = spans
    running = np.zeros((len(table) + 1, *table.shape[1:]))
    np.cumsum(table, axis=0, out=running[1:])
    sums = running[last + 1] - running[first]
    around = first > last
    if around.any():
        sums[around] += running[-1]
    return np.asarray(sums)


ONE_ATTRIBUTE: dict[str, type[_OneAttribute]] = {cls.name: cls for cls in (Identity, Prefix, Range, Circular)}
