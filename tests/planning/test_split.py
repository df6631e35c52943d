"""Splitting: the example of the paper, answers that add up, orthogonal parts, Grams, Kronecker blocks."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.centre import Centre, uniform
from querysmasher.planning.split import Decomposer, Part, query_tensor, schema_order, separate, split_rows
from querysmasher.workload.families import Circular, Identity, Prefix, Range
from querysmasher.workload.joint import Rows
from tests.reference import marginal_map, on_axes, query_rows, subworkload_grams, terms_gram
from tests.strategies import centres, integer_arrays, joint_families, schemas, workloads


def decomposed(workload, around=None):
    """Every subworkload."""
    return Decomposer(workload.schema, around or uniform(workload.schema)).decompose(workload.groups)


def split_family(family, places, around):
    """The rows that a family on some attributes of the schema leaves on each subset of them."""
    order = sorted(places)
    tensor = query_tensor(family, schema_order(places), weighted=False)
    split = split_rows(tensor, [around[p] for p in order])
    return {tuple(order[a] for a in kept): rows for kept, rows in split.items()}


def shape_of(workload, subworkload):
    return tuple(workload.schema.sizes[a] for a in subworkload.attributes)


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


# --- Grams -------------------------------------------------------------------------------------


def check_grams(workload, around, close=1e-9):
    """Compare all subworkloads with the projected queries; return the attribute sets of both."""
    found = {s.attributes: terms_gram(shape_of(workload, s), s.terms) for s in decomposed(workload, around)}
    expected = subworkload_grams(workload, around)
    for kept in found.keys() & expected.keys():
        scale = np.abs(expected[kept]).max()
        np.testing.assert_allclose(found[kept], expected[kept], rtol=close, atol=close * scale)
    for kept in found.keys() ^ expected.keys():  # close to zero
        assert np.abs(found.get(kept, expected.get(kept))).max() < 1e-9
    return set(found), set(expected)


@settings(max_examples=80)
@given(workloads())
def test_every_subworkload_has_the_gram_of_the_projected_queries(workload):
    found, expected = check_grams(workload, uniform(workload.schema))
    assert found == expected


@settings(max_examples=60)
@given(st.data())
def test_grams_are_right_around_any_centres(data):
    workload = data.draw(workloads())
    check_grams(workload, data.draw(centres(workload.schema)), 1e-8)


def test_the_same_rows_asked_in_both_orders_are_two_questions():
    schema = qs.Schema.of(a=3, b=3, c=3)
    rows = np.random.default_rng(2).integers(-1, 3, (4, 9))
    workload = sum(qs.linear(schema, names, rows) for names in (("a", "c"), ("c", "b"), ("c", "a")))
    found, expected = check_grams(workload, uniform(schema))
    assert found == expected


def test_subworkloads_come_smaller_sets_first_in_schema_order():
    schema = qs.Schema.of(b=2, d=3, a=2)
    workload = qs.queries(schema, a="prefix", b="prefix") + qs.marginals(schema, 2)
    sets = [s.attributes for s in decomposed(workload)]
    assert sets == [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]


# --- what is the same is solved once -----------------------------------------------------------

FOUR = qs.Schema.of(a=4, b=4)
TWELVE = qs.Schema.of({f"a{i}": 10 for i in range(12)})


@pytest.mark.parametrize(
    ("workload", "around", "count"),
    [
        # a prefix and an identity, however many attributes
        (qs.all_kway(TWELVE, [1, 2], "prefix") + qs.marginals(TWELVE, 3), None, 2),
        # one for either attribute, as they are equivalent, and one for both
        (qs.affine(TWELVE, "a3", "a7") + qs.affine(TWELVE, "a0", "a9"), None, 2),
        (qs.queries(FOUR, a="prefix") + qs.queries(FOUR, b=np.tri(4)), None, 1),
        (qs.queries(FOUR, a=[[1, 1, 0, 0]]) + qs.queries(FOUR, b=[[1, 0, 0, 0]]), None, 2),
        (qs.all_kway(FOUR, 1, "prefix"), (Centre.uniform(4), Centre.ratio(np.array([1, 3, 1, 1]))), 2),
    ],
    ids=["alike", "affine", "named and given", "other queries", "other centres"],
)
def test_attributes_share_a_part_exactly_if_queries_and_centres_are_the_same(workload, around, count):
    sets = decomposed(workload, around)
    assert len({piece.part for s in sets for term in s.terms for piece in term.pieces}) == count


def test_the_same_product_asked_in_another_order_is_one_term():
    schema = qs.Schema.of(a=4, b=3)
    workload = qs.queries(schema, a="prefix", b="range") + qs.queries(schema, b="range", a="prefix")
    assert [len(s.terms) for s in decomposed(workload)] == [1, 1, 1, 1]


def test_parts_equal_up_to_rounding_error_have_one_digest():
    gram = np.array([[1.0, -1.0], [-1.0, 1.0]])
    centre = (Centre.uniform(2),)
    same = Part((2,), centre, gram * (1 + 1e-15))
    assert same.digest == Part((2,), centre, gram).digest
    others = [
        Part((2,), centre, gram * (1 + 1e-9)),
        Part((2,), centre, gram + np.array([[0.0, 1e-9], [1e-9, 0.0]])),
        Part((2,), centre, gram, thin=True),
        Part((2,), (Centre.ratio(np.array([1, 3])),), gram),
    ]
    assert len({same.digest, *(other.digest for other in others)}) == 5


# --- zeros -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Identity, Prefix, Range, Circular])
def test_attributes_of_one_value_leave_only_a_total(family):
    schema = qs.Schema.of(one=1, two=2)
    asked = qs.queries(schema, one=family((1,)))
    assert [s.attributes for s in decomposed(asked)] == [()]
    both = qs.queries(schema, one=family((1,)), two="identity")
    assert [s.attributes for s in decomposed(both)] == [(), (1,)]


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
    workload = qs.linear(qs.Schema.of(a=2, b=3), ("a", "b"), [row])
    assert [s.attributes for s in decomposed(workload)] == sets


# --- Kronecker blocks --------------------------------------------------------------------------


@settings(max_examples=100)
@given(workloads())
def test_the_kronecker_product_of_the_blocks_times_the_scale_is_the_gram(workload):
    for subworkload in decomposed(workload):
        shape = shape_of(workload, subworkload)
        scale, blocks = separate(subworkload.terms)
        assert sorted(a for axes, _ in blocks for a in axes) == list(range(len(shape)))
        assert all(block.shape == tuple(shape[a] for a in axes) for axes, block in blocks)
        product = scale * on_axes(
            shape, [(axes, terms_gram(block.shape, block.terms)) for axes, block in blocks]
        )
        gram = terms_gram(shape, subworkload.terms)
        np.testing.assert_allclose(product, gram, rtol=1e-9, atol=1e-10 * np.abs(gram).max())


THREE = qs.Schema.of(a=3, b=4, c=3)


def products(*families, last=1.0):
    """Products of families on the first attributes of a schema, the last of another weight."""
    each = [qs.queries(THREE, dict(zip("abc", own, strict=False))) for own in families]
    return sum(each[:-1]) + last * each[-1]


SUM = [(one, two) for one in ("prefix", "identity") for two in ("range", "identity")]


@pytest.mark.parametrize(
    ("workload", "blocks"),
    [
        (qs.all_kway(THREE, [1, 2, 3], "prefix"), [(0,), (1,), (2,)]),
        (products(*SUM), [(0,), (1,)]),  # a product of sums
        (products(*SUM, last=3.0), [(0, 1)]),
        (products(("prefix", "prefix", "range"), ("identity", "identity", "range")), [(0, 1), (2,)]),
        (qs.queries(THREE, b="prefix") + qs.affine(THREE, "c", "a"), [(0, 1)]),
        (qs.marginals(THREE, [0, 1]), [(0,)]),
    ],
)
def test_only_attributes_that_are_tied_stay_together(workload, blocks):
    subworkload = decomposed(workload)[-1]
    assert sorted(axes for axes, _ in separate(subworkload.terms)[1]) == blocks


def test_the_total_has_no_block_and_its_coefficient_as_scale():
    total = decomposed(qs.marginals(qs.Schema.of(a=4), [0, 1]))[0]
    assert separate(total.terms) == (pytest.approx(1 + 4 / 16), ())


def test_the_same_share_up_to_scale_is_the_same_block():
    schema = qs.Schema.of(a=4, b=4, c=4, d=4)
    workload = qs.all_kway(schema, 2, "prefix") + qs.all_kway(schema, 2, "identity")
    heavier = workload + 7.0 * (
        qs.queries(schema, a="prefix", b="prefix") + qs.queries(schema, a="identity", b="identity")
    )
    pairs = [separate(s.terms) for s in decomposed(heavier) if len(s.attributes) == 2]
    assert len({block for _, blocks in pairs for _, block in blocks}) == 1
    assert {round(scale, 9) for scale, _ in pairs} == {1.0, 8.0}
