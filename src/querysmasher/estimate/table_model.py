"""The estimate of any table, top down: the total, single attributes, pairs, then larger sets.

1. The total is public, the noisy one or, if that is rough, a better one. Each table on one
   attribute (`singles`) is non-negative with this sum.
2. Pairs (`pairs`) are shrunk towards independence or the best chain, and projected onto the non-negative
   tables with these margins.
3. Larger tables start as those of maximum entropy given their parts. If the set itself was
   measured, its deviation is shrunk likewise.

Everything is computed when it is asked for, in batches of tables of one shape.

A table on three or more attributes starts as the one of maximum entropy given its pairs or, if a set of three
or more of its attributes was measured, given its largest proper subsets. If the set itself was measured, its
deviation is shrunk towards this table. Three attributes are ordered by size first, so that more tables have
the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.estimate.evidence import Evidence, Noisy, Place, Zeros
from querysmasher.estimate.fitting import (
    Axes,
    arranged,
    batches,
    centred,
    filled,
    fitted,
    lower_part,
    start,
    triples,
)
from querysmasher.estimate.pairs import Pairs
from querysmasher.estimate.shrinkage import towards
from querysmasher.estimate.singles import is_rough, posterior_total, single

WINDOW = 4_000_000
"""Number of cells of tables that are prepared together."""

KEPT = 2**24
"""Maximum number of cells of tables on three and more attributes that are kept for when they are asked for
again, 8 bytes each."""

LARGEST = 50_000_000
"""Maximum number of cells of a table."""

STEPS = 10
"""Number of steps of Dykstra's algorithm for tables on three and more attributes."""


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
        self.schema = evidence.schema
        self.zeros = Zeros(evidence.schema)
        self._known = dict(known or {})
        self._room = KEPT

    @cached_property
    def total(self) -> float:
        """The number of records: at least zero."""
        if () in self._known:
            return float(self._known[()])
        noisy = self.evidence.noisy(())
        if noisy is not None and is_rough(noisy):
            found = (self.evidence.noisy((a,)) for a in range(len(self.schema)))
            return posterior_total(noisy, (one for one in found if one is not None))
        return max(0.0, self.least if noisy is None else float(noisy.values))

    def single(self, attribute: int) -> Array:
        """Return the table on one attribute."""
        if (attribute,) not in self._known:
            size = self.schema.sizes[attribute]
            noisy = self.evidence.noisy((attribute,))
            possible = self.zeros.possible((attribute,))
            kept = np.ones(size, dtype=bool) if possible is None else possible
            values = np.where(kept, self.total / max(int(kept.sum()), 1), 0.0)
            if noisy is not None and kept.any():
                unbiased = noisy.values + self.total / size
                values[kept] = single(unbiased[kept], noisy.variance, self.total)
            self._known[attribute,] = values
        return self._known[attribute,]

    @cached_property
    def pairs(self) -> Pairs:
        """The tables on two attributes."""
        return Pairs(self.evidence, self.total, self.single, self.zeros, self._known)

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
        missing = [place for place in dict.fromkeys(places) if place not in self._known]
        self.pairs.prepare({pair for place in missing for pair in combinations(place, 2)})
        larger = dict(self._larger([place for place in missing if len(place) > 2]))
        for place, table in larger.items():
            if self._room >= table.size:
                table.flags.writeable = False
                self._known[place] = table
                self._room -= table.size
        for place in places:
            if len(place) < 2:
                yield self.single(place[0]) if place else np.array(self.total)
            else:
                yield larger[place] if place in larger else self._known[place]

    def target(self, place: Place) -> Array:
        """Return what other sets say about the table on increasing attributes, without its own residual."""
        if len(place) > 2:
            ordered = self._by_size(place)
            return _increasing(self._targets([ordered])[0], ordered)
        if len(place) == 2:
            return self.pairs.target(place)
        total = self.total
        return np.full(self.schema.sizes[place[0]], total / self.schema.sizes[place[0]])

    def _larger(self, places: Sequence[Place]) -> Iterator[tuple[Place, Array]]:
        """Iterate over sets of three and more attributes with their tables, in no particular order."""
        for some in self._batches(places):
            targets = self._targets(some)
            noisy = [self.evidence.noisy(tuple(sorted(place))) for place in some]
            measured = [i for i, one in enumerate(noisy) if one is not None]
            if measured:
                known = [one for one in noisy if one is not None]
                targets[measured] = self._around([some[i] for i in measured], targets[measured], known)
            targets = filled(targets, self._singles(some), self._masks(some))
            for place, table in zip(some, targets, strict=True):
                yield tuple(sorted(place)), _increasing(table, place)

    def _batches(self, places: Sequence[Place]) -> Iterator[list[Place]]:
        """Iterate over sets of one shape that are computed alike, so that none depends on the others."""
        alike: dict[tuple[bool, bool], list[Place]] = {}
        for place in places:
            kind = self.zeros.possible(place) is not None, self._measured_inside(place)
            alike.setdefault(kind, []).append(self._by_size(place))
        for own in alike.values():
            yield from batches(own, self.schema.sizes)

    def _by_size(self, place: Place) -> Place:
        """Return three attributes ordered by size; more as they are."""
        return tuple(sorted(place, key=lambda a: (self.schema.sizes[a], a))) if len(place) == 3 else place

    def _targets(self, places: Sequence[Place]) -> Array:
        """Return the tables of maximum entropy on sets of one shape that are computed alike."""
        order = len(places[0])
        pairs = self._margins(places, 2)
        masks = self._masks(places)
        if order == 3 and not masks.ndim:
            return triples(pairs)
        singles = self._singles(places)
        if order == 3:
            return fitted(start(singles, pairs) * masks, pairs)
        inside = self._measured_inside(places[0])
        return fitted(start(singles, {}) * masks, self._margins(places, order - 1) if inside else pairs)

    def _around(self, places: Sequence[Place], targets: Array, noisy: Sequence[Noisy]) -> Array:
        """Return tables shrunk towards targets, non-negative, with nearly the same pairs."""
        singles = self._singles(places)
        pairs = self._margins(places, 2)
        # three attributes exactly, where fitting is still on its way
        lower = lower_part(singles, pairs) if len(singles) == 3 else targets - centred(targets)
        values = np.stack([arranged(n.values, p) for n, p in zip(noisy, places, strict=True)])
        nearest = towards(targets, values, np.array([n.variance for n in noisy]), singles, lower, STEPS)
        return fitted(nearest * self._masks(places), pairs, 2)

    def _singles(self, places: Sequence[Place]) -> list[Array]:
        """Return the tables on each axis, stacked over the sets."""
        return [np.stack([self.single(place[axis]) for place in places]) for axis in range(len(places[0]))]

    def _margins(self, places: Sequence[Place], order: int) -> dict[Axes, Array]:
        """Return the tables on every choice of so many axes, stacked over the sets."""
        found: dict[Axes, Array] = {}
        for axes in combinations(range(len(places[0])), order):
            parts = [tuple(place[a] for a in axes) for place in places]
            tables = self.tables([tuple(sorted(part)) for part in parts])
            found[axes] = np.stack(list(map(arranged, tables, parts)))
        return found

    def _masks(self, places: Sequence[Place]) -> Array:
        """Return ones in possible cells and zeros in others, of sets that are computed alike; or just one."""
        masks = [self.zeros.possible(tuple(sorted(place))) for place in places]
        known = [arranged(m.astype(float), p) for m, p in zip(masks, places, strict=True) if m is not None]
        return np.stack(known) if known else np.ones(())

    def _measured_inside(self, place: Place) -> bool:
        """Return whether a proper subset of three or more attributes was measured."""
        return any(
            self.evidence.noisy(some) is not None
            for order in range(3, len(place))
            for some in combinations(place, order)
        )


def _increasing(table: Array, place: Place) -> Array:
    """Return a table over attributes in some order with its axes in increasing order."""
    return table.transpose(sorted(range(len(place)), key=place.__getitem__))
