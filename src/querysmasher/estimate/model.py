"""The estimate of any table, top down: the total, single attributes, pairs, then larger sets.

1. The total is the noisy one, or public. Each table on one attribute (`singles`) is non-negative with this
   sum.
2. Pairs (`pairs`) are shrunk towards independence or the best chain, and projected onto the non-negative
   tables with these margins.
3. A larger table starts as the one of maximum entropy given its pairs or, if a set of three or more of its
   attributes was measured, given its largest proper subsets. If the set itself was measured, its deviation is
   shrunk likewise.

Everything is computed when it is asked for, in batches of tables of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.estimate.batches import batches
from querysmasher.estimate.completion import Axes, fitted, lower_part, start
from querysmasher.estimate.evidence import Evidence, Noisy, Place
from querysmasher.estimate.nonnegative import centred, onto_margins
from querysmasher.estimate.pairs import Pairs, without_sums
from querysmasher.estimate.shrinkage import fit, shrunk
from querysmasher.estimate.singles import single
from querysmasher.estimate.zeros import Zeros

WINDOW = 4_000_000
"""Number of cells of tables that are prepared together."""

LARGEST = 50_000_000
"""Maximum number of cells of a table."""

STEPS = 10
"""Number of steps of Dykstra's algorithm for tables on three or more attributes."""


class Model:
    """Computes the estimate of any table from noisy residuals."""

    def __init__(self, evidence: Evidence, least: float = 0.0) -> None:
        """Take what was measured; `least` is the number of records if that was not measured."""
        self.evidence = evidence
        self._least = least
        self.schema = evidence.schema
        self.zeros = Zeros(evidence.schema)
        self._singles: dict[int, Array] = {}

    @cached_property
    def total(self) -> float:
        """The number of records: at least zero."""
        noisy = self.evidence.noisy(())
        return max(0.0, self._least if noisy is None else float(noisy.values))

    def single(self, attribute: int) -> Array:
        """Return the table on one attribute."""
        if attribute not in self._singles:
            size = self.schema.sizes[attribute]
            noisy = self.evidence.noisy((attribute,))
            possible = self.zeros.possible((attribute,))
            kept = np.ones(size, dtype=bool) if possible is None else possible
            values = np.where(kept, self.total / kept.sum(), 0.0)
            if noisy is not None:
                unbiased = noisy.values + self.total / size
                values[kept] = single(unbiased[kept], noisy.variance, self.total)
            self._singles[attribute] = values
        return self._singles[attribute]

    @cached_property
    def pairs(self) -> Pairs:
        """The tables on two attributes."""
        return Pairs(self.evidence, self.total, self.single, self.zeros)

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
        self.pairs.prepare({pair for place in places for pair in combinations(place, 2)})
        found: dict[Place, Array] = {}
        for some in batches(list(dict.fromkeys(p for p in places if len(p) > 2)), self.schema.sizes):
            found.update(zip(some, self._completed(some), strict=True))
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
            return self._targets([place])[0]
        if len(place) == 2:
            return self.pairs.target(place)
        total = self.total
        return np.full(self.schema.sizes[place[0]], total / self.schema.sizes[place[0]])

    def _targets(self, places: Sequence[Place]) -> Array:
        """Return the tables of maximum entropy on sets of three or more attributes of one shape."""
        order = len(places[0])
        singles = [np.stack([self.single(place[axis]) for place in places]) for axis in range(order)]
        pairs = self._margins(places, 2)
        masks = self._masks(places)
        if order == 3:
            return fitted(start(singles, pairs) * masks, pairs)
        inside = any(self._measured_inside(place) for place in places)
        return fitted(start(singles, {}) * masks, self._margins(places, order - 1) if inside else pairs)

    def _completed(self, places: Sequence[Place]) -> Array:
        """Return the tables on sets of three or more attributes of one shape."""
        targets = self._targets(places)
        noisy = [self.evidence.noisy(place) for place in places]
        measured = [i for i, one in enumerate(noisy) if one is not None]
        if measured:
            known = [one for one in noisy if one is not None]
            targets[measured] = self._around([places[i] for i in measured], targets[measured], known)
        return targets

    def _around(self, places: Sequence[Place], targets: Array, noisy: Sequence[Noisy]) -> Array:
        """Return tables shrunk towards targets, non-negative, with nearly the same pairs."""
        singles = [np.stack([self.single(place[axis]) for place in places]) for axis in range(len(places[0]))]
        pairs = self._margins(places, 2)
        deviations = np.stack([one.values for one in noisy]) - centred(targets)
        prior = fit(deviations, targets, np.array([one.variance for one in noisy]))
        change = without_sums(shrunk(deviations, targets, prior), singles)
        lower = targets - centred(targets)
        if len(singles) == 3:
            lower = lower_part(singles, pairs)  # exactly, where fitting is still on its way
        nearest = onto_margins(lower + centred(targets) + change, lower, STEPS)
        return fitted(nearest * self._masks(places), pairs, 2)

    def _margins(self, places: Sequence[Place], order: int) -> dict[Axes, Array]:
        """Return the tables on every choice of so many axes, stacked over the sets."""
        return {
            axes: np.stack(list(self.tables([tuple(place[a] for a in axes) for place in places])))
            for axes in combinations(range(len(places[0])), order)
        }

    def _masks(self, places: Sequence[Place]) -> Array:
        """Return ones in possible cells and zeros in others, which broadcast to the tables of the sets."""
        masks = [self.zeros.possible(place) for place in places]
        if all(mask is None for mask in masks):
            return np.ones(())
        shape = [self.schema.sizes[a] for a in places[0]]
        return np.stack([np.ones(shape) if mask is None else mask.astype(float) for mask in masks])

    def _measured_inside(self, place: Place) -> bool:
        """Return whether a proper subset of three or more attributes was measured."""
        return any(
            self.evidence.noisy(some) is not None
            for order in range(3, len(place))
            for some in combinations(place, order)
        )
