"""Phases: one budget for all of them, whatever each is chosen from; a table is counted once."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import querysmasher as qs
from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import Distance, Distances
from querysmasher.privacy.counts import CountedOnce
from querysmasher.privacy.noise import noise_source
from querysmasher.privacy.phases import Phases
from tests.builders import ALARM
from tests.ledgers import costing
from tests.release.tables import TableCounter, Telltale, marginal, random_counts

SCHEMA = qs.Schema.of(a=2)
COUNTS = np.array([30, 12])


class Counting(TableCounter):
    """Counts how often it is asked."""

    asked = 0

    def marginals(self, sets):
        self.asked += 1
        yield from super().marginals(sets)


def phases(budget, noise="rounded", counter=None):
    return Phases(SCHEMA, budget, counter or Counting(SCHEMA, COUNTS), noise_source(noise, 1), 1000)


def distance(cost, **unit):
    budget = qs.PrivacyCost(1e9, **unit)
    return Distances(SCHEMA, budget, (Distance((0,), 1, budget.unit.change() / Fraction(cost)),), 1000)


def target(_):
    return np.zeros(2, np.int64)


steps = st.lists(st.tuples(st.booleans(), st.integers(1, 8)), min_size=1, max_size=12)


@given(steps)
def test_phases_spend_the_exact_sum_and_never_more_than_the_budget(steps):
    """Costs are eighths, exact in binary: the sum may reach the budget and not pass it."""
    counter = Counting(SCHEMA, COUNTS)
    own, spent, counted = phases(qs.PrivacyCost(2.0), counter=counter), Fraction(0), 0
    for is_plan, eighths in steps:
        cost = Fraction(eighths, 8)

        def phase(is_plan=is_plan, cost=cost):
            return own.measure(costing(cost)) if is_plan else own.distances(distance(cost), target)

        if spent + cost <= 2:
            phase()
            spent, counted = spent + cost, counted + 1
        else:
            with pytest.raises(PrivacyError, match="nothing of it was measured"):
                phase()
        assert (own.spent, own.left, counter.asked) == (spent, 2 - spent, counted)


def test_a_phase_that_fails_counts_as_spent():
    own = phases(qs.PrivacyCost(1.0))
    with pytest.raises(PrivacyError, match="targets"):
        own.distances(distance(Fraction(1, 2)), lambda _: np.zeros(3, np.int64))
    assert own.spent == Fraction(1, 2)


def test_discrete_noise_is_accounted_through_zcdp():
    budget = qs.ApproxDP(1.0, 1e-6)
    assert phases(budget, "discrete").left == Fraction(budget.discrete_privacy_cost)
    assert phases(budget).left == Fraction(budget.privacy_cost) > Fraction(budget.discrete_privacy_cost)


def test_phases_for_others_are_refused_with_nothing_spent():
    own = phases(qs.PrivacyCost(1.0))
    for wrong in (
        distance(Fraction(1, 8), neighbours="replace_one"),
        distance(Fraction(1, 8), records_per_person=2),
        Distances(qs.Schema.of(b=2), qs.PrivacyCost(1.0), (), 1000),
        Distances(SCHEMA, qs.PrivacyCost(1.0), (), 999),
    ):
        with pytest.raises(PrivacyError, match="phase: "):
            own.distances(wrong, target)
    with pytest.raises(PrivacyError, match="phase: "):
        own.measure(costing(Fraction(1, 8), records_per_person=3))
    assert own.spent == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_adaptive_phases_lose_nothing(sign):
    """The log-likelihood ratio of adaptively chosen Gaussian phases is N(±β/2, β): the proof, simulated.

    The shift of every phase depends on the sign of the value before it. False alarm rate: ALARM.
    """
    generator, beta, runs = np.random.default_rng(7), 1.5, 40_000
    left, loss, value = np.full(runs, beta), np.zeros(runs), np.zeros(runs)
    for _ in range(6):
        shift = np.sqrt(np.where(value > 0, 0.1, 0.6) * left)
        z = generator.normal(size=runs)
        value = z + (shift if sign > 0 else 0)
        loss += shift * value - shift**2 / 2
        left -= shift**2
    z = generator.normal(size=runs)  # the value nobody reads, which uses up the budget
    loss += np.sqrt(left) * (z + (np.sqrt(left) if sign > 0 else 0)) - left / 2
    result = stats.kstest(loss, stats.norm(sign * beta / 2, np.sqrt(beta)).cdf)
    assert result.pvalue > ALARM


def test_the_noise_of_a_phase_has_the_stated_variance():
    """Chi-squared, two-sided, at the false alarm rate ALARM."""
    own = phases(qs.PrivacyCost(1e9))
    draws, variance = 4_000, Fraction(400)
    asked = Distances(SCHEMA, qs.PrivacyCost(1e9), (Distance((0,), 1, variance),) * draws, 1000)
    found = own.distances(asked, target) - COUNTS.sum()
    low, high = stats.chi2(draws).ppf([ALARM / 2, 1 - ALARM / 2])
    assert low < (found**2).sum() / (400 + 1 / 12) < high


# --- counting once ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "passes"), [(10**6, 1), (10, 3)])
def test_a_table_is_counted_once_or_once_per_phase(most, passes):
    schema = qs.Schema.of(a=3, b=4, c=2, d=5)
    counts = random_counts(schema, 3)
    inner = Counting(schema, counts)
    sets = [("a", "b", "c"), ("c", "d"), ("a",)]
    counter = CountedOnce(schema, inner, sets, most)
    for asked in ([("a",), ("d",), ()], [("a", "c"), ("b", "a"), ("d",)], sets):
        found = list(counter.marginals(asked))
        for names, table in zip(asked, found, strict=True):
            np.testing.assert_array_equal(table, marginal(schema, counts, names))
    assert inner.asked == passes
    assert counter.records() == counts.sum()


def test_sets_that_nobody_expected_are_counted_from_the_table():
    schema = qs.Schema.of(a=3, b=4, c=2)
    counts = random_counts(schema, 3)
    inner = Counting(schema, counts)
    counter = CountedOnce(schema, inner, [("a", "b"), ("a", "c")])
    for asked, passes in (([("a",)], 1), ([("b",), ("b", "c")], 2), ([("c",), ()], 2)):
        for names, table in zip(asked, counter.marginals(asked), strict=True):
            np.testing.assert_array_equal(table, marginal(schema, counts, names))
        assert inner.asked == passes


def test_no_repr_shows_a_count():
    counter = CountedOnce(SCHEMA, TableCounter(SCHEMA, COUNTS), [("a",)])
    list(counter.marginals([("a",)]))
    own = Phases(SCHEMA, qs.PrivacyCost(1.0), counter, Telltale(0), 1000)
    for text in (repr(counter), repr(own), str(own)):
        assert not any(str(n) in text for n in (*COUNTS.tolist(), COUNTS.sum()))
