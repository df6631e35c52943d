"""Errors of percentages on a release's page, also within a value of a third attribute.

The standard error of N / D follows from those of N, of D and of N - D. The page has the first two as errors
of tables; here are those of the difference between every cell of a table and the total that it is part of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.formatting import shortened
from querysmasher.release.released import Released
from querysmasher.report.release_data import Table
from querysmasher.statistics.figures import Source
from querysmasher.statistics.selection import Selection, rows_on, select

CROSS = 12
"""Maximum number of rows and of columns of a cross-table with percentages."""

MAX_ENTRIES = 20_000_000
"""Maximum number of covariances computed for the cells of one table."""

MAX_NUMBERS = 300_000
"""Maximum number of errors of differences on a page."""

Places = tuple[int, ...]


def share_errors(
    release: Released, found: Sequence[Table], deep: Sequence[Table]
) -> dict[str, list[float] | float]:
    """Return the standard error of each cell minus its total, by "attributes of the cell|of the total".

    It is a single number if all cells of a table have the same.
    """
    result: dict[str, list[float] | float] = {}
    numbers = 0
    sizes = release.plan.schema.sizes
    with one_core():
        for own, under in dict.fromkeys(_wanted(sizes, [*found, *deep])):
            if numbers + math.prod(sizes[p] for p in own) > MAX_NUMBERS:
                continue
            try:
                apart = _apart(cast("Source", release), own, under)
            except (OutsideMeasuredSpaceError, TooLargeError):
                continue
            short = [shortened(s, 4) for s in apart.tolist()]
            key = "|".join(",".join(map(str, places)) for places in (own, under))
            result[key] = short[0] if len(set(short)) == 1 else short
            numbers += 1 if len(set(short)) == 1 else len(short)
    return result


def _wanted(sizes: Sequence[int], tables: Sequence[Table]) -> Iterator[tuple[Places, Places]]:
    """Iterate over cells and totals of all cross-tables that are small enough, smaller tables first."""
    for table in tables:
        for within in [(), *((p,) for p in table.attributes)]:
            pair = tuple(p for p in table.attributes if p not in within)
            if len(pair) == 2 and max(sizes[p] for p in pair) <= CROSS:
                a, b = (tuple(sorted((p, *within))) for p in pair)
                yield from ((table.attributes, under) for under in (a, b, within))
                yield from ((one, within) for one in (a, b))


def _apart(source: Source, own: Places, under: Places) -> Array:
    """Return the standard error of each cell minus its total, in row-major order."""
    schema = source.schema
    summed = [p for p in own if p not in under]
    if len(summed) == 1:  # then the difference is a product of rows
        asked = _cells(source, own, less=summed)
        return np.asarray(asked.arranged(source.answer(asked.workload).std).ravel())
    cells, totals = _cells(source, own), _cells(source, under)
    rows, columns = cells.workload.query_count, totals.workload.query_count
    if rows * columns > MAX_ENTRIES:
        msg = f"{rows:,} cells with {columns:,} totals are too many"
        raise TooLargeError(msg)
    shape = tuple(schema.sizes[p] for p in own)
    axes = [own.index(p) for p in under]
    place = np.indices(shape).reshape(len(own), -1)[axes]
    index = np.ravel_multi_index(tuple(place), [shape[a] for a in axes]) if axes else np.zeros(rows, int)
    shared = source.covariance(cells.workload, totals.workload)[np.arange(rows), index]
    v, w = (source.answer(one.workload).std ** 2 for one in (cells, totals))
    return np.sqrt(np.maximum(v + w[index] - 2 * shared, 0))


def _cells(source: Source, places: Places, less: Sequence[int] = ()) -> Selection:
    """Return the queries of all cells; on the attributes `less`, each value minus all of them."""
    schema = source.schema
    names = [schema.names[p] for p in places]
    factors = [
        rows_on(schema, name, name, np.eye(schema[name].size) - (place in less))
        for place, name in zip(places, names, strict=True)
    ]
    return select(schema, factors, names)
