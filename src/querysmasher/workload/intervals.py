"""Chosen ranges of one attribute, each given by its first and last value: a hundred thousand cost little."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError, explained
from querysmasher.fields import floats, integers
from querysmasher.schema import Schema
from querysmasher.workload.checks import check_schema, check_weights, frozen_array
from querysmasher.workload.families import answers_of_spans
from querysmasher.workload.family import Family
from querysmasher.workload.line import Places
from querysmasher.workload.stating import between_in


@dataclass(frozen=True, eq=False)
class Intervals(Family):
    """`b <= a <= c` for chosen pairs b <= c."""

    first: Places
    last: Places
    row_weights: Array | None = None
    _digest: str = field(init=False, repr=False, default="")

    name: ClassVar[str] = "ranges"
    needs_order: ClassVar[bool] = True
    axes: ClassVar[int | None] = 1
    is_consecutive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ends and the weights; keep private copies and their digest."""
        first, last = _indexes("first", self.first, self.cells), _indexes("last", self.last, self.cells)
        if first.shape != last.shape or not first.size:
            msg = f"ranges: expected as many first values as last ones, got {first.size} and {last.size}"
            raise WorkloadError(msg)
        if np.any(first > last):
            place = int(np.argmax(first > last))
            raise WorkloadError(f"ranges: expected first <= last, got {first[place]} and {last[place]}")
        weights = None
        if self.row_weights is not None:
            weights = frozen_array("weights", self.row_weights, ndim=1)
            check_weights("weights", weights)
            if weights.shape != first.shape:
                raise WorkloadError(f"weights: expected {first.size}, one per range, got {weights.size}")
            if np.all(weights == 1):
                weights = None
        digest = hashlib.sha256(first.tobytes() + last.tobytes())
        digest.update(b"" if weights is None else weights.tobytes())
        for name, value in (("first", first), ("last", last), ("row_weights", weights)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_digest", digest.hexdigest())

    @property
    def rows(self) -> int:
        return self.first.size

    @property
    def key(self) -> Hashable:
        return (self.name, self.shape, self._digest)

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return isinstance(other, Intervals) and self.key == other.key

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self.key)

    @property
    def weights(self) -> Array | None:
        return self.row_weights

    def spans(self) -> tuple[Places, Places]:
        return self.first, self.last

    def _matrix(self) -> Array:
        place = np.arange(self.cells)
        return ((self.first[:, None] <= place) & (place <= self.last[:, None])).astype(float)

    def answers(self, table: Array) -> Array:
        return answers_of_spans(self.spans(), table)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        v = a.literals
        return [f"{v[b]} <= {a.name} <= {v[c]}" for b, c in zip(*self._ends(), strict=True)]

    def predicates(self, attributes: Sequence[Attribute]) -> list[str]:
        (a,) = attributes
        between = between_in(a)
        return [between(b, c) for b, c in zip(*self._ends(), strict=True)]

    def _ends(self) -> tuple[list[int], list[int]]:
        return self.first.tolist(), self.last.tolist()

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "first": self.first, "last": self.last, "row_weights": self.row_weights}

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
