"""Estimates in integers: non-negative, adding up, and unbiased given the estimate.

The total is rounded at random to one of its neighbours, then each single attribute so that it sums to it,
each pair so that its margins are the integers of its singles, and each larger table so that it adds up to the
integers of the pair of its first two attributes. Given the estimate, the expectation of every integer is the
estimate. This holds up to one qualification: where an expected count below one is rounded away, cells of a
pair that cannot follow are moved to the nearest table that can. If structural zeros contradict the singles,
pairs keep the number of records only.

Rounding is controlled: random integers next to given numbers, with the same expectation, that add up. Along
one axis, systematic rounding differs by less than one from every number and every partial sum. In a
table with integer margins, random cycles of fractional cells are raised and lowered in turn until none is
left (Cox 1987): every cell is next to its number, rows and columns keep their sums, and the expectation of a
cell is its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import TooLargeError
from querysmasher.estimate.evidence import AttributeSet
from querysmasher.estimate.fitting import Axes, fitted, quotient, with_margins
from querysmasher.estimate.table_model import Model

LARGEST_PAIR = 250_000
"""Maximum number of cells of a pair that is rounded."""

ALMOST = 1e-6
"""Margins count as right if their error is at most this: a rounding error."""

SWEEPS = 200
"""Number of rounds that give a table the integer margins."""


class IntegerModel:
    """Computes tables of integers from those of a model, independent of the order of requests."""

    def __init__(self, model: Model, seed: int) -> None:
        """Take the estimate and a seed."""
        self._model = model
        self._seed = seed
        self._known: dict[AttributeSet, Array] = {}

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.table(()))

    def table(self, subset: AttributeSet) -> Array:
        """Return the table on increasing attributes."""
        (table,) = self.tables([subset])
        return table

    def tables(self, sets: Sequence[AttributeSet]) -> Iterator[Array]:
        """Iterate over the tables on several sets of increasing attributes, in the order given."""
        for subset, table in zip(sets, self._model.tables(sets), strict=True):
            yield self._rounded(subset, table)

    def _rounded(self, subset: AttributeSet, table: Array) -> Array:
        """Return the integers of a table."""
        if len(subset) > 2:
            pair = self.table(subset[:2])
            fractions = self._fractions(subset, table, pair)
            return along(fractions * pair[..., None], self._generator(subset)).reshape(table.shape)
        if subset not in self._known:
            rng = self._generator(subset)
            if not subset:
                self._known[()] = np.floor(table + rng.random())
            elif len(subset) == 1:
                self._known[subset] = along(table * (self.total / max(float(table.sum()), 1e-300)), rng)
            else:
                self._known[subset] = self._pair(subset, table, rng)
        return self._known[subset]

    def _generator(self, subset: AttributeSet) -> np.random.Generator:
        return np.random.default_rng([self._seed, len(subset), *subset])

    def _fractions(self, subset: AttributeSet, table: Array, pair: Array) -> Array:
        """Return how each cell of a pair is divided among the values of the other attributes.

        Integer margins may put a record where the estimate has none: it is then divided as all records are.
        """
        cells = table.reshape(*table.shape[:2], -1)
        allowed = self._model.zeros.mask(subset).reshape(cells.shape)
        likely = cells.sum(axis=(0, 1)) * allowed
        for spread in (likely, allowed, np.ones(cells.shape)):  # the first of these with a positive sum
            lost = (cells.sum(axis=2) <= 0) & (pair > 0)
            cells = np.where(lost[..., None], spread, cells)
        return quotient(cells, cells.sum(axis=2)[..., None])

    def _pair(self, subset: AttributeSet, table: Array, rng: np.random.Generator) -> Array:
        """Return the integers of a pair, with the integers of its attributes as margins."""
        if table.size > LARGEST_PAIR:
            names = ", ".join(self._model.schema.names[a] for a in subset)
            msg = (
                f"attributes: the pair ({names}) has {table.size:,} cells; integers() allows at most "
                f"{LARGEST_PAIR:,}"
            )
            raise TooLargeError(msg)
        rows, columns = (self.table((a,)) for a in subset)
        moved = moved_to(table, rows, columns)
        possible = self._model.zeros.possible(subset)
        if possible is None:
            return within_margins(moved, rng)
        moved = moved * possible
        wrong = max(np.abs(rows - moved.sum(axis=1)).max(), np.abs(columns - moved.sum(axis=0)).max())
        if wrong <= ALMOST:
            return within_margins(moved, rng)
        # no table without impossible cells has these margins: the number of records is kept
        moved = moved if moved.any() else possible.astype(float)
        return along((moved * quotient(rows.sum(), moved.sum())).ravel(), rng).reshape(moved.shape)


def moved_to(table: Array, rows: Array, columns: Array) -> Array:
    """Return the table moved to these margins: linearly, if the result is non-negative.

    It is x·(1 + α_i + β_j) with α, β the solution of the normal equations of least squares weighted by 1/x.
    Being linear, it has the expectation x if the margins have the expectation of those of x.
    """
    above, right = table.sum(axis=1), table.sum(axis=0)
    wrong = np.concatenate([rows - above, columns - right])
    system = np.block([[np.diag(above), table], [table.T, np.diag(right)]])
    solved = np.linalg.lstsq(system, wrong, rcond=1e-12)[0]
    factors = 1 + solved[: len(rows), None] + solved[None, len(rows) :]
    moved = table * factors
    margins: dict[Axes, Array] = {(0,): rows[None], (1,): columns[None]}
    if moved.min(initial=0.0) < 0:
        moved = fitted(table[None].copy(), margins, SWEEPS)[0]
    return with_margins(np.maximum(moved, 0.0)[None], rows[None], columns[None])[0]


CLOSE = 1e-9
"""Numbers closer than this to an integer are integers."""


def along(values: Array, rng: np.random.Generator) -> Array:
    """Return integers along the last axis of non-negative numbers: their sum is the nearest integer.

    The expectation of each is its number, if the sum is an integer.
    """
    sums = np.cumsum(values, axis=-1)
    ends = np.round(sums[..., -1:])
    sums = sums * quotient(ends, sums[..., -1:])
    sums[..., -1:] = ends
    shifted = np.floor(sums + rng.random(ends.shape) + CLOSE)
    shifted[..., -1:] = ends  # a whole number of steps
    return np.diff(np.minimum(shifted, ends), axis=-1, prepend=0.0)


def within_margins(table: Array, rng: np.random.Generator) -> Array:
    """Return integers with the margins of a table of numbers of at least zero, if these are integers."""
    whole = np.floor(table + CLOSE)
    parts = np.where(table - whole > CLOSE, table - whole, 0.0)
    rows: list[set[int]] = [set(np.flatnonzero(row).tolist()) for row in parts]
    columns: list[set[int]] = [set(np.flatnonzero(column).tolist()) for column in parts.T]
    draws = iter(rng.random(2 * int(np.count_nonzero(parts)) + 1).tolist())

    def settle(cell: tuple[int, int]) -> None:
        row, column = cell
        whole[cell] += round(parts[cell])
        parts[cell] = 0.0
        rows[row].discard(column)
        columns[column].discard(row)

    for start in range(len(rows)):
        while rows[start]:
            cycle = _cycle(rows, columns, start)
            if not cycle:  # rounding error left a lone fraction: the nearest integer
                settle((start, next(iter(rows[start]))))
                continue
            # its cells are raised and lowered in turn until one is an integer, up or down at random
            up, down = cycle[::2], cycle[1::2]
            forward = min(*(1 - parts[c] for c in up), *(parts[c] for c in down))
            backward = min(*(parts[c] for c in up), *(1 - parts[c] for c in down))
            step = forward if next(draws) * (forward + backward) < backward else -backward
            for number, cell in enumerate(cycle):
                parts[cell] += step if number % 2 == 0 else -step
                if not CLOSE < parts[cell] < 1 - CLOSE:
                    settle(cell)
    return whole


def _cycle(rows: list[set[int]], columns: list[set[int]], start: int) -> list[tuple[int, int]]:
    """Return a cycle of fractional cells, where neighbours share a row or a column in turn; [] if none."""
    path: list[tuple[int, int]] = []
    first_in_row: dict[int, int] = {}
    second_in_column: dict[int, int] = {}
    row, last = start, -1
    while row not in first_in_row:
        first_in_row[row] = len(path)
        column = next((c for c in rows[row] if c != last), None)
        if column is None:
            return []
        path.append((row, column))
        if column in second_in_column:
            return path[second_in_column[column] :]
        after = next((r for r in columns[column] if r != row), None)
        if after is None:
            return []
        second_in_column[column] = len(path)
        path.append((after, column))
        row, last = after, column
    return path[first_in_row[row] :]
