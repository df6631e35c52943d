"""Families given by their rows: any matrix, hierarchies."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute, literal
from querysmasher.errors import WorkloadError
from querysmasher.schema import Schema
from querysmasher.workload.checks import check_weights, frozen_array
from querysmasher.workload.families import ONE_ATTRIBUTE, Family, Identity


@dataclass(frozen=True, eq=False)
class Rows(Family):
    """Any rows, as a matrix over the cells in row-major order."""

    array: Array
    row_weights: Array | None = None
    row_labels: tuple[str, ...] | None = None
    title: str = "rows"
    _digest: str = field(init=False, repr=False, default="")

    name: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        """Check the rows and the weights, keep a private copy and a digest of it."""
        array = frozen_array("matrix", self.array, ndim=2)
        if array.shape[0] == 0:
            msg = "matrix: there is no query; give at least one row"
            raise WorkloadError(msg)
        if array.shape[1] != self.cells:
            msg = (
                f"matrix: expected {self.cells} columns, one per cell of a marginal of shape "
                f"{self.shape}, got {array.shape[1]}"
            )
            raise WorkloadError(msg)
        weights = None
        if self.row_weights is not None:
            weights = frozen_array("weights", self.row_weights, ndim=1)
            check_weights("weights", weights)
            if len(weights) != len(array):
                msg = f"weights: expected {len(array)}, one per query, got {len(weights)}"
                raise WorkloadError(msg)
            if np.all(weights == 1):
                weights = None
        if self.row_labels is not None and len(self.row_labels) != len(array):
            msg = f"labels: expected {len(array)}, one per query, got {len(self.row_labels)}"
            raise WorkloadError(msg)
        digest = hashlib.sha256(repr(array.shape).encode() + array.tobytes())
        digest.update(b"" if weights is None else weights.tobytes())
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "row_weights", weights)
        object.__setattr__(self, "_digest", digest.hexdigest())

    @property
    def rows(self) -> int:
        return len(self.array)

    @property
    def key(self) -> Hashable:
        return (self.name, self.shape, self._digest)

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return isinstance(other, Rows) and (self.key, self.row_labels) == (other.key, other.row_labels)

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self.key)

    @property
    def weights(self) -> Array | None:
        return self.row_weights

    def _matrix(self) -> Array:
        return self.array

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        if self.row_labels is not None:
            return list(self.row_labels)
        names = ", ".join(a.name for a in attributes)
        return [f"query {i} on {names}" for i in range(self.rows)]

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "array": self.array,
            "row_weights": self.row_weights,
            "row_labels": None if self.row_labels is None else list(self.row_labels),
            "title": self.title,
        }

    def __str__(self) -> str:
        """Name the family by its title."""
        return self.title


def family_for(attribute: Attribute, family: str | ArrayLike | Family | None) -> Family:
    """Return the family a user means for one attribute: a name, rows, a family, or None for its kind's."""
    if family is None:
        family = attribute.natural_family
    if isinstance(family, str):
        if family not in ONE_ATTRIBUTE:
            msg = (
                f"family of attribute {attribute.name!r}: expected one of {', '.join(ONE_ATTRIBUTE)}, "
                f"or a matrix of rows, got {family!r}"
            )
            raise WorkloadError(msg)
        return ONE_ATTRIBUTE[family].of(attribute.size)
    if isinstance(family, Family):
        if family.shape != (attribute.size,):
            msg = (
                f"family of attribute {attribute.name!r}: made for shape {family.shape}, but the attribute "
                f"has {attribute.size} values"
            )
            raise WorkloadError(msg)
        return family
    return Rows((attribute.size,), cast("Array", family))  # which checks that it is one


def hierarchy(
    schema: Schema, attribute: str, *levels: Mapping[Any, Any] | Sequence[Any], leaves: bool = True
) -> Rows:
    """Return the queries of a hierarchy: one per group of each level, and one per value (`leaves`).

    A level maps every value of the attribute to its group (or lists the groups in the order of the
    values). Use the result as the family of that attribute.

    >>> schema = Schema.of(county=4)
    >>> print(hierarchy(schema, "county", {0: "north", 1: "north", 2: "south", 3: "south"}).rows)
    6
    """
    a = schema[attribute]
    rows: list[Array] = []
    labels: list[str] = []
    if not levels and not leaves:
        msg = "levels: give at least one level, or leaves=True"
        raise WorkloadError(msg)
    for number, level in enumerate(levels, start=1):
        if isinstance(level, Mapping):
            missing = [v for v in a.values if v not in level]
            if missing:
                msg = (
                    f"level {number} of the hierarchy on {attribute!r} has no group for value "
                    f"{literal(missing[0])}"
                )
                raise WorkloadError(msg)
            level = [level[v] for v in a.values]  # noqa: PLW2901
        try:
            groups = list(level)
            distinct = dict.fromkeys(groups)
        except TypeError:
            msg = f"level {number} of the hierarchy on {attribute!r}: its groups are not texts or numbers"
            raise WorkloadError(msg) from None
        if len(groups) != a.size:
            msg = f"level {number} of the hierarchy on {attribute!r}: expected {a.size}, got {len(groups)}"
            raise WorkloadError(msg)
        for group in distinct:
            rows.append(np.array([g == group for g in groups], dtype=float))
            labels.append(f"{a.name} in {group!r}")
    if leaves:
        rows.extend(np.eye(a.size))
        labels.extend(Identity((a.size,)).labels([a]))
    return Rows((a.size,), np.array(rows), row_labels=tuple(labels), title="hierarchy")
