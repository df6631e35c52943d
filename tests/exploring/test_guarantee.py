"""The guarantee by brute force: along one course of noisy results, all neighbours cost at most the budget.

A course is fixed by its noisy results. For each neighbour the same results are handed to the same code, which
must ask for the same phases, and the exact answers of both tables are compared phase by phase.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.exploring.explore import Course, Request
from querysmasher.measuring import Journal, measure_sized
from querysmasher.privacy.counts import CountedOnce
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.phases import Phases
from querysmasher.release.provenance import NoiseRecord
from tests.release.tables import TableCounter, Telltale

SCHEMA = qs.Schema.of(a=2, b=3, c=2)
WORKLOAD = qs.marginals(SCHEMA, [2, 3])
OPTIONS = {"error_share": 0.1, "size_share": 0.05}
RECORD = NoiseRecord("rounded", "none", seeded=True)


def explored(budget, phases):
    Course(Request(WORKLOAD), Journal(WORKLOAD, phases, RECORD, OPTIONS)).run()


def sized(budget, phases):
    measure_sized(Journal(WORKLOAD, phases, RECORD, OPTIONS), list(Request(WORKLOAD).weights))


class Scripted(Phases):
    """Hands out the noisy results of one table, and notes the exact answers of another."""

    def __init__(self, budget, counts, script=None):
        counter = CountedOnce(SCHEMA, TableCounter(SCHEMA, counts), Request(WORKLOAD).counted)
        super().__init__(SCHEMA, budget, counter, noise_source("rounded", 5), 1000)
        self.quiet = Phases(SCHEMA, budget, counter, Telltale(0), 1000)
        self.script, self.noisy, self.noted = script, [], []

    def _noted(self, asked, exact, noisy):
        self.noted.append((asked, exact))
        self.noisy.append(noisy if self.script is None else self.script[len(self.noisy)])
        return self.noisy[-1]

    def measure(self, plan, progress=None):
        exact = self.quiet.measure(plan)
        asked = [(m.attributes, m.variance) for m in plan.measured]
        flat = [exact[i] for i in range(len(asked))]
        return self._noted(asked, flat, super().measure(plan, progress))

    def distances(self, asked, targets, progress=None):
        exact = self.quiet.distances(asked, targets)
        known = [(d.attributes, d.variance) for d in asked.queries]
        return self._noted(known, list(exact), super().distances(asked, targets, progress))


def neighbours(counts, unit):
    cells = list(np.ndindex(*counts.shape))
    several = list(itertools.combinations_with_replacement(cells, unit.records_per_person))
    for changed in several:
        more = counts.copy()
        for cell in changed:
            more[cell] += 1
        if not unit.total_is_public:
            yield more
            continue
        for removed in several[:: max(1, len(several) // 12)]:
            less = more.copy()
            for cell in removed:
                less[cell] -= 1
            if less.min() >= 0:
                yield less


@pytest.mark.slow
@pytest.mark.parametrize("unit", [("add_remove", 1), ("add_remove", 2), ("replace_one", 1)])
@pytest.mark.parametrize("cost", [0.5, 400.0])
@pytest.mark.parametrize("course", [explored, sized])
def test_no_neighbour_costs_more_than_the_budget(unit, cost, course):
    budget = qs.PrivacyCost(cost, neighbours=unit[0], records_per_person=unit[1])
    counts = np.random.default_rng(2).integers(0, 9, SCHEMA.sizes)
    first = Scripted(budget, counts)
    course(budget, first)
    assert len(first.noted) >= 2  # measurements and distances
    most = Fraction(0)
    for other in itertools.islice(neighbours(counts, budget.unit), 8):
        second = Scripted(budget, other, first.noisy)
        course(budget, second)
        total = Fraction(0)
        for (asked, one), (again, two) in zip(first.noted, second.noted, strict=True):
            assert asked == again, "a phase depends on more than noisy results"
            for (_, variance), a, b in zip(asked, one, two, strict=True):
                changes = np.subtract(a, b).ravel().tolist()  # plain integers, whose squares are exact
                total += Fraction(sum(change**2 for change in changes)) / variance
        assert total <= Fraction(cost)
        most = max(most, total)
    assert most > Fraction(cost) / 4  # the bound is not idle
