"""Bounds for lines where a record is replaced, against the same trace of dense matrices."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.limits import limited
from querysmasher.planning.lines.gram import LineGram
from querysmasher.planning.lines.pairs import Pairing, paired_value
from querysmasher.workload.families import Identity, Prefix, Range
from querysmasher.workload.joint import Rows
from tests.builders import as_lines

REPLACE = qs.PrivacyCost(1.0, neighbours="replace_one")


def dense(gram, pairing):
    """tr (R(D − C)Rᵀ)^½ with all pairs written out."""
    q, size = pairing.marginals, np.bincount(pairing.labels)[pairing.labels]
    pairs = pairing.joint[np.ix_(pairing.labels, pairing.labels)] / np.outer(size, size)
    np.testing.assert_allclose(pairs.sum(axis=1), q)
    assert q.sum() == pytest.approx(1)
    values, vectors = np.linalg.eigh(sum(weight * family.gram() for family, weight in gram.families))
    half = vectors * np.sqrt(np.maximum(values, 0))
    return np.sqrt(np.maximum(np.linalg.eigvalsh(half.T @ (np.diag(q) - pairs) @ half), 0)).sum()


@settings(max_examples=15)
@given(st.integers(5, 70), st.data())
def test_the_trace_of_all_pairs_takes_a_few_solutions(n, data):
    weight = st.floats(0.01, 10)
    families = [(Prefix((n,)), data.draw(weight))]
    kinds = data.draw(st.sets(st.sampled_from([Identity, Range])))
    families += [(kind((n,)), data.draw(weight)) for kind in kinds]
    if data.draw(st.booleans()):
        families.append((Rows((n,), np.arange(n)[None, :] / n), data.draw(weight)))
    gram = LineGram.of(n, families, data.draw(st.sampled_from([0.0, 3.0])))
    best = Pairing.best(gram)
    for pairing in (best, best.independent()):
        expected = dense(gram, pairing)
        assert paired_value(gram, pairing) == pytest.approx(expected, rel=1e-6)
        with limited(line_matrix=0):
            assert expected * (1 - 2e-6) <= paired_value(gram, pairing) <= expected * (1 + 1e-9)


@pytest.mark.parametrize(
    ("sizes", "kinds", "gap"),
    [((4000,), ("prefix",), 0.1), ((4000,), ("range",), 0.05), ((1600, 2), ("prefix", "identity"), 0.09)],
)
def test_lines_are_certified(sizes, kinds, gap):
    schema = qs.Schema.of({f"a{i}": n for i, n in enumerate(sizes)})
    plan = qs.plan(qs.queries(schema, dict(zip(schema.names, kinds, strict=True))), REPLACE)
    assert plan.gap < gap


def test_prefixes_of_hundreds_of_values_are_certified():
    plan = qs.plan(qs.queries(qs.Schema.of(a=600), a="prefix"), REPLACE)
    assert plan.gap < 0.04


@pytest.mark.parametrize(("name", "value"), [("GROUPS", 4), ("ENTRIES", 0)])
def test_pairs_of_more_groups_bring_the_bound_closer(name, value, monkeypatch):
    gram = LineGram.of(2000, [(Prefix((2000,)), 1.0)])
    before = paired_value(gram, Pairing.best(gram))
    monkeypatch.setattr(f"querysmasher.planning.lines.pairs.{name}", value)
    assert paired_value(gram, Pairing.best(gram)) < 0.99 * before
    assert math.isfinite(before)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
def test_rows_that_are_asked_twice_on_a_line(neighbours):
    """Their Gram has no inverse. Where a record is replaced, this stopped planning."""
    schema, twice = qs.Schema.of(b=3, a=2), [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
    asked = qs.queries(schema, b=twice, a="identity") + qs.queries(schema, b="prefix")
    with as_lines(2, line_matrix=0):
        plan = qs.plan(asked, qs.PrivacyCost(1.0, neighbours=neighbours))
    assert plan.gap < 1e-3
    assert plan.weighted_loss == pytest.approx(plan.variances(asked).sum(), rel=1e-6)
