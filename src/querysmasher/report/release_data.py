"""The numbers of a release's page: tables on one and two attributes, and answers to what was planned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.errors import OutsideMeasuredSpaceError, TooLargeError
from querysmasher.release.released import Released
from querysmasher.workload.builders import queries
from querysmasher.workload.workload import Group

Z95 = 1.959964
"""Half-width of a 95% interval, in standard errors."""

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


def tables(release: Released) -> tuple[list[Table], int]:
    """Return the tables on one and two attributes that the release can answer, and how many are too large.

    All are post-processing of the release; `std` is the standard error of each cell.
    """
    sizes = release.plan.schema.sizes
    found, left_out, cells = [], 0, 0
    measured = {m.attributes for m in release.plan.measured}
    pairs = [p for p in itertools.combinations(range(len(sizes)), 2) if p in measured]
    pairs.sort(key=lambda p: sizes[p[0]] * sizes[p[1]])
    with one_core():
        for place in range(len(sizes)):
            found += own_table(release, (place,))
        for pair in pairs:
            size = sizes[pair[0]] * sizes[pair[1]]
            if size > MAX_CELLS or cells + size > PAGE_CELLS:
                left_out += 1
                continue
            own = own_table(release, pair)
            cells += size * len(own)
            found += own
    return found, left_out


def total(release: Released) -> tuple[float, float] | None:
    """Return the number of records as released and its standard error, if it follows from the release."""
    own = own_table(release, ())
    return (float(own[0].values[0]), float(own[0].std[0])) if own else None


def planned_answers(release: Released) -> tuple[list[Answer], int]:
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


def _answers(release: Released, group: Group) -> Iterator[Answer]:
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


def own_table(release: Released, places: tuple[int, ...]) -> list[Table]:
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
