"""A family of queries with other weights: the same queries, some of which count more.

Planning for an objective other than the mean error is planning with other weights. Their Gram matrices are
known in closed form where those of the families are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.workload.family import Family, Places


@dataclass(frozen=True, eq=False)
class Weighted(Family):
    """The queries of another family with new weights, which replace its own."""

    base: Family
    row_weights: Array
    _digest: str = field(init=False, repr=False, default="")

    name: ClassVar[str] = "weighted"

    def __post_init__(self) -> None:
        """Digest the weights."""
        object.__setattr__(self, "_digest", hashlib.sha256(self.row_weights.tobytes()).hexdigest())

    @property
    def original(self) -> Family:
        return self.base

    @property
    def rows(self) -> int:
        return self.base.rows

    @property
    def key(self) -> Hashable:
        return (self.name, self.base.key, self._digest)

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return isinstance(other, Weighted) and self.key == other.key

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self.key)

    @property
    def is_symmetric(self) -> bool:
        return self.base.is_symmetric

    @property
    def weights(self) -> Array | None:
        return self.row_weights

    def _matrix(self) -> Array:
        return self.base.matrix()

    def answers(self, table: Array) -> Array:
        return self.base.answers(table)

    def labels(self, attributes: Sequence[Attribute]) -> list[str]:
        return self.base.labels(attributes)

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError  # a plan stores the workload that was asked

    def __str__(self) -> str:
        """Name the family itself."""
        return str(self.base)


@dataclass(frozen=True, eq=False)
class WeightedSpans(Weighted):
    """Queries about consecutive values."""

    is_consecutive: ClassVar[bool] = True

    def spans(self) -> tuple[Places, Places] | None:
        return self.base.spans()


@dataclass(frozen=True, eq=False)
class WeightedLevels(WeightedSpans):
    """Queries about the nodes of a tree."""

    is_tree: ClassVar[bool] = True
    is_consecutive: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class WeightedAxis(Weighted):
    """A family on one attribute whose weighted Gram matrix has a closed form."""

    closed_form: ClassVar[bool] = True

    def gram(self) -> Array:
        return self.base.weighted_gram(self.row_weights)


@dataclass(frozen=True, eq=False)
class WeightedCircle(WeightedAxis):
    """Circular ranges whose weights depend on their length only: every value looks the same."""

    looks_alike: ClassVar[bool] = True


def weighted(family: Family, weights: Array) -> Family:
    """Return the queries of a family with these weights instead of its own."""
    kind: type[Weighted] = WeightedAxis if family.closed_form else Weighted
    if not family.closed_form and (family.is_tree or family.is_consecutive):
        kind = WeightedLevels if family.is_tree else WeightedSpans
    if family.looks_alike_with(weights):
        kind = WeightedCircle
    return kind(family.shape, family, weights)


def by_length(weights: Array) -> Array:
    """Return the weights of circular ranges, averaged over those of one length."""
    n = math.isqrt(len(weights))
    return np.tile(weights.reshape(n, n).mean(axis=0), n)
