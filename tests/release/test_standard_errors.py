"""Standard errors against the moments of the noise that is really added, number by number.

The reference is what reconstruction makes of a single unit in a single noisy number, times the variance of
that number's noise, summed from its probabilities. No formula of the library is used.
"""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

import querysmasher as qs
from querysmasher.errors import PrivacyError
from querysmasher.planning.centre import Centre
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.release import Release
from tests.builders import BEST, UNIFORM
from tests.release.tables import whole

SCHEMA = qs.Schema.of(a=4, b=3, c=2)

MIXED = qs.all_kway(SCHEMA, [0, 1, 2], "prefix") + 3 * qs.marginals(SCHEMA, [1, 2, 3])

PLANS = {
    "structured": (MIXED, {"solver": "structured", **UNIFORM}),
    "structured, best centres": (
        qs.all_kway(SCHEMA, 2, "range") + qs.marginals(SCHEMA, 2),
        {"solver": "structured", **BEST},
    ),
    "thin": (
        qs.queries(SCHEMA, a=[[1, 1, 0, 0], [0, 1, 1, 0]], b="prefix")
        + qs.queries(SCHEMA, a=[[1, 1, 0, 0]], b="identity"),
        {"solver": "structured", **UNIFORM},
    ),
    "several blocks": (
        qs.queries(SCHEMA, a="prefix", b="identity", c="identity") + qs.all_kway(SCHEMA, 2, "prefix"),
        {"solver": "structured", **UNIFORM},
    ),
    "dense": (MIXED, {"solver": "dense", **UNIFORM}),
    "filters": (qs.all_kway(SCHEMA, [1, 2], "circular"), {"solver": "fourier", **UNIFORM}),
}

FROM_LITTLE_TO_MUCH = [1e-4, 30.0, 1e11]
"""Privacy costs: at the last, the noise is as small as it gets."""


def moments(noise, variance):
    """The variance of one draw of noise, from its probabilities."""
    if noise == "gaussian" or variance > 50:  # what is left out is below 10⁻⁴⁰⁰
        return variance + (noise == "rounded") / 12
    k = np.arange(1, 400)
    if noise == "rounded":
        chances = 2 * (ndtr(-(k - 0.5) / math.sqrt(variance)) - ndtr(-(k + 0.5) / math.sqrt(variance)))
        return float(chances @ k**2)
    weights = np.exp(-(k**2) / (2 * variance))
    return float(2 * weights @ k**2 / (1 + 2 * weights.sum()))


def row_multipliers(plan, measured):
    result = np.ones(())
    for _, number in measured.blocks:
        strategy = plan.strategies[number]
        own = np.ones(strategy.rows) if strategy.multipliers is None else strategy.multipliers
        result = np.multiply.outer(result, own.astype(float))
    return result.ravel()


def released(plan, integers, noise, place=None):
    """A release of zeros, with a one in one place."""
    store = {i: np.zeros(integers.count(m)) for i, m in enumerate(integers.measured)}
    if place is not None:
        store[place[0]][place[1]] = 1.0
    total = 0 if integers.budget.neighbours == "replace_one" else None
    record = NoiseRecord(noise, "", seeded=False)
    return Release(integers, plan.workload, plan.centres, record, store, total)


def exact_covariance(plan, integers, noise, workload):
    estimator = released(plan, integers, noise).estimator  # only to save time: it has no part in the values
    estimator.variances = cache(estimator.variances)

    def answers(number, place):
        release = released(plan, integers, noise, (number, place))
        release.__dict__["estimator"] = estimator
        return release.answer(workload).values

    result = np.zeros((workload.query_count, workload.query_count))
    for number, m in enumerate(integers.measured):
        for place, multiplier in enumerate(row_multipliers(integers, m)):
            response = answers(number, place)
            result += moments(noise, float(m.variance) * multiplier) * np.outer(response, response)
    return result


@cache
def planned(name, cost, neighbours):
    """A plan for every noise that is drawn for it."""
    workload, options = PLANS[name]
    return qs.plan(workload, qs.PrivacyCost(cost, neighbours=neighbours), **options)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["rounded", "discrete", "gaussian"])
@pytest.mark.parametrize("name", PLANS)
def test_standard_errors_are_those_of_the_noise(name, noise):
    workload, options = PLANS[name]
    for cost in FROM_LITTLE_TO_MUCH:
        neighbours = "replace_one" if cost == 30.0 else "add_remove"
        plan = planned(name, cost, neighbours)
        integers = whole(plan, noise, max_records=2**40)
        multiplied = any(s.multipliers is not None for s in integers.strategies)
        assert multiplied == (options["solver"] == "structured")
        exact = exact_covariance(plan, integers, noise, workload)
        release = released(plan, integers, noise)
        largest = np.abs(exact).max()
        np.testing.assert_allclose(
            release.answer(workload).std ** 2, np.diagonal(exact), rtol=1e-9, atol=1e-25
        )
        np.testing.assert_allclose(release.covariance(workload), exact, rtol=1e-9, atol=1e-9 * largest)


@pytest.mark.parametrize("noise", ["rounded", "discrete", "opendp"])
@pytest.mark.parametrize("variance", [1.0, 1.03, 1.5, 2.0, 3.0, 10.0, 49.0])
def test_the_variance_of_a_draw_is_exact(noise, variance):
    exact = moments(noise, variance)
    assert variance + DISTRIBUTIONS[noise].extra_variance(variance) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("variance", [2.0**-20, 0.01, 0.1, 0.3, 0.7, 0.999])
def test_the_variance_of_a_small_draw_is_exact(variance):
    exact = moments("discrete", variance)
    assert variance + DISTRIBUTIONS["discrete"].extra_variance(variance) == pytest.approx(
        exact, rel=1e-12, abs=1e-15 * variance
    )


def test_rounding_adds_the_same_to_every_row_whatever_its_multiplier():
    """Rows answered with noise of variances 1, 100 and 10⁶: the errors are their own plus 1/12 each."""
    schema = qs.Schema.of(a=4)
    rows = np.array([[1, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]])
    strategy = IntegerStrategy((4,), (((0,), Matrix(rows)),), np.array([1, 100, 10**6]))
    plan = IntegerPlan(
        schema, qs.PrivacyCost(10.0), (strategy,), (IntegerMeasured((0,), (((0,), 0),), Fraction(1)),), 10
    )
    workload = qs.linear(schema, "a", rows)
    centres = (Centre.uniform(4),)
    release = Release(plan, workload, centres, NoiseRecord("rounded", "", seeded=False), {0: np.zeros(3)})
    expected = np.array([moments("rounded", v) for v in (1.0, 100.0, 1e6)])
    np.testing.assert_allclose(release.variances(workload), expected, rtol=2e-8)
    np.testing.assert_allclose(release.covariance(workload), np.diag(expected), rtol=2e-8, atol=1e-9)


def test_a_release_of_an_unknown_noise_is_refused(refuses):
    with refuses(PrivacyError, ValueError, "noise", "rounded", "'none at all'"):
        NoiseRecord("none at all", "", seeded=False)
