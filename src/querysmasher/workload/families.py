"""Families of queries on one attribute: identity, prefix, range, circular, chosen ranges; and other weights.

Planning for an objective other than the mean error is planning with other weights (`Weighted`). Their Gram
matrices are known in closed form where those of the families are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, explained
from querysmasher.fields import floats, integers
from querysmasher.formatting import written_name
from querysmasher.schema import Schema
from querysmasher.workload.family import (
    ArrayFamily,
    Family,
    LineErrors,
    LineSums,
    Places,
    between_in,
    bracketed,
    check_schema,
    one_of,
    row_weights,
)


@dataclass(frozen=True)
class _Spans(Family):
    """Queries about consecutive values of one attribute."""

    axes: ClassVar[int | None] = 1
    is_consecutive: ClassVar[bool] = True

    def spans(self) -> tuple[Places, Places]:
        raise NotImplementedError

    def _matrix(self) -> Array:
        return _rows_of(*self.spans(), self.cells)

    def _ends(self) -> Iterator[tuple[int, int]]:
        """Iterate over the first and the last value of every query."""
        first, last = self.spans()
        return zip(first.tolist(), last.tolist(), strict=True)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        return [a.between(a.name, first, last) for first, last in self._ends()]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        between = between_in(*attributes)
        return [between(first, last) for first, last in self._ends()]


@dataclass(frozen=True)
class _OneAttribute(_Spans):
    """A family that its name and the number `n` of values define."""

    closed_form: ClassVar[bool] = True

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
    counts_values: ClassVar[bool] = True

    def gram(self) -> Array:
        return np.eye(self.n)

    def weighted_gram(self, weights: Array) -> Array:
        return np.diag(weights)

    def answers(self, table: Array) -> Array:
        return table

    def variances_on(self, line: LineErrors) -> Array:
        return line.values

    def levels(self) -> list[tuple[Places | None, int]]:
        return [(None, self.n)]

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
    needs_order: ClassVar[bool] = True
    is_growing: ClassVar[bool] = True

    def gram(self) -> Array:
        place = np.arange(self.n)
        return self.n - np.maximum.outer(place, place).astype(float)

    def weighted_gram(self, weights: Array) -> Array:
        place = np.arange(self.n)  # both cells are below c for all c from the larger on
        return np.asarray(weights[::-1].cumsum()[::-1][np.maximum.outer(place, place)])

    def answers(self, table: Array) -> Array:
        return table.cumsum(axis=0)

    def variances_on(self, line: LineErrors) -> Array:
        return line.prefixes

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
    needs_order: ClassVar[bool] = True
    has_lengths: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.n * (self.n + 1) // 2

    def gram(self) -> Array:
        place = np.arange(self.n)
        low = np.minimum.outer(place, place)
        high = np.maximum.outer(place, place)
        return (low + 1.0) * (self.n - high)

    def weighted_gram(self, weights: Array) -> Array:
        place, table = np.arange(self.n), np.zeros((self.n, self.n))
        table[np.triu_indices(self.n)] = weights
        low, high = np.minimum.outer(place, place), np.maximum.outer(place, place)
        # ranges that start at the smaller cell or before, and end at the larger or behind
        return np.asarray(table.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1][low, high])

    def add_to(
        self, sums: LineSums, weights: Array | None, coefficient: float
    ) -> list[tuple[Family, float]] | None:
        if weights is not None:
            return None
        sums.ranges += coefficient
        return []

    def loss_on(self, line: LineErrors) -> float:
        return line.all_ranges()

    def drawn(self, generator: np.random.Generator, numbers: Places) -> Array:
        cuts = np.sort(generator.integers(0, self.n + 1, size=(2 * numbers.size, 2)), axis=1)
        cuts = cuts[cuts[:, 0] < cuts[:, 1]][: numbers.size]  # every range is as likely
        return _rows_of(cuts[:, 0], cuts[:, 1] - 1, self.n)

    def spans(self) -> tuple[Places, Places]:
        low, high = np.triu_indices(self.n)
        return low, high


@dataclass(frozen=True)
class Circular(_OneAttribute):
    """Ranges that may wrap around: every start, every length from 1 to n."""

    name: ClassVar[str] = "circular"
    needs_order: ClassVar[bool] = True
    looks_alike: ClassVar[bool] = True
    has_lengths: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.n * self.n

    def drawn(self, generator: np.random.Generator, numbers: Places) -> Array:  # noqa: ARG002
        return _rows_of(*self._spans_of(numbers), self.n)

    def gram(self) -> Array:
        n = self.n
        place = np.arange(n)
        step = np.abs(np.subtract.outer(place, place))
        near = np.minimum(step, n - step).astype(float)
        # of n arcs of length m, max(0, m - near) contain both cells one way, max(0, m - n + near) the other
        return (n - near) * (n - near + 1) / 2 + near * (near + 1) / 2

    def looks_alike_with(self, weights: Array) -> bool:
        """Return whether weights depend on the length of ranges only."""
        return np.array_equal(weights, np.tile(weights[: self.n], self.n))

    def weighted_gram(self, weights: Array) -> Array:
        if not self.looks_alike_with(weights):
            return super().weighted_gram(weights)
        lengths, place = np.arange(1, self.n + 1), np.arange(self.n)
        both = np.maximum(lengths - place[:, None], 0) + np.maximum(lengths - self.n + place[:, None], 0)
        by_distance = both @ weights[: self.n]  # of the ranges of one length, so many have both cells
        return np.asarray(by_distance[np.abs(np.subtract.outer(place, place))])

    def add_to(
        self, sums: LineSums, weights: Array | None, coefficient: float
    ) -> list[tuple[Family, float]] | None:
        if weights is not None:
            return None
        sums.circular += coefficient
        return []

    def loss_on(self, line: LineErrors) -> float:
        return line.all_circular()

    def spans(self) -> tuple[Places, Places]:
        return self._spans_of(np.arange(self.rows))

    def _spans_of(self, numbers: Places) -> tuple[Places, Places]:
        start, length = np.divmod(numbers, self.n)
        return start, (start + length) % self.n

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        v = a.literals
        return [
            a.exactly(a.name, first) if first == last else f"{a.name} in {v[first]} .. {v[last]}"
            for first, last in self._ends()
        ]


def _rows_of(first: Places, last: Places, n: int) -> Array:
    """Return queries about consecutive values as rows; a first value behind the last goes around the end."""
    cell, low, high = np.arange(n), first[:, None], last[:, None]
    after, before = low <= cell, cell <= high
    return np.where(low <= high, after & before, after | before).astype(float)


ONE_ATTRIBUTE: dict[str, type[_OneAttribute]] = {cls.name: cls for cls in (Identity, Prefix, Range, Circular)}
"""The families that users name, in Python and in a spec. A new one needs its class and a name here."""


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(ArrayFamily, _Spans):
    """`b <= a <= c` for chosen pairs b <= c."""

    first: Places
    last: Places
    row_weights: Array | None = None

    name: ClassVar[str] = "ranges"
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ends and the weights; keep private copies."""
        first, last = _indexes("first", self.first, self.cells), _indexes("last", self.last, self.cells)
        if first.shape != last.shape or not first.size:
            msg = f"ranges: expected as many first values as last ones, got {first.size} and {last.size}"
            raise WorkloadError(msg)
        if np.any(first > last):
            place = int(np.argmax(first > last))
            raise WorkloadError(f"ranges: expected first <= last, got {first[place]} and {last[place]}")
        weights = row_weights(self.row_weights, first.size, "range")
        for name, value in (("first", first), ("last", last), ("row_weights", weights)):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        return self.first.size

    @property
    def _content(self) -> Sequence[Any]:
        return [self.first, self.last, self.row_weights]

    @property
    def weights(self) -> Array | None:
        return self.row_weights

    def spans(self) -> tuple[Places, Places]:
        return self.first, self.last

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        integers(fields["first"], 1)
        integers(fields["last"], 1)
        if fields["row_weights"] is not None:
            floats(fields["row_weights"], 1)
        return fields


@explained("qs.ranges(schema, 'age', [0, 18], [17, 64])")
def ranges(
    schema: Schema, attribute: str, first: ArrayLike, last: ArrayLike, weights: ArrayLike | None = None
) -> Intervals:
    """Return chosen ranges of an attribute, from the index of a first value to that of a last one, inclusive.

    `first` or `last` may be one index for all ranges: `ranges(schema, "age", 0, [17, 64])` asks two
    prefixes. `weights` says how much each counts. Use the result as the family of that attribute.

    >>> schema = Schema.of(age=100)
    >>> from querysmasher.workload.builders import queries
    >>> list(queries(schema, age=ranges(schema, "age", [0, 18], [17, 64])).labels())
    ['0 <= age <= 17', '18 <= age <= 64']
    """
    check_schema(schema)
    size = schema[attribute].size
    starts, ends = _indexes("first", first, size), _indexes("last", last, size)
    try:
        starts, ends = np.broadcast_arrays(np.atleast_1d(starts), np.atleast_1d(ends))
    except ValueError:
        msg = f"ranges: expected as many first values as last ones, got {starts.size} and {ends.size}"
        raise WorkloadError(msg) from None
    own = None if weights is None else np.asarray(weights)
    return Intervals((size,), starts, ends, own)


def _indexes(name: str, given: Any, size: int) -> NDArray[np.int64]:
    """Return a read-only copy of indexes of values."""
    array = np.array(given)
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise WorkloadError(f"{name}: expected indexes of values, integers from 0 to {size - 1}")
    if array.size and not 0 <= array.min() <= array.max() < size:
        msg = f"{name}: expected indexes from 0 to {size - 1}, got {array.min()} to {array.max()}"
        raise WorkloadError(msg)
    copy: NDArray[np.int64] = array.astype(np.int64)
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(ArrayFamily):
    """The queries of another family with new weights, which replace its own."""

    base: Family
    row_weights: Array

    name: ClassVar[str] = "weighted"

    def __post_init__(self) -> None:
        """Take over what the family says about itself, as far as other weights leave it true."""
        base = self.base
        for name, holds in (
            ("closed_form", base.closed_form),
            ("looks_alike", base.looks_alike_with(self.row_weights)),
            ("is_tree", base.is_tree),
            ("is_consecutive", base.is_consecutive and not base.closed_form),
        ):
            object.__setattr__(self, name, holds)

    @property
    def original(self) -> Family:
        return self.base

    @property
    def rows(self) -> int:
        return self.base.rows

    @property
    def _content(self) -> Sequence[Any]:
        return [self.base.key, self.row_weights]

    @property
    def is_symmetric(self) -> bool:
        return self.base.is_symmetric

    @property
    def weights(self) -> Array | None:
        return self.row_weights

    def _matrix(self) -> Array:
        return self.base.matrix()

    def gram(self) -> Array:
        return self.base.weighted_gram(self.row_weights)

    def spans(self) -> tuple[Places, Places] | None:
        return None if self.closed_form else self.base.spans()

    def answers(self, table: Array) -> Array:
        return self.base.answers(table)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        return self.base.labels(attributes)

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError  # a plan stores the workload that was asked

    def __str__(self) -> str:
        """Name the family itself."""
        return str(self.base)


def weighted(family: Family, weights: Array) -> Family:
    """Return the queries of a family with these weights instead of its own."""
    return Weighted(family.shape, family, weights)


def by_length(weights: Array) -> Array:
    """Return the weights of circular ranges, averaged over those of one length."""
    n = math.isqrt(len(weights))
    return np.tile(weights.reshape(n, n).mean(axis=0), n)
