"""Subworkloads: parts are compared without being written out, and split into Kronecker blocks."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.centre import Centre, uniform
from querysmasher.planning.split import Block, Decomposer, Part, Piece, Term, separate
from tests.reference import kron, on_axes, part_gram, terms_gram
from tests.strategies import matrices, workloads


def subworkloads(workload):
    """Every subworkload with its shape."""
    decomposer = Decomposer(workload.schema, uniform(workload.schema))
    found = decomposer.decompose(workload.groups)
    return [(tuple(workload.schema.sizes[a] for a in s.attributes), s) for s in found]


def blocks_of(workload, attributes):
    """The axes of the blocks into which one attribute set's share splits."""
    subworkload = next(s for _, s in subworkloads(workload) if s.attributes == attributes)
    return sorted(axes for axes, _ in separate(subworkload.terms)[1])


# --- split -------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(workloads())
def test_the_kronecker_product_of_the_blocks_times_the_scale_is_the_gram(workload):
    for shape, subworkload in subworkloads(workload):
        scale, blocks = separate(subworkload.terms)
        assert sorted(a for axes, _ in blocks for a in axes) == list(range(len(shape)))
        assert all(block.shape == tuple(shape[a] for a in axes) for axes, block in blocks)
        product = scale * on_axes(
            shape, [(axes, terms_gram(block.shape, block.terms)) for axes, block in blocks]
        )
        gram = terms_gram(shape, subworkload.terms)
        np.testing.assert_allclose(product, gram, rtol=1e-9, atol=1e-10 * np.abs(gram).max())


def test_one_product_family_splits_into_single_attributes():
    schema = qs.Schema.of(a=3, b=4, c=5)
    assert blocks_of(qs.all_kway(schema, [1, 2, 3], "prefix"), (0, 1, 2)) == [(0,), (1,), (2,)]


def test_a_sum_that_is_a_product_of_sums_splits():
    schema = qs.Schema.of(a=3, b=4)
    asked = [
        2.0 * qs.queries(schema, a=one, b=two)
        for one in ("prefix", "identity")
        for two in ("range", "identity")
    ]
    assert blocks_of(asked[0] + asked[1] + asked[2] + asked[3], (0, 1)) == [(0,), (1,)]
    assert blocks_of(asked[0] + asked[1] + asked[2] + 3.0 * asked[3], (0, 1)) == [(0, 1)]


def test_only_the_attributes_that_mix_families_stay_together():
    schema = qs.Schema.of(a=3, b=4, c=5)
    mixed = qs.queries(schema, a="prefix", b="prefix", c="range") + qs.queries(
        schema, a="identity", b="identity", c="range"
    )
    assert blocks_of(mixed, (0, 1, 2)) == [(0, 1), (2,)]


def test_attributes_that_a_joint_family_ties_stay_together():
    schema = qs.Schema.of(a=3, b=4, c=3)
    tied = qs.queries(schema, b="prefix") + qs.affine(schema, "c", "a")
    assert blocks_of(tied, (0, 2)) == [(0, 1)]
    product = qs.Workload(
        schema,
        tuple(
            type(g)(("c", "a", "b"), (g.families[0], qs.queries(schema, b="range").groups[0].families[0]))
            for g in qs.affine(schema, "c", "a")
        ),
    )
    assert blocks_of(product, (0, 1, 2)) == [(0, 2), (1,)]


def test_the_total_has_no_block_and_its_coefficient_as_scale():
    schema = qs.Schema.of(a=4)
    ((_, total),) = [f for f in subworkloads(qs.marginals(schema, [0, 1])) if not f[1].attributes]
    scale, blocks = separate(total.terms)
    assert blocks == ()
    assert scale == pytest.approx(1 + 4 / 16)


def test_the_same_share_up_to_scale_is_the_same_block():
    schema = qs.Schema.of(a=4, b=4, c=4, d=4)
    workload = qs.all_kway(schema, 2, "prefix") + qs.all_kway(schema, 2, "identity")
    heavier = workload + 7.0 * (
        qs.queries(schema, a="prefix", b="prefix") + qs.queries(schema, a="identity", b="identity")
    )
    pairs = [separate(s.terms) for _, s in subworkloads(heavier) if len(s.attributes) == 2]
    assert len({block for _, blocks in pairs for _, block in blocks}) == 1
    assert {round(scale, 9) for scale, _ in pairs} == {1.0, 8.0}


# --- parts -------------------------------------------------------------------------------------


def part_of(rows, shape, thin):
    centres = tuple(map(Centre.uniform, shape))
    return Part(shape, centres, rows if thin else rows.T @ rows, thin)


@given(st.sampled_from([(4,), (2, 3), (3, 2, 2)]), st.booleans(), st.data())
def test_a_part_knows_its_trace_roots_and_energies(shape, thin, data):
    part = part_of(data.draw(matrices(3, math.prod(shape))), shape, thin)
    gram = part_gram(part)
    assert part.trace == pytest.approx(np.trace(gram))
    np.testing.assert_allclose(part.root.T @ part.root, gram, atol=1e-9)
    duals = [data.draw(matrices(n, n + 1)) for n in shape]
    energies = np.diag(kron(duals).T @ gram @ kron(duals))
    np.testing.assert_allclose(part.energies(duals).ravel(), energies, rtol=1e-6, atol=1e-9)
    tensor = gram.reshape(*shape, *shape)
    for axis in range(len(shape)):
        letters = "abcd"[: len(shape)]
        right = letters.replace(letters[axis], "z")
        traced = np.einsum(f"{letters}{right}->{letters[axis]}z", tensor)
        np.testing.assert_allclose(part.partial_trace(axis), traced, atol=1e-9)


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


def test_minus_zero_is_zero_for_the_digest():
    centre = (Centre.uniform(2),)
    assert (
        Part((2,), centre, np.array([[0.0, 1.0]]), thin=True).digest
        == Part((2,), centre, np.array([[-0.0, 1.0]]), thin=True).digest
    )


# --- values ------------------------------------------------------------------------------------


def example_part(shape, thin, seed):
    rows = np.random.default_rng(seed).standard_normal((3, math.prod(shape)))
    return part_of(rows, shape, thin)


def test_blocks_of_equal_parts_are_equal_and_those_of_other_parts_are_not():
    one, same, other = (Block.of(example_part((2, 3), thin=True, seed=seed)) for seed in (1, 1, 2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    part = example_part((4,), thin=False, seed=0)
    assert part != Part(part.shape, part.centres, part.content, number=1)
    assert part != "part"


def test_a_block_knows_its_shape_cells_energy_and_centres():
    a, b = example_part((4,), thin=False, seed=0), example_part((2, 3), thin=True, seed=1)
    term = Term(2.0, (Piece((0, 2), b), Piece((1,), a)))
    block = Block((2, 4, 3), (term,))
    assert term.shape == block.shape
    assert block.cells == 24
    assert [len(centre) for centre in block.centres] == [2, 4, 3]
    assert [piece.part for piece in block.pieces] == [b, a]
    assert term.energy == pytest.approx(np.trace(terms_gram(block.shape, [term])))
