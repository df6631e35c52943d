"""Fitting, projections and shrinkage against obvious references."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import minimize

from querysmasher.estimate.evidence import Noisy
from querysmasher.estimate.fitting import (
    centred,
    onto_margins,
    onto_simplex,
    with_margins,
)
from querysmasher.estimate.shrinkage import (
    GRID,
    RARELY,
    SHAPES,
    SPREAD,
    TIMES,
    factor,
    fit,
    gamma_evidence,
    gamma_mean,
    is_rough,
    posterior_total,
    shrunk,
    single,
)
from querysmasher.estimate.table_model import Model
from tests.estimate.tables import evidence, people
from tests.profiles import fewer


@pytest.mark.parametrize("signal", [0.0, 0.05, 1.0, 30.0])
@pytest.mark.parametrize("value", [0.1, 1.0, 3.5, 8.0])
def test_the_factor_is_that_of_the_posterior_mean(signal, value):
    weights = np.exp(-0.5 * (TIMES / SPREAD) ** 2)
    weights = (1 - RARELY) * weights / weights.sum() + RARELY / len(TIMES)
    upper = lower = 0.0
    for weight, times in zip(weights, TIMES, strict=True):
        std = math.sqrt(signal * 10.0**times)
        if std < 1e-9:
            lower += weight * stats.norm.pdf(value)
            continue
        # under a normal prior the posterior is normal
        variance = 1 / (1 + 1 / std**2)
        likelihood = stats.norm.pdf(value, scale=math.sqrt(1 + std**2))
        lower += weight * likelihood
        upper += weight * likelihood * variance * value
    found = float(factor(np.array(signal), np.array(value**2)))
    assert found * value == pytest.approx(upper / lower, abs=1e-9)


def test_a_deviation_that_noise_cannot_explain_is_kept():
    rng = np.random.default_rng(0)
    targets = np.full((1, 20, 20), 0.5)
    targets[0, 0] = 200.0
    deviations = rng.standard_normal(targets.shape) * 3
    deviations[0, 9, 9] = 60.0  # in a cell of which nothing was expected
    found = shrunk(deviations, targets, np.array([9.0]))
    assert found[0, 9, 9] > 50
    others = np.delete(found.ravel(), 9 * 20 + 9)
    assert np.abs(others).mean() < 0.5 * np.abs(deviations).mean()


def by_quadrature(noisy, std, mean):
    """Likelihoods of noisy counts by shape, and posterior means, integrated cell by cell."""
    likely, means = np.empty((len(SHAPES), len(noisy))), np.empty((len(SHAPES), len(noisy)))
    for i, shape in enumerate(SHAPES):
        # as the quantile u runs from 0 to 1, the count runs through the distribution
        u = (np.arange(4000) + 0.5) / 4000
        count = stats.gamma.ppf(u, shape, scale=mean / shape)
        for j, value in enumerate(noisy):
            own = np.exp(-0.5 * ((value - count) / std) ** 2)
            likely[i, j] = integrate.trapezoid(own, u)
            means[i, j] = integrate.trapezoid(own * count, u) / likely[i, j]
    return likely, means


def test_the_posterior_mean_under_gamma_distributions():
    noisy, std = np.array([-4.0, 0.5, 3.0, 22.0, 9.0]), 3.0
    likely, means = by_quadrature(noisy, std, 6.0)
    logs = np.log(likely).sum(axis=1)
    weights = np.exp(logs - logs.max())
    expected = weights / weights.sum() @ means
    assert gamma_mean(noisy, std, 6.0) == pytest.approx(expected, abs=0.1)
    both = gamma_evidence(np.stack([noisy, noisy]), std, np.array([6.0, 3.0]))
    difference = both[0] - both[1]
    other = np.log(by_quadrature(noisy, std, 3.0)[0]).sum(axis=1)
    expected = np.log(np.exp(logs).mean()) - np.log(np.exp(other).mean())
    assert difference == pytest.approx(expected, abs=0.1)


def test_single_attributes_improve_a_rough_total():
    truth = [np.array([900.0, 60, 30, 10, 0, 0]), np.array([700.0, 300, 0, 0, 0])]
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for _ in range(40):
        singles = []
        for place, own in enumerate(truth):
            noise = rng.standard_normal(own.size) * 60
            values = own - own.mean() + noise - noise.mean()
            singles.append(Noisy((place,), values, 3600.0))
        noisy = Noisy((), np.array(1000 + rng.standard_normal() * 250), 250.0**2)
        assert is_rough(noisy)
        ours.append(posterior_total(noisy, singles) - 1000)
        theirs.append(float(noisy.values) - 1000)
    assert np.square(ours).mean() < 0.5 * np.square(theirs).mean()


@pytest.mark.parametrize(("value", "variance"), [(1000.0, 25.0), (-50.0, 400.0), (1000.0, 0.0)])
def test_a_total_that_is_known_well_or_not_positive_is_left_alone(value, variance):
    noisy = Noisy((), np.array(value), variance)
    assert not is_rough(noisy)


@fewer(10)
@given(st.permutations(range(5)))
def test_kept_tables_are_the_same_and_nobody_can_change_them(order):
    schema, records = people(500)
    known = evidence(schema, records, 3, 25.0)
    once, fresh = Model(known), Model(known)
    place = tuple(sorted(order[:3]))
    table = once.table(place)
    assert once.table(place) is table
    assert table == pytest.approx(fresh.table(place))
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        once.table(place[:2])[0] = 1.0


numbers = st.floats(-20, 20)


@given(st.lists(numbers, min_size=1, max_size=6), st.floats(0, 30))
def test_the_nearest_point_of_a_simplex(values, total):
    given_values = np.array(values)
    found = onto_simplex(given_values, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, abs=1e-9)
    for corner in total * np.eye(len(values)):  # it is nearest if no corner lies on the other side
        beyond = (given_values - found) @ (corner - found)
        assert beyond <= 1e-7 * (1 + total) * (1 + np.abs(given_values).max())


@settings(max_examples=10)
@given(st.data())
def test_the_nearest_non_negative_table_with_given_margins(data):
    shape = data.draw(st.tuples(st.integers(2, 3), st.integers(2, 3)))
    size = shape[0] * shape[1]
    target = np.array(data.draw(st.lists(st.floats(0.1, 5), min_size=size, max_size=size))).reshape(shape)
    noise = np.array(data.draw(st.lists(st.floats(-5, 5), min_size=size, max_size=size))).reshape(shape)
    table = target + noise
    lower = target - centred(target[None])[0]
    found = onto_margins(table[None], lower[None], 500)[0]
    rows, columns = target.sum(axis=1), target.sum(axis=0)
    best = minimize(
        lambda x: ((x - table.ravel()) ** 2).sum(),
        target.ravel(),
        bounds=[(0, None)] * size,
        constraints=[
            {"type": "eq", "fun": lambda x: x.reshape(shape).sum(axis=1) - rows},
            {"type": "eq", "fun": lambda x: x.reshape(shape).sum(axis=0)[:-1] - columns[:-1]},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert ((found - table) ** 2).sum() <= best.fun + 1e-3 * (1 + best.fun)
    exact = with_margins(onto_margins(table[None], lower[None]), rows[None], columns[None])[0]
    assert exact.min() >= 0
    assert exact.sum(axis=1) == pytest.approx(rows)
    assert exact.sum(axis=0) == pytest.approx(columns)


def test_the_prior_is_the_likeliest_on_the_grid():
    rng = np.random.default_rng(1)
    targets = rng.lognormal(2, 2, (3, 20, 20))
    true = rng.standard_normal(targets.shape) * np.sqrt(0.3 * targets**1.5)
    noise = np.array([1.0, 10.0, 1000.0])
    deviations = true + rng.standard_normal(targets.shape) * np.sqrt(noise)[:, None, None]
    power, chosen, _ = fit(deviations, targets, noise)
    for i in range(3):
        relative = targets[i] / targets[i].max()
        values = []
        for q, ratio in GRID:
            variance = 1 + ratio * relative**q
            values.append(-0.5 * (np.log(variance) + deviations[i] ** 2 / noise[i] / variance).sum())
        own = (
            -0.5
            * (
                np.log(1 + chosen[i] * relative ** power[i])
                + deviations[i] ** 2 / noise[i] / (1 + chosen[i] * relative ** power[i])
            ).sum()
        )
        assert own >= max(values) - 2.0  # classes of targets stand for their middle
    found = shrunk(deviations, targets, noise)
    for i in range(3):
        better = ((found[i] - true[i]) ** 2).sum()
        assert better < min(((deviations[i] - true[i]) ** 2).sum(), (true[i] ** 2).sum())


@given(st.lists(st.floats(-30, 100), min_size=1, max_size=8), st.floats(0.01, 400), st.floats(0, 300))
@example([0.0, 0.0, 5e-324], 1.0, 1.0)
@example([0.0, 0.0, 0.0], 1.0, 5e-324)
@example([3.0, np.nextafter(3.0, 4.0), np.nextafter(3.0, 2.0)], 1.0, 9.0)
def test_a_single_is_non_negative_and_sums_to_the_total(values, variance, total):
    found = single(np.array(values), variance, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, abs=1e-8 * (1 + total))


def test_a_single_is_closer_than_the_nearest_table_alone():
    rng = np.random.default_rng(0)
    truth = np.array([5000.0, 1200, 300, 80, 40, 10, 5, 2, 1, *[0] * 20])
    ours = theirs = 0.0
    for _ in range(100):
        noisy = truth + rng.standard_normal(len(truth)) * 100
        ours += np.abs(single(noisy, 1e4, truth.sum()) - truth).sum()
        theirs += np.abs(onto_simplex(noisy, truth.sum()) - truth).sum()
    assert ours < 0.97 * theirs
