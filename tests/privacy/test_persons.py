"""At most k records of each person: every sentence of the proof, by brute force over neighbours."""

import hashlib
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.data.sources import open_table
from querysmasher.errors import DataError, PrivacyError
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.bound import Bound
from querysmasher.privacy.unit import Unit
from tests.builders import ALARM, UNIFORM
from tests.release.tables import released, squared_change, whole

KEY = bytes(range(32))
NAMES = [b"ann", b"bob", b"cyd", b"dan"]

tables = st.lists(
    st.tuples(st.sampled_from(range(len(NAMES))), st.integers(0, 2), st.integers(0, 1)), max_size=14
)
"""Records of few persons with few different rows, so that many are identical."""


def selected(bound, records):
    """The counted records: a multiset of (person, row)."""
    if not records:
        return Counter()
    present = sorted({person for person, *_ in records})  # a person without records has no number
    persons = np.array([present.index(person) for person, *_ in records])
    columns = [np.array([r[1] for r in records], np.uint8), np.array([r[2] for r in records], np.uint16)]
    kept = bound.kept(persons, lambda place: NAMES[present[place]], columns)
    return Counter(record for record, one in zip(records, kept, strict=True) if one)


def of(person, records):
    return Counter({record: n for record, n in records.items() if record[0] == person})


@given(tables, st.integers(1, 4), st.binary(min_size=16, max_size=64), st.randoms(use_true_random=False))
@example([(0, 1, 1)] * 6 + [(1, 1, 1)] * 6, 2, KEY, None)
def test_adding_or_removing_a_person_changes_nothing_for_the_others(records, most, key, chance):
    bound = Bound("household", most, key)
    kept = selected(bound, records)
    assert kept <= Counter(records)
    for person in range(len(NAMES)):
        own = of(person, kept)
        held = sum(r[0] == person for r in records)
        assert own.total() == min(most, held)  # at most k, and no fewer than there are
        without = selected(bound, [r for r in records if r[0] != person])
        assert without == kept - own  # all records of the person, however many
        alone = selected(bound, [r for r in records if r[0] == person])
        assert alone == own  # and nobody else decides about the person
    if chance is not None:
        chance.shuffle(records)
        assert selected(bound, records) == kept


def mixed(value):
    """SplitMix64, one number at a time."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return value ^ (value >> 31)


def plainly(bound, records):
    """Choose as the proof says, person by person and record by record."""
    kept = Counter()
    for person in {r[0] for r in records}:
        number = hashlib.blake2b(NAMES[person], key=bound.key, digest_size=8).digest()
        listed = []
        for row, times in Counter(r for r in records if r[0] == person).items():
            word = row[1] + (row[2] << 8)  # one byte, then two
            for j in range(times):
                priority = mixed(mixed(int.from_bytes(number, "little") ^ word) ^ j)
                listed.append((priority, word, j, row))
        kept.update(row for *_, row in sorted(listed)[: bound.most])
    return kept


@given(tables, st.integers(1, 4), st.binary(min_size=16, max_size=64))
def test_the_choice_is_the_one_that_is_described(records, most, key):
    bound = Bound("household", most, key)
    assert selected(bound, records) == plainly(bound, records)


@pytest.mark.slow
def test_identical_records_are_chosen_in_proportion():
    """A person with three records of one row and one of another: each is chosen as often as its share."""
    runs = 4000
    found = sum(
        selected(Bound("x", 1, seed.to_bytes(16, "big")), [(0, 1, 0)] * 3 + [(0, 2, 1)])[0, 2, 1]
        for seed in range(runs)
    )
    deviation = np.sqrt(runs * 0.25 * 0.75)
    assert abs(found - runs / 4) < 5.4 * deviation  # two-sided, below 1e-7
    assert ALARM == 1e-7


@pytest.mark.slow
def test_every_pair_of_records_is_kept_equally_often_and_persons_choose_independently():
    records = [(person, row, 0) for person in (0, 1) for row in range(4)]
    runs = 3000
    seen, both = Counter(), 0
    for seed in range(runs):
        kept = selected(Bound("x", 2, seed.to_bytes(16, "big")), records)
        pairs = [tuple(r[1] for r in sorted(kept) if r[0] == person) for person in (0, 1)]
        seen[pairs[0]] += 1
        both += pairs[0] == pairs[1]
    assert len(seen) == 6
    for times in (*seen.values(), both):  # each pair, and agreement of the two persons, in one of six cases
        assert abs(times - runs / 6) < 6 * np.sqrt(runs * 5 / 36)


def test_the_choice_depends_on_the_key_and_on_the_name():
    records = [(p, row % 3, row % 2) for p in range(4) for row in range(6)]
    choices = {tuple(sorted(selected(Bound("x", 2, bytes([i] * 16)), records).items())) for i in range(20)}
    assert len(choices) > 15
    kept = selected(Bound("x", 2, KEY), records)
    assert len({tuple(sorted((r[1:], n) for r, n in of(p, kept).items())) for p in range(4)}) > 1


def test_a_hash_that_fails_costs_no_privacy(monkeypatch):
    """All hashes equal: the choice is less random, and still each person's own."""
    monkeypatch.setattr(Bound, "number", lambda self, name: 0)
    records = [(0, 1, 0), (1, 1, 0), (0, 2, 1), (1, 2, 1), (0, 0, 0), (2, 2, 0)]
    kept = selected(Bound("x", 2, KEY), records)
    for person in range(3):
        without = selected(Bound("x", 2, KEY), [r for r in records if r[0] != person])
        assert without == kept - of(person, kept)
        assert of(person, kept).total() <= 2


def test_rows_without_attributes():
    bound = Bound("x", 2, KEY)
    assert bound.kept(np.array([0, 0, 0, 1]), lambda place: NAMES[place], []).sum() == 3


@pytest.mark.parametrize(
    "wrong", [(3, 1, KEY), ("", 1, KEY), ("x", 0, KEY), ("x", 1.0, KEY), ("x", 1, b"short")]
)
def test_odd_bounds(wrong):
    with pytest.raises((DataError, PrivacyError), match="person"):
        Bound(*wrong)


def test_a_key_is_drawn_for_each_release_and_not_shown():
    bounds = [Bound.drawn("x", Unit(records_per_person=3)) for _ in range(2)]
    assert bounds[0].most == 3
    assert bounds[0].key != bounds[1].key
    assert len(bounds[0].key) == 32
    assert "key" not in repr(bounds[0])
    assert Bound.drawn("x", Unit(), 1) == Bound.drawn("x", Unit(), 1) != Bound.drawn("x", Unit(), 2)


SCHEMA = qs.Schema.of(a=3, b=2)


def plan_for(most, **options):
    return qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(50, records_per_person=most, **options), **UNIFORM)


def table_of(sizes):
    """A table in which person i has sizes[i] records."""
    rows = [(f"p{i}", j % 3, (i + j) % 2) for i, size in enumerate(sizes) for j in range(size)]
    return pd.DataFrame(rows, columns=["household", "a", "b"])


def counts_of(data, most, key=KEY):
    """The counts of what is kept of a table."""
    counter = open_table(SCHEMA, data, SCHEMA.names, bound=Bound("household", most, key))
    return next(iter(counter.marginals([SCHEMA.names])))


@pytest.mark.parametrize("most", [1, 3])
def test_what_is_released_changes_by_no_more_than_the_cost_whoever_leaves(most):
    """To the end: the exact answers behind the noise, for every neighbour that lacks a whole person."""
    plan = whole(plan_for(most))
    table = table_of([1, 2, 3, 9, 40])
    here = released(plan, counts_of(table, most))
    changes = [
        squared_change(here, released(plan, counts_of(table[table.household != name], most)))
        for name in table.household.unique()
    ]
    assert min(changes) > 0
    assert max(changes) <= privacy_cost(plan)
    trusting = squared_change(
        released(plan, counts_of(table, 100)), released(plan, counts_of(table[table.household != "p4"], 100))
    )
    assert trusting > privacy_cost(plan)  # which a bound that is only assumed would not notice


def test_measure_counts_at_most_so_many_of_each():
    sizes = [1, 2, 3, 30]
    for most, expected in ((1, 4), (2, 7), (5, 11), (100, 36)):
        release = qs.measure(plan_for(most), table_of(sizes), person="household")
        std = release.answer().std[0]
        assert std < 1.5 * most
        assert abs(release.marginal().item() - expected) < 6 * std


def test_the_guarantee_says_that_it_is_about_persons(tmp_path):
    release = qs.measure(plan_for(2), table_of([3]), person="household")
    said = "of one person (a value of 'household'), of which at most 2 are counted"
    assert said in release.guarantee
    assert "The unit of privacy is the person, however many records" in release.guarantee
    release.save(tmp_path / "x.qs")
    assert qs.Release.load(tmp_path / "x.qs").guarantee == release.guarantee
    single = qs.measure(plan_for(1), table_of([3]), person="household").guarantee
    assert "at most 1 is counted" in single
    assert "The unit of privacy is the record" not in single


@pytest.mark.slow
def test_the_page_says_so_too(tmp_path):
    release = qs.measure(plan_for(2), table_of([3]), person="household")
    release.report(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "of which at most 2 are counted" in page
    assert "such a person is protected less" not in page


def test_replace_one_is_refused_before_the_data_are_touched(refuses):
    plan = plan_for(2, neighbours="replace_one")
    with refuses(PrivacyError, ValueError, "person"):
        qs.measure(plan, object(), person="household")
    for wrong in (3, "", ["household"]):
        with refuses(DataError, ValueError, "person"):
            qs.measure(plan_for(2), object(), person=wrong)


def test_a_ledger_does_not_add_costs_for_persons_to_costs_for_records(tmp_path):
    ledger = qs.Ledger(tmp_path / "x", limit=qs.zCDP(1000))
    release = qs.measure(plan_for(1), table_of([3]), ledger=ledger, person="household")
    assert release.entry.person == "household"
    for other in (None, "someone"):
        with pytest.raises(PrivacyError, match="persons by 'household'"):
            qs.measure(plan_for(1), table_of([3]), ledger=ledger, person=other)
    qs.measure(plan_for(1), table_of([3]), ledger=ledger, person="household")
    assert len(ledger.entries) == 2


def test_nothing_says_how_many_were_left_out(tmp_path, capfd):
    """With a seed, tables that differ in what is left out alone give the same release, file and page."""
    first = table_of([2, 1])
    more = pd.concat([first, first[first.household == "p0"]] * 3)  # each row of p0 several times
    more = pd.concat([more[more.household == "p0"], first[first.household == "p1"]])
    plan = plan_for(1)
    same = []
    for seed in range(8):
        a, b = (qs.measure(plan, data, person="household", seed=seed) for data in (first, more))
        if all(np.array_equal(a.store[i], b.store[i]) for i in range(len(plan.measured))):
            same.append((a, b))
    assert same  # where the same row was chosen
    for a, b in same:
        assert repr(a) == repr(b)
        a.save(tmp_path / "a.qs")
        b.save(tmp_path / "b.qs")
        assert (tmp_path / "a.qs").stat().st_size == (tmp_path / "b.qs").stat().st_size
    assert capfd.readouterr() == ("", "")
