"""Families of queries: rows of linear queries over one attribute, or over a few jointly.

A family provides its queries as a matrix, and the Gram matrix WᵀDW without that matrix: all n² circular
ranges of an attribute cost no more to state than one query. Its `structure` says what else is known without
the matrix; planning treats families of the same structure alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache, cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, as_given
from querysmasher.fields import items, text, whole
from querysmasher.formatting import count, written_name
from querysmasher.schema import EXAMPLE, Schema

MAX_MATRIX_ENTRIES = 400_000_000
"""Maximum number of entries of a query matrix (3.2 GB)."""


class Structure(Enum):
    """How the queries of a family lie on the values of its attribute, which decides how they are planned."""

    ROWS = "rows of a matrix"
    RULE = "rows that a rule makes, on any number of attributes"
    VALUES = "the count of every value, in order"
    LINE = "some ranges in the order of the values, such as prefixes"
    RANGES = "all ranges in the order of the values"
    CIRCLE = "all ranges on a circle: the same from every value"
    TREE = "groups of values that nest"


@cache
def _words(kind: type[Family]) -> tuple[str, ...]:
    """Return the fields of a kind of family that are words only, and not part of its key."""
    return tuple(field.name for field in fields(kind) if not field.compare)


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """Queries over cells arranged in `shape`, one axis per attribute.

    Two families are equal if all fields are. Fields with `compare=False` are words of users, which do not
    change the queries.
    """

    shape: tuple[int, ...]

    name: ClassVar[str] = ""
    counts: ClassVar[str] = ""
    """What its queries count, in words; empty if the name or the labels of the rows say it."""
    pattern: ClassVar[str] = ""
    """The condition of a query on attributes {a} and {b}, with a variable value {x}; empty if rows differ."""
    axes: ClassVar[int | None] = None
    """The number of attributes of every such family, or None if it may have any number."""
    structure: ClassVar[Structure] = Structure.RULE
    closed_form: ClassVar[bool] = False
    """Whether the Gram matrix is known without the rows."""
    is_growing: ClassVar[bool] = False
    """Whether each query counts all that the one before it counts."""
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Functions that read fields from a file, which may be foreign; the class checks the other fields."""
    instead: ClassVar[Array | None] = None
    """Weights that replace the family's own, for planning; see `reweighted`."""

    @classmethod
    def on(cls, attribute: Attribute) -> Family:
        """Return the family on all values of an attribute, if their number defines it."""
        return cls((attribute.size,))

    @property
    def rows(self) -> int:
        """Number of queries in the family."""
        raise NotImplementedError

    @cached_property
    def cells(self) -> int:
        """Number of cells of a query of the family."""
        return math.prod(self.shape)

    @cached_property
    def key(self) -> Hashable:
        """A key that two families share if and only if they have the same queries with the same weights."""
        parts = [self.instead, *(getattr(self, f.name) for f in fields(self) if f.compare)]
        return (self.name, *map(_hashable, parts))

    def __eq__(self, other: object) -> bool:
        """Compare by content, words included."""
        if type(other) is not type(self) or self.key != other.key:
            return False
        return all(getattr(self, name) == getattr(other, name) for name in _words(type(self)))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self.key)

    def __repr__(self) -> str:
        """Count the queries and the cells."""
        return (
            f"{type(self).__name__}({count(self.rows, 'query', 'queries')} over {count(self.cells, 'cell')})"
        )

    @property
    def is_symmetric(self) -> bool:
        """Whether exchanging axes preserves the queries."""
        return False

    @cached_property
    def looks_alike(self) -> bool:
        """Whether the queries are known to look the same from every value."""
        return self.structure is Structure.VALUES and self.weights is None

    @property
    def is_even(self) -> bool:
        """Whether reversing the order of the values turns each query into its negative plus a constant.

        Then no centre is better than the uniform one.
        """
        return False

    @property
    def units(self) -> float:
        """The sum of the weights that users see: without those that only make queries comparable."""
        return self.rows if self.weights is None else float(self.weights.sum())

    @property
    def weights(self) -> Array | None:
        """Weights of the queries, or None if all are 1."""
        return getattr(self, "row_weights", None) if self.instead is None else self.instead

    def query_weights(self) -> Array:
        """Return the weight of every query."""
        return np.ones(self.rows) if self.weights is None else self.weights

    def reweighted(self, weights: Array | None) -> Self:
        """Return the same queries with other weights, or with None the family's own.

        Planning for an objective other than the mean error is planning with other weights.
        """
        made = copy(self)
        vars(made).update(instead=weights)
        for name in ("key", "looks_alike"):
            vars(made).pop(name, None)
        return made

    @property
    def fits_memory(self) -> bool:
        """Whether the queries can be written out as rows."""
        return self.rows * self.cells <= MAX_MATRIX_ENTRIES

    def matrix(self) -> Array:
        """Return the queries as rows over the cells in row-major order."""
        if not self.fits_memory:
            raise WorkloadError(
                f"{self}: writing out {self.rows:,} queries over {self.cells:,} cells would take "
                f"{self.rows * self.cells * 8 / 1e9:.0f} GB; use fewer values or a coarser binning"
            )
        return self._matrix()

    def _matrix(self) -> Array:
        raise NotImplementedError

    def gram(self) -> Array:
        """Return WᵀDW, the sum over queries of weight × (row outer row)."""
        if self.weights is not None:
            return self.weighted_gram(self.weights)
        W = self.matrix()
        return W.T @ W

    def weighted_gram(self, weights: Array) -> Array:
        """Return WᵀDW with other weights than the family's own."""
        W = self.matrix()
        return (W.T * weights) @ W

    def answers(self, table: Array) -> Array:
        """Answer tables whose first axes are the family's; an axis of queries replaces them."""
        spans = self.spans()
        if spans is None:
            flat = table.reshape(self.cells, -1)
            return (self.matrix() @ flat).reshape(self.rows, *table.shape[len(self.shape) :])
        first, last = spans
        running = np.zeros((len(table) + 1, *table.shape[1:]), dtype=table.dtype)
        np.cumsum(table, axis=0, out=running[1:])
        sums = running[last + 1] - running[first]
        sums[first > last] += running[-1]
        return np.asarray(sums)

    def spread(self, values: Array) -> Array:
        """Return Wᵀ · values, for one value per query along the first axis: sums over queries."""
        spans = self.spans()
        if spans is None:
            return np.asarray(values.T @ self.matrix()).T
        first, last = spans
        change = np.zeros((self.cells + 1, *values.shape[1:]))
        np.add.at(change, first, values)
        np.add.at(change, last + 1, -values)
        change[0] += values[first > last].sum(axis=0)
        return np.cumsum(change, axis=0)[:-1]

    def levels(self) -> Sequence[tuple[Indexes | None, int]] | None:
        """Return the levels of queries that each partition the values of one attribute, or None.

        Each is the group of every value (None if groups are single values) and the number of groups.
        """
        return None

    def level_names(self) -> Sequence[tuple[str, Sequence[Any]]]:
        """Return the levels of named groups: the name of each, perhaps empty, and those of its groups."""
        return ()

    def drawn(self, generator: np.random.Generator, numbers: Indexes) -> Array | None:  # noqa: ARG002
        """Return a random sample of queries as rows without listing all, or None if all must be listed."""
        return None

    def spans(self) -> tuple[Indexes, Indexes] | None:
        """Return the first and last value of every query, or None if one does not count consecutive values.

        If the first is after the last, the range goes around the end.
        """
        return None

    @property
    def row_labels(self) -> tuple[str, ...] | None:
        """The labels that a user gave to the queries, or None."""
        return None

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        """Return each query in words: attribute, operator, value."""
        raise NotImplementedError

    def label_of(self, attributes: Sequence[Attribute], row: int) -> str:
        """Return one of the queries in words; a family with many of them writes no other."""
        return self.labels(attributes)[row]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        """Return each query as a predicate that `where` accepts; in words if no predicate states it."""
        return self.labels(attributes)

    def ends(self) -> NDArray[np.int64] | None:
        """Return the indexes of the first and last value of each query on one attribute, or None.

        They are -1 for a query that does not count a range of values. If the first is after the last, the
        range goes around the circle.
        """
        spans = self.spans()
        return None if spans is None else np.stack(spans, axis=1)

    def counted(self, attribute: Attribute) -> Sequence[str | None]:
        """Return in a few words what each query on one attribute counts; None where `ends` states it."""
        if self.ends() is not None:
            return [None] * self.rows
        return [said_of(attribute.name, label) for label in self.labels([attribute])]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, possibly with arrays: every field by its name."""
        if self.instead is not None:
            raise NotImplementedError  # a plan stores the workload as the user stated it
        return {"family": self.name} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Family:
        """Rebuild a family from what `to_json` returned, less its name; check every field."""
        shape = tuple(whole(n, 1) for n in items(data["shape"]))
        if cls.axes not in (None, len(shape)):
            raise WorkloadError("a family has another number of axes")
        return cls(
            **{**data, "shape": shape} | {name: read(data[name]) for name, read in cls.readers.items()}
        )

    def __str__(self) -> str:
        """Name the family."""
        return self.name


Indexes = NDArray[np.int64]
"""Indexes of values."""


def _hashable(value: Any) -> Hashable:
    """Return a value of a field as part of a key; a digest stands for an array."""
    if isinstance(value, np.ndarray):
        return (value.shape, hashlib.sha256(value.tobytes()).hexdigest())
    if isinstance(value, tuple):
        return tuple(map(_hashable, value))
    return value.key if isinstance(value, Family) else value


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that reads a field that may be None."""
    return lambda value: None if value is None else read(value)


def strings(value: object) -> tuple[str, ...]:
    """Read a list of strings."""
    return tuple(map(text, items(value)))


def _plain(value: Any) -> Any:
    """Return tuples as lists, as JSON has them."""
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def said_of(name: str, label: str) -> str:
    """Return what a label says about an attribute, without its name.

    >>> said_of("county", "county in 'north'"), said_of("county", "other")
    ('north', 'other')
    """
    for start in (f"{name} in ", f"{name} == "):
        if label.startswith(start):
            said = label[len(start) :]
            quoted = len(said) > 1 and said[0] == said[-1] and said[0] in "'\""
            return said[1:-1] if quoted else said
    return label


def one_of(attribute: Attribute, literals: Sequence[str]) -> str:
    """Return the predicate that the attribute has one of these values."""
    said = f"== {literals[0]}" if len(literals) == 1 else f"in [{', '.join(literals)}]"
    return f"{written_name(attribute.name)} {said}"


LARGEST = 1e100
"""Maximum absolute value of an entry; weighted sums of larger squares might overflow."""


def check_schema(schema: object) -> None:
    """Refuse what is not a schema, as the first argument of a function that builds queries."""
    if not isinstance(schema, Schema):
        msg = f"schema: expected a Schema as first argument, got {as_given(schema)}"
        raise WorkloadError(f"{msg}; state it first: schema = {EXAMPLE}")


def frozen_array(name: str, given: ArrayLike, ndim: int) -> Array:
    """Return a read-only float copy of `given`, refusing wrong dimensions and non-finite entries."""
    try:
        array = np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise WorkloadError(f"{name}: expected numbers, got {type(given).__name__}") from None
    if array.ndim != ndim:
        msg = f"{name}: expected {ndim} dimension{'s' * (ndim > 1)}, got {array.ndim}"
        rows = "; write one list per query, as in [[1, 0, 0], [0, 1, 1]]" if ndim == 2 else ""
        raise WorkloadError(msg + rows)
    if not np.all(np.isfinite(array)):
        raise WorkloadError(f"{name}: every entry must be finite")
    if np.any(np.abs(array) > LARGEST):
        raise WorkloadError(f"{name}: every entry must be at most {LARGEST:g} in absolute value")
    array.flags.writeable = False
    return array


def checked_weight(weight: object, name: str = "weight") -> float:
    """Return one weight as a plain number, refusing what is not positive and finite."""
    check_weights(name, weight)  # type: ignore[arg-type]
    if np.ndim(weight):  # type: ignore[arg-type]
        raise WorkloadError(f"{name}: expected one number, got {as_given(weight)}")
    return float(weight)  # type: ignore[arg-type]


def check_weights(name: str, weights: ArrayLike) -> None:
    """Refuse weights that are not positive finite numbers."""
    try:
        array = np.asarray([[]] if isinstance(weights, str | bool) else weights, dtype=float)
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim > 1:
        raise WorkloadError(f"{name}: expected a number, such as 2, got {as_given(weights)}") from None
    bad = array[~(np.isfinite(array) & (array > 0))]
    if bad.size:
        msg = f"{name}: expected positive finite numbers, got {bad.flat[0]} (omit the query instead)"
        raise WorkloadError(msg)


def row_weights(given: ArrayLike | None, count: int, what: str) -> Array | None:
    """Return a weight for each of `count` queries, or None if all are 1."""
    if given is None:
        return None
    weights = frozen_array("weights", given, ndim=1)
    check_weights("weights", weights)
    if len(weights) != count:
        raise WorkloadError(f"weights: expected {count}, one per {what}, got {len(weights)}")
    return None if np.all(weights == 1) else weights
