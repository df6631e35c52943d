"""The course of an exploration: which phases follow each other, and what each spends.

Everything here is computed from noisy results. Exact counts stay behind `Phases`, which adds up exact costs
and refuses a phase that would exceed the budget: an error in this file can cost accuracy, not privacy.

1. The number of records (unless it is public), then a first look at every single attribute.
2. The distance of every pair from independence. A pair's prior is scaled to its noisy distance, less one
   standard error; then water-filling (`filling`) shares the budget among pairs, and more accurate single
   attributes. A pair without visible signal gets little or nothing.
3. If the noise allows it, the distance of every triple from the table of maximum entropy given its pairs;
   then what was kept back is shared among triples and better pairs and single attributes in the same way.
4. The distance of every table of the workload from its estimate: the error of the estimate.

With very many records, the budget is spent as by the plan of least error (`direct`), in part or as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
from querysmasher.comparing import compare
from querysmasher.estimate.evidence import Evidence
from querysmasher.estimate.measured import ReleasedResiduals
from querysmasher.estimate.model import Model
from querysmasher.exploring.asked import Asked
from querysmasher.exploring.direct import Direct
from querysmasher.exploring.filling import filled
from querysmasher.exploring.parts import Parts
from querysmasher.exploring.shares import (
    AGAIN,
    FLOOR,
    PAIR_SCORES,
    ROUGH,
    TOTAL,
    TRIPLE_SCORES,
    Profile,
    by_size,
    first_share,
    later_share,
)
from querysmasher.planning.centre import uniform
from querysmasher.planning.lifting import subsets
from querysmasher.planning.residual_plan import Place, cell_cost, joined, residual_plan, tables
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.entries import Entry
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.phases import Phases
from querysmasher.release.exploration import ERRORS, PAIRS, Exploration, Measurement, Phase
from querysmasher.release.noise_record import NoiseRecord
from querysmasher.release.release import Release
from querysmasher.release.store import MemoryStore

LEAST = 1e-5
"""Sets whose share of a phase is smaller are not measured."""


@dataclass(eq=False)
class Course:
    """An exploration in progress: what was asked, and all noisy results so far."""

    asked: Asked
    budget: Budget
    phases: Phases
    noise: NoiseRecord
    max_records: int
    options: Mapping[str, float]
    progress: bool | None = None
    public_total: int | None = None
    entry: Entry | None = None
    person: str | None = None
    _plans: list[IntegerPlan] = field(default_factory=list)
    _store: MemoryStore = field(default_factory=MemoryStore)
    _done: list[Phase] = field(default_factory=list)
    _spent: dict[Place, float] = field(default_factory=dict)
    """The privacy cost spent on each set so far."""
    _direct: Direct = field(default_factory=Direct)
    _known: Model | None = None
    """The estimate from all noisy results so far, if it was asked for."""

    def run(self) -> Release:
        """Explore, and return everything that was measured."""
        self.public_total = self.phases.public_total()
        whole = float(self.phases.left)
        reserve = self.options["error_share"] * whole
        budget = whole - reserve
        if self.public_total is None:
            self._measure("number of records", {(): TOTAL * budget})
        total = self._model().total if self.public_total is None else float(self.public_total)
        spare = budget - float(self.phases.spent)
        sizes = {place: self.asked.schema.sizes[place[0]] for place in self.asked.singles}
        self._direct = Direct.of(self.asked, self.budget, total, budget)
        if self._direct.weight == 1:
            self._measure("all parts", self._direct.missing(self._spent, spare))
        elif not self.asked.pairs:
            self._measure("single attributes", by_size(sizes, spare))
        else:
            first = first_share(total, budget, list(sizes.values())) * budget
            costs = by_size(sizes, first)
            if self.public_total is None and math.sqrt(self._change / (TOTAL * budget)) > ROUGH * total:
                costs = {place: (1 - AGAIN) * cost for place, cost in costs.items()} | {(): AGAIN * first}
            self._measure("single attributes, a first look", costs)
            self._share_out(total, budget, spare - first)
        if reserve:
            model = self._model()  # which that of the release is, as errors are no part of it
            self._compare(ERRORS, [place for place in self.asked.sets if place], reserve)
            return self.release().remembering(model)
        return self.release()

    def _share_out(self, total: float, budget: float, spare: float) -> None:
        """Measure pairs and triples where their distances ask for them."""
        pairs, triples = self.asked.pairs, self.asked.triples
        looking = 1 - self._direct.weight
        distances, sd, profiles = self._compare(PAIRS, list(pairs), looking * PAIR_SCORES * budget)
        spare -= looking * PAIR_SCORES * budget
        parts = Parts.of_noise(self.asked.singles, self._noises(self.asked.singles), self._model())
        parts += Parts.of_distances(pairs, np.maximum(distances - sd, FLOOR * sd), profiles)
        scores = looking * TRIPLE_SCORES * budget
        later = later_share(math.sqrt(len(triples) * self._change / scores), total) * spare
        if not triples or later < 2 * scores:
            self._fill("pairs and single attributes", parts, spare)
            return
        parts = self._fill("pairs and single attributes", parts, spare - later)
        distances, sd, profiles = self._compare("distances of triples", list(triples), scores)
        errors = dict(zip(parts.places, parts.errors, strict=True))
        known = [
            sum(errors.get(some, 0.0) ** 2 for some in subsets(place) if len(some) == 2) for place in triples
        ]
        own = np.sqrt(np.maximum(np.maximum(distances - sd, 0.0) ** 2 - np.array(known), (FLOOR * sd) ** 2))
        parts += Parts.of_distances(triples, own, profiles)
        self._fill("triples, pairs and single attributes", parts, later - scores)

    def _fill(self, name: str, parts: Parts, cost: float) -> Parts:
        """Measure parts by water-filling; return what is left of their variances."""
        costs = np.array([cell_cost(self.asked.schema, place, self.budget) for place in parts.places])
        looking = 1 - self._direct.weight
        precisions = filled(parts, self.asked.weights, costs, looking * cost)
        spent = dict(zip(parts.places, (precisions * costs).tolist(), strict=True))
        for place, own in self._direct.missing(self._spent, (1 - looking) * cost).items():
            spent[place] = spent.get(place, 0.0) + own
        spent = {place: own for place, own in spent.items() if own > LEAST * cost}
        if not spent:  # no cell has prior variance: an empty table
            spent = by_size(dict.fromkeys(self.asked.singles, 1), cost)
        self._measure(name, spent)
        precise = np.array([spent.get(place, 0.0) for place in parts.places]) / costs
        return parts.after(precise)

    def _measure(self, name: str, costs: Mapping[Place, float]) -> None:
        """Measure the residuals of some sets, each at its privacy cost."""
        plan = residual_plan(self.asked.schema, self.budget, costs, self.max_records)
        for place, cost in costs.items():
            self._spent[place] = self._spent.get(place, 0.0) + cost
        start = sum(len(done.measured) for done in self._plans)
        for number, answers in self.phases.measure(plan, self.progress).items():
            self._store.put(start + number, answers)
        self._plans.append(plan)
        self._known = None
        self._done.append(Measurement(name, start, start + len(plan.measured)))

    def _compare(self, name: str, sets: Sequence[Place], cost: float) -> tuple[Array, float, list[Profile]]:
        """Measure how far tables are from their estimates.

        Return the distances, their standard error, and the profiles of the estimates.
        """
        profiles: list[Profile] = []
        done = compare(
            name,
            sets,
            cost,
            self._model(),
            self.phases,
            budget=self.budget,
            max_records=self.max_records,
            progress=self.progress,
            seen=None if name == ERRORS else lambda table: profiles.append(Profile.of(table)),
        )
        self._done.append(done)
        self._known = None
        return done.records, float(done.std(self.noise.distribution)[0]), profiles

    @property
    def _change(self) -> int:
        return self.budget.unit.squared_change()

    def _noises(self, places: Iterable[Place]) -> list[float]:
        """Return the variance of the noise on the residuals of some sets."""
        evidence = self._model().evidence
        found = [evidence.noisy(place) for place in places]
        return [0.0 if one is None else one.variance for one in found]

    def _model(self) -> Model:
        """Return the estimate of every table from what was measured so far."""
        if self._known is None:
            sources = (ReleasedResiduals(self.release()),) if self._plans else ()
            self._known = Model(Evidence(self.asked.schema, sources))
        return self._known

    def release(self) -> Release:
        """Return what was measured so far."""
        plan = joined(self._plans, self.budget)
        return Release(
            plan,
            tables(self.asked.schema, _answerable(plan)),
            uniform(self.asked.schema),
            self.noise,
            self._store,
            self.public_total,
            entry=self.entry,
            person=self.person,
            asked=self.asked.workload,
            exploration=Exploration(self.options, tuple(self._done)),
        )


def _answerable(plan: IntegerPlan) -> list[Place]:
    """Return the sets of which every part was measured, so that the release answers their tables."""
    measured = {m.attributes for m in plan.measured}

    def follows(place: Place) -> bool:
        return all(some in measured for some in subsets(place) if some)

    found = dict.fromkeys(m.attributes for m in plan.measured if m.attributes and follows(m.attributes))
    return list(found) or [()]
