"""Integer rows: inside the residual space, and spanning it, in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.arrays import CHUNK
from querysmasher.planning import lattice
from querysmasher.planning.centre import Centre
from querysmasher.planning.lattice import independent, lattice_rows, project
from querysmasher.workload.joint import AbsDifference, Affine, Rows
from tests.planning.exact import exact_part, exact_rank

centres = st.lists(st.integers(-3, 9), min_size=1, max_size=6).filter(
    lambda k: sum(k) != 0 and math.gcd(*k) == 1
)


@given(st.lists(centres, min_size=1, max_size=3), st.integers(0, 10**6))
def test_projected_rows_are_whole_and_in_the_residual_space(chosen, seed):
    shape = [len(k) for k in chosen]
    rows = np.random.default_rng(seed).integers(-50, 50, (3, math.prod(shape)))
    found = project(rows, shape, [np.array(k) for k in chosen])
    assert found.dtype == np.int64
    tensor = found.reshape(-1, *shape)
    for axis, k in enumerate(chosen, start=1):
        assert not np.tensordot(tensor, np.array(k), axes=(axis, 0)).any()
    assert found.tolist() == exact_part(rows.tolist(), shape, chosen, range(len(shape)))


FAMILIES = {
    "one prefix": (Rows((4,), [[1, 1, 0, 0]]), (1,)),
    "groups": (qs.hierarchy(qs.Schema.of(a=5), "a", [0, 0, 1, 1, 2], leaves=False), (1,)),
    "affine": (Affine((4, 3)), (1, 2)),
    "affine, turned": (Affine((3, 4)), (2, 1)),
    "absolute": (AbsDifference((4, 5)), (1, 0)),
    "fractions": (Rows((2, 3), [[0.5, 0.1, 0, 0, 1.25, 0]] * 2), (0, 2)),
    "three": (Rows((2, 2, 2), [[1, 0, 0, 1, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]]), (2, 0, 1)),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("best", [False, True])
def test_lattice_rows_span_what_is_left_exactly(name, best):
    family, places = FAMILIES[name]
    size = dict(zip(places, family.shape, strict=True))
    whole = {
        p: np.arange(1, n + 1) if best and n > 1 else np.ones(n, dtype=np.int64) for p, n in size.items()
    }
    ordered = sorted(places)
    given = [Centre.ratio(whole[p]) for p in ordered]
    order = [places.index(p) for p in ordered]
    matrix = family.matrix().reshape(-1, *family.shape).transpose(0, *(1 + np.argsort(places)))
    # 0.1 means a tenth, not the double next to it
    meant = [[Fraction(x).limit_denominator(1000) for x in row] for row in matrix.reshape(family.rows, -1)]
    for bits in range(1, 2 ** len(places)):
        kept = tuple(p for i, p in enumerate(ordered) if bits >> i & 1)
        shape = [size[p] for p in ordered]
        axes = [ordered.index(p) for p in kept]
        left = exact_part(meant, shape, [whole[p] for p in ordered], axes)
        rank = exact_rank(left)
        rows = lattice_rows(family, order, axes, given)
        if rows is None:
            assert rank == math.prod(size[p] - 1 for p in kept), "the whole residual space"
            continue
        assert rows.dtype == np.int64
        assert len(rows) == rank == exact_rank(rows.tolist())
        if rank:
            assert exact_rank([*rows.tolist(), *left]) == rank


@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 4, 5, 100]),
    st.integers(1, 4),
    st.sampled_from([0, CHUNK]),
)
def test_an_independent_choice_of_rows_keeps_the_span(seed, count, cells, rank, wide):
    generator = np.random.default_rng(seed)
    rows = generator.integers(-3, 4, (count, rank)) @ generator.integers(-3, 4, (rank, cells))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "CHUNK", wide)
        found = independent(rows * 6)
    expected = exact_rank(rows.tolist())
    assert len(found) == expected
    if expected:
        assert exact_rank(found.tolist()) == expected
        assert exact_rank([*found.tolist(), *rows.tolist()]) == expected
        assert (np.gcd.reduce(found, axis=1) == 1).all()
