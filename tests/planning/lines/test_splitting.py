"""Attributes with centres of their own: against dense least squares on the whole domain, on small cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import TooLargeError
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.limits import limited
from querysmasher.privacy.measurement import exact_answers
from querysmasher.release.provenance import NoiseRecord
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.release.release import Release
from tests.builders import COST, SPLIT, as_lines, has_lines
from tests.profiles import fewer

SIZES = {"a": 7, "b": 2, "c": 3, "d": 6}
"""Attributes a and d are lines below."""

SCHEMA = qs.Schema.of(SIZES)


def planned(workload, budget=COST, **options):
    """Plan with attributes of more than five values as lines."""
    with as_lines(5), limited(**SPLIT):
        return qs.plan(workload, budget, **options)


families = st.sampled_from(["identity", "prefix", "range", "circular"])


@st.composite
def workloads(draw, large=("a",), most=3):
    """Groups on small attributes, with or without one large attribute each."""
    groups = []
    for own in draw(st.lists(st.sampled_from(["", *large]), min_size=1, max_size=most)):
        names = [name for name in "bc" if draw(st.booleans())] + ([own] if own else [])
        if draw(st.booleans()):
            names.reverse()
        asked = {name: draw(families) for name in names}
        groups.append(draw(st.sampled_from([1.0, 0.2, 7.0])) * qs.queries(SCHEMA, asked))
    large_one = qs.queries(SCHEMA, {large[0]: draw(families)})
    return sum(groups, start=large_one)


def kron(factors):
    result = np.ones((1, 1))
    for factor in factors:
        result = np.kron(result, factor)
    return result


def rows_of(group, schema=SCHEMA):
    """Return the queries of a group over all cells of the schema, in the group's order."""
    own = {names[0]: family.matrix() for names, family in group.parts()}
    tensor = kron(
        [own.get(name, np.ones((1, size))) for name, size in zip(schema.names, schema.sizes, strict=True)]
    )
    counts = [len(own[name]) if name in own else 1 for name in schema.names]
    order = [schema.position(name) for name in group.attributes]
    order += [place for place in range(len(counts)) if place not in order]
    return tensor.reshape(*counts, -1).transpose(*order, len(counts)).reshape(group.rows, -1)


def information(measured, strategies, schema=SCHEMA):
    """Return Σ RᵀR/σ² of everything that is measured, over all cells of the schema."""
    total = 0.0
    for one in measured:
        rows = {}
        for axes, number in one.blocks:
            tensor = strategies[number].written_out().reshape(-1, *strategies[number].shape)
            rows[tuple(one.attributes[a] for a in axes)] = tensor
        letters = iter("ABCDEFGH")
        cells = dict(enumerate("abcdefgh"))
        terms, tensors, lead = [], [], ""
        for attributes, tensor in rows.items():
            letter = next(letters)
            lead += letter
            terms.append(letter + "".join(cells[a] for a in attributes))
            tensors.append(tensor)
        for place, size in enumerate(schema.sizes):
            if place not in one.attributes:
                terms.append(cells[place])
                tensors.append(np.ones(size))
        order = "".join(cells[place] for place in range(len(schema)))
        matrix = np.einsum(",".join(terms) + "->" + lead + order, *tensors).reshape(-1, np.prod(schema.sizes))
        total = total + matrix.T @ matrix / one.variance
    return total


def check_variances(plan, workload, schema=SCHEMA):
    every = information(plan.measured, [s.strategy for s in plan.solutions], schema)
    inverse = np.linalg.pinv(every, rcond=1e-11, hermitian=True)
    rows = np.concatenate([rows_of(group, schema) for group in workload])
    expected = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    np.testing.assert_allclose(plan.variances(workload), expected, rtol=1e-6)
    weights = np.concatenate([np.full(g.rows, g.weight) for g in workload])
    if workload is plan.workload:
        assert weights @ expected == pytest.approx(plan.weighted_loss, rel=1e-6)
        assert np.sqrt(expected.mean()) == pytest.approx(plan.rmse, rel=1e-6)


@fewer(20)
@given(workloads())
def test_variances_are_those_of_least_squares(workload):
    plan = planned(workload)
    check_variances(plan, workload)
    assert plan.privacy_cost == pytest.approx(1.0)
    assert has_lines(plan)


@pytest.mark.slow
@fewer(12)
@given(workloads(("a", "d"), most=4))
def test_several_large_attributes_share_the_total(workload):
    plan = planned(workload)
    check_variances(plan, workload)


@pytest.mark.parametrize("family", ["prefix", "identity"])
def test_one_value_too_many_is_refused_before_any_work(family):
    schema = qs.Schema.of(a=1_000_001)
    with pytest.raises(TooLargeError, match=r"has 1,000,001 values.*up to 1,000,000\. Remedies: coarser"):
        qs.plan(qs.queries(schema, a=family), COST)


def test_two_large_attributes_together():
    workload = qs.queries(SCHEMA, a="prefix", d="range", b="identity") + qs.queries(SCHEMA, a="identity")
    check_variances(planned(workload, max_records=10**6), workload)


@pytest.mark.slow
@fewer(15)
@given(workloads(("a", "d"), most=4))
def test_the_bound_holds_against_the_dense_optimum(workload):
    """The gap bounds the error of every plan around these centres; the limit holds for any mechanism."""
    plan = planned(workload, centering="uniform")
    reference = qs.plan(workload, COST, centering="uniform", tolerance=1e-4)
    below = plan.weighted_rmse / (1 + plan.gap)
    assert below <= reference.weighted_rmse * (1 + 1e-3)


@pytest.mark.slow
@fewer(15)
@given(workloads(("a", "d"), most=4), st.booleans(), st.integers(0, 5))
def test_exact_answers_and_covariances_follow_from_what_is_measured(workload, public, seed):
    """Without noise, every answer is exact: the strategies and what undoes them fit together."""
    budget = qs.PrivacyCost(1.0, neighbours="replace_one") if public else COST
    plan = planned(workload, budget)
    table = np.random.default_rng(seed).integers(0, 50, SCHEMA.sizes)
    release = exact_release(plan, table)
    for group in workload:
        values, std = release.answer_group(group)
        expected = (rows_of(group) @ table.ravel()).reshape(values.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-5)
        assert std.shape == values.shape
    covariance = release.covariance(workload)
    np.testing.assert_allclose(np.diag(covariance), release.variances(workload), rtol=1e-6, atol=1e-12)


def exact_release(plan, table):
    """Return a release without noise, for tests of the algebra."""
    whole = integer_plan(plan, plan.budget.privacy_cost, 10**6)
    store = MemoryStore()
    for number, measured in enumerate(whole.measured):
        others = tuple(a for a in range(len(SCHEMA)) if a not in measured.attributes)
        store.put(number, exact_answers(whole, measured, table.sum(axis=others)))
    total = int(table.sum()) if plan.budget.unit.total_is_public else None
    record = NoiseRecord("rounded", "", True)
    return Release(whole, plan.workload, plan.centres, record, store, total)


def test_public_totals_leave_no_noise_on_the_total():
    plan = planned(
        qs.queries(SCHEMA, a="prefix") + qs.queries(SCHEMA, d="prefix"),
        qs.PrivacyCost(1.0, neighbours="replace_one"),
    )
    for name in "ad":
        assert plan.variances(qs.queries(SCHEMA, {name: "prefix"}))[-1] == 0.0
