"""Projections and shrinkage against obvious references."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from querysmasher.estimate.fitting import centred, lower_part, onto_margins, onto_simplex, with_margins
from querysmasher.estimate.shrinkage import GRID, fit, shrunk, single

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


def test_the_lower_part_is_what_centring_takes_off():
    table = np.random.default_rng(0).random((2, 3, 4, 5))
    singles = [table.sum(axis=(2, 3)), table.sum(axis=(1, 3)), table.sum(axis=(1, 2))]
    pairs = {(0, 1): table.sum(axis=3), (0, 2): table.sum(axis=2), (1, 2): table.sum(axis=1)}
    assert lower_part(singles, pairs) == pytest.approx(table - centred(table))


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
