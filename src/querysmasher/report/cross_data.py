"""More numbers of a release's page: tables within a value of a third attribute, and what is not shown."""

from __future__ import annotations

import itertools
import math
from typing import Any

from querysmasher.arrays import one_core
from querysmasher.formatting import settled
from querysmasher.release.released import Released
from querysmasher.report.release_data import Table, own_table

DEEP_CELLS = 150_000
"""Maximum number of cells of all tables on three attributes; smaller tables come first."""

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
    return f"Planned, but not shown here: {said}{more}. The file of answers and release.table(…) have all."


def total_data(release: Released) -> list[float] | None:
    """Return the number of records and its standard error, if it follows from the release."""
    own: list[Any] = own_table(release, ())
    return [settled(float(own[0].values[0])), settled(float(own[0].std[0]))] if own else None
