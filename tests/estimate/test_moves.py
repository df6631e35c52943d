"""Moves of records: what they gain is what a dense computation says, and they respect impossible cells."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.estimate import moves
from querysmasher.estimate.evidence import Zeros
from querysmasher.estimate.moves import Followed
from tests.estimate.tables import counted

SETS = [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)]
STATED = "a == 0 and b == 1 or c == 2"
SCHEMA = qs.Schema.of(a=2, b=3, c=4)

TABLES = [
    st.lists(st.floats(0, 9), min_size=cells, max_size=cells).map(
        lambda x, place=place: np.reshape(x, [SCHEMA.sizes[a] for a in place])
    )
    for place in SETS
    for cells in [math.prod(SCHEMA.sizes[a] for a in place)]
]
RECORDS = st.lists(st.tuples(*(st.integers(0, n - 1) for n in SCHEMA.sizes)), min_size=1, max_size=30)


def distance(records, tables):
    """What moves lower, written out."""
    return sum(
        float((weight / (table + 1) * (counted(SCHEMA, records, place) - table) ** 2).sum()) / 2
        for place, table in zip(SETS, tables, strict=True)
        for often in [max(1, len(records) / math.prod(SCHEMA.sizes[a] for a in place))]
        for weight in [often if len(place) == 1 else often**0.5]
    )


@given(st.tuples(*TABLES), RECORDS, st.integers(0, 2))
def test_each_record_finds_its_best_other_value_and_what_it_gains(tables, records, attribute):
    records = np.array(records)
    followed = Followed(Zeros(SCHEMA), SCHEMA.sizes, len(records), SETS, tables)
    for k, (place, table) in enumerate(zip(SETS, tables, strict=True)):
        followed._excess[k] += counted(SCHEMA, records, place) - table
    found = []

    class Watched(Followed):
        def _best(self, *given):
            found.append((given[0].copy(), *super()._best(*given)))
            return found[-1][1:]

    followed.__class__ = Watched
    chosen = [k for k, place in enumerate(SETS) if attribute in place]
    every = np.full(len(records), np.inf, dtype=np.float32)
    followed._move(records.copy(), attribute, chosen, every, np.random.default_rng(0))
    assert (every < np.inf).all()
    (before, best, gains, _), now = found[0], distance(records, tables)
    for record, value, gain in zip(before, best, gains, strict=True):
        changes = {}
        for other in set(range(SCHEMA.sizes[attribute])) - {record[attribute]}:
            moved = records.copy()
            moved[np.flatnonzero((records == record).all(axis=1))[0], attribute] = other
            changes[other] = now - distance(moved, tables)
        assert math.isclose(gain, max(changes.values()), rel_tol=1e-3, abs_tol=1e-2)
        assert math.isclose(changes[value], max(changes.values()), rel_tol=1e-3, abs_tol=1e-2)


@given(st.tuples(*TABLES), RECORDS, st.integers(0, 9))
def test_what_is_in_excess_is_counted_after_all_moves_and_carried_over(tables, records, seed):
    records = np.array(records)
    followed = Followed(Zeros(SCHEMA), SCHEMA.sizes, len(records), SETS, tables)
    rng = np.random.default_rng(seed)
    half = len(records) // 2
    blocks = [followed.moved(some, rng) for some in (records, records[:half])]
    share = 1 + half / len(records)
    for place, table, excess in zip(SETS, tables, followed._excess, strict=True):
        expected = counted(SCHEMA, np.concatenate(blocks), place) - share * table
        np.testing.assert_allclose(excess, expected, atol=1e-3)


@given(RECORDS, st.integers(1, 6), st.integers(0, 9))
def test_public_tables_are_met_exactly_after_the_last_of_many_blocks(truth, blocks, seed):
    rng = np.random.default_rng(seed)
    size = -(-len(truth) // blocks)
    share = size / len(truth)
    tables = [counted(SCHEMA, np.array(truth), place) * share for place in SETS]
    followed = Followed(Zeros(SCHEMA), SCHEMA.sizes, size, SETS, tables, [(0,), (1,), (0, 1)])
    drawn = np.stack([rng.integers(n, size=len(truth)) for n in SCHEMA.sizes], axis=1)
    parts = [followed.moved(drawn[start : start + size], rng) for start in range(0, len(truth), size)]
    for place in SETS[:3]:
        made = counted(SCHEMA, np.concatenate(parts), place)
        np.testing.assert_array_equal(made, counted(SCHEMA, np.array(truth), place))


@given(RECORDS, st.integers(0, 2))
def test_possible_values_are_those_of_possible_records(records, attribute):
    zeros = Zeros(SCHEMA.impossible(STATED))
    records = np.array(records)[zeros.allowed(np.array(records))]
    possible = zeros.values(records, attribute)
    for value in range(SCHEMA.sizes[attribute]):
        moved = records.copy()
        moved[:, attribute] = value
        assert possible[:, value].tolist() == zeros.allowed(moved).tolist()
    assert Zeros(SCHEMA).values(records, attribute) is None


def test_records_move_to_tables_that_they_are_far_from():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, (4000, 3))
    truth[:, 2] = (truth[:, 0] + truth[:, 1]) % 2
    schema = qs.Schema.of(a=2, b=2, c=2)
    places = [(0,), (1,), (2,), (0, 1, 2)]
    tables = [counted(schema, truth, place) for place in places]
    followed = Followed(Zeros(schema), schema.sizes, 4000, places, tables)
    moved = followed.moved(rng.integers(0, 2, (4000, 3)), rng)
    for place, table in zip(places, tables, strict=True):
        assert np.abs(counted(schema, moved, place) - table).sum() < 0.01 * len(truth)


def test_effort_is_bounded_and_spent_where_there_is_little_to_do():
    def rounds(records, sets):
        return Followed(Zeros(SCHEMA), SCHEMA.sizes, records, sets, []).rounds

    assert rounds(100, SETS) == moves.MOST + moves.EARLY
    assert rounds(10**10, SETS) == moves.FEWEST + moves.EARLY


def test_records_of_attributes_that_determine_each_other_are_not_stuck():
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.integers(0, 6, (3000, 1)), 4, axis=1)
    schema = qs.Schema.of(a=6, b=6, c=6, d=6)
    places = [(0,), (1,), (2,), (3,), *itertools.combinations(range(4), 2)]
    tables = [counted(schema, truth, place) for place in places]
    followed = Followed(Zeros(schema), schema.sizes, 3000, places, tables)
    alike = np.repeat(np.minimum(rng.integers(0, 9, (3000, 1)), 5), 4, axis=1)  # too many of the last value
    moved = followed.moved(alike, rng)
    assert (moved == moved[:, :1]).all()
    for place, table in zip(places, tables, strict=True):
        assert np.abs(counted(schema, moved, place) - table).sum() < 0.01 * len(truth)
