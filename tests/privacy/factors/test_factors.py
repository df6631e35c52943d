"""Every kind of factor against the matrix it stands for, and a new kind that needs one line in one file."""

import inspect
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import FileError, PrivacyError
from querysmasher.planning.centre import Centre
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.factors import (
    KINDS,
    Coarse,
    Factor,
    Few,
    Filter,
    Matrix,
    Merged,
    factor_from_data,
)
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.privacy.measurement import measure_table
from querysmasher.privacy.noise import noise_source
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.release.release import Release
from tests.contracts import INTEGERS, check_after_noise, check_proof, check_storage
from tests.privacy.factors.drawn_factors import (
    coarse,
    crossed,
    filters,
    matrices,
    merged,
    mirrored,
    toys,
    trees,
)
from tests.privacy.factors.toy_factor import Differences
from tests.profiles import fewer
from tests.release.tables import TableCounter, Telltale, random_counts, released, squared_change, units

# --- the contract ----------------------------------------------------------------------------------


CASES = {
    "mirrored": mirrored(),
    "matrix": matrices(),
    "few": matrices().map(lambda matrix: Few(matrix.entries)),
    "filter": filters(),
    "merged": merged(),
    "tree": trees(),
    "crossed": crossed(),
    "coarse": coarse(),
    "differences": toys(),
}


def test_every_kind_is_held_to_the_contract():
    assert set(KINDS) <= set(CASES) == set(INTEGERS)
    assert all(name == kind.kind and issubclass(kind, Factor) for name, kind in KINDS.items())


@pytest.mark.parametrize("kind", CASES)
class TestContract:
    @fewer(40)
    @given(data=st.data())
    def test_what_the_privacy_proof_rests_on_is_exact(self, kind, data):
        factor = data.draw(CASES[kind])
        records = data.draw(st.sampled_from([3, 1000, 2**30, 2**40]))
        check_proof(factor, records, data.draw(st.integers(0, factor.cells - 1)))

    @fewer(30)
    @given(data=st.data())
    def test_what_comes_after_the_noise(self, kind, data):
        check_after_noise(data.draw(CASES[kind]))

    @settings(max_examples=30)
    @given(data=st.data())
    def test_it_comes_back_from_data_which_cannot_be_changed(self, kind, data):
        check_storage(data.draw(CASES[kind]))

    @pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def test_the_cost_is_that_of_the_worst_neighbours(self, kind, neighbours, data):
        """By brute force over all neighbours, beside the total, and crossed with another attribute or not.

        Exact for an added record; for a replaced one, at most the square of twice the longest column.
        """
        factor = data.draw(CASES[kind])
        crossed = not factor.stands_alone and data.draw(st.booleans())
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(KINDS, Differences.kind, Differences)
            plan = plan_of(factor, neighbours, crossed)
            base = random_counts(plan.schema, 1, records=50) + 1
            here = released(plan, base)
            each = list(units(plan.schema))
            pairs = itertools.islice(itertools.permutations(each, 2), 200)
            changes = each if neighbours == "add_remove" else [a - b for a, b in pairs]
            found = max(
                (squared_change(here, released(plan, base + change)) for change in changes), default=0
            )
            assert found <= privacy_cost(plan)
            if neighbours == "add_remove" and len(plan.measured) == 2:
                assert privacy_cost(plan) <= found + Fraction(1, 2**150)


def plan_of(factor, neighbours, crossed):
    """A plan that measures one factor and the total, and perhaps the factor crossed with a difference."""
    if type(factor) is Filter:
        shape = factor.kernel.shape
    else:
        shape = tuple(map(len, factor.maps)) if type(factor) is Merged else (factor.cells,)
    axes = tuple(range(len(shape)))
    strategies = [
        IntegerStrategy(shape, ((axes, factor),)),
        IntegerStrategy((), (((), Matrix(np.array([[4]]))),)),
    ]
    measured = [
        IntegerMeasured(axes, ((axes, 0),), Fraction(10**12)),
        IntegerMeasured((), (((), 1),), Fraction(10**12)),
    ]
    if crossed:
        strategies.append(IntegerStrategy((2,), (((0,), Matrix(np.array([[3, -3]]))),)))
        last = len(shape)
        measured.append(IntegerMeasured((*axes, last), ((axes, 0), ((last,), 2)), Fraction(5 * 10**11)))
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate([*shape, 2] if crossed else shape)})
    budget = qs.PrivacyCost(1e30, neighbours=neighbours)
    return IntegerPlan(schema, budget, tuple(strategies), tuple(measured), 1000)


def test_multipliers_are_copied_and_cannot_be_changed():
    multipliers = np.array([[2]])
    strategy = IntegerStrategy(
        (2, 1), (((0,), Matrix(np.array([[1, -1]]))), ((1,), Matrix(np.array([[1]])))), multipliers
    )
    multipliers[...] = 1
    assert strategy.multipliers.tolist() == [[2]]
    with pytest.raises(ValueError, match="read-only"):
        strategy.multipliers[...] = 1


@pytest.mark.parametrize("kind", ["", "Matrix", "toy", None, 3, ["matrix"]])
def test_an_unknown_kind_is_refused(kind, refuses):
    with refuses(PrivacyError, ValueError, "matrix, filter"):
        factor_from_data(kind, {})
    inside = {"classes": np.array([0, 0, 1]), "inner": {"kind": kind, "entries": np.eye(2, dtype=np.int64)}}
    with refuses(PrivacyError, ValueError, "matrix, mirrored"):
        factor_from_data("coarse", inside)


def test_a_factor_of_another_version_is_refused(refuses):
    with refuses(PrivacyError, ValueError, "another version", "tree"):
        factor_from_data("tree", {"leaf_of": np.arange(2), "parents": np.array([-1, -1])})


@pytest.mark.parametrize(
    "classes", [[0, 0, 2], [0, 0, 0], [0, 1, 2], [0, -1, 1], [0, 1, 2**40], [[0, 0, 1]], []]
)
def test_classes_that_do_not_fit_their_factor_are_refused(classes):
    with pytest.raises(PrivacyError):
        Coarse(np.array(classes, dtype=np.int64), Matrix(np.eye(2, dtype=np.int64)))


def test_classes_of_classes_are_refused(refuses):
    inside = Coarse(np.array([0, 0, 1]), Matrix(np.eye(2, dtype=np.int64)))
    with refuses(PrivacyError, ValueError, "matrix or a mirrored filter"):
        Coarse(np.array([0, 1, 2]), inside)


# --- a new kind ----------------------------------------------------------------------------------


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
