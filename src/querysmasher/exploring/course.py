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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from querysmasher.arrays import Array
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
from querysmasher.journal import Journal
from querysmasher.planning.estimating import Place, cell_cost
from querysmasher.planning.estimator.lifting import subsets
from querysmasher.release.exploration import PAIRS
from querysmasher.release.release import Release

LEAST = 1e-5
"""Sets whose share of a phase is smaller are not measured."""


@dataclass(eq=False)
class Course:
    """An exploration in progress: what was asked, and all noisy results so far."""

    asked: Asked
    journal: Journal
    _direct: Direct = field(default_factory=Direct)

    def run(self) -> Release:
        """Explore, and return everything that was measured."""
        journal, phases = self.journal, self.journal.phases
        whole, before = float(phases.left), phases.spent
        reserve = journal.options["error_share"] * whole
        budget = whole - reserve
        total = journal.measure_size(TOTAL * budget)
        spare = budget - float(phases.spent - before)
        sizes = {place: self.asked.schema.sizes[place[0]] for place in self.asked.singles}
        self._direct = Direct.of(self.asked, journal.budget, total, budget)
        if self._direct.weight == 1:
            journal.measure("all parts", self._direct.missing(journal.spent, spare))
        elif not self.asked.pairs:
            journal.measure("single attributes", by_size(sizes, spare))
        else:
            first = first_share(total, budget, list(sizes.values())) * budget
            costs = by_size(sizes, first)
            if journal.public_total is None and math.sqrt(self._change / (TOTAL * budget)) > ROUGH * total:
                costs = {place: (1 - AGAIN) * cost for place, cost in costs.items()} | {(): AGAIN * first}
            journal.measure("single attributes, a first look", costs)
            self._share_out(total, budget, spare - first)
        return journal.ended([place for place in self.asked.sets if place], reserve)

    def _share_out(self, total: float, budget: float, spare: float) -> None:
        """Measure pairs and triples where their distances ask for them."""
        pairs, triples = self.asked.pairs, self.asked.triples
        looking = 1 - self._direct.weight
        parts = Parts.of_noise(self.asked.singles, self._noises(self.asked.singles), self.journal.model())
        distances, sd, profiles = self._compare(PAIRS, list(pairs), looking * PAIR_SCORES * budget)
        spare -= looking * PAIR_SCORES * budget
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
        costs = np.array([cell_cost(self.asked.schema, place, self.journal.budget) for place in parts.places])
        looking = 1 - self._direct.weight
        precisions = filled(parts, self.asked.weights, costs, looking * cost)
        spent = dict(zip(parts.places, (precisions * costs).tolist(), strict=True))
        for place, own in self._direct.missing(self.journal.spent, (1 - looking) * cost).items():
            spent[place] = spent.get(place, 0.0) + own
        spent = {place: own for place, own in spent.items() if own > LEAST * cost}
        if not spent:  # no cell has prior variance: an empty table
            spent = by_size(dict.fromkeys(self.asked.singles, 1), cost)
        self.journal.measure(name, spent)
        precise = np.array([spent.get(place, 0.0) for place in parts.places]) / costs
        return parts.after(precise)

    def _compare(self, name: str, sets: Sequence[Place], cost: float) -> tuple[Array, float, list[Profile]]:
        """Measure how far tables are from their estimates.

        Return the distances, their standard error, and the profiles of the estimates.
        """
        profiles: list[Profile] = []
        done = self.journal.compare(name, sets, cost, lambda table: profiles.append(Profile.of(table)))
        return done.records, float(done.std(self.journal.noise.distribution)[0]), profiles

    @property
    def _change(self) -> int:
        return self.journal.budget.unit.squared_change()

    def _noises(self, places: Iterable[Place]) -> list[float]:
        """Return the variance of the noise on the residuals of some sets."""
        evidence = self.journal.model().evidence
        found = [evidence.noisy(place) for place in places]
        return [0.0 if one is None else one.variance for one in found]
