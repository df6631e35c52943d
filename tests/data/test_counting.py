"""Sets, blocks and tables, each against the obvious way."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_table import counted

from querysmasher.data import counting as blocks_module
from querysmasher.data.counting import JOINED_CELLS, SHARED_CELLS, Codes, Tally, batches, blocks
from querysmasher.privacy.counts import lower_marginals, maximal_sets, smallest_covers
from querysmasher.schema import Schema

attribute_sets = st.lists(
    st.lists(st.sampled_from("abcdef"), max_size=4, unique=True).map(tuple), max_size=12
)


@given(attribute_sets)
def test_maximal_sets(sets):
    found = maximal_sets(sets)
    assert all(any(set(one) <= set(large) for large in found) for one in sets)
    assert not any(set(a) <= set(b) for a, b in combinations(found, 2))
    assert not any(set(b) <= set(a) for a, b in combinations(found, 2))
    assert [one for one in sets if one in found][: len(found)] == found or set(found) <= set(sets)


@given(attribute_sets)
def test_smallest_covers(sets):
    schema = Schema.of(a=5, b=3, c=2, d=7, e=1, f=4)
    maximal = maximal_sets(sets)
    covers = smallest_covers(schema, sets, maximal)
    assert sorted(one for given_ in covers.values() for one in given_) == sorted(sets)
    for large, given_ in covers.items():
        for one in given_:
            sizes = [prod(schema.shape(m)) for m in maximal if set(one) <= set(m)]
            assert prod(schema.shape(large)) == min(sizes)


def test_set_that_nothing_covers():
    with pytest.raises(KeyError, match="no set covers"):
        smallest_covers(Schema.of(a=2, b=2), [("a",)], [("b",)])


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=4, unique=True).map(tuple), max_size=8))
def test_lower_marginals(sets):
    table = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    found = list(lower_marginals(tuple("abcd"), table, sets))
    assert sorted(one for one, _ in found) == sorted(sets)
    for one, counts in found:
        assert np.array_equal(counts, np.einsum(table, [0, 1, 2, 3], ["abcd".index(name) for name in one]))


def canonical(sets, sizes):
    rank = {name: r for r, name in enumerate(sizes)}
    return list(dict.fromkeys(tuple(sorted(one, key=rank.__getitem__)) for one in sets))


@given(attribute_sets, st.lists(st.integers(1, 300), min_size=6, max_size=6).map(sorted))
def test_blocks_cover_each_set_once(sets, values):
    sizes = dict(zip("abcdef", values, strict=True))
    sets = canonical(sets, sizes)
    found = blocks(sets, sizes)
    assert sorted(m for _, members in found for m in members) == sorted(sets)
    for names, members in found:
        cells = prod(sizes[name] for name in names)
        assert all(set(m) <= set(names) for m in members)
        assert cells <= JOINED_CELLS or names in members
        assert cells <= SHARED_CELLS or members == [names]
        assert list(names) == sorted(names)


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


@given(st.lists(st.integers(1, 9), max_size=10), st.integers(1, 20))
def test_batches(cells, most):
    sets = [(str(place),) for place in range(len(cells))]
    found = list(batches(sets, cells, most))
    assert [one for batch in found for one in batch] == sets
    sizes = [[cells[int(one[0])] for one in batch] for batch in found]
    assert all(len(batch) == 1 or sum(batch) <= most for batch in sizes)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 300), min_size=6, max_size=6),
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=3, unique=True).map(tuple), max_size=6),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(0, 2**32),
)
def test_random_tables_against_a_dictionary(values, sets, chunks, seed):
    sizes = dict(zip("abcdef", values, strict=True))
    sets = [one for one in sets if prod(sizes[name] for name in one) < 10**6]
    schema = Schema.of(sizes)
    generator = np.random.default_rng(seed)
    tally = Tally(schema, sets)
    rows = []
    for count in chunks:
        columns = {name: generator.integers(size, size=count) for name, size in sizes.items()}
        rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        small = {name: column.astype(np.min_scalar_type(sizes[name])) for name, column in columns.items()}
        tally.add(Codes(small, count))
    for found, expected in zip(tally.tables(), counted(schema, rows, sets), strict=True):
        assert np.array_equal(found, expected)


def test_tables_too_large_to_share_are_counted_in_place(monkeypatch):
    monkeypatch.setattr(blocks_module, "SHARED_CELLS", 10)
    schema = Schema.of(a=4, b=5, c=2)
    sets = [("a", "b"), ("a",), ("b", "c", "a"), ()]
    generator = np.random.default_rng(0)
    tally = Tally(schema, sets)
    rows = []
    for _ in range(3):
        columns = {a.name: generator.integers(a.size, size=9).astype(np.uint8) for a in schema}
        rows += [
            dict(zip(columns, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        tally.add(Codes(columns, 9))
    for found, expected in zip(tally.tables(), counted(schema, rows, sets), strict=True):
        assert np.array_equal(found, expected)


def test_reprs_show_no_records():
    codes = Codes({"a": np.array([7, 7], np.uint8)}, 2)
    assert repr(codes) == "Codes(a)"
    tally = Tally(Schema.of(a=8), [("a",)])
    tally.add(codes)
    assert repr(tally) == "Tally(1 attribute sets)"
