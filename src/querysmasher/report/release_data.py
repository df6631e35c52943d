"""The numbers of a release's page: tables on up to three attributes, answers, errors of percentages.

The standard error of N / D follows from those of N, of D and of N - D. The page has the first two as errors
of tables; `percentage_errors` returns those of the difference between every cell and the total it is part of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError, WorkloadError
from querysmasher.formatting import shortened
from querysmasher.release.answers import Answer
from querysmasher.release.release import Release
from querysmasher.report.charts import MOST_SERIES
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.joint import Rows
from querysmasher.workload.workload import Group

FOLLOWS = "Whoever has the released numbers can compute what is not shown, at no further privacy cost."
"""How readers get numbers that are not on a page."""

MAX_CELLS, PAGE_CELLS = 10_000, 150_000
"""Maximum number of cells of one table on two attributes, and of all; smaller tables come first."""

DEEP_CELLS = 150_000
"""Maximum number of cells of all tables on three attributes; smaller tables come first."""

MAX_GROUP = 100_000
"""Maximum number of queries of a group that are listed individually."""

LISTED, PER_GROUP = 400, 40
"""Maximum number of planned queries listed, in total and per group."""

NAMED = 8
"""Number of tables that are not shown whose names are listed."""

BARS = 120
"""Maximum number of values of an attribute that the page opens on."""

CLEAR = 10.0
"""Least ratio of mean squared counts to mean squared noise of a table on two attributes shown first."""

CROSS = 12
"""Maximum number of rows and of columns of a cross-table with percentages."""

MAX_NUMBERS = 300_000
"""Maximum number of errors of differences on a page."""

Axes = tuple[int, ...]
"""An attribute set, as increasing indexes."""


@dataclass(frozen=True)
class Table:
    """A table on up to three attributes: values and standard errors, cell by cell in row-major order."""

    attributes: Axes
    values: Array
    std: Array


def table_on(release: Release, axes: Axes) -> Table | None:
    """Return the table, or None if the release cannot answer it."""
    schema = release.schema
    names = tuple(schema.names[a] for a in axes)
    try:
        cells = Group(names, tuple(Identity((schema.sizes[a],)) for a in axes))
        return Table(axes, *(numbers.ravel() for numbers in release.answer_group(cells)))
    except (OutsideMeasuredSpaceError, TooLargeError, WorkloadError):  # not measured, or too large
        return None


def fitting(schema: Schema, sets: Iterable[Axes], most: int, together: int) -> tuple[list[Axes], int]:
    """Return the attribute sets whose tables fit on a page, smaller ones first, and how many do not."""
    chosen: list[Axes] = []
    left_out = cells = 0
    for size, axes in sorted((math.prod(schema.sizes[a] for a in axes), axes) for axes in sets):
        if size > most or cells + size > together:
            left_out += 1
        else:
            chosen.append(axes)
            cells += size
    return chosen, left_out


def tables(release: Release) -> tuple[list[Table], int]:
    """Return the tables on one and two attributes that the release can answer, and how many are too large.

    All are post-processing of the release; `std` is the standard error of each cell.
    """
    measured = release.measured_sets
    schema = release.schema
    pairs = [pair for pair in itertools.combinations(range(len(schema)), 2) if pair in measured]
    chosen, left_out = fitting(schema, pairs, MAX_CELLS, PAGE_CELLS)
    return _answered(release, [*((axis,) for axis in range(len(schema))), *chosen]), left_out


def deep_tables(release: Release) -> list[Table]:
    """Return the tables on three attributes that were planned, as far as they fit on a page."""
    triples = [axes for axes in planned_sets(release) if len(axes) == 3]
    return _answered(release, fitting(release.schema, triples, DEEP_CELLS, DEEP_CELLS)[0])


def _answered(release: Release, sets: Iterable[Axes]) -> list[Table]:
    with one_core():
        return [table for axes in sets if (table := table_on(release, axes)) is not None]


def planned_sets(release: Release) -> list[Axes]:
    """Return the attribute sets of the planned queries, each once, smaller ones first."""
    return sorted(_in_order_of_workload(release), key=lambda axes: (len(axes), axes))


def _in_order_of_workload(release: Release) -> list[Axes]:
    schema = release.schema
    return [*dict.fromkeys(tuple(sorted(schema.positions(g.attributes))) for g in release.workload)]


def total(release: Release) -> tuple[float, float] | None:
    """Return the number of records as released and its standard error, if it follows from the release."""
    table = table_on(release, ())
    return None if table is None else (float(table.values[0]), float(table.std[0]))


def planned_answers(release: Release) -> tuple[list[Answer], int]:
    """Return answers to planned queries that no table shows, and the total number of such queries.

    Tables show counts per value; this lists prefix counts, comparisons and predicates.
    """
    groups = [g for g in release.workload if any(f.name != "identity" for f in g.families)]
    groups.sort(key=lambda g: len(g.attributes))
    answers: list[Answer] = []
    with one_core():
        for group in groups:
            largest = max(f.rows * f.cells for f in group.families)
            cells = math.prod(f.cells for f in group.families)
            if len(answers) >= LISTED or group.rows > MAX_GROUP or max(largest / 30, cells / 10) > MAX_GROUP:
                continue
            with suppress(OutsideMeasuredSpaceError, TooLargeError):
                numbers = (part.ravel().tolist() for part in release.answer_group(group))
                rows = zip(group.labels(release.schema), *numbers, strict=True)
                step = math.ceil(group.rows / PER_GROUP)
                answers += itertools.starmap(Answer, itertools.islice(rows, 0, None, step))
    return answers[:LISTED], sum(g.rows for g in groups)


def not_shown(release: Release, shown: Iterable[Table]) -> str | None:
    """Say which planned tables are not on the page, or return None if all are."""
    names = release.schema.names
    on_page = [set(table.attributes) for table in shown]
    missing = [
        " × ".join(names[a] for a in axes)
        for axes in planned_sets(release)
        if axes and not any(set(axes) <= attributes for attributes in on_page)
    ]
    if not missing:
        return None
    more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
    return f"Planned, but not shown here: {'; '.join(missing[:NAMED])}{more}. {FOLLOWS}"


def opening(release: Release, shown: Sequence[Table]) -> list[int]:
    """Return the attributes of the table that the page opens on, as read: down, then across.

    It is a table that is small enough to read: of those on two attributes whose counts stand out of the
    noise the one whose attributes depend on each other most; if there is none, the clearest on one attribute.
    Among equals the first in the order of the workload is taken.
    """
    schema = release.schema
    order = {axes: rank for rank, axes in enumerate(_in_order_of_workload(release))}
    ranked = sorted(shown, key=lambda table: order.get(table.attributes, len(order)))
    for way, least in ((2, CLEAR), (1, 0.0)):
        best, strongest = [], -1.0
        for table in ranked:
            axes = _as_read(schema, table.attributes) if len(table.attributes) == way else []
            if axes:
                counts, between = _signals(schema, table)
                if counts >= least and between > strongest:
                    best, strongest = axes, between
        if best:
            return best
    return list(shown[0].attributes[:1]) if shown else []


def _as_read(schema: Schema, axes: Axes) -> list[int]:
    """Return the attributes in the order in which a table is read, or nothing if it is too large to read.

    Two attributes are lines along an ordered one, or a cross-table with the longer one down.
    """
    size = schema.sizes
    longest = sorted(axes, key=lambda a: -size[a])
    if len(axes) == 1:
        return longest if size[axes[0]] <= BARS else []
    for down, across in (longest, longest[::-1]):
        if schema.attributes[down].ordered and 2 < size[down] <= BARS and size[across] <= MOST_SERIES:
            return [down, across]
    return longest if size[longest[0]] <= CROSS else []


def _signals(schema: Schema, table: Table) -> tuple[float, float]:
    """Return the mean squared differences from even counts, and from independence, over the noise.

    On one attribute both are the first. They have three digits, so that rounding errors break no ties.
    """
    values = table.values.reshape([schema.sizes[a] for a in table.attributes])
    even = values - values.mean()
    if values.ndim == 2 and values.sum() > 0:
        apart = values - np.outer(values.sum(1), values.sum(0)) / values.sum()
    else:
        apart = even
    noise = max(float(np.mean(table.std**2)), 1e-12)
    counts, between = (float(f"{float(np.mean(part**2)) / noise:.3g}") for part in (even, apart))
    return counts, between


def percentage_errors(release: Release, shown: Iterable[Table]) -> dict[str, list[float] | float]:
    """Return the standard error of each cell minus its total, by "attributes of the cell|of the total".

    It is a single number if all cells of a table have the same.
    """
    result: dict[str, list[float] | float] = {}
    numbers = 0
    sizes = release.schema.sizes
    with one_core():
        for cells, under in dict.fromkeys(_with_percentages(sizes, shown)):
            if numbers + math.prod(sizes[a] for a in cells) > MAX_NUMBERS:
                continue
            try:
                short = [shortened(std, 4) for std in _apart(release, cells, under).tolist()]
            except (OutsideMeasuredSpaceError, TooLargeError):
                continue
            key = "|".join(",".join(map(str, axes)) for axes in (cells, under))
            result[key] = short[0] if len(set(short)) == 1 else short
            numbers += 1 if len(set(short)) == 1 else len(short)
    return result


def _with_percentages(sizes: Sequence[int], shown: Iterable[Table]) -> Iterator[tuple[Axes, Axes]]:
    """Iterate over cells and totals of all cross-tables that are small enough, smaller tables first."""
    for table in shown:
        for within in [(), *((a,) for a in table.attributes)]:
            pair = tuple(a for a in table.attributes if a not in within)
            if len(pair) == 2 and max(sizes[a] for a in pair) <= CROSS:
                rows, columns = (tuple(sorted((a, *within))) for a in pair)
                yield from ((table.attributes, under) for under in (rows, columns, within))
                yield from ((cells, within) for cells in (rows, columns))


def _apart(release: Release, cells: Axes, under: Axes) -> Array:
    """Return the standard error of each cell minus its total, in row-major order.

    Over the attributes that the total sums, the difference is I - 11ᵀ; on the others it is the identity.
    """
    schema = release.schema
    axes = [*(a for a in cells if a not in under), *under]
    sizes = [schema.sizes[a] for a in axes]
    summed = tuple(sizes[: len(cells) - len(under)])
    families = Rows(summed, np.eye(math.prod(summed)) - 1), *(Identity((n,)) for n in sizes[len(summed) :])
    group = Group(tuple(schema.names[a] for a in axes), families)
    std = np.sqrt(np.maximum(release.estimator.variances(group), 0)).reshape(sizes)
    return std.transpose([axes.index(a) for a in cells]).ravel()
