"""A new kind of factor needs one line in one registry to be accounted, measured, reconstructed, stored."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.toy_factor import Differences
from tests.release.tables import TableCounter, Telltale, random_counts

import querysmasher as qs
from querysmasher.errors import FileError, PrivacyError
from querysmasher.planning.centre import Centre
from querysmasher.privacy.factors import KINDS, Factor, Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.privacy.measurement import measure_table
from querysmasher.privacy.noise import noise_source
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.release.release import Release

SCHEMA = qs.Schema.of(a=4, b=3)
UNIT = {"a": Differences(4, 700), "b": Matrix(np.array([[500, -500, 0], [300, 300, -600]]))}


BUDGET = qs.PrivacyCost(100.0)


def build_plan(budget=BUDGET):
    one = IntegerStrategy((4,), (((0,), UNIT["a"]),))
    two = IntegerStrategy((3,), (((0,), UNIT["b"]),))
    total = IntegerStrategy((), (((), Matrix(np.array([[1024]]))),))
    both = IntegerStrategy((4, 3), (((0,), UNIT["a"]), ((1,), UNIT["b"])), np.arange(1, 7).reshape(3, 2))
    measured = (
        IntegerMeasured((), (((), 2),), Fraction(10**6)),
        IntegerMeasured((0,), (((0,), 0),), Fraction(10**5)),
        IntegerMeasured((1,), (((0,), 1),), Fraction(10**5)),
        IntegerMeasured((0, 1), (((0, 1), 3),), Fraction(10**11)),
    )
    return IntegerPlan(SCHEMA, budget, (one, two, total, both), measured, 10**4)


@pytest.fixture
def registered(monkeypatch):
    """The one line: its name in the registry."""
    monkeypatch.setitem(KINDS, Differences.kind, Differences)


def release_of(plan, counts, source):
    store = MemoryStore()
    for number, answers in measure_table(plan, TableCounter(SCHEMA, counts), source):
        store.put(number, answers)
    workload = qs.all_kway(SCHEMA, [0, 1, 2], "prefix")
    centres = tuple(map(Centre.uniform, SCHEMA.sizes))
    return Release(plan, workload, centres, NoiseRecord("rounded", "", seeded=True), store)


def truth(counts):
    cumulated = [counts.sum(axis=1), counts.sum(axis=0)]
    return np.concatenate(
        [[counts.sum()], *map(np.cumsum, cumulated), counts.cumsum(axis=0).cumsum(axis=1).ravel()]
    )


def test_without_its_line_it_is_refused(refuses):
    with refuses(PrivacyError, ValueError, "not a known kind"):
        build_plan()


@pytest.mark.usefixtures("registered")
def test_a_new_kind_is_measured_and_reconstructed():
    counts = random_counts(SCHEMA, 2)
    release = release_of(build_plan(), counts, Telltale(0))
    np.testing.assert_allclose(release.answer().values, truth(counts), atol=1e-8)
    np.testing.assert_allclose(release.marginal("a", "b"), counts, atol=1e-8)


@pytest.mark.usefixtures("registered")
def test_the_errors_of_a_new_kind_are_known():
    """Against its matrix: the same plan with matrices in its place."""
    plan = build_plan()
    same = tuple(
        IntegerStrategy(
            s.shape, tuple((a, Matrix(f.written_out().astype(np.int64))) for a, f in s.factors), s.multipliers
        )
        for s in plan.strategies
    )
    counts = random_counts(SCHEMA, 3)
    one = release_of(plan, counts, noise_source("rounded", 1))
    other = release_of(
        IntegerPlan(SCHEMA, plan.budget, same, plan.measured, 10**4), counts, noise_source("rounded", 1)
    )
    assert one.answer().values.tobytes() == other.answer().values.tobytes()
    assert one.answer().std.tobytes() == other.answer().std.tobytes()
    assert (one.answer().std > 0).all()
    workload = qs.marginals(SCHEMA, [1, 2])
    assert one.covariance(workload).tobytes() == other.covariance(workload).tobytes()


def test_a_new_kind_is_stored_and_loaded(tmp_path, monkeypatch, refuses):
    with monkeypatch.context() as patch:
        patch.setitem(KINDS, Differences.kind, Differences)
        release = release_of(build_plan(), random_counts(SCHEMA, 4), noise_source("rounded", 2))
        release.save(tmp_path / "x.qs")
        again = qs.Release.load(tmp_path / "x.qs")
        assert type(again.plan.strategies[0].factors[0][1]) is Differences
        assert again.answer().values.tobytes() == release.answer().values.tobytes()
        assert again.answer().std.tobytes() == release.answer().std.tobytes()
    with refuses(FileError, ValueError):
        qs.Release.load(tmp_path / "x.qs")


def test_what_a_new_kind_must_offer():
    """As few things as the toy has: the rest has a default."""
    needed = {"rows", "cells", "largest", "squared_column", "exact_answers", "transposed"}
    assert Factor.__abstractmethods__ == needed
    assert inspect.isabstract(Factor)
