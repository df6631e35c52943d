"""A family of queries with other weights: the same queries, some of which count more.

Planning for an objective other than the mean error is planning with other weights. Their Gram matrices are
known in closed form where those of the families are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.workload.family import ArrayFamily, Family, Places


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
