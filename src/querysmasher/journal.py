"""The noisy results of a table that is measured in phases, so far: what later phases are planned from.

Exact counts stay behind `Phases`, which adds up exact costs and refuses a phase that would exceed the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from querysmasher.arrays import Array
from querysmasher.comparing import compare
from querysmasher.estimate.evidence import Evidence
from querysmasher.estimate.measured import ReleasedResiduals
from querysmasher.estimate.model import Model
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimating import Place, joined, residual_plan, tables
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.phases import Phases
from querysmasher.release.exploration import ERRORS, Comparison, Exploration, Measurement, Phase
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.release import Release
from querysmasher.release.store import MemoryStore
from querysmasher.report.left_out import ALL, Counted
from querysmasher.workload.workload import Workload


@dataclass(eq=False)
class Journal:
    """What was asked, and the results of all phases so far."""

    asked: Workload
    budget: Budget
    phases: Phases
    noise: NoiseRecord
    max_records: int
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

    def measure_size(self, cost: float) -> float:
        """Return the number of records: measured at a privacy cost, or for nothing where it is public."""
        self.public_total = self.phases.public_total()
        if self.public_total is not None:
            return float(self.public_total)
        self.measure("number of records", {(): cost})
        return self.model().total

    def measure(self, name: str, costs: Mapping[Place, float]) -> None:
        """Measure the residuals of some sets, each at its privacy cost."""
        plan = residual_plan(self.asked.schema, self.budget, costs, self.max_records)
        for place, cost in costs.items():
            self.spent[place] = self.spent.get(place, 0.0) + cost
        start = sum(len(done.measured) for done in self._plans)
        for number, answers in self.phases.measure(plan, self.progress).items():
            self._store.put(start + number, answers)
        self._plans.append(plan)
        self._known = self._measured = None
        self._done.append(Measurement(name, start, start + len(plan.measured)))

    def compare(
        self, name: str, sets: Sequence[Place], cost: float, seen: Callable[[Array], None] | None = None
    ) -> Comparison:
        """Measure how far tables are from their estimates; `seen` is called with every estimate."""
        done = compare(
            name,
            sets,
            cost,
            self.model(),
            self.phases,
            budget=self.budget,
            max_records=self.max_records,
            progress=self.progress,
            seen=seen,
        )
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
            sources = (ReleasedResiduals(self.release()),) if self._plans else ()
            self._known = Model(Evidence(self.asked.schema, sources))
        return self._known

    def release(self) -> Release:
        """Return what was measured so far."""
        if self._measured is None:
            plan = joined(self._plans, self.budget)
            self._measured = plan, tables(plan.schema, _answerable(plan))
        return Release(
            *self._measured,
            uniform(self.asked.schema),
            self.noise,
            self._store,
            self.public_total,
            entry=self.entry,
            counted=self.counted,
            asked=self.asked,
            exploration=Exploration(self.options, tuple(self._done)),
        )


def _answerable(plan: IntegerPlan) -> list[Place]:
    """Return the sets of which every part was measured, so that the release answers their tables."""
    measured = {m.attributes for m in plan.measured}

    def follows(place: Place) -> bool:
        return all(some in measured for some in subsets(place) if some)

    found = dict.fromkeys(m.attributes for m in plan.measured if m.attributes and follows(m.attributes))
    return list(found) or [()]
