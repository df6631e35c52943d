"""A phase that compares a table with its estimates: what `explore` plans by, and the errors of estimates.

Only noisy distances leave `Phases`, which adds their exact cost to what was spent before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import BudgetError, TooLargeError, as_given, as_share
from querysmasher.estimate.model import LARGEST, Model
from querysmasher.planning.residual_plan import Place, rounded_up
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distances import Distance, Distances
from querysmasher.privacy.factors import Integers
from querysmasher.privacy.phases import Phases
from querysmasher.release.exploration import Comparison
from querysmasher.release.store import new_store
from querysmasher.schema import Schema
from querysmasher.workload.workload import Workload

MULTIPLE = 2**10
"""Distances are measured from tables rounded to multiples of 1/1024 of a record."""

MOST_SHARE = 0.5
"""Maximum share of the budget for the errors of the estimate."""


def check_error_share(share: float) -> None:
    """Refuse what is no share of a budget for errors."""
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if not is_number or not 0 <= share <= MOST_SHARE:
        msg = f"error_share: expected a number from 0 to {MOST_SHARE}, got {as_given(share)}{as_share(share)}"
        raise BudgetError(msg)


def compared_sets(workload: Workload) -> list[Place]:
    """Return the attribute sets of a workload whose tables have errors; refuse tables that are too large."""
    schema = workload.schema
    places = dict.fromkeys(tuple(sorted(schema.positions(group.attributes))) for group in workload)
    for place in places:
        cells = _cells(schema, place)
        if cells > LARGEST:
            names = ", ".join(schema.names[a] for a in place)
            raise TooLargeError(
                f"error_share: the table on ({names}) has {cells:,} cells; errors are measured of tables of "
                f"at most {LARGEST:,}"
            )
    return [place for place in places if place]


def compare(
    name: str,
    sets: Sequence[Place],
    cost: float,
    model: Model,
    phases: Phases,
    *,
    budget: Budget,
    max_records: int,
    progress: bool | None = None,
    seen: Callable[[Array], None] | None = None,
) -> Comparison:
    """Measure how far the table is from the estimates of some sets, at a privacy cost.

    `seen` is called with every estimated table.
    """
    schema = model.schema
    change = budget.unit.squared_change()
    variance = rounded_up(MULTIPLE**2 * change * len(sets) / cost * (1 + 2**-40))
    asked = Distances(
        schema, budget, tuple(Distance(place, MULTIPLE, variance) for place in sets), max_records
    )
    targets = new_store(sum(_cells(schema, place) for place in sets))
    for number, table in enumerate(model.tables(sets)):
        targets.put(number, np.rint(table * MULTIPLE).astype(np.int64))
        if seen is not None:
            seen(table)

    def target(number: int) -> Integers:
        shape = [schema.sizes[a] for a in sets[number]]
        return targets[number].astype(np.int64, copy=False).reshape(shape)

    return Comparison(name, asked, phases.distances(asked, target, progress))


def _cells(schema: Schema, place: Place) -> int:
    return math.prod(schema.sizes[a] for a in place)
