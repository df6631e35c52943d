"""Releases by the hundred: unbiased, with exactly the covariance they claim, for every class of queries.

Answers are turned and scaled by the covariance that the release states, so that they should be independent
standard normal numbers: any wrong variance, covariance or mean shows, and the pooled variance is tested to
a few percent. Seeds are fixed; had they not been, each test would raise a false alarm with a probability
below 10^-6 (`ALARM` for each of its comparisons, shared among the queries where there are many).
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import querysmasher as qs
from tests.builders import ALARM, UNIFORM
from tests.reference import query_rows
from tests.release.tables import CLASSES, measured_often, random_counts, simulate, whole

pytestmark = pytest.mark.slow  # hundreds of releases for every case

RUNS = 300
BUDGET = qs.PrivacyCost(0.02)
"""Noise of several units at least, so that whole numbers are as good as normal."""


def answered(release, workload):
    return np.concatenate([release.answer_group(group)[0].ravel() for group in workload])


def runs(plan, workload, counts, noise, seeds):
    """The answers of many releases, one per row, and the last release.

    Answers are linear in what was measured. What each measured number adds to them is found out by asking a
    release once, and the sum is compared with the real answers for a few seeds.
    """
    integers = whole(plan, noise)
    measured, release = [], None
    with measured_often(integers, noise):
        for seed in seeds:
            release = simulate(plan, counts, seed, noise, integers)
            measured.append(np.concatenate([release.store[i] for i in range(len(integers.measured))]))
    sizes = [release.store[i].size for i in range(len(integers.measured))]

    def fed(numbers, total):
        store = dict(enumerate(np.split(numbers, np.cumsum(sizes)[:-1])))
        other = dataclasses.replace(release, store=store, public_total=total)
        other.__dict__["estimator"] = release.estimator  # which knows no data
        return answered(other, workload)

    total = release.public_total
    base = fed(np.zeros(sum(sizes)), total)
    effects = np.array([fed(unit, None if total is None else 0) for unit in np.eye(sum(sizes))])
    answers = np.array(measured) @ effects + base
    np.testing.assert_allclose(answered(release, workload), answers[-1], rtol=1e-9, atol=1e-6)
    again = simulate(plan, counts, seeds[0], noise, integers)
    if seeds[0] is not None:
        np.testing.assert_allclose(answered(again, workload), answers[0], rtol=1e-9, atol=1e-6)
    return answers, release


def check(answers, release, workload, counts):
    """Means, variances, covariances and coverage, against what the release states."""
    rows, _ = query_rows(workload)
    truth = rows @ counts.ravel()
    covariance = release.covariance(workload)
    variances = release.variances(workload)
    np.testing.assert_allclose(np.diagonal(covariance), variances, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(release.answer(workload).std ** 2, variances, rtol=1e-12, atol=1e-12)
    error = answers - truth
    runs, queries = error.shape
    known = variances > 1e-9

    # every query for itself
    z = error[:, known].mean(axis=0) / np.sqrt(variances[known] / runs)
    assert np.abs(z).max() < stats.norm.isf(ALARM / 2 / queries)
    spread = (error[:, known] ** 2).sum(axis=0) / variances[known]
    assert spread.min() > stats.chi2.ppf(ALARM / 2 / queries, runs)
    assert spread.max() < stats.chi2.isf(ALARM / 2 / queries, runs)
    for level in (0.5, 0.95):
        reach = stats.norm.isf((1 - level) / 2) * np.sqrt(variances[known])
        inside = (np.abs(error[:, known]) <= reach).sum(axis=0)
        low, high = (stats.binom.ppf(p, runs, level) for p in (ALARM / 2 / queries, 1 - ALARM / 2 / queries))
        assert low <= inside.min()
        assert inside.max() <= high

    # all together
    values, vectors = np.linalg.eigh(covariance)
    keep = values > 1e-9 * values[-1]
    scale = np.sqrt(values[-1])
    assert np.abs(error @ vectors[:, ~keep]).max(initial=0.0) < 1e-5 * scale, (
        "an error outside the covariance"
    )
    standard = error @ vectors[:, keep] / np.sqrt(values[keep])
    rank = standard.shape[1]
    assert stats.chi2.sf(runs * (standard.mean(axis=0) ** 2).sum(), rank) > ALARM
    total = (standard**2).sum()
    assert 2 * min(stats.chi2.sf(total, runs * rank), stats.chi2.cdf(total, runs * rank)) > ALARM
    between = standard.T @ standard / np.sqrt(runs)
    off = between[~np.eye(rank, dtype=bool)]
    assert np.abs(off).max(initial=0.0) < 1.2 * stats.norm.isf(ALARM / 2 / max(1, rank**2))


def case(name, budget=BUDGET):
    workload, options = CLASSES[name]
    return qs.plan(workload, budget, **options), random_counts(
        workload.schema, seed=len(name), records=20_000
    )


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_queries(name):
    plan, counts = case(name)
    answers, release = runs(plan, plan.workload, counts, "rounded", range(RUNS))
    check(answers, release, plan.workload, counts)
    stated, planned = release.variances(plan.workload), plan.variances(plan.workload)
    # the structured solver's noise comes in steps, which single queries feel a little more
    np.testing.assert_allclose(stated, planned, rtol=0.03 if "structured" in name else 0.01)
    assert abs(stated.sum() / planned.sum() - 1) < 0.005


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("circular", "discrete"),
        ("structured thin", "discrete"),
        ("where", "discrete"),
        ("joint times prefix", "discrete"),
        ("prefix, best centres", "discrete"),
        ("structured, best centres", "gaussian"),
        ("affine", "gaussian"),
    ],
)
def test_every_noise(name, noise):
    plan, counts = case(name)
    answers, release = runs(plan, plan.workload, counts, noise, range(1000, 1000 + RUNS))
    check(answers, release, plan.workload, counts)


@pytest.mark.parametrize("solver", ["optimal", "dense", "structured"])
def test_queries_asked_later(solver):
    schema = qs.Schema.of(a=5, b=4, c=3)
    planned = qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2)
    later = (
        qs.all_kway(schema, [0, 1, 2], "range")
        + qs.affine(schema, "c", "a")
        + qs.where(schema, "a == 1 or b > 2")
        + qs.linear(schema, ("b", "a"), np.random.default_rng(1).normal(size=(3, 20)))
    )
    plan = qs.plan(planned, BUDGET, solver=solver, **UNIFORM)
    counts = random_counts(schema, seed=8, records=20_000)
    answers, release = runs(plan, later, counts, "rounded", range(2000, 2000 + RUNS))
    check(answers, release, later, counts)
    rounding = 0.02 if solver == "structured" else 0.01
    np.testing.assert_allclose(release.variances(later), plan.variances(later), rtol=rounding)


@pytest.mark.parametrize("name", ["prefix", "structured thin", "where"])
def test_with_a_public_total(name):
    plan, counts = case(name, qs.PrivacyCost(0.02, neighbours="replace_one"))
    answers, release = runs(plan, plan.workload, counts, "rounded", range(3000, 3000 + RUNS))
    check(answers, release, plan.workload, counts)


def test_opendp_a_few_times():
    """Its noise cannot be seeded: false alarms happen with probability 10^-9 or so."""
    plan, counts = case("marginal")
    answers, release = runs(plan, plan.workload, counts, "opendp", [None] * 12)
    rows, _ = query_rows(plan.workload)
    z = (answers - rows @ counts.ravel()) / release.answer().std
    assert np.abs(z).max() < 7.5
    assert 0.5 < (z**2).mean() < 2
    assert release.noise.is_private


def test_draws_without_a_seed_are_as_good():
    """The cryptographic source: never the same, and the same distribution (false alarm: 10^-9)."""
    plan, counts = case("circular")
    answers, release = runs(plan, plan.workload, counts, "rounded", [None] * 40)
    rows, _ = query_rows(plan.workload)
    z = (answers - rows @ counts.ravel()) / release.answer().std
    assert np.abs(z).max() < 7.5
    assert len(np.unique(answers, axis=0)) == 40
    assert release.noise.is_private
