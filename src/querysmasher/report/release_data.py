"""The numbers of a release's page: tables on up to three attributes, answers, errors of percentages.

The standard error of N / D follows from those of N, of D and of N - D. The page has the first two as errors
of tables; `share_errors` returns those of the difference between every cell and the total it is part of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.formatting import shortened
from querysmasher.release.release import Release
from querysmasher.report.charts import MOST_SERIES
from querysmasher.schema import Schema
from querysmasher.statistics.figures import AnswerSource
from querysmasher.statistics.selection import Selection, rows_on, select
from querysmasher.workload.builders import queries
from querysmasher.workload.workload import Group

FOLLOWS = "Whoever has the released numbers can compute what is not shown, at no further privacy cost."
"""How readers get numbers that are not on a page."""

MAX_CELLS = 10_000
"""Maximum number of cells of a shown table on two attributes."""

PAGE_CELLS = 150_000
"""Maximum number of cells of all tables on two attributes; smaller tables come first."""

MAX_GROUP = 100_000
"""Maximum number of queries of a group that are listed individually."""

LISTED, PER_GROUP = 400, 40
"""Maximum number of planned queries listed, in total and per group."""


@dataclass(frozen=True)
class Table:
    """A table on one or two attributes: values and standard errors, cell by cell in row-major order."""

    attributes: tuple[int, ...]
    values: Array
    std: Array


@dataclass(frozen=True)
class Answer:
    """One planned query and its answer."""

    label: str
    value: float
    std: float


def tables(release: Release) -> tuple[list[Table], int]:
    """Return the tables on one and two attributes that the release can answer, and how many are too large.

    All are post-processing of the release; `std` is the standard error of each cell.
    """
    measured = {m.attributes for m in release.plan.measured}
    axes = range(len(release.plan.schema))
    with one_core():
        singles = [table for axis in axes for table in own_table(release, (axis,))]
    pairs = [pair for pair in itertools.combinations(axes, 2) if pair in measured]
    fitting, left_out = _fitting(release, pairs, MAX_CELLS, PAGE_CELLS)
    return singles + fitting, left_out


def _fitting(
    release: Release, sets: Iterable[tuple[int, ...]], most: int, together: int
) -> tuple[list[Table], int]:
    """Return the tables on attribute sets, smaller ones first, and how many have too many cells."""
    sizes = release.plan.schema.sizes
    shown: list[Table] = []
    left_out = cells = 0
    with one_core():
        for size, axes in sorted((math.prod(sizes[a] for a in axes), axes) for axes in sets):
            if size > most or cells + size > together:
                left_out += 1
                continue
            answered = own_table(release, axes)
            cells += size * len(answered)
            shown += answered
    return shown, left_out


def total(release: Release) -> tuple[float, float] | None:
    """Return the number of records as released and its standard error, if it follows from the release."""
    own = own_table(release, ())
    return (float(own[0].values[0]), float(own[0].std[0])) if own else None


def planned_answers(release: Release) -> tuple[list[Answer], int]:
    """Return answers to planned queries that no table shows, and the total number of such queries.

    Tables show counts per value; this lists prefix counts, comparisons and predicates.
    """
    groups = [g for g in release.workload if any(f.name != "identity" for f in g.families)]
    groups.sort(key=lambda g: len(g.attributes))
    answers: list[Answer] = []
    with one_core():
        release.estimator.prepare(groups[:LISTED])
        for group in groups:
            if len(answers) >= LISTED:
                break
            answers += _answers(release, group)
    return answers[:LISTED], sum(g.rows for g in groups)


def _answers(release: Release, group: Group) -> Iterator[Answer]:
    cells = math.prod(n for f in group.families for n in f.shape)
    if (
        group.rows > MAX_GROUP
        or max(f.rows * f.cells for f in group.families) > 30 * MAX_GROUP
        or cells > 10**6
    ):
        return
    try:
        values, std = release.answer_group(group)
    except (OutsideMeasuredSpaceError, TooLargeError):
        return
    step = max(1, math.ceil(group.rows / PER_GROUP))
    rows = zip(group.labels(release.plan.schema), values.ravel().tolist(), std.ravel().tolist(), strict=True)
    for label, value, error in itertools.islice(rows, 0, None, step):
        yield Answer(label, value, error)


def own_table(release: Release, places: tuple[int, ...]) -> list[Table]:
    """Return the table, or nothing if the release cannot answer it."""
    names = tuple(release.plan.schema.names[p] for p in places)
    (group,) = (
        queries(release.plan.schema, dict.fromkeys(names, "identity")).groups if names else (Group((), ()),)
    )
    try:
        values = release.marginal(*names)
        variances = release.estimator.variances(group)
    except (OutsideMeasuredSpaceError, TooLargeError):
        return []
    return [Table(places, values.ravel(), np.sqrt(np.maximum(variances, 0)).ravel())]


DEEP_CELLS = 150_000
"""Maximum number of cells of all tables on three attributes; smaller tables come first."""

BARS = 120
"""Maximum number of values of an attribute that the page opens on."""

CLEAR = 10.0
"""Least mean square of counts, over that of the noise, of a table on two attributes shown first."""

NAMED = 8
"""Number of tables that are not shown whose names are listed."""


def deep_tables(release: Release) -> list[Table]:
    """Return the tables on three attributes that were planned, as far as they fit on a page."""
    triples = [axes for axes in planned_sets(release) if len(axes) == 3]
    return _fitting(release, triples, DEEP_CELLS, DEEP_CELLS)[0]


def planned_sets(release: Release) -> list[tuple[int, ...]]:
    """Return the attribute sets of the planned queries, each once, as increasing indexes."""
    sets = {tuple(sorted(release.plan.schema.positions(g.attributes))) for g in release.workload}
    return sorted(sets, key=lambda places: (len(places), places))


def not_shown(release: Release, found: list[Table]) -> str | None:
    """Say which planned tables are not on the page, or return None if all are."""
    names = release.plan.schema.names
    shown = {own.attributes for own in found}
    inside = {
        part
        for places in shown
        for way in range(len(places) + 1)
        for part in itertools.combinations(places, way)
    }
    missing = [
        " × ".join(names[p] for p in places) for places in planned_sets(release) if places not in inside
    ]
    if not missing:
        return None
    more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
    said = "; ".join(missing[:NAMED])
    return f"Planned, but not shown here: {said}{more}. {FOLLOWS}"


def opening(release: Release, found: Sequence[Table]) -> list[int]:
    """Return the attributes of the table that the page opens on, as read: down, then across.

    It is a table that is small enough to read: of those on two attributes whose counts stand out of the
    noise the one whose attributes depend on each other most; if there is none, the clearest on one attribute.
    Among equals the first in the order of the workload is taken.
    """
    schema = release.plan.schema
    asked = dict.fromkeys(tuple(sorted(schema.positions(g.attributes))) for g in release.workload)
    order = {places: rank for rank, places in enumerate(asked)}
    ranked = sorted(found, key=lambda one: order.get(one.attributes, len(order)))
    read = [(one, places) for one in ranked if (places := _as_read(schema, one.attributes))]
    for way, least in ((2, CLEAR), (1, 0.0)):
        signals = [(*_signals(schema, one), places) for one, places in read if len(places) == way]
        clear = [(between, places) for counts, between, places in signals if counts >= least]
        if clear:
            return max(clear, key=lambda one: one[0])[1]
    return list(found[0].attributes[:1]) if found else []


def _as_read(schema: Schema, places: tuple[int, ...]) -> list[int]:
    """Return the attributes in the order in which a table is read, or nothing if it is too large to read.

    Two attributes are lines along an ordered one, or a cross-table with the longer one down.
    """
    size = schema.sizes
    longest = sorted(places, key=lambda p: -size[p])
    if len(places) == 1:
        return longest if size[places[0]] <= BARS else []
    lines = [p for p in longest if schema.attributes[p].ordered and 2 < size[p] <= BARS]
    for down in lines:
        across = next(p for p in places if p != down)
        if size[across] <= MOST_SERIES:
            return [down, across]
    return longest if size[longest[0]] <= CROSS else []


def _signals(schema: Schema, own: Table) -> tuple[float, float]:
    """Return the mean squared departures from even counts and from independence, over that of the noise.

    On one attribute both are the first. They have three digits: what differs by rounding only is equal.
    """
    values = own.values.reshape([schema.sizes[p] for p in own.attributes])
    even = values - values.mean()
    if values.ndim == 2 and values.sum() > 0:
        apart = values - np.outer(values.sum(1), values.sum(0)) / values.sum()
    else:
        apart = even
    noise = max(float(np.mean(own.std**2)), 1e-12)
    counts, between = (float(f"{float(np.mean(part**2)) / noise:.3g}") for part in (even, apart))
    return counts, between


CROSS = 12
"""Maximum number of rows and of columns of a cross-table with percentages."""

MAX_ENTRIES = 20_000_000
"""Maximum number of covariances computed for the cells of one table."""

MAX_NUMBERS = 300_000
"""Maximum number of errors of differences on a page."""

Places = tuple[int, ...]


def share_errors(
    release: Release, found: Sequence[Table], deep: Sequence[Table]
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
                apart = _apart(release, own, under)
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


def _apart(source: AnswerSource, own: Places, under: Places) -> Array:
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


def _cells(source: AnswerSource, places: Places, less: Sequence[int] = ()) -> Selection:
    """Return the queries of all cells; on the attributes `less`, each value minus all of them."""
    schema = source.schema
    names = [schema.names[p] for p in places]
    factors = [
        rows_on(schema, name, name, np.eye(schema[name].size) - (place in less))
        for place, name in zip(places, names, strict=True)
    ]
    return select(schema, factors, names)
