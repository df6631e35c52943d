"""More numbers of a release's page: tables on three attributes, what is shown first, what is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from querysmasher.arrays import one_core
from querysmasher.formatting import settled
from querysmasher.release.released import Released
from querysmasher.report.charts import MOST_SERIES
from querysmasher.report.release_data import FOLLOWS, Table, own_table
from querysmasher.report.share_data import CROSS
from querysmasher.schema import Schema

DEEP_CELLS = 150_000
"""Maximum number of cells of all tables on three attributes; smaller tables come first."""

BARS = 120
"""Maximum number of values of an attribute that the page opens on."""

CLEAR = 10.0
"""Least mean square of counts, over that of the noise, of a table on two attributes shown first."""

NAMED = 8
"""Number of tables that are not shown whose names are listed."""


def deep_tables(release: Released) -> list[Table]:
    """Return the tables on three attributes that were planned, as far as they fit on a page."""
    sizes = release.plan.schema.sizes
    triples = [places for places in planned_sets(release) if len(places) == 3]
    triples.sort(key=lambda places: math.prod(sizes[p] for p in places))
    found: list[Table] = []
    cells = 0
    with one_core():
        for places in triples:
            size = math.prod(sizes[p] for p in places)
            if cells + size > DEEP_CELLS:
                break
            own = own_table(release, places)
            cells += size * len(own)
            found += own
    return found


def planned_sets(release: Released) -> list[tuple[int, ...]]:
    """Return the attribute sets of the planned queries, each once, as increasing indexes."""
    sets = {tuple(sorted(release.plan.schema.positions(g.attributes))) for g in release.workload}
    return sorted(sets, key=lambda places: (len(places), places))


def not_shown(release: Released, found: list[Table]) -> str | None:
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


def opening(release: Released, found: Sequence[Table]) -> list[int]:
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


def total_data(release: Released) -> list[float] | None:
    """Return the number of records and its standard error, if it follows from the release."""
    own: list[Any] = own_table(release, ())
    return [settled(float(own[0].values[0])), settled(float(own[0].std[0]))] if own else None
