"""Decomposition: the paper's example, answers that add up, orthogonal parts, and the right Grams."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.centre import Centre, complement, uniform
from querysmasher.planning.split import Decomposer, query_tensor, schema_order, split_rows
from querysmasher.workload.families import Circular, Identity, Prefix, Range
from querysmasher.workload.joint import Rows
from tests.reference import marginal_map, query_rows, subworkload_grams, terms_gram
from tests.strategies import centres, integer_arrays, joint_families, schemas, workloads


def split_family(family, places, around):
    """The rows that a family on some attributes of the schema leaves on each subset of them."""
    order = sorted(places)
    tensor = query_tensor(family, schema_order(places), weighted=False)
    split = split_rows(tensor, [around[p] for p in order])
    return {tuple(order[a] for a in kept): rows for kept, rows in split.items()}


def grams(workload, centres):
    """What the library splits a workload into, written out."""
    decomposer = Decomposer(workload.schema, centres)
    return {
        s.attributes: terms_gram([workload.schema.sizes[a] for a in s.attributes], s.terms)
        for s in decomposer.decompose(workload.groups)
    }


# --- the paper's example -----------------------------------------------------------------------


def test_the_example_of_the_paper_splits_into_its_fractions():
    schema = qs.Schema([qs.Categorical("A1", ["yes", "no"]), qs.Categorical("A2", ["a", "b", "c"])])
    family = Rows((2, 3), np.array([[0, 1, 1, 0, 0, 1]]))
    parts = split_family(family, (0, 1), uniform(schema))
    expected = {
        (): ["1/2"],
        (0,): ["1/6", "-1/6"],
        (1,): ["-1/2", "0", "1/2"],
        (0, 1): ["-1/6", "1/3", "-1/6", "1/6", "-1/3", "1/6"],
    }
    assert set(parts) == set(expected)
    for kept, fractions in expected.items():
        exact = np.array([float(Fraction(f)) for f in fractions])
        np.testing.assert_allclose(parts[kept], [exact], rtol=0, atol=1e-16)


# --- Theorem: answers add up, parts are orthogonal ---------------------------------------------


def answer_from_parts(group, schema, around, data):
    """The answers to a group's queries, as the sum over attribute sets of the answers of the parts."""
    tensor = data.reshape(schema.sizes)
    splits = [split_family(family, schema.positions(names), around) for names, family in group.parts()]
    total = np.zeros(group.shape)
    for choice in itertools.product(*(split.items() for split in splits)):
        kept = [place for places, _ in choice for place in places]
        marginal = tensor.sum(axis=tuple(p for p in range(len(schema)) if p not in kept))
        part = marginal.transpose(np.argsort(np.argsort(kept)))
        for places, rows in choice:  # contract the first axes of what is left, and put the queries last
            sizes = [schema.sizes[p] for p in places]
            axes = list(range(len(sizes)))
            part = np.tensordot(part, rows.reshape(-1, *sizes), axes=(axes, [1 + a for a in axes]))
        total += part
    return total.ravel()


@settings(max_examples=60)
@given(st.data())
def test_the_answers_of_the_parts_add_up_to_the_answer_for_any_centres(data):
    workload = data.draw(workloads())
    schema = workload.schema
    around = data.draw(st.one_of(st.just(uniform(schema)), centres(schema)))
    x = data.draw(integer_arrays((math.prod(schema.sizes),), 0, 50)).astype(float)
    rows, _ = query_rows(workload)
    summed = np.concatenate([answer_from_parts(g, schema, around, x) for g in workload])
    np.testing.assert_allclose(summed, rows @ x, rtol=1e-9, atol=1e-7 * (1 + x.sum()))


@given(st.data())
def test_parts_around_uniform_centres_are_orthogonal(data):
    shape = data.draw(st.sampled_from([(2, 3), (3, 1, 2), (4,), (2, 2, 3)]))
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(shape)})
    family = data.draw(joint_families(shape))
    parts = split_family(family, tuple(range(len(shape))), uniform(schema))
    full = {kept: rows @ marginal_map(schema, kept) for kept, rows in parts.items()}
    for one, two in itertools.combinations(full, 2):
        assert np.abs(full[one] @ full[two].T).max() < 1e-10 * np.prod(shape)


@given(st.data())
def test_parts_vanish_on_the_centre_of_every_attribute_they_keep(data):
    schema = data.draw(schemas(min_attributes=2, max_attributes=3, max_size=4))
    around = data.draw(centres(schema))
    family = data.draw(joint_families(schema.sizes))
    for kept, rows in split_family(family, tuple(range(len(schema))), around).items():
        tensor = rows.reshape(-1, *(schema.sizes[p] for p in kept))
        for axis, place in enumerate(kept, start=1):
            assert np.abs(np.tensordot(tensor, around[place].weights, axes=(axis, 0))).max() < 1e-9


@given(st.integers(1, 6), st.data())
def test_the_complement_of_a_centre_is_an_orthonormal_basis_of_what_vanishes_on_it(n, data):
    (centre,) = data.draw(centres(qs.Schema.of(a=n)))
    basis = complement(centre.weights)
    assert basis.shape == (n - 1, n)
    np.testing.assert_allclose(basis @ basis.T, np.eye(n - 1), atol=1e-12)
    np.testing.assert_allclose(basis @ centre.weights, 0, atol=1e-12)


@given(st.data())
def test_one_axis_is_split_by_the_two_projections(data):
    schema = data.draw(schemas(max_attributes=3))
    around = data.draw(centres(schema))
    rows = data.draw(integer_arrays((2, *schema.sizes))).astype(float)
    others = tuple(range(len(around)))
    for axis, w in enumerate(around):
        split = split_rows(rows, [w if i == axis else None for i in others])
        C = np.eye(len(w)) - np.outer(w.weights, np.ones(len(w)))
        kept = np.moveaxis(np.tensordot(rows, C, axes=(axis + 1, 0)), -1, axis + 1).reshape(2, -1)
        np.testing.assert_allclose(split.get(others, np.zeros_like(kept)), kept, atol=1e-10)
        gone = np.tensordot(rows, w.weights, axes=(axis + 1, 0)).reshape(2, -1)
        on = others[:axis] + others[axis + 1 :]
        np.testing.assert_allclose(split.get(on, np.zeros_like(gone)), gone, atol=1e-10)


# --- Grams -------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(workloads())
def test_every_subworkload_has_the_gram_of_the_projected_queries(workload):
    around = uniform(workload.schema)
    expected = subworkload_grams(workload, around)
    found = grams(workload, around)
    assert set(found) == set(expected)
    for kept, gram in expected.items():
        np.testing.assert_allclose(found[kept], gram, rtol=1e-9, atol=1e-9 * gram.max())


@settings(max_examples=60)
@given(st.data())
def test_grams_are_right_around_any_centres(data):
    workload = data.draw(workloads())
    around = data.draw(centres(workload.schema))
    expected = subworkload_grams(workload, around)
    found = grams(workload, around)
    for kept in set(found) | set(expected):
        if kept in expected and kept in found:
            scale = np.abs(expected[kept]).max()
            np.testing.assert_allclose(found[kept], expected[kept], rtol=1e-8, atol=1e-8 * scale)
        else:  # close to zero
            assert np.abs(found.get(kept, expected.get(kept))).max() < 1e-9


def test_subworkloads_come_smaller_sets_first_in_schema_order():
    schema = qs.Schema.of(b=2, d=3, a=2)
    decomposer = Decomposer(schema, uniform(schema))
    workload = qs.queries(schema, a="prefix", b="prefix") + qs.marginals(schema, 2)
    sets = [s.attributes for s in decomposer.decompose(workload.groups)]
    assert sets == [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]


def test_the_order_in_which_a_family_names_attributes_does_not_matter():
    schema = qs.Schema.of(a=2, b=3, c=4)
    rng = np.random.default_rng(1)
    tensor = rng.integers(-1, 3, (5, 2, 3, 4)).astype(float)
    around = uniform(schema)
    expected = grams(qs.linear(schema, ("a", "b", "c"), tensor.reshape(5, -1)), around)
    for order in itertools.permutations(range(3)):
        rows = tensor.transpose(0, *(1 + p for p in order)).reshape(5, -1)
        found = grams(qs.linear(schema, ["abc"[p] for p in order], rows), around)
        assert set(found) == set(expected)
        for kept, gram in expected.items():
            np.testing.assert_allclose(found[kept], gram, atol=1e-12)


def test_the_same_rows_asked_in_both_orders_are_two_questions():
    schema = qs.Schema.of(a=3, b=3, c=3)
    rows = np.random.default_rng(2).integers(-1, 3, (4, 9))
    workload = qs.linear(schema, ("a", "c"), rows) + qs.linear(schema, ("c", "b"), rows)
    workload += qs.linear(schema, ("c", "a"), rows)
    around = uniform(schema)
    found, expected = grams(workload, around), subworkload_grams(workload, around)
    assert set(found) == set(expected)
    for kept, gram in expected.items():
        np.testing.assert_allclose(found[kept], gram, atol=1e-9)


# --- equality ----------------------------------------------------------------------------------


def test_alike_attributes_share_one_part():
    schema = qs.Schema.of({f"a{i}": 10 for i in range(12)})
    decomposer = Decomposer(schema, uniform(schema))
    decomposer.decompose((qs.all_kway(schema, [1, 2], "prefix") + qs.marginals(schema, 3)).groups)
    assert len(decomposer.parts) == 2  # a prefix and an identity, however many attributes
    decomposer.decompose(qs.affine(schema, "a3", "a7").groups + qs.affine(schema, "a0", "a9").groups)
    assert len(decomposer.parts) == 4  # one for either attribute, as they are equivalent, and one for both


def test_the_same_product_asked_in_another_order_is_one_term():
    schema = qs.Schema.of(a=4, b=3)
    decomposer = Decomposer(schema, uniform(schema))
    workload = qs.queries(schema, a="prefix", b="range") + qs.queries(schema, b="range", a="prefix")
    assert [len(s.terms) for s in decomposer.decompose(workload.groups)] == [1, 1, 1, 1]


def test_the_same_rows_given_twice_or_named_are_one_part():
    schema = qs.Schema.of(a=4, b=4)
    decomposer = Decomposer(schema, uniform(schema))
    decomposer.decompose((qs.queries(schema, a="prefix") + qs.queries(schema, b=np.tri(4))).groups)
    assert len(decomposer.parts) == 1


def test_attributes_of_the_same_size_with_different_queries_are_kept_apart():
    schema = qs.Schema.of(a=4, b=4)
    one, two = [[1, 1, 0, 0]], [[1, 0, 0, 0]]
    decomposer = Decomposer(schema, uniform(schema))
    decomposer.decompose((qs.queries(schema, a=one) + qs.queries(schema, b=two)).groups)
    assert len(decomposer.parts) == 2


def test_attributes_with_different_centres_are_kept_apart():
    schema = qs.Schema.of(a=2, b=2)
    around = (Centre.uniform(2), Centre.ratio(np.array([1, 3])))
    decomposer = Decomposer(schema, around)
    decomposer.decompose(qs.all_kway(schema, 1, "prefix").groups)
    assert len(decomposer.parts) == 2


# --- zeros -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Identity, Prefix, Range, Circular])
def test_attributes_of_one_value_leave_only_a_total(family):
    schema = qs.Schema.of(one=1, two=2)
    decomposer = Decomposer(schema, uniform(schema))
    assert [s.attributes for s in decomposer.decompose(qs.queries(schema, one=family((1,))).groups)] == [()]
    both = qs.queries(schema, one=family((1,)), two="identity")
    assert [s.attributes for s in decomposer.decompose(both.groups)] == [(), (1,)]


@pytest.mark.parametrize(
    ("row", "sets"),
    [
        ([1, 1, 1, 1, 1, 1], [()]),
        ([1, -1, 0, 0, 0, 0], [(1,), (0, 1)]),
        ([1, 1, 1, -1, -1, -1], [(0,)]),
        ([1, 0, -1, 1, 0, -1], [(1,)]),
        ([1, -1, 0, -1, 1, 0], [(0, 1)]),
        ([1, 1, 1, 0, 0, 0], [(), (0,)]),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], [()]),
        ([0.1, 0.2, -0.3, 0.1, 0.2, -0.3], [(1,)]),
        ([0, 0, 0, 0, 0, 0], []),
    ],
)
def test_constant_rows_and_contrasts_leave_nothing_where_they_have_nothing(row, sets):
    schema = qs.Schema.of(a=2, b=3)
    decomposer = Decomposer(schema, uniform(schema))
    found = [s.attributes for s in decomposer.decompose(qs.linear(schema, ("a", "b"), [row]).groups)]
    assert found == sets
