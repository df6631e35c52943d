"""A set that several phases measured: combined with the least variance, with honest standard errors."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import querysmasher as qs
from querysmasher.errors import FileError
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.measurement import measure_table
from querysmasher.privacy.noise import noise_source
from querysmasher.release.reconstruction import MemoryStore
from tests.builders import ALARM, UNIFORM
from tests.release.tables import TableCounter, random_counts, simulate, whole

SCHEMA = qs.Schema.of(a=3, b=4)
WORKLOAD = qs.marginals(SCHEMA, [1, 2])
PLAN = qs.plan(WORKLOAD, qs.PrivacyCost(1.0), **UNIFORM)
COUNTS = random_counts(SCHEMA, 5)


def repeated(factors, seed=0, counts=COUNTS):
    """A release in which set k is measured len(factors[k]) times, with these multiples of its variance."""
    once = whole(PLAN)
    measured = tuple(
        replace(m, variance=m.variance * factor)
        for m, own in zip(once.measured, factors, strict=True)
        for factor in own
    )
    plan = IntegerPlan(SCHEMA, qs.PrivacyCost(1e3), once.strategies, measured, once.max_records)
    store = MemoryStore()
    for number, answers in measure_table(plan, TableCounter(SCHEMA, counts), noise_source("rounded", seed)):
        store.put(number, answers)
    return replace(simulate(PLAN, counts, seed), plan=plan, store=store)


COUNT = len(whole(PLAN).measured)
fractions = st.fractions(Fraction(1, 8), 8, max_denominator=8)


@given(st.lists(st.lists(fractions, min_size=1, max_size=3), min_size=COUNT, max_size=COUNT))
@settings(max_examples=20)
def test_repeats_are_as_good_as_one_measurement_of_the_combined_precision(factors):
    several = repeated(factors)
    once = repeated([[1 / sum(1 / f for f in own)] for own in factors])
    np.testing.assert_allclose(several.answer().std, once.answer().std, rtol=1e-6)
    np.testing.assert_allclose(
        np.sqrt(np.diag(several.covariance(WORKLOAD))), several.answer().std, rtol=1e-9
    )


@pytest.mark.slow
def test_errors_over_many_releases_have_the_stated_size():
    """Chi-squared of every answer's errors, at the false alarm rate ALARM for all together."""
    factors = [[1, Fraction(1, 3), 2]] * COUNT
    exact = np.concatenate([COUNTS.sum(1), COUNTS.sum(0), COUNTS.ravel()])
    runs = 120
    found = [repeated(factors, seed).answer() for seed in range(runs)]
    squares = sum((one.values - exact) ** 2 for one in found) / found[0].std ** 2
    low, high = stats.chi2(runs).ppf([ALARM / 2 / exact.size, 1 - ALARM / 2 / exact.size])
    assert low < squares.min() <= squares.max() < high
    bias = np.mean([one.values - exact for one in found], axis=0) / found[0].std * np.sqrt(runs)
    assert np.abs(bias).max() < stats.norm.isf(ALARM / 2 / exact.size)


def test_repeats_survive_a_file_and_other_strategies_on_the_same_set_are_refused(tmp_path):
    release = repeated([[1, 2]] * COUNT)
    release.save(tmp_path / "r.qs")
    again = qs.Release.load(tmp_path / "r.qs")
    np.testing.assert_array_equal(again.answer().values, release.answer().values)
    *others, last = release.plan.measured
    twice = [(axes, len(release.plan.strategies)) for axes, _ in last.blocks]
    own = release.plan.strategies[last.blocks[0][1]]
    plan = replace(
        release.plan,
        strategies=(*release.plan.strategies, own),
        measured=(*others, replace(last, blocks=(twice[0], *last.blocks[1:]))),
    )
    replace(release, plan=plan).save(tmp_path / "other.qs")
    with pytest.raises(FileError, match="measured twice"):
        qs.Release.load(tmp_path / "other.qs")
