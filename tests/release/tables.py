"""What the tests of measuring and releasing share: tables, counters, and noises that tell on callers."""

import itertools
import math
from collections import deque
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from unittest import mock

import numpy as np
import pandas as pd

import querysmasher as qs
from querysmasher.planning.integer import integer_plan
from querysmasher.privacy import measurement
from querysmasher.privacy.accounting import check_budget
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.measurement import exact_answers, measure_table
from querysmasher.privacy.noise import noise_source
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.release.release import Release
from tests.builders import BEST, UNIFORM
from tests.reference import query_rows


def random_counts(schema, seed, records=1000):
    """A table of counts over the whole domain, uneven, with empty cells."""
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(math.prod(schema.sizes), 0.3))
    return generator.multinomial(records, shares).reshape(schema.sizes)


def frame(schema, counts):
    """The same table as records, one row each."""
    places = np.repeat(np.arange(counts.size), counts.ravel())
    columns = np.unravel_index(places, counts.shape)
    return pd.DataFrame(
        {
            a.name: [None if i >= a.listed else a.values[i] for i in column]
            for a, column in zip(schema, columns, strict=True)
        }
    )


def marginal(schema, counts, names):
    """The exact marginal, its axes in the order of the names."""
    places = schema.positions(names)
    summed = counts.sum(axis=tuple(i for i in range(counts.ndim) if i not in places))
    return np.asarray(summed).transpose([sorted(places).index(p) for p in places])


class TableCounter:
    """Counts a table that is held as counts over the whole domain."""

    def __init__(self, schema, counts):
        self.schema = schema
        self.counts = np.asarray(counts, dtype=np.int64)

    def records(self):
        return int(self.counts.sum())

    def marginals(self, sets):
        for names in sets:
            yield np.array(marginal(self.schema, self.counts, names), dtype=np.int64)


class Untouchable:
    """Data that notice any look at them."""

    def __init__(self):
        object.__setattr__(self, "touched", [])

    def __getattribute__(self, name):
        touched = object.__getattribute__(self, "touched")
        if name != "touched":
            touched.append(name)
            msg = f"the data were touched: {name}"
            raise AssertionError(msg)
        return touched


class Telltale:
    """No noise at all, or in its place the number of the variance that was asked for."""

    distribution = DISTRIBUTIONS["rounded"]
    description = "none"

    def __init__(self, tell):
        self.tell = tell
        self.variances = []

    def draw(self, variance, size):
        if variance not in self.variances:
            self.variances.append(variance)
        return np.full(size, self.tell * self.variances.index(variance), dtype=np.int64)


CHECKED = deque(maxlen=4)
"""The plans whose cost was checked last."""


def released(plan, counts):
    """What measuring really hands out: (exact answer, noise variance) of every number, set by set.

    The cost of a plan is checked with its first table only.
    """
    quiet, telling = Telltale(0), Telltale(1)
    counter = TableCounter(plan.schema, counts)
    exact = None if plan in CHECKED else dict(measure_table(plan, counter, quiet))
    CHECKED.append(plan)
    with mock.patch.object(measurement, "check_budget"):
        exact = exact or dict(measure_table(plan, counter, quiet))
        marked = dict(measure_table(plan, counter, telling))
    assert sorted(exact) == sorted(marked) == list(range(len(plan.measured)))
    return [
        (answer, telling.variances[told - answer])
        for number in sorted(exact)
        for answer, told in zip(exact[number].ravel().tolist(), marked[number].ravel().tolist(), strict=True)
    ]


def squared_change(one, two):
    """The sum over the released numbers of (change)² / (noise variance), exactly."""
    squares = {}  # by noise: sums of fractions are slow
    for (a, variance), (b, same) in zip(one, two, strict=True):
        assert variance is same or variance == same, "the noise depends on the data"
        squares.setdefault(id(variance), [variance, 0])[1] += (a - b) ** 2
    return sum((Fraction(square) / variance for variance, square in squares.values()), Fraction(0))


def units(schema):
    """All tables of a single record."""
    for cell in itertools.product(*map(range, schema.sizes)):
        unit = np.zeros(schema.sizes, dtype=np.int64)
        unit[cell] = 1
        yield unit


def whole(plan, noise="rounded", max_records=10**8):
    """The plan in whole numbers, as `measure` makes it."""
    return integer_plan(plan, DISTRIBUTIONS[noise].allowed_cost(plan.budget), max_records)


def simulate(plan, counts, seed, noise="rounded", integers=None, source=None):
    """Measure a table of counts, as `measure` does, without opening a frame."""
    integers = integers or whole(plan, noise)
    source = source or noise_source(noise, seed)
    counter = TableCounter(plan.workload.schema, counts)
    store = MemoryStore()
    for number, answers in measure_table(integers, counter, source):
        store.put(number, answers)
    record = NoiseRecord(source.distribution.name, source.description, seed is not None)
    total = counter.records() if plan.budget.unit.total_is_public else None
    return Release(integers, plan.workload, plan.centres, record, store, total)


@contextmanager
def measured_often(integers, noise="rounded"):
    """Check the cost of a plan, count the one table and compute its exact answers once for all seeds."""
    check_budget(integers, DISTRIBUTIONS[noise])
    counted, exact = measurement._counted, measurement.exact_answers
    tables, answers = [], {}

    def counted_once(*arguments):
        if not tables:
            tables.extend(counted(*arguments))
        return tables

    def exact_once(plan, measured, *given):
        if id(measured) not in answers:
            answers[id(measured)] = exact(plan, measured, *given)
        return answers[id(measured)]

    with mock.patch.multiple(
        measurement, check_budget=mock.DEFAULT, _counted=counted_once, exact_answers=exact_once
    ):
        yield


def simulations(plan, counts, seeds):
    """Measure a table with each of many seeds; what does not depend on the seed is computed once."""
    integers, estimator = whole(plan), None
    with measured_often(integers):
        releases = [simulate(plan, counts, seed, integers=integers) for seed in seeds]
    for release in releases:
        if estimator is None:
            estimator = release.estimator
            estimator.variances = cache(estimator.variances)
        release.__dict__["estimator"] = estimator
        yield release


def check_simulated(plan, workload, counts, runs, rounding=0.02):
    """Check that answers are unbiased, and as noisy as planned, stated and correlated; return a release.

    Whitened errors are independent and standard normal: the mean of the squares of all of them is within five
    standard deviations of one, and no mean of one direction is 5.5 from zero, but for a chance below 1e-5.
    """
    schema, answers = workload.schema, []
    for release in simulations(plan, counts, range(runs)):
        answers.append(release.answer(workload).values)
    measured = qs.measure(plan, frame(schema, counts), seed=runs - 1).answer(workload)
    np.testing.assert_array_equal(answers[-1], measured.values)  # a simulation equals a measurement
    np.testing.assert_allclose(measured.std**2, plan.variances(workload), rtol=rounding, atol=1e-9)
    covariance = release.covariance(workload)
    np.testing.assert_allclose(np.diagonal(covariance), measured.std**2, rtol=1e-9, atol=1e-12)
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-9 * values[-1]
    errors = np.array(answers) - query_rows(workload)[0] @ counts.ravel()
    white = errors @ vectors[:, kept] / np.sqrt(values[kept])
    assert abs((white**2).mean() - 1) < 5 * math.sqrt(2 / white.size)
    assert np.abs(white.mean(axis=0)).max() * math.sqrt(runs) < 5.5
    np.testing.assert_allclose(errors @ vectors[:, ~kept], 0, atol=1e-6)  # what is consistent has no error
    return release


def query_classes(seed=0):
    """A small workload of every class of queries, by name, with the options it is planned with."""
    schema = qs.Schema.of(a=5, b=4, c=3)
    generator = np.random.default_rng(seed)
    coarse = qs.hierarchy(schema, "a", [0, 0, 1, 1, 1], leaves=False)
    fine = qs.hierarchy(schema, "a", [0, 0, 1, 1, 1])
    uneven = [[1, 1, 0, 0, 0], [0, 1, 1, 1, 0]]
    conditions = ("a <= 1 and b > 1", "a + b <= 3 or c == 0", "c == 1", "a == b")
    wheres = sum((qs.where(schema, text) for text in conditions[1:]), qs.where(schema, conditions[0]))
    joint = qs.Workload(
        schema,
        tuple(
            g.__class__(("b", "a", "c"), (*g.families, qs.queries(schema, c="prefix").groups[0].families[0]))
            for g in qs.affine(schema, "b", "a")
        ),
    )
    classes = {
        "marginal": (qs.marginals(schema, [1, 2]), {}),
        "prefix": (qs.all_kway(schema, [1, 2, 3], "prefix"), {}),
        "prefix, best centres": (qs.all_kway(schema, [1, 2], "prefix"), BEST),
        "range": (qs.all_kway(schema, 2, "range"), {}),
        "circular": (qs.all_kway(schema, [1, 2], "circular"), {}),
        "affine": (qs.affine(schema, "a", "b"), {}),
        "affine, best centres": (qs.affine(schema, "a", "b"), BEST),
        "absolute": (qs.abs_difference(schema, "c", "a"), {}),
        "random": (qs.random_queries(schema, ("a", "b", "c"), 6, seed=3), {}),
        "real": (qs.linear(schema, ("a", "b"), generator.normal(size=(3, 20))), {}),
        "many real": (qs.linear(schema, ("c", "b"), generator.normal(size=(15, 12))), {}),
        "hierarchy": (qs.queries(schema, a=fine, c="identity"), {}),
        "no leaves": (qs.queries(schema, a=coarse, b="prefix"), {}),
        "no leaves, best centres": (qs.queries(schema, a=coarse, b="prefix"), BEST),
        "where": (wheres, {}),
        "joint times prefix": (joint, {}),
        "mixed": (qs.all_kway(schema, 2, "prefix") + 3 * qs.marginals(schema, 2), {}),
        "structured": (
            qs.all_kway(schema, 3, "prefix") + qs.marginals(schema, 3),
            {"solver": "structured"},
        ),
        "structured, best centres": (
            qs.all_kway(schema, 2, "prefix") + qs.marginals(schema, 2),
            {"solver": "structured", **BEST},
        ),
        "structured joint": (
            qs.affine(schema, "a", "b") + qs.all_kway(schema, 2, "prefix"),
            {"solver": "structured"},
        ),
        "structured thin": (
            qs.queries(schema, a=uneven, b="prefix") + qs.queries(schema, a=uneven[:1], b="identity"),
            {"solver": "structured"},
        ),
    }
    return {name: (workload, UNIFORM | options) for name, (workload, options) in classes.items()}


CLASSES = query_classes()


def exact_release(plan, table, most=10**6):
    """A release without noise, of a table of all counts."""
    whole = integer_plan(plan, plan.budget.privacy_cost, most)
    store = MemoryStore()
    for number, measured in enumerate(whole.measured):
        others = tuple(a for a in range(table.ndim) if a not in measured.attributes)
        store.put(number, exact_answers(whole, measured, table.sum(axis=others)))
    total = int(table.sum()) if plan.budget.unit.total_is_public else None
    return Release(whole, plan.workload, plan.centres, NoiseRecord("rounded", "", True), store, total)
