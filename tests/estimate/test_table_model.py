"""The estimate of any table: non-negative, consistent, near the truth, and sane where little is known."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.estimate.evidence import Noisy, Zeros
from querysmasher.estimate.risk import settled
from querysmasher.estimate.table_model import Model
from tests.estimate.tables import counted, evidence, frame, noisy, people, residual, told

numbers = st.floats(-50, 50, allow_nan=False)


@st.composite
def small_evidence(draw):
    """Any noisy residuals, of any sets of up to four small attributes."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    places = [p for k in range(4) for p in itertools.combinations(range(len(sizes)), k)]
    measured = []
    for place in draw(st.lists(st.sampled_from(places), unique=True)):
        shape = [sizes[p] for p in place]
        values = np.array(draw(st.lists(numbers, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
        measured.append(
            Noisy(place, residual(values.reshape(shape)), draw(st.sampled_from([1e-6, 1.0, 1e4])))
        )
    return told(schema, measured)


@given(small_evidence(), st.booleans())
def test_every_table_is_non_negative_and_pairs_agree_with_their_margins(known, moves):
    model = Model(known)
    schema = known.schema
    if moves:
        asked = [p for k in (1, 2, 3) for p in itertools.combinations(range(len(schema)), k)]
        model = settled(model, asked)
    total = model.total
    assert total >= 0
    for order in range(1, len(schema) + 1):
        for place in itertools.combinations(range(len(schema)), order):
            table = model.table(place)
            assert table.shape == tuple(schema.sizes[p] for p in place)
            assert np.isfinite(table).all()
            assert table.min() >= 0
            assert table.sum() == pytest.approx(total, abs=1e-6 * (1 + total))
            if order == 2:
                for axis in (0, 1):
                    assert table.sum(axis=1 - axis) == pytest.approx(
                        model.table((place[axis],)), abs=1e-6 * (1 + total)
                    )


def test_without_noise_the_estimate_is_the_truth():
    schema, records = people()
    model = Model(evidence(schema, records, 3, 1e-8))
    for order in range(4):
        for place in itertools.combinations(range(5), order):
            assert model.table(place) == pytest.approx(counted(schema, records, place), abs=0.5)


def test_an_estimate_is_closer_than_truncated_noise():
    schema, records = people()
    known = evidence(schema, records, 2, 400.0)
    model = Model(known)
    ours = theirs = 0.0
    for place in itertools.combinations(range(5), 2):
        exact = counted(schema, records, place)
        raw = exact + np.random.default_rng(1).standard_normal(exact.shape) * 20
        ours += np.abs(model.table(place) - exact).sum()
        theirs += np.abs(np.maximum(raw, 0) - exact).sum()
    assert ours < 0.85 * theirs


def test_an_unmeasured_pair_follows_the_chain_through_a_third_attribute():
    schema, records = people(100_000)
    rng = np.random.default_rng(0)
    places = [(), (0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3)]
    model = Model(told(schema, [noisy(schema, records, p, 1.0, rng) for p in places]))
    exact = counted(schema, records, (0, 2))
    independent = np.multiply.outer(exact.sum(axis=1), exact.sum(axis=0)) / len(records)
    wrong, ours = np.abs(independent - exact).sum(), np.abs(model.table((0, 2)) - exact).sum()
    assert ours < 0.1 * wrong
    far = counted(schema, records, (0, 3))  # through two attributes: along the tree
    apart = np.multiply.outer(far.sum(axis=1), far.sum(axis=0)) / len(records)
    assert np.abs(model.table((0, 3)) - far).sum() < 0.2 * np.abs(apart - far).sum()


@pytest.mark.parametrize("distance", [-50.0, 0.0, 30.0, 1e9])
def test_an_unmeasured_pair_is_no_farther_from_independence_than_it_was_found_to_be(distance):
    schema, records = people(100_000)
    rng = np.random.default_rng(0)
    places = [(), (0,), (1,), (2,), (0, 1), (1, 2)]
    known = [noisy(schema, records, p, 1.0, rng) for p in places]
    free = Model(told(schema, known))
    bound = Model(told(schema, known, {(0, 2): distance}))
    independent = free.independent((0, 2))
    chain = np.abs(free.table((0, 2)) - independent).sum()
    found = bound.table((0, 2))
    assert np.abs(found - independent).sum() == pytest.approx(min(max(distance, 0), chain), abs=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), free.single(0), atol=1e-6)
    assert found.min() >= 0


def test_a_triple_that_was_not_measured_has_maximum_entropy_given_its_pairs():
    schema, records = people()
    model = Model(evidence(schema, records, 2, 1e-6))
    table = model.table((0, 1, 2))
    pairs = [model.table(p) for p in ((0, 1), (0, 2), (1, 2))]
    slow = np.ones_like(table)
    for _ in range(2000):
        for axis, pair in zip((2, 1, 0), pairs, strict=True):
            sums = np.expand_dims(slow.sum(axis=axis), axis)
            slow = slow * np.divide(np.expand_dims(pair, axis), sums, out=np.zeros_like(sums), where=sums > 0)
    assert np.abs(table - slow).sum() < 0.01 * len(records)


def test_tables_of_several_sets_are_those_of_each():
    schema, records = people()
    known = evidence(schema, records, 3, 25.0)
    places = [(0, 1, 2), (3,), (1, 2), (0, 2, 4), (), (0, 1, 2), (0, 1, 2, 3)]
    for place, table in zip(places, Model(known).tables(places), strict=True):
        assert table.tolist() == Model(known).table(place).tolist()  # to the last bit


STATED = ("a < 2 and c == 3", "a == 0 and b == 2 and c == 1", "d == 5")


def possible_people():
    """Records none of which is impossible."""
    schema, records = people()
    schema = schema.impossible(*STATED)
    return schema, records[Zeros(schema).allowed(records)]


def test_masks_are_those_of_every_cell():
    schema, _ = possible_people()
    zeros = Zeros(schema)
    cells = np.array(list(itertools.product(*(range(n) for n in schema.sizes))))
    allowed = zeros.allowed(cells)
    for order in range(1, 5):
        for place in itertools.combinations(range(5), order):
            exact = np.zeros([schema.sizes[a] for a in place], dtype=bool)
            np.logical_or.at(exact, tuple(cells[:, a] for a in place), allowed)
            mask = zeros.possible(place)
            assert (np.ones_like(exact) if mask is None else mask).tolist() == exact.tolist()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_estimates_are_zero_where_nobody_can_be(order):
    schema, records = possible_people()
    model = Model(evidence(schema, records, order, 100.0))
    for size in range(1, 5):
        for place in itertools.combinations(range(5), size):
            mask = model.zeros.possible(place)
            table = model.table(place)
            if mask is not None:
                assert not table[~mask].any()
            if size == 2:
                for axis in (0, 1):
                    margin = table.sum(axis=1 - axis)
                    assert margin == pytest.approx(model.single(place[axis]), abs=1e-6 * len(records))


def test_knowing_what_is_impossible_lowers_the_error():
    schema, records = possible_people()
    without = qs.Schema(schema.attributes)
    errors = []
    for known in (schema, without):
        model = Model(evidence(known, records, 2, 400.0))
        errors.append(np.abs(model.table((0, 2)) - counted(schema, records, (0, 2))).sum())
    assert errors[0] < errors[1]


def test_a_release_stores_them_and_answers_zero_to_what_is_impossible(tmp_path):
    schema, records = possible_people()
    workload = qs.marginals(schema, 2) + qs.where(schema, STATED[0])
    release = qs.measure(qs.plan(workload, qs.zCDP(0.01)), frame(schema, records), seed=0)
    release.save(tmp_path / "r.release")
    loaded = qs.Release.load(tmp_path / "r.release")
    assert loaded.schema.impossible_where == STATED
    assert loaded.estimate().answer(STATED[0]).values.tolist() == [0.0]
    assert loaded.estimate().answer("d == 5").values.tolist() == [0.0]
    assert loaded.answer(STATED[0]).values[0] == loaded.answer(STATED[0]).std[0] == 0.0


def test_a_schema_refuses_invalid_predicates():
    schema = qs.Schema.of(a=3, b=2)
    with pytest.raises(qs.PredicateError):
        schema.impossible("a <")
    with pytest.raises(qs.UnknownAttributeError):
        schema.impossible("c == 1")
    with pytest.raises(qs.SchemaError, match="leaves no record possible"):
        schema.impossible("a >= 0")
    stated = schema.impossible("a == 0", "b == 1")
    assert qs.Schema.from_json(stated.to_json()) == stated
    assert stated != schema


def test_predicates_that_together_exclude_everybody_are_refused():
    schema = qs.Schema.of(a=3, b=2)
    for predicates in (("a < 2", "a == 2"), ("a < 2 and b == 0", "a == 2", "b == 1"), ("a >= 0",)):
        with pytest.raises(qs.SchemaError, match="no record possible"):
            schema.impossible(*predicates)
    assert len(schema.impossible("a < 2", "a == 2 and b == 1").impossible_where) == 2


def test_an_estimate_without_possible_records_is_empty_and_has_no_records(monkeypatch):
    """Too many cells to see that nobody is left."""
    monkeypatch.setattr("querysmasher.conditions.MAX_CELLS", 1)
    schema = qs.Schema.of(a=3, b=2).impossible("a < 2", "a == 2")
    table = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())})
    release = qs.measure(qs.plan(qs.marginals(schema, 2), qs.zCDP(1)), table, seed=0)
    estimate = release.estimate()
    assert not np.asarray(estimate.marginal("a")).any()
    assert not np.asarray(estimate.marginal("a", "b")).any()
    with pytest.raises(qs.WorkloadError, match="exclude all cells"):
        estimate.microdata(5, seed=0).to_frame()
