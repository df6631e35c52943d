"""Tables on three and more attributes: maximum entropy, and what was measured beyond it.

A table starts as the one of maximum entropy given its pairs or, if a set of three or more of its attributes
was measured, given its largest proper subsets. If the set itself was measured, its deviation is shrunk
towards this table. Three attributes are ordered by size first, so that more tables have the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.batches import arranged, batches
from querysmasher.estimate.completion import Axes, filled, fitted, lower_part, start, triples
from querysmasher.estimate.evidence import Evidence, Noisy, Place
from querysmasher.estimate.nonnegative import centred, onto_margins
from querysmasher.estimate.pairs import Pairs, without_sums
from querysmasher.estimate.shrinkage import fit, shrunk
from querysmasher.estimate.zeros import Zeros

STEPS = 10
"""Number of steps of Dykstra's algorithm."""


class Larger:
    """Estimates of tables on three and more attributes."""

    def __init__(
        self,
        evidence: Evidence,
        single: Callable[[int], Array],
        pairs: Pairs,
        zeros: Zeros,
        tables: Callable[[Sequence[Place]], Iterator[Array]],
    ) -> None:
        """Take what was measured, and the tables on fewer attributes."""
        self._evidence = evidence
        self._single = single
        self._pairs = pairs
        self._zeros = zeros
        self._tables = tables
        self._sizes = evidence.schema.sizes

    def tables(self, places: Sequence[Place]) -> Iterator[tuple[Place, Array]]:
        """Iterate over sets of increasing attributes with their tables, in no particular order."""
        for some in self._batches(places):
            targets = self._targets(some)
            noisy = [self._evidence.noisy(tuple(sorted(place))) for place in some]
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
            kind = self._zeros.possible(place) is not None, self._measured_inside(place)
            alike.setdefault(kind, []).append(self._by_size(place))
        for own in alike.values():
            yield from batches(own, self._sizes)

    def target(self, place: Place) -> Array:
        """Return what smaller sets say about the table on increasing attributes."""
        own = self._by_size(place)
        return _increasing(self._targets([own])[0], own)

    def _by_size(self, place: Place) -> Place:
        """Return three attributes ordered by size; more as they are."""
        return tuple(sorted(place, key=lambda a: (self._sizes[a], a))) if len(place) == 3 else place

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
        upper = centred(targets)
        deviations = np.stack([arranged(n.values, p) for n, p in zip(noisy, places, strict=True)]) - upper
        prior = fit(deviations, targets, np.array([one.variance for one in noisy]))
        change = without_sums(shrunk(deviations, targets, prior), singles)
        # three attributes exactly, where fitting is still on its way
        lower = lower_part(singles, pairs) if len(singles) == 3 else targets - upper
        nearest = onto_margins(lower + upper + change, lower, STEPS)
        return fitted(nearest * self._masks(places), pairs, 2)

    def _singles(self, places: Sequence[Place]) -> list[Array]:
        """Return the tables on each axis, stacked over the sets."""
        return [np.stack([self._single(place[axis]) for place in places]) for axis in range(len(places[0]))]

    def _margins(self, places: Sequence[Place], order: int) -> dict[Axes, Array]:
        """Return the tables on every choice of so many axes, stacked over the sets."""
        several = combinations(range(len(places[0])), order)
        if order == 2:
            return {(a, b): np.stack([self._pair(p[a], p[b]) for p in places]) for a, b in several}
        return {
            axes: np.stack(list(self._tables([tuple(place[a] for a in axes) for place in places])))
            for axes in several
        }

    def _pair(self, i: int, j: int) -> Array:
        return self._pairs[i, j] if i < j else self._pairs[j, i].T

    def _masks(self, places: Sequence[Place]) -> Array:
        """Return ones in possible cells and zeros in others, which broadcast to the tables of the sets."""
        masks = [self._zeros.possible(tuple(sorted(place))) for place in places]
        if all(mask is None for mask in masks):
            return np.ones(())
        shape = [self._sizes[a] for a in places[0]]
        return np.stack(
            [
                np.ones(shape) if mask is None else arranged(mask.astype(float), place)
                for mask, place in zip(masks, places, strict=True)
            ]
        )

    def _measured_inside(self, place: Place) -> bool:
        """Return whether a proper subset of three or more attributes was measured."""
        return any(
            self._evidence.noisy(some) is not None
            for order in range(3, len(place))
            for some in combinations(place, order)
        )


def _increasing(table: Array, place: Place) -> Array:
    """Return a table over attributes in some order with its axes in increasing order."""
    return table.transpose(sorted(range(len(place)), key=place.__getitem__))
