"""Moves of records between values, attribute by attribute, so that all tables come closer to wanted ones.

With n_c the number of records in a cell and t_c the number wanted, the distance is Σ_c w_c(n_c − t_c)²/2 over
the cells of all tables that are followed. A record that leaves a value of an attribute for another changes
two cells of every table with this attribute, and the distance by

    Σ (w_d(n_d − t_d) + w_d/2) − Σ (w_s(n_s − t_s) − w_s/2)

over the cells d that it enters and s that it leaves. For all values of the records of a batch, these sums are
one product of a sparse matrix, with a one for every record and table, and the terms of all cells.

Records that move at the same time get in each other's way. A record with a gain of g, in whose cells others
of weight c want to move too, moves with probability g/(g + c). The expected distance then falls: with θ these
probabilities and c_rs the weights that two records share, the moves gain Σ θ_r g_r − ΣΣ θ_r θ_s c_rs/2 on
average or more, and θ_r θ_s ≤ (θ_r² + θ_s²)/2 and θ_r c_r ≤ g_r, so that this is at least half of Σ θ_r g_r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.estimate.evidence import AttributeSet, Zeros

Codes = NDArray[np.int64]
"""Records as rows of indexes of values."""

Single = NDArray[np.float32]
"""Numbers in single precision: counts of a block are far below 2^24."""

FEWEST, MOST, WORK = 2, 12, 6e9
"""Minimum and maximum number of times that records may move along every attribute, and what decides: the
product of this number, that of records, and that of the values along which each may move."""

SMALL = 2
"""The first time, records follow tables of at most so many attributes only."""

BATCHES, BATCH, VALUES = 20, 1_000, 4_000_000
"""Minimum number of batches of records, and maximum number of records of a batch and of values of theirs."""

BOLDEST = 0.2
"""Fraction of a batch that may move at the same time: those that gain most."""

IMPORTANCE = (100.0, 10.0, 1.0)
"""Weights of tables on one, two, and more attributes: errors of small ones recur in larger ones."""

EXACT = np.float32(1e4)
"""Weight of every cell of a table that is public: no other gain is as large."""

ONE = np.float32(1)


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

        `exact` are the sets whose tables are public.
        """
        self._exact = exact
        self._records = records
        self._zeros = zeros
        self._sizes = sizes
        self._sets = sets
        self._wanted = [table.astype(np.float32) for table in tables]
        self._excess = [np.zeros_like(table) for table in self._wanted]

    @property
    def rounds(self) -> int:
        """How often records may move along every attribute."""
        values = sum(self._sizes[a] for subset in self._sets for a in subset)
        return 1 + int(np.clip(WORK / max(values * self._records, 1), FEWEST, MOST))

    @property
    def distances(self) -> dict[AttributeSet, float]:
        """The distance of each table of all records so far from what is wanted of it, in records."""
        return {s: float(np.abs(excess).sum()) for s, excess in zip(self._sets, self._excess, strict=True)}

    def moved(
        self, records: Codes, rng: np.random.Generator, advance: Callable[[], None] = lambda: None
    ) -> Codes:
        """Return records moved towards a share of the tables, and of what earlier ones lack."""
        records, share = records.copy(), np.float32(len(records) / self._records)
        waiting = list(range(len(self._sets)))
        for order in (SMALL, *[math.inf] * (self.rounds - 1)):
            entering = [k for k in waiting if len(self._sets[k]) <= order]
            waiting = [k for k in waiting if len(self._sets[k]) > order]
            for k in entering:
                wanted = self._wanted[k]
                cells = np.ravel_multi_index(tuple(records[:, a] for a in self._sets[k]), wanted.shape)
                counts = np.bincount(cells, minlength=wanted.size).reshape(wanted.shape)
                self._excess[k] += counts - share * wanted
            for attribute in rng.permutation(len(self._sizes)).tolist():
                chosen = [k for k, s in enumerate(self._sets) if attribute in s and len(s) <= order]
                if chosen and self._sizes[attribute] > 1:
                    self._move(records, attribute, chosen, rng)
                advance()
        for subset in self._exact:
            if len(subset) > SMALL and subset in self._sets:
                self._settle(records, subset)
        return records

    def _settle(self, records: Codes, subset: AttributeSet) -> None:
        """Move records along all attributes of a public table at once, in place: single ones may be stuck."""
        excess = np.rint(self._excess[self._sets.index(subset)]).astype(np.int64)
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
        for table, place in zip(self._excess, self._sets, strict=True):
            for rows, change in ((moved, ONE), (before, -ONE)):
                np.add.at(table, tuple(rows[:, a] for a in place), change)

    def _seen(self, tables: Sequence[Single], k: int, attribute: int) -> Single:
        """Return a view of a table with an attribute on the last axis."""
        return np.moveaxis(tables[k], self._sets[k].index(attribute), -1)

    def _move(self, records: Codes, attribute: int, chosen: Sequence[int], rng: np.random.Generator) -> None:
        """Move records along an attribute, in place; `chosen` are the tables with this attribute."""
        size, before = self._sizes[attribute], records[:, attribute].copy()
        steps, starts = self._rows(attribute, chosen)
        costs, weights = np.empty((2, starts[-1], size), dtype=np.float32)
        for k, start, end in zip(chosen, starts, starts[1:], strict=False):
            wanted, excess = (self._seen(t, k, attribute) for t in (self._wanted, self._excess))
            importance = np.float32(IMPORTANCE[min(wanted.ndim, len(IMPORTANCE)) - 1])
            weight = EXACT if self._sets[k] in self._exact else importance / (wanted + ONE)
            weights[start:end] = np.broadcast_to(weight, wanted.shape).reshape(-1, size)
            costs[start:end] = excess.reshape(-1, size)
        costs += ONE / 2
        costs *= weights
        batch = max(1, min(len(records) // BATCHES, BATCH, VALUES // size))
        arrivals, departures = np.zeros((2, costs.size), dtype=np.float32)
        for part in np.split(rng.permutation(len(records)), range(batch, len(records), batch)):
            rows = (records[part] @ steps + starts[:-1]).astype(np.int32)
            values, gains, leaving = self._best(records[part], attribute, rows, costs, weights)
            wanting = np.flatnonzero(gains > 0)
            most = math.ceil(BOLDEST * len(part))
            if len(wanting) > most:
                wanting = wanting[np.argpartition(-gains[wanting], most)[:most]]
            left = leaving[wanting]
            entered = left + (values - records[part, attribute])[wanting, None]
            np.add.at(arrivals, entered.ravel(), ONE)
            np.add.at(departures, left.ravel(), ONE)
            flat = weights.ravel()
            shared = flat[entered] * (arrivals[entered] - 1) + flat[left] * (departures[left] - 1)
            arrivals[entered] = departures[left] = 0
            gain = gains[wanting]
            going = rng.random(len(gain)) * (gain + shared.sum(axis=1)) < gain
            records[part[wanting[going]], attribute] = values[wanting[going]]
            for cells, change in ((left[going].ravel(), np.subtract), (entered[going].ravel(), np.add)):
                change.at(costs.ravel(), cells, flat[cells])
        changed = np.flatnonzero(records[:, attribute] != before)
        lines = (records[changed] @ steps).astype(np.int64) * size
        for column, k in enumerate(chosen):
            excess = self._seen(self._excess, k, attribute)
            now, then = (
                np.bincount(lines[:, column] + values, minlength=excess.size)
                for values in (records[changed, attribute], before[changed])
            )
            excess += (now - then).reshape(excess.shape)

    def _rows(self, attribute: int, chosen: Sequence[int]) -> tuple[Array, list[int]]:
        """Return what a value of another attribute adds to the row of a cell, and where tables start."""
        steps, starts = np.zeros((len(self._sizes), len(chosen))), [0]
        for column, k in enumerate(chosen):
            step = 1
            for other in reversed(self._sets[k]):
                if other != attribute:
                    steps[other, column] = step
                    step *= self._sizes[other]
            starts.append(starts[-1] + step)
        return steps, starts

    def _best(
        self, records: Codes, attribute: int, rows: NDArray[np.int32], costs: Single, weights: Single
    ) -> tuple[Codes, Single, Codes]:
        """Return the best value of each record, what it gains by it, and the cells that it is in."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - loads slowly

        (count, tables), here = rows.shape, np.arange(len(rows))
        ends = np.arange(count + 1, dtype=np.int32) * np.int32(tables)
        ones = np.ones(rows.size, dtype=np.float32)
        summed = csr_array((ones, rows.ravel(), ends), shape=(count, len(costs))) @ costs
        entering = np.asarray(summed)
        own = records[:, attribute]
        cells = rows.astype(np.int64) * costs.shape[1] + own[:, None]
        entering[here, own] -= np.take(weights.ravel(), cells).sum(axis=1)
        possible = self._zeros.values(records, attribute)
        if possible is not None:
            entering[~possible] = np.inf
        best = entering.argmin(axis=1)
        return best, entering[here, own] - entering[here, best], cells
