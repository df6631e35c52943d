"""Shrinkage in the space of what was measured dominates, and projections do not hurt."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.arrays import along_axes
from querysmasher.comparison.rehearsal import true_answers
from querysmasher.estimate.sums import plausible, rotation_of, shrink
from querysmasher.workload.families import Circular, Prefix, Range
from tests.estimate.tables import counted, frame, people, random_table
from tests.release.tables import simulations


@pytest.mark.slow
@pytest.mark.parametrize("length", [0.0, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("spread", ["even", "harmonic", "steep"])
def test_the_rule_of_james_and_stein_dominates(length, spread):
    count = 40
    weights = {
        "even": np.ones(count),
        "harmonic": 1 / np.arange(1, count + 1),
        "steep": 2.0 ** -np.arange(count),
    }
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(count)
    truth *= length / np.linalg.norm(truth)
    ours, theirs = [], []
    for _ in range(1500):
        noisy = truth + rng.standard_normal(count)
        change = shrink(noisy, weights[spread], np.ones(count))
        ours.append(float(weights[spread] @ (change - truth) ** 2))
        theirs.append(float(weights[spread] @ (noisy - truth) ** 2))
    gain = np.array(theirs) - np.array(ours)
    # risk is never larger: the mean gain is below -6 standard errors with a probability below 1e-8
    assert gain.mean() >= -6 * gain.std() / np.sqrt(len(gain))
    if length == 0 and spread != "steep":
        assert np.mean(ours) < 0.7 * np.mean(theirs)


def there_and_back(values, bases):
    return along_axes(along_axes(values, 0, bases), 0, [basis.T for basis in bases])


def test_a_rotated_strategy_is_the_strategy():
    schema, records = people(500)
    table = frame(schema, records)
    workload = qs.queries(schema, a="prefix", c="identity") + qs.queries(schema, b="circular")
    release = qs.measure(qs.plan(workload, qs.PrivacyCost(1.0), centering="uniform"), table, seed=0)
    plan = release.plan
    for number, (measured, one) in enumerate(zip(plan.measured, release.to_arrays(), strict=True)):
        if not measured.attributes:
            continue
        rotation = rotation_of(measured, [plan.strategies[n] for _, n in measured.blocks])
        exact = counted(schema, records, measured.attributes)
        assert rotation.predicted(exact).ravel() == pytest.approx(one.matrix() @ exact.ravel())
        answers = release.store[number].astype(float).reshape(rotation.multiples.shape)
        inside = rotation.predicted(exact)  # in the span of the strategy: nothing is lost by turning
        assert there_and_back(inside, rotation.bases) == pytest.approx(inside)
        assert along_axes(answers, 0, rotation.bases).shape == rotation.weights.shape


@pytest.mark.parametrize("centering", ["uniform", "optimized"])
@pytest.mark.parametrize("asked", [Prefix, Range, Circular])
def test_directions_weigh_what_they_change_in_the_answers(centering, asked):
    schema = qs.Schema.of(a=6, b=3)
    plan = qs.plan(qs.queries(schema, a="range", b="identity"), qs.PrivacyCost(1.0), centering=centering)
    release = qs.measure(plan, pa.table({"a": [0, 1, 5], "b": [0, 2, 2]}), seed=0)
    family, rng = asked((6,)), np.random.default_rng(0)
    number = [m.attributes for m in release.plan.measured].index((0,))
    around = np.eye(6) - np.array(release.centres[0].weights)[:, None]
    own = release.plan.measured[number]
    strategies = [release.plan.strategies[n] for _, n in own.blocks]
    rotation = rotation_of(own, strategies, {0: around.T @ family.gram() @ around})
    (matrix,) = rotation.matrices
    for _ in range(3):
        error = matrix @ rng.standard_normal(6)
        changed = family.matrix() @ around @ np.linalg.pinv(matrix) @ error
        assert rotation.weights @ along_axes(error, 0, rotation.bases) ** 2 == pytest.approx(
            changed @ changed
        )
        assert there_and_back(error, rotation.bases) == pytest.approx(error)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["prefix", "range"])
@pytest.mark.parametrize("purpose", ["answers", "estimate"])
def test_sums_that_nobody_planned_are_no_worse_than_unbiased(family, purpose):
    """A release of cells is asked for prefixes: what is good for cells is not what is good for sums."""
    schema, records = people(2000)
    table = frame(schema, records)
    plan = qs.plan(qs.marginals(schema, 2), qs.ApproxDP(0.5, 1e-9), purpose=purpose)
    asked = qs.all_kway(schema, [1, 2], family)
    exact = true_answers(asked, table)
    squares = np.zeros(2)
    for seed in range(10):
        release = qs.measure(plan, table, seed=seed)
        found = release.answer(asked).values, release.estimate().answer(asked).values
        squares += [np.mean((values - exact) ** 2) for values in found]
    assert squares[1] < squares[0]


@given(
    st.lists(st.lists(st.floats(0, 5), min_size=4, max_size=4), min_size=3, max_size=3),
    st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=3, max_size=3),
)
def test_plausible_answers_are_no_farther_from_any_true_ones(cells, noise):
    truth = np.cumsum(np.cumsum(np.array(cells), axis=0), axis=1)
    noisy = truth + np.array(noise)
    found = plausible(noisy, [0, 1])
    assert found.min() >= 0
    assert (np.diff(found, axis=0) >= 0).all()
    assert (np.diff(found, axis=1) >= 0).all()
    before, after = np.linalg.norm(noisy - truth), np.linalg.norm(found - truth)
    assert after <= before * 1.05 + 1e-9  # the last step may move by what five rounds leave
    one = plausible(noisy[0], [0])
    assert np.linalg.norm(one - truth[0]) <= np.linalg.norm(noisy[0] - truth[0]) + 1e-9


def test_a_predicate_beside_tables_is_no_worse_than_unbiased():
    """All are measured as they are, together: a target for the one would have the noise of the others."""
    schema, counts = random_table((5, 5), 10_000, 8.0, seed=2)
    names = schema.names
    asked = qs.where(schema, f"{names[0]} >= 1 and {names[1]} <= 0")
    plan = qs.plan(qs.marginals(schema, 1) + asked, qs.PrivacyCost(0.0016))
    assert plan.whole
    exact = counts[1:, 0].sum()
    ours, theirs = [], []
    for release in simulations(plan, counts, range(30)):
        ours.append((release.estimate().answer(asked).values[0] - exact) ** 2)
        theirs.append((release.answer(asked).values[0] - exact) ** 2)
    assert np.mean(ours) <= 1.05 * np.mean(theirs)  # the seeds are fixed
