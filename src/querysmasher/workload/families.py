"""Families of queries on one attribute: identity, prefix, range, circular, and chosen ranges.

The Gram matrices of the first four are known in closed form, also with other weights: those of circular
ranges, if weights depend on the length alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, explained
from querysmasher.fields import floats, integers, whole
from querysmasher.formatting import written_name
from querysmasher.schema import Schema
from querysmasher.workload.family import Family, Indexes, Structure, check_schema, optional, row_weights


@dataclass(frozen=True, eq=False, repr=False)
class _Spans(Family):
    """Queries about consecutive values of one attribute."""

    axes: ClassVar[int | None] = 1
    structure: ClassVar[Structure] = Structure.LINE

    def spans(self) -> tuple[Indexes, Indexes]:
        raise NotImplementedError

    def _matrix(self) -> Array:
        return _rows_of(*self.spans(), self.cells)

    def _ends(self) -> Iterator[tuple[int, int]]:
        """Iterate over the first and the last value of every query."""
        first, last = self.spans()
        return zip(first.tolist(), last.tolist(), strict=True)

    def _said(self, attribute: Attribute, name: str, first: int, last: int) -> str:
        """Return a query that does not wrap around; the attribute is written as `name`."""
        return attribute.between(name, first, last)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        return [self._label(a, first, last) for first, last in self._ends()]

    def label_of(self, attributes: Sequence[Attribute], row: int) -> str:
        (a,), (first, last) = attributes, self.spans()
        return self._label(a, int(first[row]), int(last[row]))

    def _label(self, attribute: Attribute, first: int, last: int) -> str:
        return self._said(attribute, attribute.name, first, last)

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        v, name, stated = a.literals, written_name(a.name), []
        for first, last in self._ends():
            if not a.ordered and self.structure is not Structure.VALUES:
                inside = v[first : last + 1] if first <= last else v[: last + 1] + v[first:]
                stated.append(f"{name} in [{', '.join(inside)}]")
            elif first > last:
                stated.append(f"({name} >= {v[first]} or {name} <= {v[last]})")
            else:
                said = self._said(a, name, first, last)  # no cell of a file may start like a formula
                stated.append(f"({said})" if said.startswith("-") else said)
        return stated


@dataclass(frozen=True, eq=False, repr=False)
class _OneAttribute(_Spans):
    """A family that is defined by its name and the number of values."""

    closed_form: ClassVar[bool] = True

    @property
    def rows(self) -> int:
        return self.cells

    def gram(self) -> Array:
        return self.weighted_gram(self.query_weights())


class Identity(_OneAttribute):
    """`a == c` for every value c: the marginal."""

    name: ClassVar[str] = "identity"
    counts: ClassVar[str] = "the records with each value"
    pattern: ClassVar[str] = "{a} = {x}"
    structure: ClassVar[Structure] = Structure.VALUES

    def weighted_gram(self, weights: Array) -> Array:
        return np.diag(weights)

    def answers(self, table: Array) -> Array:
        return table

    def levels(self) -> list[tuple[Indexes | None, int]]:
        return [(None, self.cells)]

    def spans(self) -> tuple[Indexes, Indexes]:
        return (np.arange(self.cells),) * 2

    def _said(self, attribute: Attribute, name: str, first: int, last: int) -> str:  # noqa: ARG002
        return attribute.exactly(name, first)


class Prefix(_OneAttribute):
    """`a <= c` for every value c."""

    name: ClassVar[str] = "prefix"
    counts: ClassVar[str] = "the records up to each value"
    pattern: ClassVar[str] = "{a} ≤ {x}"
    is_growing: ClassVar[bool] = True

    def weighted_gram(self, weights: Array) -> Array:
        cells = np.arange(self.cells)  # both cells are below c for all c from the larger on
        return np.asarray(weights[::-1].cumsum()[::-1][np.maximum.outer(cells, cells)])

    def answers(self, table: Array) -> Array:
        return table.cumsum(axis=0)

    def spans(self) -> tuple[Indexes, Indexes]:
        return np.zeros(self.cells, dtype=np.int64), np.arange(self.cells)

    def _said(self, attribute: Attribute, name: str, first: int, last: int) -> str:  # noqa: ARG002
        return attribute.up_to(name, last)


class Range(_OneAttribute):
    """`b <= a <= c` for every pair b <= c."""

    name: ClassVar[str] = "range"
    counts: ClassVar[str] = "the records from one value to another, for all pairs"
    pattern: ClassVar[str] = "{x}₁ ≤ {a} ≤ {x}₂"
    structure: ClassVar[Structure] = Structure.RANGES

    @property
    def rows(self) -> int:
        return self.cells * (self.cells + 1) // 2

    def weighted_gram(self, weights: Array) -> Array:
        cells, table = np.arange(self.cells), np.zeros((self.cells, self.cells))
        table[np.triu_indices(self.cells)] = weights
        low, high = np.minimum.outer(cells, cells), np.maximum.outer(cells, cells)
        # ranges that start at the smaller cell or before, and end at the larger or behind
        return np.asarray(table.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1][low, high])

    def drawn(self, generator: np.random.Generator, numbers: Indexes) -> Array:
        cuts = np.sort(generator.integers(0, self.cells + 1, size=(2 * numbers.size, 2)), axis=1)
        cuts = cuts[cuts[:, 0] < cuts[:, 1]][: numbers.size]  # all ranges are equally likely
        return _rows_of(cuts[:, 0], cuts[:, 1] - 1, self.cells)

    def spans(self) -> tuple[Indexes, Indexes]:
        low, high = np.triu_indices(self.cells)
        return low, high


class Circular(_OneAttribute):
    """Ranges that may wrap around: every start, every length from 1 to n."""

    name: ClassVar[str] = "circular"
    counts: ClassVar[str] = "the records from one value to another, for all pairs, wrapping around at the end"
    pattern: ClassVar[str] = "{a} in {x}₁ … {x}₂"
    structure: ClassVar[Structure] = Structure.CIRCLE

    @property
    def rows(self) -> int:
        return self.cells * self.cells

    @classmethod
    def on(cls, attribute: Attribute) -> Family:
        """Return the family on the values of an attribute; those beside the circle are counted one by one."""
        made = cls((attribute.listed,))
        return CircleBeside((attribute.size,), attribute.listed) if attribute.beside else made

    def drawn(self, generator: np.random.Generator, numbers: Indexes) -> Array:  # noqa: ARG002
        return _rows_of(*self._spans_of(numbers), self.cells)

    @cached_property
    def looks_alike(self) -> bool:
        return self.weights is None or _by_length_only(self.weights, self.cells)

    def weighted_gram(self, weights: Array) -> Array:
        if not _by_length_only(weights, self.cells):
            return super().weighted_gram(weights)
        lengths, cells = np.arange(1, self.cells + 1), np.arange(self.cells)
        both = np.maximum(lengths - cells[:, None], 0) + np.maximum(lengths - self.cells + cells[:, None], 0)
        by_distance = both @ weights[: self.cells]  # `both` counts the ranges that contain both cells
        return np.asarray(by_distance[np.abs(np.subtract.outer(cells, cells))])

    def spans(self) -> tuple[Indexes, Indexes]:
        return self._spans_of(np.arange(self.rows))

    def _spans_of(self, numbers: Indexes) -> tuple[Indexes, Indexes]:
        start, length = np.divmod(numbers, self.cells)
        return start, (start + length) % self.cells

    def _label(self, attribute: Attribute, first: int, last: int) -> str:
        v, name = attribute.literals, attribute.name
        return attribute.exactly(name, first) if first == last else f"{name} in {v[first]} .. {v[last]}"


@dataclass(frozen=True, eq=False, repr=False)
class CircleBeside(Family):
    """Circular ranges of the first values, and the count of each value that stands beside the circle."""

    around: int
    """Number of values on the circle."""

    name: ClassVar[str] = "circular beside"
    counts: ClassVar[str] = f"{Circular.counts}; and the records with each value beside these"
    axes: ClassVar[int | None] = 1
    closed_form: ClassVar[bool] = True
    readers: ClassVar = {"around": partial(whole, low=1)}

    @cached_property
    def _parts(self) -> tuple[Circular, Identity]:
        return Circular((self.around,)), Identity((self.cells - self.around,))

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self._parts)

    def _matrix(self) -> Array:
        return self._joined([part.matrix() for part in self._parts])

    def gram(self) -> Array:
        return self.weighted_gram(self.query_weights())

    def weighted_gram(self, weights: Array) -> Array:
        circle, beside = self._parts
        pieces = np.split(weights, [circle.rows])
        return self._joined([p.weighted_gram(w) for p, w in zip((circle, beside), pieces, strict=True)])

    def _joined(self, parts: Sequence[Array]) -> Array:
        """Return two matrices as the blocks of a diagonal."""
        around, beside = parts
        joined = np.zeros((len(around) + len(beside), self.cells))
        joined[: len(around), : self.around], joined[len(around) :, self.around :] = around, beside
        return joined

    def answers(self, table: Array) -> Array:
        circle, _ = self._parts
        return np.concatenate([circle.answers(table[: self.around]), table[self.around :]])

    def spread(self, values: Array) -> Array:
        circle, _ = self._parts
        return np.concatenate([circle.spread(values[: circle.rows]), values[circle.rows :]])

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        return [*self._parts[0].labels(attributes), *self._beside(attributes[0], attributes[0].name)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        name = written_name(attributes[0].name)
        return [*self._parts[0].predicates(attributes), *self._beside(attributes[0], name)]

    def _beside(self, attribute: Attribute, name: str) -> list[str]:
        return [attribute.exactly(name, index) for index in range(self.around, self.cells)]

    def ends(self) -> Indexes:
        beside = np.arange(self.around, self.cells)
        return np.concatenate([np.stack(self._parts[0].spans(), axis=1), np.stack([beside, beside], axis=1)])

    def __str__(self) -> str:
        """Name the family as users do."""
        return Circular.name


def _by_length_only(weights: Array, n: int) -> bool:
    """Return whether weights of circular ranges depend on their lengths only."""
    return np.array_equal(weights, np.tile(weights[:n], n))


def _rows_of(first: Indexes, last: Indexes, n: int) -> Array:
    """Return queries about consecutive values as rows; if the first is after the last, they wrap around."""
    cell, low, high = np.arange(n), first[:, None], last[:, None]
    after, before = low <= cell, cell <= high
    return np.where(low <= high, after & before, after | before).astype(float)


ONE_ATTRIBUTE: dict[str, type[_OneAttribute]] = {cls.name: cls for cls in (Identity, Prefix, Range, Circular)}
"""The families that users name, in Python and in a spec. A new one needs its class and a name here."""


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(_Spans):
    """`b <= a <= c` for chosen pairs b <= c; a single b or c applies to all pairs."""

    first: Indexes
    last: Indexes
    row_weights: Array | None = None

    name: ClassVar[str] = "ranges"
    readers: ClassVar = {"first": integers, "last": integers, "row_weights": optional(floats)}

    def __post_init__(self) -> None:
        """Check the ends and the weights; keep private copies."""
        ends = [np.atleast_1d(_indexes(name, getattr(self, name), self.cells)) for name in ("first", "last")]
        try:
            first, last = map(np.array, np.broadcast_arrays(*ends))
        except ValueError:
            first = last = np.empty(0)
        if not first.size:
            got = f"{ends[0].size} and {ends[1].size}"
            raise WorkloadError(f"ranges: expected as many first values as last ones, got {got}")
        if np.any(first > last):
            wrong = int(np.argmax(first > last))
            raise WorkloadError(f"ranges: expected first <= last, got {first[wrong]} and {last[wrong]}")
        weights = row_weights(self.row_weights, first.size, "range")
        for name, value in (("first", first), ("last", last), ("row_weights", weights)):
            object.__setattr__(self, name, value)
            if value is not None:
                value.flags.writeable = False

    @property
    def rows(self) -> int:
        return self.first.size

    def spans(self) -> tuple[Indexes, Indexes]:
        return self.first, self.last


@explained("qs.ranges(schema, 'age', [0, 18], [17, 64])")
def ranges(
    schema: Schema, attribute: str, first: ArrayLike, last: ArrayLike, weights: ArrayLike | None = None
) -> Intervals:
    """Return chosen ranges of an attribute, each from its first to its last value, both given by index.

    `first` or `last` can be one index for all ranges: `ranges(schema, "age", 0, [17, 64])` asks for two
    prefixes. `weights` states the weight of each range. Use the result as the family of that attribute.

    >>> schema = Schema.of(age=100)
    >>> from querysmasher.workload.builders import queries
    >>> list(queries(schema, age=ranges(schema, "age", [0, 18], [17, 64])).labels())
    ['0 <= age <= 17', '18 <= age <= 64']
    """
    check_schema(schema)
    given = cast("tuple[Indexes, Indexes, Array | None]", (first, last, weights))  # the class checks them
    return Intervals((schema[attribute].size,), *given)


def _indexes(name: str, given: Any, size: int) -> NDArray[np.int64]:
    """Return a copy of indexes of values."""
    array = np.array(given)
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise WorkloadError(f"{name}: expected indexes of values, integers from 0 to {size - 1}")
    if array.size and not 0 <= array.min() <= array.max() < size:
        msg = f"{name}: expected indexes from 0 to {size - 1}, got {array.min()} to {array.max()}"
        raise WorkloadError(msg)
    return array.astype(np.int64)


def by_length(weights: Array) -> Array:
    """Return the weights of circular ranges, averaged over those of one length."""
    n = math.isqrt(len(weights))
    return np.tile(weights.reshape(n, n).mean(axis=0), n)
