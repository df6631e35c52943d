"""Structural zeros: the schema states and stores them, estimates respect them."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher.estimate.evidence import Zeros
from querysmasher.estimate.table_model import Model
from tests.estimate.tables import counted, evidence, people

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
    table = pa.table({name: records[:, i] for i, name in enumerate(schema.names)})
    workload = qs.marginals(schema, 2) + qs.where(schema, STATED[0])
    release = qs.measure(qs.plan(workload, qs.zCDP(0.01)), table, seed=0)
    release.save(tmp_path / "r.release")
    loaded = qs.Release.load(tmp_path / "r.release")
    assert loaded.plan.schema.impossible_where == STATED
    assert loaded.estimate().answer(STATED[0]).values.tolist() == [0.0]
    assert loaded.estimate().answer("d == 5").values.tolist() == [0.0]
    assert loaded.answer(STATED[0]).values[0] != 0.0


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
    table = pa.table({"a": [0, 1, 2] * 9, "b": [0, 1, 0] * 9})
    release = qs.measure(qs.plan(qs.marginals(schema, 2), qs.zCDP(1)), table, seed=0)
    estimate = release.estimate()
    assert not np.asarray(estimate.marginal("a")).any()
    assert not np.asarray(estimate.marginal("a", "b")).any()
    with pytest.raises(qs.WorkloadError, match="exclude all cells"):
        estimate.microdata(5, seed=0).to_frame()
