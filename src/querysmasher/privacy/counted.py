"""A table that is counted once, for several phases of measurement.

The exact counts of the largest attribute sets stay in this object, which only `measurement` reads, until the
last phase is over. If they do not fit, every phase counts the table again: the guarantee is the same, because
it holds for whatever counts each phase sees of a table that does not change; only time is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from querysmasher.privacy.counter import Counter, Counts
from querysmasher.privacy.sets import AttributeSet, lower_marginals, maximal_sets, smallest_covers
from querysmasher.schema import Schema

KEPT_CELLS = 2**26
"""Maximum number of cells kept between phases, 8 bytes each; beyond it, every phase counts again."""

SMALL = 2
"""Maximum number of attributes of a set that is kept, too, if it follows from larger ones."""


class CountedOnce:
    """A counter that counts given attribute sets once, and takes all smaller ones from these.

    Other sets are counted from the table when they are asked for.
    """

    def __init__(
        self, schema: Schema, counter: Counter, sets: Sequence[AttributeSet], most: int = KEPT_CELLS
    ) -> None:
        """Take a table, and the attribute sets that phases will probably ask for."""
        self._schema = schema
        self._counter = counter
        self._sets = maximal_sets(list(sets))
        self._fits = sum(math.prod(schema.shape(names)) for names in self._sets) <= most
        self._covers = {names: names for names in self._sets}
        self._kept: dict[AttributeSet, Counts] = {}

    @property
    def counts_once(self) -> bool:
        """Whether the counts fit, so that the table is counted only once."""
        return self._fits

    def records(self) -> int:
        """Return the number of counted records."""
        return self._counter.records()

    def left_out(self) -> Counts:
        """Return what the table knows of records that were left out."""
        return self._counter.left_out()

    def marginals(self, sets: Sequence[AttributeSet]) -> Iterator[Counts]:
        """Yield the counts of each attribute set, in the order given."""
        if not self._fits:
            yield from self._counter.marginals(sets)
            return
        others = [names for names in sets if names not in self._covers]
        try:
            covers = smallest_covers(self._schema, others, self._sets) if others else {}
        except KeyError:  # nobody expected a set
            yield from self._counter.marginals(sets)
            return
        self._covers |= {names: own for own, asked in covers.items() for names in asked}
        if not self._kept:
            found = zip(self._sets, self._counter.marginals(self._sets), strict=True)
            self._kept = dict(found)
        for names in sets:
            if names not in self._kept:
                own = self._covers[names]
                ((_, counts),) = lower_marginals(own, self._kept[own], [names])
                if len(names) > SMALL:
                    yield counts
                    continue
                self._kept[names] = counts
            yield self._kept[names]

    def __repr__(self) -> str:
        """Say how often the table is counted, and nothing about it."""
        return f"CountedOnce({len(self._sets)} sets)" if self._fits else "CountedOnce(again in every phase)"
