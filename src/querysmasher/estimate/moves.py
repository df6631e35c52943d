"""Moves of records, between values and onto others, so that all tables come closer to wanted ones.

With n_c the number of records in a cell and t_c the number wanted, the distance is Σ_c w_c(n_c − t_c)²/2 over
the cells of all tables that are followed. A record that leaves a value of an attribute for another changes
two cells of every table with this attribute, and the distance by

    Σ (w_d(n_d − t_d) + w_d/2) − Σ (w_s(n_s − t_s) − w_s/2)

over the cells d that it enters and s that it leaves. The cells of a batch of records are one product: how far
cells lie apart along each attribute, times the values. Terms are added up table by table, since most tables
fit in the cache. For all values of the records, the sums are one product of a sparse matrix, with a one for
every record and table, and the terms of all cells.

Where attributes determine each other, a record that changes one of them alone enters a cell that is all but
empty, and stays. So the records of a batch that fit worst also become copies of others that fit best.

Records that move at the same time get in each other's way. A record with a gain of g, in whose cells others
of weight c want to move too, moves with probability g/(g + c). The expected distance then falls: with θ these
probabilities and c_rs the weights that two records share, the moves gain Σ θ_r g_r − ΣΣ θ_r θ_s c_rs/2 on
average or more, and θ_r θ_s ≤ (θ_r² + θ_s²)/2 and θ_r c_r ≤ g_r, so that this is at least half of Σ θ_r g_r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import AttributeSet, Zeros

Codes = NDArray[np.int64]
"""Records as rows of indexes of values."""

Single = NDArray[np.float32]
"""Numbers in single precision: counts of a block are far below 2^24."""

Indexes = NDArray[np.int32]
"""Cells of tables one after the other."""

Layout = tuple[Single, Indexes]
"""How far cells of each table (rows) lie apart along each attribute, and the first cell of each table."""

SMALL, EARLY = 2, 3
"""At first, records follow tables of at most so many attributes only, and move so often along every one of
them: this takes little time, and larger tables are closer when it is done."""

FEWEST, MOST, TABLE, WORK = 3, 12, 10, 1.5e10
"""Minimum and maximum number of times that records move along every attribute after that, and what decides:
the product of this number, that of records, and that of the values along which each may move, where looking
up the cells of a table takes as long as `TABLE` values. All records are tried the first time, and from then
on the half of them that had the most to gain when last tried."""

BATCHES, BATCH, VALUES = (10, 80), (250, 1_000), 4_000_000
"""Minimum number of batches of records, and that of batches of usual size; between which limits this size
stays; and maximum number of values of a batch. In small batches, fewer records get in each other's way."""

BOLDEST = 0.2
"""Fraction of a batch that may move at the same time: those that gain most."""

IMPORTANT = 100.0
"""Maximum of what errors of a table count, in those of a table with a record per cell: on one attribute, the
number of records per cell; on several, its root. If records are few, single ones are most of the distance;
otherwise errors of small tables recur in larger ones."""

EXACT = np.float32(1e4)
"""Weight of every cell of a table that is public: no other gain is as large."""

ALMOST = 1e-2
"""Counts that are so close to an integer are this integer: single precision."""

ONE = np.float32(1)

ROUNDS, FIRM, REACH = 10, 4, 2.0
"""How weights are fitted: in how many rounds, between which limits (1/REACH and REACH; scaled to their sum,
their squares), and what is added to both numbers of records of a cell before one is divided by the other:
half of FIRM to the power of the attributes, since most of what larger tables lack is chance."""


class Followed:
    """Tables that records follow, block after block: each makes up for what those before it lack."""

    def __init__(
        self,
        zeros: Zeros,
        sizes: Sequence[int],
        records: int,
        sets: Sequence[AttributeSet],
        tables: Iterable[Array],
        exact: Collection[AttributeSet] = (),
    ) -> None:
        """Take the number of records of a full block, and its tables, on sets of increasing attributes.

        Sets of fewer attributes come first. `exact` are the sets whose tables are public.
        """
        self._exact = exact
        self._records = records
        self._zeros = zeros
        self._sizes = sizes
        self._sets = sets
        shapes = [tuple(sizes[a] for a in subset) for subset in sets]
        self._ends = np.cumsum([0, *map(math.prod, shapes)]).tolist()
        self._flat = np.zeros((3, self._ends[-1]), dtype=np.float32)
        self._wanted, self._excess, self._weights = (
            [
                flat[start:end].reshape(shape)
                for start, end, shape in zip(self._ends, self._ends[1:], shapes, strict=False)
            ]
            for flat in self._flat
        )
        for subset, wanted, weight, table in zip(sets, self._wanted, self._weights, tables, strict=False):
            wanted[...] = table
            often = max(1.0, records / wanted.size)
            importance = np.float32(min(IMPORTANT, often if len(subset) == 1 else math.sqrt(often)))
            weight[...] = EXACT if subset in exact else importance / (wanted + ONE)

    @property
    def rounds(self) -> int:
        """How often records may move along every attribute."""
        values = sum(self._sizes[a] + TABLE for subset in self._sets for a in subset)
        return EARLY + int(np.clip(WORK / max(values * self._records, 1), FEWEST, MOST))

    @property
    def distances(self) -> dict[AttributeSet, float]:
        """The distance of each table of all records so far from what is wanted of it, in records."""
        return {s: float(np.abs(excess).sum()) for s, excess in zip(self._sets, self._excess, strict=True)}

    def moved(
        self, records: Codes, rng: np.random.Generator, advance: Callable[[], None] = lambda: None
    ) -> Codes:
        """Return records moved towards a share of the tables, and of what earlier ones lack."""
        if not len(records):
            return records
        records, share, known = records.copy(), np.float32(len(records) / self._records), 0
        orders = [SMALL] * EARLY + [math.inf] * (self.rounds - EARLY)
        gains = np.empty(records.shape, dtype=np.float32)
        for order in orders:
            new = [k for k in range(known, len(self._sets)) if len(self._sets[k]) <= order]
            self._count(records, new, share, rng)
            known += len(new)
            if new or order == SMALL:
                gains[:] = np.inf
            self._replace(records, known, rng)
            for attribute in rng.permutation(len(self._sizes)).tolist():
                chosen = [k for k, subset in enumerate(self._sets[:known]) if attribute in subset]
                if chosen and self._sizes[attribute] > 1:
                    self._move(records, attribute, chosen, gains[:, attribute], rng)
                advance()
        for subset in self._sets:
            if subset in self._exact:
                self._settle(records, subset)
        return records

    def _count(
        self, records: Codes, chosen: Sequence[int], share: np.float32, rng: np.random.Generator
    ) -> None:
        """Add to the excess of tables, which follow each other, these records less a share of the wanted."""
        if chosen:
            part = slice(self._ends[chosen[0]], self._ends[chosen[-1] + 1])
            wanted, excess, _ = self._flat[:, part]
            excess -= share * wanted
            layout = self._layout(chosen)
            for batch in _batches(len(records), len(chosen), rng):
                np.add.at(excess, _cells(records[batch], layout).ravel(), ONE)

    def _settle(self, records: Codes, subset: AttributeSet) -> None:
        """Move records along all attributes of a public table at once, in place: single ones may be stuck.

        As many leave as enter, and no cell has more records than are wanted of it, rounded up: a later block
        could lack the records that have to leave.
        """
        fractions = self._excess[self._sets.index(subset)]
        excess = np.floor(fractions + ALMOST).astype(np.int64)
        raised = np.argsort((excess - fractions).ravel(), kind="stable")[: max(0, -int(excess.sum()))]
        excess.ravel()[raised] += 1
        cells = np.ravel_multi_index(tuple(records[:, a] for a in subset), excess.shape)
        order = np.argsort(cells, kind="stable")
        ranks = np.arange(len(cells)) - np.searchsorted(cells[order], cells[order])
        leaving = order[ranks < excess.ravel()[cells[order]]]
        entered = np.repeat(np.arange(excess.size), np.maximum(-excess.ravel(), 0))
        leaving, entered = leaving[: len(entered)], entered[: len(leaving)]
        moved = records[leaving]
        moved[:, subset] = np.stack(np.unravel_index(entered, excess.shape), axis=1)
        possible = self._zeros.allowed(moved)
        before, moved, leaving = records[leaving[possible]], moved[possible], leaving[possible]
        records[leaving] = moved
        layout = self._layout(range(len(self._sets)))
        for rows, change in ((moved, ONE), (before, -ONE)):
            np.add.at(self._flat[1], _cells(rows, layout).ravel(), change)

    def weighted(self, records: Codes) -> Array:
        """Return weights of the records that moved last, with a mean of one; they count so from now on.

        They are fitted to all tables in turn, smaller ones last, by the root of what is missing: fully, noisy
        cells would undo each other. Within every combination of values of public tables their mean is one, so
        that these hold. If all tables together are not closer, every weight is one.
        """

        def cells(k: int) -> Codes:
            return np.asarray(np.ravel_multi_index(records[:, self._sets[k]].T, self._excess[k].shape))

        def sums(k: int, weights: Array) -> Array:
            return np.bincount(cells(k), weights, self._excess[k].size).reshape(self._excess[k].shape)

        weights, groups = np.ones(len(records)), np.zeros(len(records), dtype=np.int64)
        for attribute in sorted({a for subset in self._exact for a in subset}):
            codes = groups * self._sizes[attribute] + records[:, attribute]
            groups = np.unique(codes, return_inverse=True)[1]
        free = [k for k, subset in enumerate(self._sets) if subset not in self._exact]
        wanted = {k: np.maximum(sums(k, weights) - self._excess[k], 0).astype(np.float32) for k in free}
        for _ in range(ROUNDS):
            for k in reversed(free):
                firm = FIRM ** len(self._sets[k]) / 2
                weights *= np.sqrt((wanted[k] + firm) / (sums(k, weights) + firm)).ravel()[cells(k)]
            weights = np.clip(weights, 1 / REACH, REACH)
            weights /= (np.bincount(groups, weights) / np.bincount(groups))[groups]
        excess = {k: (self._excess[k] + sums(k, weights - 1)).astype(np.float32) for k in free}
        if sum(np.abs(excess[k]).sum() - np.abs(self._excess[k]).sum() for k in free) >= 0:
            return np.ones(len(records))
        for k in free:
            self._excess[k][...] = excess[k]
        return weights

    def _seen(self, tables: Sequence[Single], k: int, attribute: int) -> Single:
        """Return a view of a table with an attribute on the last axis."""
        return np.moveaxis(tables[k], self._sets[k].index(attribute), -1)

    def _replace(self, records: Codes, known: int, rng: np.random.Generator) -> None:
        """Replace records by copies of others of their batch, in place; the first `known` tables count."""
        layout, end = self._layout(range(known)), self._ends[known]
        _, excess, weights = self._flat[:, :end]
        costs = weights * (excess + ONE / 2)
        marks = np.zeros(end, dtype=np.float32)
        for part in _batches(len(records), known, rng):
            cells = _cells(records[part], layout)
            entering = _summed(costs, cells)
            leaving = entering - _summed(weights, cells)
            most = math.ceil(BOLDEST * len(part))
            worst, best = np.argsort(-leaving)[:most], np.argsort(entering)[:most]
            gains = leaving[worst] - entering[best]
            worst, best, gains = worst[gains > 0], best[gains > 0], gains[gains > 0]
            left, entered = cells[:, worst], cells[:, best]
            gains += (weights.take(left) * (left == entered)).sum(axis=0)
            going = _going(gains, left, entered, weights, marks, rng)
            records[part[worst[going]]] = records[part[best[going]]]
            _change(costs, excess, weights, left[:, going], entered[:, going])

    def _move(
        self,
        records: Codes,
        attribute: int,
        chosen: Sequence[int],
        expected: Single,
        rng: np.random.Generator,
    ) -> None:
        """Move records along an attribute, in place; `chosen` are the tables with this attribute.

        Only records move whose `expected` gains are at least the median; these are updated.
        """
        layout = self._layout(chosen, attribute)
        size, parts = self._sizes[attribute], layout[1][1:, 0] * self._sizes[attribute]
        weights, excess = (
            np.concatenate([self._seen(tables, k, attribute).ravel() for k in chosen])
            for tables in (self._weights, self._excess)
        )
        costs, marks = weights * (excess + ONE / 2), np.zeros(len(weights), dtype=np.float32)
        tried = np.flatnonzero(expected >= np.median(expected))
        for batch in _batches(len(tried), max(size, len(chosen)), rng):
            part = tried[batch]
            values, gains, left = self._best(records[part], attribute, layout, costs, weights)
            expected[part] = gains
            wanting = np.flatnonzero(gains > 0)
            most = math.ceil(BOLDEST * len(part))
            if len(wanting) > most:
                wanting = wanting[np.argpartition(-gains[wanting], most)[:most]]
            moved, left = part[wanting], left[:, wanting]
            entered = left + (values[wanting] - records[moved, attribute]).astype(np.int32)
            going = _going(gains[wanting], left, entered, weights, marks, rng)
            records[moved[going], attribute] = values[wanting[going]]
            _change(costs, excess, weights, left[:, going], entered[:, going])
        for k, made in zip(chosen, np.split(excess, parts), strict=True):
            seen = self._seen(self._excess, k, attribute)
            seen[...] = made.reshape(seen.shape)

    def _layout(self, chosen: Sequence[int], without: int = -1) -> Layout:
        """Return how the cells of tables one after the other follow from records, without an attribute."""
        steps = np.zeros((len(chosen), len(self._sizes)), dtype=np.float32)
        starts = [0]
        for row, k in zip(steps, chosen, strict=True):
            step = 1
            for other in reversed([a for a in self._sets[k] if a != without]):
                row[other] = step
                step *= self._sizes[other]
            starts.append(starts[-1] + step)
        return steps, np.array(starts[:-1], dtype=np.int32)[:, None]

    def _best(
        self, records: Codes, attribute: int, layout: Layout, costs: Single, weights: Single
    ) -> tuple[Codes, Single, Indexes]:
        """Return the best other value of each record, what it gains by it, and the cells that it is in."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - loads slowly

        here, own, size = np.arange(len(records)), records[:, attribute], self._sizes[attribute]
        rows = _cells(records, layout)
        ends = np.arange(len(records) + 1, dtype=np.int32) * np.int32(len(rows))
        matrix = (np.ones(rows.size, dtype=np.float32), np.ascontiguousarray(rows.T).ravel(), ends)
        entering = np.asarray(
            csr_array(matrix, shape=(len(records), len(costs) // size)) @ costs.reshape(-1, size)
        )
        cells = rows * np.int32(size) + own.astype(np.int32)
        entering[here, own] -= _summed(weights, cells)
        possible = self._zeros.values(records, attribute)
        if possible is not None:
            entering[~possible] = np.inf
        gains = entering[here, own]
        entering[here, own] = np.inf
        best = entering.argmin(axis=1)
        return best, gains - entering[here, best], cells


def _batches(records: int, values: int, rng: np.random.Generator) -> Iterator[Codes]:
    """Iterate over batches of records, each with so many values, in random order."""
    usual = int(np.clip(records // BATCHES[1], *BATCH))
    batch = max(1, min(records // BATCHES[0], usual, VALUES // max(values, 1)))
    order = rng.permutation(records)
    return (order[start : start + batch] for start in range(0, records, batch))


def _cells(records: Codes, layout: Layout) -> Indexes:
    """Return the cells of records, with a row per table.

    Tables have fewer than 2^24 cells, so that single precision is exact.
    """
    steps, starts = layout
    cells = (steps @ records.T.astype(np.float32)).astype(np.int32)
    cells += starts
    return cells


def _summed(terms: Single, cells: Indexes) -> Single:
    """Return the sum of the terms of the cells of each record."""
    return np.asarray(terms.take(cells).sum(axis=0))


def _change(costs: Single, excess: Single, weights: Single, left: Indexes, entered: Indexes) -> None:
    """Count records in the cells that they have entered instead of those that they have left, in place."""
    for cells, change in ((left, -ONE), (entered, ONE)):
        np.add.at(excess, cells.ravel(), change)
        costs[cells] = weights[cells] * (excess[cells] + ONE / 2)


def _going(
    gains: Single, left: Indexes, entered: Indexes, weights: Single, marks: Single, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which records move, each with the probability stated above; `marks` are zeros by cell."""
    shared = np.zeros(len(gains), dtype=np.float32)
    for cells in (left, entered):
        np.add.at(marks, cells.ravel(), ONE)
        shared += (weights.take(cells) * (marks.take(cells) - 1)).sum(axis=0)
        marks[cells] = 0
    return np.asarray(rng.random(len(gains)) * (gains + shared) < gains)
