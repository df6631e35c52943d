"""The estimate of any table, top down: the total, single attributes, pairs, then larger sets.

1. The total is public, the noisy one or, if that is rough, a better one (`total`). Each table on one
   attribute (`singles`) is non-negative with this sum.
2. Pairs (`pairs`) are shrunk towards independence or the best chain, and projected onto the non-negative
   tables with these margins.
3. Larger tables (`larger`) start as those of maximum entropy given their parts. If the set itself was
   measured, its deviation is shrunk likewise.

Everything is computed when it is asked for, in batches of tables of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.estimate.evidence import Evidence, Place
from querysmasher.estimate.larger import Larger
from querysmasher.estimate.pairs import Pairs
from querysmasher.estimate.singles import single
from querysmasher.estimate.total import is_rough, posterior_total
from querysmasher.estimate.zeros import Zeros

WINDOW = 4_000_000
"""Number of cells of tables that are prepared together."""

KEPT = 2**24
"""Maximum number of cells of tables on three and more attributes that are kept for when they are asked for
again, 8 bytes each."""

LARGEST = 50_000_000
"""Maximum number of cells of a table."""


class Model:
    """Computes the estimate of any table from noisy residuals."""

    def __init__(
        self,
        evidence: Evidence,
        least: float = 0.0,
        known: Mapping[Place, Array] | None = None,
        weights: Mapping[int, float] | None = None,
    ) -> None:
        """Take what was measured; `least` is the number of records if that was not measured.

        `known` are tables that are taken as they are, with all their margins: consistent and non-negative.
        `weights` say how far tables were moved from the unbiased ones to those of a model (`risk`).
        """
        self.evidence = evidence
        self.least = least
        self.weights = weights or {}
        self._given = known or {}
        self.schema = evidence.schema
        self.zeros = Zeros(evidence.schema)
        self._singles = {place[0]: table for place, table in self._given.items() if len(place) == 1}
        self._kept = {place: table for place, table in self._given.items() if len(place) > 2}
        self._room = KEPT

    @cached_property
    def total(self) -> float:
        """The number of records: at least zero."""
        if () in self._given:
            return float(self._given[()])
        noisy = self.evidence.noisy(())
        if noisy is not None and is_rough(noisy):
            found = (self.evidence.noisy((a,)) for a in range(len(self.schema)))
            return posterior_total(noisy, (one for one in found if one is not None))
        return max(0.0, self.least if noisy is None else float(noisy.values))

    def single(self, attribute: int) -> Array:
        """Return the table on one attribute."""
        if attribute not in self._singles:
            size = self.schema.sizes[attribute]
            noisy = self.evidence.noisy((attribute,))
            possible = self.zeros.possible((attribute,))
            kept = np.ones(size, dtype=bool) if possible is None else possible
            values = np.where(kept, self.total / max(int(kept.sum()), 1), 0.0)
            if noisy is not None and kept.any():
                unbiased = noisy.values + self.total / size
                values[kept] = single(unbiased[kept], noisy.variance, self.total)
            self._singles[attribute] = values
        return self._singles[attribute]

    @cached_property
    def pairs(self) -> Pairs:
        """The tables on two attributes."""
        pairs: dict[Place, Array] = {p: table for p, table in self._given.items() if len(p) == 2}
        return Pairs(self.evidence, self.total, self.single, self.zeros, pairs)

    @cached_property
    def _larger(self) -> Larger:
        """The tables on three and more attributes."""
        return Larger(self.evidence, self.single, self.pairs, self.zeros, self.tables)

    def table(self, place: Place) -> Array:
        """Return the table on increasing attributes."""
        (table,) = self.tables([place])
        return table

    def tables(self, places: Sequence[Place]) -> Iterator[Array]:
        """Iterate over the tables on several sets of increasing attributes, in the order given."""
        waiting: list[Place] = []
        cells = 0
        for place in places:
            size = math.prod(self.schema.sizes[a] for a in place)
            if size > LARGEST:
                names = ", ".join(self.schema.names[a] for a in place)
                msg = (
                    f"attributes: the table on ({names}) has {size:,} cells; at most {LARGEST:,} are allowed"
                )
                raise TooLargeError(msg)
            if waiting and cells + size > WINDOW:
                yield from self._prepared(waiting)
                waiting, cells = [], 0
            waiting.append(place)
            cells += size
        yield from self._prepared(waiting)

    def _prepared(self, places: Sequence[Place]) -> Iterator[Array]:
        """Iterate over tables that fit in memory together."""
        larger = [place for place in dict.fromkeys(places) if len(place) > 2]
        found = {place: self._kept[place] for place in larger if place in self._kept}
        missing = [place for place in larger if place not in found]
        self.pairs.prepare(
            {pair for place in places if place not in found for pair in combinations(place, 2)}
        )
        for place, table in self._larger.tables(missing):
            found[place] = table
            if self._room >= table.size:
                table.flags.writeable = False
                self._kept[place] = table
                self._room -= table.size
        for place in places:
            if len(place) > 2:
                yield found[place]
            elif len(place) == 2:
                yield self.pairs[place]
            else:
                yield self.single(place[0]) if place else np.array(self.total)

    def target(self, place: Place) -> Array:
        """Return what other sets say about the table on increasing attributes, without its own residual."""
        if len(place) > 2:
            return self._larger.target(place)
        if len(place) == 2:
            return self.pairs.target(place)
        total = self.total
        return np.full(self.schema.sizes[place[0]], total / self.schema.sizes[place[0]])
