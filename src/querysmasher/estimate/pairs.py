"""Tables on two attributes: shrunk towards independence, then towards the best chain through a third.

If i and j depend on each other through k alone, their table is the *chain* P_ik diag(1/m_k) P_kj. Among
independence and all chains, the target is the one that makes the noisy residual of (i, j) most likely: the
noise of that residual is independent of those the chains are made of, so the choice is honest. A pair that
was not measured takes the strongest chain there is, through one attribute or along the tree of the strongest
links. If its distance from independence was measured, and is smaller than that of the chain, it takes the
mixture of both that is as far from independence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import Evidence, Noisy, Place, Zeros
from querysmasher.estimate.fitting import (
    STEPS,
    Axes,
    batches,
    centred,
    fitted,
    quotient,
    with_margins,
)
from querysmasher.estimate.shrinkage import fit, towards

LINKS = 8
"""Maximum number of chains tried for a pair: those with the strongest weakest link."""

FAINT, SWEEPS = 1e-6, 100
"""Where cells are impossible: a share of independence that keeps others possible, and rounds of fitting."""

ROUGHLY = 12
"""Number of steps of Dykstra's algorithm for pairs that only chains are made of."""

LARGEST = 1_000_000
"""Maximum number of cells of a pair for which chains are tried."""


class Pairs:
    """Estimates of all pairs, each computed when it is asked for."""

    def __init__(
        self,
        evidence: Evidence,
        total: float,
        single: Callable[[int], Array],
        zeros: Zeros,
        known: dict[Place, Array],
    ) -> None:
        """Take what was measured, the tables on one attribute, and where known pairs are kept."""
        self._evidence = evidence
        self._total = total
        self._single = single
        self._zeros = zeros
        self._sizes = evidence.schema.sizes
        self._known = known
        self._shares: dict[Place, Array] = {}

    def __getitem__(self, place: Place) -> Array:
        """Return the table on two attributes, given as increasing indexes."""
        if place not in self._known:
            self.prepare([place])
        return self._known[place]

    def prepare(self, places: Iterable[Place]) -> None:
        """Compute several pairs at once, which is faster than one by one."""
        missing = sorted({place for place in places if place not in self._known})
        for some in batches(missing, self._sizes):
            noisy = [self._evidence.noisy(place) for place in some]
            targets = np.stack([self.target(place) for place in some])
            tables = self._around(some, targets, noisy)
            tables.flags.writeable = False
            self._known.update(zip(some, tables, strict=True))

    def independent(self, place: Place) -> Array:
        """Return the table of two independent attributes."""
        first, second = map(self._single, place)
        return self._possible(place, np.multiply.outer(first, second) / max(self._total, 1e-300))

    def _possible(self, place: Place, table: Array) -> Array:
        """Return a table without impossible cells, which has the margins of the singles if any such has."""
        mask = self._zeros.possible(place)
        if mask is None:
            return table
        first, second = map(self._single, place)
        faint = np.multiply.outer(first, second) * (FAINT / max(self._total, 1e-300))
        margins: dict[Axes, Array] = {(0,): first[None], (1,): second[None]}
        return fitted(((table + faint) * mask)[None], margins, SWEEPS)[0]

    @cached_property
    def _links(self) -> dict[Place, Array]:
        """The measured pairs, shrunk towards independence."""
        everyone = range(len(self._sizes))
        measured: dict[Place, Noisy] = {}
        for i, j in combinations(everyone, 2):
            one = self._evidence.noisy((i, j)) if self._sizes[i] * self._sizes[j] <= LARGEST else None
            if one is not None:
                measured[i, j] = one
        found: dict[Place, Array] = {}
        for some in batches(list(measured), self._sizes):
            targets = np.stack([self.independent(place) for place in some])
            known = [measured[place] for place in some]
            found.update(zip(some, self._around(some, targets, known, ROUGHLY), strict=True))
        return found

    @cached_property
    def strengths(self) -> Array:
        """Distance of each measured pair from independence, as a share of the records; of others, zero."""
        result = np.zeros((len(self._sizes),) * 2)
        for place, table in self._links.items():
            distance = float(np.abs(table - self.independent(place)).sum())
            result[place] = result[place[::-1]] = distance / max(self._total, 1e-300)
        return result

    def target(self, place: Place) -> Array:
        """Return the best target of a pair: independence or a chain."""
        noisy = self._evidence.noisy(place)
        targets = [self.independent(place), *self._chains(place, tree=noisy is None)]
        if len(targets) == 1:
            return targets[0]
        stacked = np.stack(targets)
        if noisy is None:
            return self._strongest(place, stacked)
        deviations = noisy.values - centred(stacked)
        return stacked[fit(deviations, stacked, np.full(len(stacked), noisy.variance)).evidence.argmax()]

    def _strongest(self, place: Place, targets: Array) -> Array:
        """Return the target farthest from the first, independence, but no farther than the pair was found."""
        distances = np.abs(targets - targets[0]).sum(axis=(1, 2))
        best = int(distances.argmax())
        known = self._evidence.distances.get(place)
        if known is None or distances[best] <= known:
            return targets[best]
        return targets[0] + max(known, 0.0) / distances[best] * (targets[best] - targets[0])

    def _chains(self, place: Place, *, tree: bool) -> list[Array]:
        """Return the tables that follow from the strongest chains."""
        i, j = place
        if self._sizes[i] * self._sizes[j] > LARGEST:
            return []
        weakest = np.minimum(self.strengths[i], self.strengths[j])
        weakest[[i, j]] = 0.0
        best = np.argsort(-weakest, kind="stable")[:LINKS]
        paths = [[i, int(k), j] for k in best if weakest[k] > 0]
        path = self._path(i, j) if tree else []
        return [self._along(path) for path in (*paths, *([path] if len(path) > 3 else []))]

    def _along(self, path: Sequence[int]) -> Array:
        """Return the table of the ends of a path if each depends on the others through its neighbours."""
        result = self._link(path[0], path[1])
        for k, after in pairwise(path[1:]):
            result = result @ self._share(k, after)
        place = (path[0], path[-1])
        return self._possible(place, result)

    def _link(self, i: int, j: int) -> Array:
        return self._links[i, j] if i < j else self._links[j, i].T

    def _share(self, i: int, j: int) -> Array:
        """Return the distribution of j for every value of i."""
        if (i, j) not in self._shares:
            self._shares[i, j] = quotient(self._link(i, j), self._single(i)[:, None])
        return self._shares[i, j]

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        """The tree of the strongest links."""
        count = len(self._sizes)
        neighbours: list[list[int]] = [[] for _ in range(count)]
        part = list(range(count))
        strengths = self.strengths
        for place in sorted(self._links, key=lambda p: -strengths[p]):
            i, j = place
            if part[i] != part[j] and strengths[place] > 0:
                part = [part[i] if p == part[j] else p for p in part]
                neighbours[i].append(j)
                neighbours[j].append(i)
        return neighbours

    def _path(self, i: int, j: int) -> list[int]:
        """Return the path from i to j in the tree, or nothing."""
        open_paths = [[i]]
        for path in open_paths:
            if path[-1] == j:
                return path
            open_paths += [[*path, k] for k in self._neighbours[path[-1]] if k not in path]
        return []

    def _around(
        self, places: Sequence[Place], targets: Array, noisy: Sequence[Noisy | None], steps: int = STEPS
    ) -> Array:
        """Return pairs of one shape: shrunk towards targets, non-negative, with the singles as margins."""
        measured = [i for i, one in enumerate(noisy) if one is not None]
        result = targets.copy()
        if not measured:
            return result
        own = targets[measured]
        known = [one for one in noisy if one is not None]
        values, variances = np.stack([one.values for one in known]), np.array([one.variance for one in known])
        singles = [np.stack([self._single(places[i][axis]) for i in measured]) for axis in range(2)]
        nearest = with_margins(towards(own, values, variances, singles, own - centred(own), steps), *singles)
        result[measured] = [self._possible(places[i], one) for i, one in zip(measured, nearest, strict=True)]
        return result
