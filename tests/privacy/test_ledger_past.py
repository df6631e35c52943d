"""The past of a ledger: whatever is changed in its file is found, or changes nothing."""

import json
import random
import sqlite3
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import FileError, PrivacyError
from querysmasher.privacy.entries import Chain, canonical, linked, plan_digest
from tests.ledgers import ROUNDED, TENTH, costing, edit, rows


def changed(content, **values):
    return canonical({**json.loads(content), **values})


def edits(path):
    """Every way to change the past of a ledger of three entries."""
    _, first, second, third = rows(path)
    rewritten = changed(second[1], cost="1/1000")
    return {
        "a smaller cost": [("UPDATE entries SET content = ? WHERE number = 2", rewritten)],
        "and its digest": [
            (
                "UPDATE entries SET content = ?, digest = ? WHERE number = 2",
                rewritten,
                linked(first[2], json.loads(rewritten)),
            )
        ],
        "one removed": [("DELETE FROM entries WHERE number = 2",)],
        "removed and renumbered": [
            ("DELETE FROM entries WHERE number = 2",),
            ("UPDATE entries SET number = 2 WHERE number = 3",),
        ],
        "two exchanged": [
            ("UPDATE entries SET content = ?, digest = ? WHERE number = 1", *second[1:]),
            ("UPDATE entries SET content = ?, digest = ? WHERE number = 2", *first[1:]),
        ],
        "another limit": [
            (
                "UPDATE entries SET content = ? WHERE number = 0",
                changed(rows(path)[0][1], limit=qs.PrivacyCost(99.0).to_json()),
            )
        ],
        "another label": [("UPDATE entries SET content = ? WHERE number = 3", changed(third[1], label="x"))],
        "other spelling": [("UPDATE entries SET content = content || ' ' WHERE number = 1",)],
        "no text": [("UPDATE entries SET content = 7 WHERE number = 1",)],
        "bytes": [("UPDATE entries SET content = CAST(content AS BLOB) WHERE number = 1",)],
        "nothing": [("DELETE FROM entries",)],
    }


@pytest.mark.slow
def test_no_changed_byte_makes_another_history(ledger, path):
    """A ledger with any one byte changed is refused, or has the same entries as before."""
    for cost in (1, 2, 3):
        ledger.charge(costing(Fraction(cost, 100)), ROUNDED)
    before, data = ledger.verify(), path.read_bytes()
    page = 4096
    heads = [start + i for start in range(0, len(data), page) for i in range(16)]  # where cells are counted
    some = random.Random(1).sample([i for i, byte in enumerate(data) if byte], 120)  # noqa: S311
    refused = 0
    for place in [*heads, *some]:
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            assert ledger.verify() == before
        except (FileError, PrivacyError):
            refused += 1
        for left in path.parent.glob(f"{path.name}-*"):
            left.unlink()
    path.write_bytes(data)
    assert ledger.verify() == before
    assert refused > 100


def test_an_edited_past_is_found(tmp_path):
    path = tmp_path / "whole"
    whole = qs.Ledger(path, limit=qs.PrivacyCost(1.0))
    for _ in range(3):
        whole.charge(costing(TENTH), ROUNDED)
    before = path.read_bytes()
    for statements in edits(path).values():
        edit(path, *statements)
        for look in (whole.verify, lambda: whole.charge(costing(TENTH), ROUNDED), lambda: qs.Ledger(path)):
            with pytest.raises(FileError, match=r"changed or removed|no first entry"):
                look()
        path.write_bytes(before)
        assert len(whole.verify().entries) == 3


LETTERS = 'ab/10-. \n"\\é😀'
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(LETTERS, max_size=5)
    | st.just("0" * 64),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(LETTERS, max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """The stored entries of a ledger."""
    ledger = qs.Ledger(tmp_path_factory.mktemp("x") / "x", limit=qs.PrivacyCost(1.0))
    for _ in range(2):
        ledger.charge(costing(TENTH), ROUNDED, "household")
    return rows(ledger.path)


@given(st.data())
def test_foreign_contents_with_right_digests_are_refused(three, data):
    """Whoever rewrites the whole chain must still write entries that could have been written."""
    contents = [json.loads(content) for _, content, _ in three]
    place = data.draw(st.integers(0, 2))
    key = data.draw(st.sampled_from([*contents[place], "more"]))
    value = data.draw(anything)
    changed = key not in contents[place] or canonical(value) != canonical(contents[place][key])
    contents[place][key] = value
    before, chain = "", []
    for number, content in enumerate(contents):
        before = linked(before, content)
        chain.append((number, canonical(content), before))
    free = ("time",) if place else ("time", "ledger", "label", "limit")
    try:
        Chain.of(chain, "x")
    except FileError:
        assert changed
    else:
        assert not changed or key in (*free, "plan", "noise", "cost")


def test_a_cut_end_or_a_rewritten_chain_is_found_by_a_digest_noted_before(ledger, path):
    first, last = (ledger.charge(costing(TENTH), ROUNDED) for _ in range(2))
    assert ledger.verify(last.digest).head == last.digest
    edit(path, ("DELETE FROM entries WHERE number = 2",))
    assert len(ledger.verify(first.digest).entries) == 1
    with pytest.raises(FileError, match="no entry"):
        ledger.verify(last.digest)
    ledger.charge(costing(TENTH / 2), ROUNDED)  # grows again, to another chain
    with pytest.raises(FileError, match="no entry"):
        ledger.verify(last.digest)


def test_entries_are_final_for_sql_too(ledger, path):
    ledger.charge(costing(TENTH), ROUNDED)
    connection = sqlite3.connect(path)
    for statement in ("DELETE FROM entries", "UPDATE entries SET digest = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="final"):
            connection.execute(statement)
    connection.close()


def test_digests_of_plans_differ_wherever_plans_do():
    plans = [
        costing(1),
        costing(Fraction(1, 2), qs.PrivacyCost(2.0)),
        costing(1, qs.zCDP(9)),
        costing(1, qs.zCDP(9, records_per_person=2)),
    ]
    assert len({plan_digest(plan) for plan in plans}) == len(plans)
    assert plan_digest(costing(1)) == plan_digest(costing(1))


def test_the_chain_is_what_the_documentation_says(ledger, path):
    """Recomputed from the file with the standard library alone."""
    import hashlib

    for _ in range(2):
        ledger.charge(costing(TENTH), ROUNDED)
    before, spent = "", Fraction(0)
    for _, content, digest in rows(path):
        assert hashlib.sha256(f"{before}\n{content}".encode()).hexdigest() == digest
        before = digest
        spent += Fraction(json.loads(content).get("cost", 0))
    assert spent == ledger.total.cost
    assert Chain.of(rows(path), "").head == before
