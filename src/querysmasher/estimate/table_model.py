"""The estimate of any table, top down: the total, single attributes, pairs, then larger sets.

1. The total is public, or noisy; if it is rough, single attributes improve it. Each table on one attribute
   (`shrinkage`) is non-negative with this sum.
2. Pairs are shrunk towards independence or the best chain, and projected onto the non-negative tables with
   these margins.
3. Larger tables start as those of maximum entropy given their pairs or, if a set of three or more of their
   attributes was measured, given their largest proper subsets. If the set itself was measured, its deviation
   is shrunk likewise.

If i and j depend on each other through k alone, their table is the *chain* P_ik diag(1/m_k) P_kj. Among
independence and all chains, the target is the one that makes the noisy residual of (i, j) most likely: the
noise of that residual is independent of those the chains are made of, so the choice adds no bias. A pair that
was not measured takes the strongest chain there is, through one attribute or along the tree of the strongest
links. If its distance from independence was measured, and is smaller than that of the chain, it takes the
mixture of both that is as far from independence.

Tables are computed on demand, in batches of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.estimate.evidence import AttributeSet, Evidence, Zeros
from querysmasher.estimate.fitting import (
    Axes,
    batches,
    centred,
    filled,
    fitted,
    quotient,
    start,
    with_margins,
)
from querysmasher.estimate.shrinkage import fit, is_rough, posterior_total, single, towards

WINDOW = 4_000_000
"""Number of cells of tables that are prepared together."""

KEPT = 2**24
"""Maximum number of cells of tables on three and more attributes that are kept once they are computed,
8 bytes each."""

LARGEST = 50_000_000
"""Maximum number of cells of a table."""

LINKS = 8
"""Maximum number of chains tried for a pair: those with the strongest weakest link."""

FAINT, SWEEPS = 1e-6, 100
"""If cells are impossible: the fraction of independence added to all others, and the rounds of fitting."""

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

        `known` are tables that stay unchanged, with all their margins: consistent and non-negative.
        `weights` say how far tables were moved from the unbiased ones to those of a model (`risk`).
        """
        self.evidence = evidence
        self.least = least
        self.weights = weights or {}
        self.schema = evidence.schema
        self._sizes = evidence.schema.sizes
        self.zeros = Zeros(evidence.schema)
        self._given = known or {}
        self._known = {**self._given, **evidence.public}
        self._room = KEPT
        self.rehearsed: dict[tuple[tuple[AttributeSet, ...], ...], list[float]] = {}
        """Errors that were rehearsed with this model (`estimate_errors`), by the sets they are about."""

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
            noisy = self.evidence.noisy((attribute,))
            possible = self.zeros.mask((attribute,)) > 0
            values = np.where(possible, self.total / max(int(possible.sum()), 1), 0.0)
            if noisy is not None and possible.any():
                unbiased = noisy.values + self.total / len(values)
                values[possible] = single(unbiased[possible], noisy.variance, self.total)
            self._known[attribute,] = values
        return self._known[attribute,]

    def table(self, subset: AttributeSet) -> Array:
        """Return the table on increasing attributes."""
        (table,) = self.tables([subset])
        return table

    def tables(self, sets: Sequence[AttributeSet]) -> Iterator[Array]:
        """Iterate over the tables on several sets of increasing attributes, in the order given."""
        waiting: list[AttributeSet] = []
        cells = 0
        for subset in sets:
            size = math.prod(self._sizes[a] for a in subset)
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
        pairs = {pair for subset in missing for pair in combinations(subset, 2)} - self._known.keys()
        self._known.update(self._computed(sorted(pairs)))
        larger = dict(self._computed([subset for subset in missing if len(subset) > 2]))
        for subset, table in larger.items():
            if self._room >= table.size:
                self._known[subset] = table
                self._room -= table.size
        for subset in sets:
            if len(subset) < 2:
                yield self.single(subset[0]) if subset else np.array(self.total)
            else:
                yield larger[subset] if subset in larger else self._known[subset]

    def _computed(self, sets: Sequence[AttributeSet]) -> Iterator[tuple[AttributeSet, Array]]:
        """Iterate over sets of two and more attributes with their tables, in no particular order.

        Sets of one shape that are computed alike form a batch; no table depends on the others of its batch.
        """
        alike: dict[tuple[bool, bool], list[AttributeSet]] = {}
        for subset in sets:
            kind = self.zeros.possible(subset) is not None, self._measured_inside(subset)
            alike.setdefault(kind, []).append(subset)
        for batch in (batch for similar in alike.values() for batch in batches(similar, self._sizes)):
            tables = self._around(batch, self._targets(batch))
            if len(batch[0]) > 2:
                tables = filled(tables, self._singles(batch), self._masks(batch))
            tables.flags.writeable = False
            yield from zip(batch, tables, strict=True)

    def near(self, tables: Mapping[AttributeSet, Array]) -> Model:
        """Return a model with tables near the given ones: non-negative, with the margins of smaller ones."""
        if not tables:
            return self
        made = Model(self.evidence, self.least, {(): np.array(self.total)}, self.weights)
        known = {**self._given, **tables}
        for subset in sorted(known, key=len):
            if not subset or subset in self.evidence.public:
                continue
            table = (np.maximum(known[subset], 0.0) * self.zeros.mask(subset))[None]
            margins = made._margins([subset], len(subset) - 1)
            singles = made._singles([subset])
            table = filled(fitted(table, margins, SWEEPS), singles, made._masks([subset]))
            exact = made._possible(subset, with_margins(table, *singles)[0]) if len(subset) == 2 else table[0]
            made._known[subset] = exact
        return made

    def target(self, subset: AttributeSet) -> Array:
        """Return the table on increasing attributes as other sets predict it, without its own residual."""
        if len(subset) == 1:
            size = self._sizes[subset[0]]
            return np.full(size, self.total / size)
        return self._targets([subset])[0]

    def _targets(self, sets: Sequence[AttributeSet]) -> Array:
        """Return what sets of one shape that are computed alike are shrunk towards.

        These are the best chains of pairs, and larger tables of maximum entropy.
        """
        order = len(sets[0])
        if order == 2:
            return np.stack(list(map(self._pair_target, sets)))
        pairs, masks, singles = self._margins(sets, 2), self._masks(sets), self._singles(sets)
        if order == 3:
            return fitted(start(singles, pairs) * masks, pairs)
        inside = self._measured_inside(sets[0])
        return fitted(start(singles, {}) * masks, self._margins(sets, order - 1) if inside else pairs)

    def _around(self, sets: Sequence[AttributeSet], tables: Array) -> Array:
        """Shrink tables of one shape towards their targets, `tables`, in place, if they were measured.

        They are non-negative. Pairs have the singles as margins, larger tables nearly the same pairs.
        """
        noisy = {i: self.evidence.noisy(subset) for i, subset in enumerate(sets)}
        known = {i: residual for i, residual in noisy.items() if residual is not None}
        if not known:
            return tables
        chosen = list(known)
        measured, targets = [sets[i] for i in chosen], tables[chosen]
        singles = self._singles(measured)
        pairs = self._margins(measured, 2) if len(singles) > 2 else {}
        values = np.stack([known[i].values for i in chosen])
        variances = np.array([known[i].variance for i in chosen])
        nearest = towards(targets, values, variances, singles)
        if len(singles) > 2:
            tables[chosen] = fitted(nearest * self._masks(measured), pairs, 2)
        else:
            exact = with_margins(nearest, *singles)
            tables[chosen] = list(map(self._possible, measured, exact))
        return tables

    def _singles(self, sets: Sequence[AttributeSet]) -> list[Array]:
        """Return the tables on each axis, stacked over the sets."""
        return [np.stack([self.single(a) for a in attributes]) for attributes in zip(*sets, strict=True)]

    def _margins(self, sets: Sequence[AttributeSet], order: int) -> dict[Axes, Array]:
        """Return the tables on every choice of so many axes, stacked over the sets."""
        margins: dict[Axes, Array] = {}
        for axes in combinations(range(len(sets[0])), order):
            tables = self.tables([tuple(subset[a] for a in axes) for subset in sets])
            margins[axes] = np.stack(list(tables))
        return margins

    def _masks(self, sets: Sequence[AttributeSet]) -> Array:
        """Return ones in possible cells and zeros in others, for sets computed alike, or a single 1."""
        if self.zeros.possible(sets[0]) is None:
            return np.ones(())
        return np.stack(list(map(self.zeros.mask, sets)))

    def _measured_inside(self, subset: AttributeSet) -> bool:
        """Return whether a proper subset of three or more attributes was measured."""
        return any(
            self.evidence.noisy(part) is not None
            for order in range(3, len(subset))
            for part in combinations(subset, order)
        )

    def independent(self, pair: AttributeSet) -> Array:
        """Return the table of two independent attributes."""
        return self._possible(pair, self._product(pair))

    def _product(self, pair: AttributeSet) -> Array:
        first, second = map(self.single, pair)
        return np.multiply.outer(first, second) / max(self.total, 1e-300)

    def _possible(self, pair: AttributeSet, table: Array) -> Array:
        """Return a table without impossible cells, with the margins of the singles if that is possible."""
        mask = self.zeros.possible(pair)
        if mask is None:
            return table
        margins: dict[Axes, Array] = {(i,): self.single(a)[None] for i, a in enumerate(pair)}
        return fitted(((table + FAINT * self._product(pair)) * mask)[None], margins, SWEEPS)[0]

    @cached_property
    def _links(self) -> dict[AttributeSet, Array]:
        """The measured pairs, shrunk towards independence."""
        pairs = [
            pair
            for pair in combinations(range(len(self._sizes)), 2)
            if math.prod(self._sizes[a] for a in pair) <= LARGEST_CHAIN
            and pair not in self.evidence.public
            and self.evidence.noisy(pair) is not None
        ]
        links: dict[AttributeSet, Array] = {}
        links.update((pair, table) for pair, table in self.evidence.public.items() if len(pair) == 2)
        for batch in batches(pairs, self._sizes):
            targets = np.stack(list(map(self.independent, batch)))
            links.update(zip(batch, self._around(batch, targets), strict=True))
        return links

    def strengths(self, pairs: Iterable[tuple[AttributeSet, Array]]) -> Array:
        """Return how far pairs are from independence, as fractions of the records; zero for others."""
        result = np.zeros((len(self._sizes),) * 2)
        for pair, table in pairs:
            distance = float(np.abs(table - self.independent(pair)).sum())
            result[pair] = result[pair[::-1]] = distance / max(self.total, 1e-300)
        return result

    @cached_property
    def _strengths(self) -> Array:
        """The strengths of the measured pairs."""
        return self.strengths(self._links.items())

    def _pair_target(self, pair: AttributeSet) -> Array:
        """Return the best target of a pair: independence or a chain.

        A pair that was not measured takes the target farthest from independence, but no farther than its
        distance was measured to be.
        """
        noisy = self.evidence.noisy(pair)
        targets = np.stack([self.independent(pair), *self._chains(pair, tree=noisy is None)])
        if len(targets) == 1:
            return targets[0]
        if noisy is not None:
            deviations = noisy.values - centred(targets)
            *_, likelihood = fit(deviations, targets, np.full(len(targets), noisy.variance))
            return targets[likelihood.argmax()]
        distances = np.abs(targets - targets[0]).sum(axis=(1, 2))
        best = int(distances.argmax())
        known = self.evidence.distances.get(pair)
        if known is None or distances[best] <= known:
            return targets[best]
        return targets[0] + max(known, 0.0) / distances[best] * (targets[best] - targets[0])

    def _chains(self, pair: AttributeSet, *, tree: bool) -> list[Array]:
        """Return the tables that follow from the strongest chains."""
        i, j = pair
        if self._sizes[i] * self._sizes[j] > LARGEST_CHAIN:
            return []
        weakest = np.minimum(self._strengths[i], self._strengths[j])
        weakest[[i, j]] = 0.0
        best = np.argsort(-weakest, kind="stable")[:LINKS]
        paths = [[i, int(k), j] for k in best if weakest[k] > 0]
        path = self._path(i, j) if tree else []
        return [self._along(path) for path in (*paths, *([path] if len(path) > 3 else []))]

    def _along(self, path: Sequence[int]) -> Array:
        """Return the table of the ends of a path if each depends on the others through its neighbours."""
        links = (self._links[i, j] if i < j else self._links[j, i].T for i, j in pairwise(path))
        result = next(links)
        for k, link in zip(path[1:], links, strict=False):  # times the next one's distribution given k
            result = result @ quotient(link, self.single(k)[:, None])
        return self._possible((path[0], path[-1]), result)

    @cached_property
    def _tree(self) -> Any:
        """The tree of the strongest links, as a sparse matrix; strengths are at most 2."""
        from scipy.sparse.csgraph import minimum_spanning_tree  # noqa: PLC0415 - loads slowly

        return minimum_spanning_tree(np.where(self._strengths > 0, 3 - self._strengths, 0))

    def _path(self, i: int, j: int) -> list[int]:
        """Return the path from i to j in the tree, or only j."""
        from scipy.sparse.csgraph import breadth_first_order  # noqa: PLC0415 - loads slowly

        path, before = [j], breadth_first_order(self._tree, i, directed=False)[1].tolist()
        while before[path[0]] >= 0:
            path.insert(0, before[path[0]])
        return path
