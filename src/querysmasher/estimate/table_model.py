"""The estimate of any table, top down: the total, single attributes, pairs, then larger sets.

1. The total is public, the noisy one or, if that is rough, a better one. Each table on one attribute
   (`shrinkage`) is non-negative with this sum.
2. Pairs are shrunk towards independence or the best chain, and projected onto the non-negative tables with
   these margins.
3. Larger tables start as those of maximum entropy given their pairs or, if a set of three or more of their
   attributes was measured, given their largest proper subsets. If the set itself was measured, its deviation
   is shrunk likewise. Three attributes are ordered by size first, so that more tables have the same shape.

If i and j depend on each other through k alone, their table is the *chain* P_ik diag(1/m_k) P_kj. Among
independence and all chains, the target is the one that makes the noisy residual of (i, j) most likely: the
noise of that residual is independent of those the chains are made of, so the choice is honest. A pair that
was not measured takes the strongest chain there is, through one attribute or along the tree of the strongest
links. If its distance from independence was measured, and is smaller than that of the chain, it takes the
mixture of both that is as far from independence.

Everything is computed when it is asked for, in batches of tables of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.estimate.evidence import AttributeSet, Evidence, Noisy, Zeros
from querysmasher.estimate.fitting import (
    STEPS,
    Axes,
    arranged,
    batches,
    centred,
    filled,
    fitted,
    lower_part,
    quotient,
    start,
    triples,
    with_margins,
)
from querysmasher.estimate.shrinkage import fit, is_rough, posterior_total, single, towards

WINDOW = 4_000_000
"""Number of cells of tables that are prepared together."""

KEPT = 2**24
"""Maximum number of cells of tables on three and more attributes that are kept for when they are asked for
again, 8 bytes each."""

LARGEST = 50_000_000
"""Maximum number of cells of a table."""

FEWER_STEPS, FEWEST_STEPS = 12, 10
"""Number of steps of Dykstra's algorithm for pairs that only chains are made of, and for larger tables."""

LINKS = 8
"""Maximum number of chains tried for a pair: those with the strongest weakest link."""

FAINT, SWEEPS = 1e-6, 100
"""Where cells are impossible: a share of independence that keeps others possible, and rounds of fitting."""

LARGEST_CHAIN = 1_000_000
"""Maximum number of cells of a pair for which chains are tried."""


class Model:
    """Computes the estimate of any table from noisy residuals."""

    def __init__(
        self,
        evidence: Evidence,
        least: float = 0.0,
        known: Mapping[AttributeSet, Array] | None = None,
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
            singles = (self.evidence.noisy((a,)) for a in range(len(self.schema)))
            return posterior_total(noisy, (residual for residual in singles if residual is not None))
        return max(0.0, self.least if noisy is None else float(noisy.values))

    def single(self, attribute: int) -> Array:
        """Return the table on one attribute."""
        if (attribute,) not in self._known:
            size = self.schema.sizes[attribute]
            noisy = self.evidence.noisy((attribute,))
            possible = self.zeros.mask((attribute,)) > 0
            values = np.where(possible, self.total / max(int(possible.sum()), 1), 0.0)
            if noisy is not None and possible.any():
                unbiased = noisy.values + self.total / size
                values[possible] = single(unbiased[possible], noisy.variance, self.total)
            self._known[attribute,] = values
        return self._known[attribute,]

    @cached_property
    def pairs(self) -> Pairs:
        """The tables on two attributes."""
        return Pairs(self, self._known)

    def table(self, subset: AttributeSet) -> Array:
        """Return the table on increasing attributes."""
        (table,) = self.tables([subset])
        return table

    def tables(self, sets: Sequence[AttributeSet]) -> Iterator[Array]:
        """Iterate over the tables on several sets of increasing attributes, in the order given."""
        waiting: list[AttributeSet] = []
        cells = 0
        for subset in sets:
            size = math.prod(self.schema.sizes[a] for a in subset)
            if size > LARGEST:
                names = ", ".join(self.schema.names[a] for a in subset)
                msg = (
                    f"attributes: the table on ({names}) has {size:,} cells; at most {LARGEST:,} are allowed"
                )
                raise TooLargeError(msg)
            if waiting and cells + size > WINDOW:
                yield from self._prepared(waiting)
                waiting, cells = [], 0
            waiting.append(subset)
            cells += size
        yield from self._prepared(waiting)

    def _prepared(self, sets: Sequence[AttributeSet]) -> Iterator[Array]:
        """Iterate over tables that fit in memory together."""
        missing = [subset for subset in dict.fromkeys(sets) if subset not in self._known]
        self.pairs.prepare({pair for subset in missing for pair in combinations(subset, 2)})
        larger = dict(self._larger([subset for subset in missing if len(subset) > 2]))
        for subset, table in larger.items():
            if self._room >= table.size:
                table.flags.writeable = False
                self._known[subset] = table
                self._room -= table.size
        for subset in sets:
            if len(subset) < 2:
                yield self.single(subset[0]) if subset else np.array(self.total)
            else:
                yield larger[subset] if subset in larger else self._known[subset]

    def target(self, subset: AttributeSet) -> Array:
        """Return what other sets say about the table on increasing attributes, without its own residual."""
        if len(subset) > 2:
            ordered = self._by_size(subset)
            return _increasing(self._targets([ordered])[0], ordered)
        if len(subset) == 2:
            return self.pairs.target(subset)
        size = self.schema.sizes[subset[0]]
        return np.full(size, self.total / size)

    def _larger(self, sets: Sequence[AttributeSet]) -> Iterator[tuple[AttributeSet, Array]]:
        """Iterate over sets of three and more attributes with their tables, in no particular order."""
        for batch in self._batches(sets):
            tables = self._targets(batch)
            noisy = [self.evidence.noisy(tuple(sorted(subset))) for subset in batch]
            measured = [i for i, residual in enumerate(noisy) if residual is not None]
            if measured:
                residuals = [residual for residual in noisy if residual is not None]
                tables[measured] = self._around([batch[i] for i in measured], tables[measured], residuals)
            tables = filled(tables, self._singles(batch), self._masks(batch))
            for subset, table in zip(batch, tables, strict=True):
                yield tuple(sorted(subset)), _increasing(table, subset)

    def _batches(self, sets: Sequence[AttributeSet]) -> Iterator[list[AttributeSet]]:
        """Iterate over sets of one shape that are computed alike, so that none depends on the others."""
        alike: dict[tuple[bool, bool], list[AttributeSet]] = {}
        for subset in sets:
            kind = self.zeros.possible(subset) is not None, self._measured_inside(subset)
            alike.setdefault(kind, []).append(self._by_size(subset))
        for similar in alike.values():
            yield from batches(similar, self.schema.sizes)

    def _by_size(self, subset: AttributeSet) -> AttributeSet:
        """Return three attributes ordered by size; more as they are."""
        return tuple(sorted(subset, key=lambda a: (self.schema.sizes[a], a))) if len(subset) == 3 else subset

    def _targets(self, sets: Sequence[AttributeSet]) -> Array:
        """Return the tables of maximum entropy on sets of one shape that are computed alike."""
        order = len(sets[0])
        pairs = self._margins(sets, 2)
        masks = self._masks(sets)
        if order == 3 and not masks.ndim:
            return triples(pairs)
        singles = self._singles(sets)
        if order == 3:
            return fitted(start(singles, pairs) * masks, pairs)
        inside = self._measured_inside(sets[0])
        return fitted(start(singles, {}) * masks, self._margins(sets, order - 1) if inside else pairs)

    def _around(self, sets: Sequence[AttributeSet], targets: Array, noisy: Sequence[Noisy]) -> Array:
        """Return tables shrunk towards targets, non-negative, with nearly the same pairs."""
        singles, pairs = self._singles(sets), self._margins(sets, 2)
        # three attributes exactly, where fitting is still on its way
        lower = lower_part(singles, pairs) if len(singles) == 3 else targets - centred(targets)
        values = np.stack([arranged(n.values, s) for n, s in zip(noisy, sets, strict=True)])
        variances = np.array([n.variance for n in noisy])
        nearest = towards(targets, values, variances, singles, lower, FEWEST_STEPS)
        return fitted(nearest * self._masks(sets), pairs, 2)

    def _singles(self, sets: Sequence[AttributeSet]) -> list[Array]:
        """Return the tables on each axis, stacked over the sets."""
        return [np.stack([self.single(a) for a in attributes]) for attributes in zip(*sets, strict=True)]

    def _margins(self, sets: Sequence[AttributeSet], order: int) -> dict[Axes, Array]:
        """Return the tables on every choice of so many axes, stacked over the sets."""
        margins: dict[Axes, Array] = {}
        for axes in combinations(range(len(sets[0])), order):
            parts = [tuple(subset[a] for a in axes) for subset in sets]
            tables = self.tables([tuple(sorted(part)) for part in parts])
            margins[axes] = np.stack(list(map(arranged, tables, parts)))
        return margins

    def _masks(self, sets: Sequence[AttributeSet]) -> Array:
        """Return ones in possible cells and zeros in others, of sets that are computed alike; or just one."""
        if self.zeros.possible(tuple(sorted(sets[0]))) is None:
            return np.ones(())
        return np.stack([arranged(self.zeros.mask(tuple(sorted(subset))), subset) for subset in sets])

    def _measured_inside(self, subset: AttributeSet) -> bool:
        """Return whether a proper subset of three or more attributes was measured."""
        return any(
            self.evidence.noisy(part) is not None
            for order in range(3, len(subset))
            for part in combinations(subset, order)
        )


def _increasing(table: Array, order: AttributeSet) -> Array:
    """Return a table over attributes in some order with its axes in increasing order."""
    return table.transpose(sorted(range(len(order)), key=order.__getitem__))


class Pairs:
    """Estimates of all pairs of attributes, each computed when it is asked for."""

    def __init__(self, model: Model, known: dict[AttributeSet, Array]) -> None:
        """Take what computes single attributes, and where tables are kept."""
        self._model = model
        self._evidence = model.evidence
        self._sizes = model.schema.sizes
        self._known = known

    def prepare(self, pairs: Iterable[AttributeSet]) -> None:
        """Compute several pairs at once, which is faster than one by one."""
        missing = sorted({pair for pair in pairs if pair not in self._known})
        for batch in batches(missing, self._sizes):
            noisy = [self._evidence.noisy(pair) for pair in batch]
            targets = np.stack([self.target(pair) for pair in batch])
            tables = self._around(batch, targets, noisy, STEPS)
            tables.flags.writeable = False
            self._known.update(zip(batch, tables, strict=True))

    def independent(self, pair: AttributeSet) -> Array:
        """Return the table of two independent attributes."""
        return self._possible(pair, self._product(pair))

    def _product(self, pair: AttributeSet) -> Array:
        first, second = map(self._model.single, pair)
        return np.multiply.outer(first, second) / max(self._model.total, 1e-300)

    def _possible(self, pair: AttributeSet, table: Array) -> Array:
        """Return a table without impossible cells, which has the margins of the singles if any such has."""
        mask = self._model.zeros.possible(pair)
        if mask is None:
            return table
        margins: dict[Axes, Array] = {(i,): self._model.single(a)[None] for i, a in enumerate(pair)}
        return fitted(((table + FAINT * self._product(pair)) * mask)[None], margins, SWEEPS)[0]

    @cached_property
    def _links(self) -> dict[AttributeSet, Array]:
        """The measured pairs, shrunk towards independence."""
        pairs: Iterable[AttributeSet] = combinations(range(len(self._sizes)), 2)
        small = [pair for pair in pairs if math.prod(self._sizes[a] for a in pair) <= LARGEST_CHAIN]
        noisy = {pair: self._evidence.noisy(pair) for pair in small}
        links: dict[AttributeSet, Array] = {}
        for batch in batches([pair for pair in small if noisy[pair] is not None], self._sizes):
            targets = np.stack([self.independent(pair) for pair in batch])
            tables = self._around(batch, targets, [noisy[pair] for pair in batch], FEWER_STEPS)
            links.update(zip(batch, tables, strict=True))
        return links

    @cached_property
    def strengths(self) -> Array:
        """Distance of each measured pair from independence, as a share of the records; of others, zero."""
        result = np.zeros((len(self._sizes),) * 2)
        for pair, table in self._links.items():
            distance = float(np.abs(table - self.independent(pair)).sum())
            result[pair] = result[pair[::-1]] = distance / max(self._model.total, 1e-300)
        return result

    def target(self, pair: AttributeSet) -> Array:
        """Return the best target of a pair: independence or a chain."""
        noisy = self._evidence.noisy(pair)
        targets = np.stack([self.independent(pair), *self._chains(pair, tree=noisy is None)])
        if len(targets) == 1:
            return targets[0]
        if noisy is None:
            return self._strongest(pair, targets)
        deviations = noisy.values - centred(targets)
        return targets[fit(deviations, targets, np.full(len(targets), noisy.variance)).evidence.argmax()]

    def _strongest(self, pair: AttributeSet, targets: Array) -> Array:
        """Return the target farthest from the first, independence, but no farther than was measured."""
        distances = np.abs(targets - targets[0]).sum(axis=(1, 2))
        best = int(distances.argmax())
        known = self._evidence.distances.get(pair)
        if known is None or distances[best] <= known:
            return targets[best]
        return targets[0] + max(known, 0.0) / distances[best] * (targets[best] - targets[0])

    def _chains(self, pair: AttributeSet, *, tree: bool) -> list[Array]:
        """Return the tables that follow from the strongest chains."""
        i, j = pair
        if self._sizes[i] * self._sizes[j] > LARGEST_CHAIN:
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
        for k, after in pairwise(path[1:]):  # times the distribution of the next for every value of k
            result = result @ quotient(self._link(k, after), self._model.single(k)[:, None])
        return self._possible((path[0], path[-1]), result)

    def _link(self, i: int, j: int) -> Array:
        return self._links[i, j] if i < j else self._links[j, i].T

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        """The tree of the strongest links."""
        count = len(self._sizes)
        neighbours: list[list[int]] = [[] for _ in range(count)]
        part = list(range(count))
        strengths = self.strengths
        for i, j in sorted(self._links, key=lambda pair: -strengths[pair]):
            if part[i] != part[j] and strengths[i, j] > 0:
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
        self, pairs: Sequence[AttributeSet], targets: Array, noisy: Sequence[Noisy | None], steps: int
    ) -> Array:
        """Return pairs of one shape: shrunk towards targets, non-negative, with the singles as margins."""
        measured = [(i, residual) for i, residual in enumerate(noisy) if residual is not None]
        result = targets.copy()
        if not measured:
            return result
        numbers = [i for i, _ in measured]
        values = np.stack([residual.values for _, residual in measured])
        variances = np.array([residual.variance for _, residual in measured])
        singles = [np.stack([self._model.single(pairs[i][axis]) for i in numbers]) for axis in range(2)]
        lower = targets[numbers] - centred(targets[numbers])
        nearest = towards(targets[numbers], values, variances, singles, lower, steps)
        exact = with_margins(nearest, *singles)
        result[numbers] = [self._possible(pairs[i], table) for i, table in zip(numbers, exact, strict=True)]
        return result
