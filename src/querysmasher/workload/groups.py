"""A group: all queries that one product of families asks on one attribute set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from querysmasher.schema import Schema
from querysmasher.text import one_line
from querysmasher.workload.families import Family


@dataclass(frozen=True, slots=True)
class Group:
    """The product of `families`, which cover `attributes` from left to right, with one weight.

    `age <= c and sex == d` for all c and d is the product of two families on one attribute each;
    `a + b <= c` is a single family on two. The queries are never written out: a query is a choice of
    one row per family, the last family's row moving fastest.
    """

    attributes: tuple[str, ...]
    families: tuple[Family, ...]
    weight: float = 1.0

    @property
    def rows(self) -> int:
        """How many queries the group has."""
        return math.prod(f.rows for f in self.families)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many queries each family has."""
        return tuple(f.rows for f in self.families)

    def parts(self) -> Iterator[tuple[tuple[str, ...], Family]]:
        """Go through the families, each with the attributes it covers."""
        start = 0
        for family in self.families:
            stop = start + len(family.shape)
            yield self.attributes[start:stop], family
            start = stop

    def describe(self) -> str:
        """Say in a few words what is asked."""
        if not self.attributes:
            return "total"
        return one_line(" × ".join(f"{', '.join(names)} ({family})" for names, family in self.parts()))

    def labels(self, schema: Schema) -> Iterator[str]:
        """Say every query in words, in order."""
        each = [family.labels([schema[n] for n in names]) for names, family in self.parts()]
        each = [list(map(one_line, words)) for words in each]
        return (" and ".join(filter(None, words)) or "total" for words in itertools.product(*each))
