"""Tables of many attribute sets at once, against the obvious way."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querysmasher.data import counting
from querysmasher.data.counting import TOGETHER_CELLS, Codes, Tally, blocks
from querysmasher.schema import Schema
from tests.data.mixed_table import counted


def test_blocks_save_passes():
    sizes = dict(
        zip("abcdefghijklmn", sorted([42, 16, 15, 9, 7, 6, 5, 2, 2, 100, 100, 100, 99, 85]), strict=True)
    )
    sets = list(combinations(sizes, 3))
    assert len(sets) == 364
    assert len(blocks(sets, sizes)) < 200
    assert len(blocks(list(combinations(sizes, 1)), sizes)) < 8


def test_many_attributes_of_one_value_stay_within_the_axes_of_numpy():
    sizes = {f"x{i:03}": 1 for i in range(100)}
    schema = Schema.of(sizes)
    tally = Tally(schema, [(name,) for name in sizes])
    tally.add(Codes({name: np.zeros(5, np.uint8) for name in sizes}, 5))
    assert all(table.tolist() == [5] for table in tally.tables())


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 300), min_size=6, max_size=6),
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=3, unique=True).map(tuple), max_size=6),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(0, 2**32),
    st.sampled_from([10, TOGETHER_CELLS]),
)
def test_random_tables_against_a_dictionary(values, sets, chunks, seed, shared):
    """Also where tables too large to share a block are counted in place."""
    sizes = dict(zip("abcdef", values, strict=True))
    sets = [one for one in sets if prod(sizes[name] for name in one) < 10**6]
    schema = Schema.of(sizes)
    generator = np.random.default_rng(seed)
    rows = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "TOGETHER_CELLS", shared)
        tally = Tally(schema, sets)
        for count in chunks:
            columns = {name: generator.integers(size, size=count) for name, size in sizes.items()}
            rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            small = {name: column.astype(np.min_scalar_type(sizes[name])) for name, column in columns.items()}
            tally.add(Codes(small, count))
    for found, expected in zip(tally.tables(), counted(schema, rows, sets), strict=True):
        assert np.array_equal(found, expected)


def test_reprs_show_no_records():
    codes = Codes({"a": np.array([7, 7], np.uint8)}, 2)
    assert repr(codes) == "Codes(a)"
    tally = Tally(Schema.of(a=8), [("a",)])
    tally.add(codes)
    assert repr(tally) == "Tally(1 attribute sets)"
