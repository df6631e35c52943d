"""The noisy results of a table that is measured in phases, so far: what later phases are planned from.

Exact counts stay behind `Phases`, which adds up exact costs and refuses a phase that would exceed the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
from querysmasher.errors import BudgetError, TooLargeError, as_given, as_share
from querysmasher.estimate.evidence import Evidence
from querysmasher.estimate.table_model import LARGEST, Model
from querysmasher.guarantees import ALL, Counted
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimating import (
    Place,
    joined,
    residual_plan,
    size_share,
    sized_costs,
    tables,
)
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.planning.integer import rounded_up
from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import Distance, Distances
from querysmasher.privacy.budget import Budget, rounded
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.factors import Integers
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.phases import Phases
from querysmasher.release.provenance import (
    ERRORS,
    ComparedPhase,
    Exploration,
    MeasuredPhase,
    NoiseRecord,
    Phase,
)
from querysmasher.release.release import Release
from querysmasher.release.store import MemoryStore, new_store
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
    sets = dict.fromkeys(tuple(sorted(schema.positions(group.attributes))) for group in workload)
    for attributes in sets:
        cells = _cells(schema, attributes)
        if cells > LARGEST:
            names = ", ".join(schema.names[a] for a in attributes)
            raise TooLargeError(
                f"error_share: the table on ({names}) has {cells:,} cells; errors are measured of tables of "
                f"at most {LARGEST:,}"
            )
    return [attributes for attributes in sets if attributes]


def compare(
    name: str,
    sets: Sequence[Place],
    cost: float,
    model: Model,
    phases: Phases,
    progress: bool | None = None,
    seen: Callable[[Array], None] | None = None,
) -> ComparedPhase:
    """Measure how far the table is from the estimates of some sets, at a privacy cost.

    `seen` is called with every estimated table.
    """
    schema, budget = phases.schema, phases.budget
    change = budget.unit.change()
    variance = rounded_up(MULTIPLE**2 * change * len(sets) / cost * (1 + 2**-40))
    queries = tuple(Distance(attributes, MULTIPLE, variance) for attributes in sets)
    distances = Distances(schema, budget, queries, phases.max_records)
    targets = new_store(sum(_cells(schema, attributes) for attributes in sets))
    for number, table in enumerate(model.tables(sets)):
        targets.put(number, np.rint(table * MULTIPLE).astype(np.int64))
        if seen is not None:
            seen(table)

    def target(number: int) -> Integers:
        shape = [schema.sizes[a] for a in sets[number]]
        return targets[number].astype(np.int64, copy=False).reshape(shape)

    return ComparedPhase(name, distances, phases.distances(distances, target, progress))


def _cells(schema: Schema, attributes: Place) -> int:
    return math.prod(schema.sizes[a] for a in attributes)


@dataclass(eq=False)
class Journal:
    """The workload, and the results of all phases so far."""

    workload: Workload
    phases: Phases
    noise: NoiseRecord
    options: Mapping[str, float]
    progress: bool | None = None
    entry: Entry | None = None
    counted: Counted = ALL
    public_total: int | None = None
    spent: dict[Place, float] = field(default_factory=dict)
    """The privacy cost spent on each set."""
    _plans: list[IntegerPlan] = field(default_factory=list)
    _store: MemoryStore = field(default_factory=MemoryStore)
    _done: list[Phase] = field(default_factory=list)
    _measured: tuple[IntegerPlan, Workload] | None = None
    """All plans as one, and what can be answered from them, if these were asked for."""
    _known: Model | None = None
    """The estimate from all noisy results so far, if it was asked for."""

    @property
    def budget(self) -> Budget:
        """The budget of all phases together."""
        return self.phases.budget

    def measure_size(self, cost: float) -> float:
        """Return the number of records: measured at a privacy cost, or for nothing where it is public."""
        self.public_total = self.phases.public_total()
        if self.public_total is not None:
            return float(self.public_total)
        self.measure("number of records", {(): cost})
        return self.model().total

    def measure(self, name: str, costs: Mapping[Place, float]) -> None:
        """Measure the residuals of some sets, each at its privacy cost."""
        plan = residual_plan(self.workload.schema, self.budget, costs, self.phases.max_records)
        for attributes, cost in costs.items():
            self.spent[attributes] = self.spent.get(attributes, 0.0) + cost
        start = sum(len(done.measured) for done in self._plans)
        for number, answers in self.phases.measure(plan, self.progress).items():
            self._store.put(start + number, answers)
        self._plans.append(plan)
        self._known = self._measured = None
        self._done.append(MeasuredPhase(name, start, start + len(plan.measured)))

    def compare(
        self, name: str, sets: Sequence[Place], cost: float, seen: Callable[[Array], None] | None = None
    ) -> ComparedPhase:
        """Measure how far tables are from their estimates; `seen` is called with every estimate."""
        done = compare(name, sets, cost, self.model(), self.phases, self.progress, seen)
        self._done.append(done)
        self._known = None
        return done

    def ended(self, sets: Sequence[Place], cost: float) -> Release:
        """Return everything that was measured, with the errors of some tables if these are to cost a bit."""
        if not cost:
            return self.release()
        self._known = model = self.release().estimate().model  # errors are no part of it
        self.compare(ERRORS, sets, cost)
        return self.release().remembering(model)

    def model(self) -> Model:
        """Return the estimate of every table from what was measured so far."""
        if self._known is None:
            nothing = Evidence(self.workload.schema, lambda _: None)
            self._known = Model(Evidence.of_release(self.release()) if self._plans else nothing)
        return self._known

    def release(self) -> Release:
        """Return what was measured so far."""
        if self._measured is None:
            plan = joined(self._plans, self.budget)
            self._measured = plan, tables(plan.schema, _answerable(plan))
        return Release(
            *self._measured,
            uniform(self.workload.schema),
            self.noise,
            self._store,
            self.public_total,
            entry=self.entry,
            counted=self.counted,
            asked=self.workload,
            exploration=Exploration(self.options, tuple(self._done)),
        )


def _answerable(plan: IntegerPlan) -> list[Place]:
    """Return the sets of which every part was measured, so that the release answers their tables."""
    measured = {m.attributes for m in plan.measured}

    def follows(attributes: Place) -> bool:
        return all(subset in measured for subset in subsets(attributes) if subset)

    sets = dict.fromkeys(m.attributes for m in plan.measured if m.attributes and follows(m.attributes))
    return list(sets) or [()]


PARTS = "parts of tables"
"""The name of the phase that follows the number of records."""

LEAST_COST = 1e-12
"""Minimum privacy cost: the noise of its smallest shares can be drawn."""


def size_options(plan: Plan, cost: float) -> dict[str, float]:
    """Return the options of a measurement that learns the size first; refuse a budget too small for it."""
    if not plan.sizes_first:
        return {}
    if cost < LEAST_COST:
        raise BudgetError(
            f"plan: expected a privacy cost of at least {LEAST_COST:g} to measure the number of records "
            f"first, got {plan.budget!r}; state a rough number of records when planning"
        )
    return {"size_share": size_share(plan.budget)}


def measure_sized(journal: Journal, compared: Sequence[Place]) -> Release:
    """Measure the number of records, then what is best for such a table, then errors of the estimate.

    Formal guarantee: that of `privacy.phases`. The number of records is measured with noise at its share of
    the budget, or it is public. What is measured then depends on the table only through this noisy number.
    Both phases, and the errors of the estimate if they are bought, add their exact costs, and none may exceed
    the budget. The same noisy number gives the same second phase, so that `verify` plans it again.
    """
    whole, before = rounded(journal.phases.left, up=False), journal.phases.spent
    reserve = journal.options["error_share"] * whole
    budget = whole - reserve
    size = journal.measure_size(journal.options["size_share"] * budget)
    spare = budget - float(journal.phases.spent - before)
    journal.measure(PARTS, sized_costs(journal.workload, journal.budget, size, spare))
    return journal.ended(compared, reserve)
