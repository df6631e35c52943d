"""A group: all queries of one product of families on one attribute set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.schema import Schema
from querysmasher.text import one_line
from querysmasher.workload.family import Family
from querysmasher.workload.target import Target


@dataclass(frozen=True, slots=True)
class Group:
    """The product of `families`, which cover `attributes` in order, with a weight and a target, if any.

    `age <= c and sex == d` for all c and d is the product of two families on one attribute each;
    `a + b <= c` is a single family on two. The queries are never written out: a query is a choice of
    one row per family, with the last family's row varying fastest.
    """

    attributes: tuple[str, ...]
    families: tuple[Family, ...]
    weight: float = 1.0
    target: Target | None = None

    @property
    def rows(self) -> int:
        """Number of queries in the group."""
        return math.prod(f.rows for f in self.families)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of queries in each family."""
        return tuple(f.rows for f in self.families)

    @property
    def is_marginal(self) -> bool:
        """Whether the queries are the cells of a table, or the total."""
        return all(family.original.counts_values for family in self.families)

    @property
    def inner_weight(self) -> float:
        """The sum of the weights inside the families: the number of queries, unless rows have weights."""
        return math.prod(f.rows if f.weights is None else float(f.weights.sum()) for f in self.families)

    def parts(self) -> Iterator[tuple[tuple[str, ...], Family]]:
        """Iterate over the families, each with the attributes it covers."""
        start = 0
        for family in self.families:
            stop = start + len(family.shape)
            yield self.attributes[start:stop], family
            start = stop

    def query_weights(self) -> Array:
        """Return the weight of every query, in order."""
        weights = np.full(1, self.weight)
        for family in self.families:
            own = np.ones(family.rows) if family.weights is None else family.weights
            weights = np.multiply.outer(weights, own).ravel()
        return weights

    def describe(self) -> str:
        """Return a short description."""
        if not self.attributes:
            return "total"
        return one_line(" × ".join(f"{', '.join(names)} ({family})" for names, family in self.parts()))

    def labels(self, schema: Schema) -> Iterator[str]:
        """Return every query in words, in order."""
        return _joined(family.labels([schema[n] for n in names]) for names, family in self.parts())

    def predicates(self, schema: Schema) -> Iterator[str]:
        """Return every query as a predicate, in order; in words where no predicate states it."""
        return _joined(family.predicates([schema[n] for n in names]) for names, family in self.parts())

    @property
    def kind(self) -> str:
        """The families, named once if all are the same.

        >>> from querysmasher.workload.families import Identity, Prefix
        >>> Group(("a", "b"), (Identity((2,)), Prefix((3,)))).kind
        'identity × prefix'
        """
        names = [str(family) for family in self.families]
        return " × ".join(names if len(set(names)) > 1 else names[:1]) or "total"


def _joined(families: Iterable[list[str]]) -> Iterator[str]:
    """Join the words of every choice of one query per family."""
    each = [list(map(one_line, words)) for words in families]
    return (" and ".join(filter(None, words)) or "total" for words in itertools.product(*each))
