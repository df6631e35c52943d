"""Controlled rounding: random integers next to given numbers, with the same expectation, that add up.

Along one axis, systematic rounding differs by less than one from every number and every partial sum. In a
table with integer margins, random cycles of fractional cells are raised and lowered in turn until none is
left (Cox 1987): every cell is next to its number, rows and columns keep their sums, and the expectation of a
cell is its number.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array

CLOSE = 1e-9
"""Numbers closer than this to an integer are integers."""


def along(values: Array, rng: np.random.Generator) -> Array:
    """Return integers along the last axis of non-negative numbers: their sum is the nearest integer.

    The expectation of each is its number, if the sum is an integer.
    """
    sums = np.cumsum(values, axis=-1)
    ends = np.round(sums[..., -1:])
    sums = sums * np.divide(ends, sums[..., -1:], out=np.zeros_like(ends), where=sums[..., -1:] > 0)
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
    for start in range(len(rows)):
        while rows[start]:
            cycle = _cycle(rows, columns, start)
            if not cycle:  # rounding error left a lone fraction: the nearest integer
                column = rows[start].pop()
                columns[column].discard(start)
                whole[start, column] += round(parts[start, column])
                continue
            _turn(parts, whole, cycle, rows, columns, next(draws))
    return whole


def _cycle(rows: list[set[int]], columns: list[set[int]], start: int) -> list[tuple[int, int]]:
    """Return cells that alternate between sharing a row and sharing a column, each with a fraction."""
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


def _turn(
    parts: Array,
    whole: Array,
    cycle: list[tuple[int, int]],
    rows: list[set[int]],
    columns: list[set[int]],
    draw: float,
) -> None:
    """Raise and lower the cells of a cycle in turn until one is an integer, up or down at random."""
    up, down = cycle[::2], cycle[1::2]
    forward = min(*(1 - parts[c] for c in up), *(parts[c] for c in down))
    backward = min(*(parts[c] for c in up), *(1 - parts[c] for c in down))
    step = forward if draw * (forward + backward) < backward else -backward
    for place, cell in enumerate(cycle):
        parts[cell] += step if place % 2 == 0 else -step
        if parts[cell] <= CLOSE or parts[cell] >= 1 - CLOSE:
            whole[cell] += round(parts[cell])
            parts[cell] = 0.0
            rows[cell[0]].discard(cell[1])
            columns[cell[1]].discard(cell[0])
