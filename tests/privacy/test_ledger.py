"""A ledger: exact sums, refusals, an edited past is found, every odd file is refused with nothing lost."""

import json
import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledgers import DISCRETE, ROUNDED, costing

import querysmasher as qs
from querysmasher.errors import BudgetError, FileError, PrivacyError
from querysmasher.privacy import ledger_file
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.budget import KINDS
from querysmasher.privacy.digests import canonical, plan_digest
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.entries import Chain, Entry, linked
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.rates import epsilon, zcdp_epsilon
from querysmasher.privacy.totals import Total

TENTH = Fraction(1, 8)  # exact in binary, so that eight of them are the limit


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def ledger(path):
    return qs.Ledger(path, limit=qs.PrivacyCost(1.0))


def rows(path):
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT number, content, digest FROM entries ORDER BY number").fetchall()
    connection.close()
    return found


def edit(path, *statements):
    """Change the file as somebody would who knows SQLite."""
    connection = sqlite3.connect(path)
    for name in ("unchanged", "kept"):
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    for statement, *values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_the_exact_sum_may_reach_the_limit_and_not_pass_it(ledger):
    for number in range(1, 9):
        entry = ledger.charge(costing(TENTH), ROUNDED)
        assert (entry.number, entry.cost) == (number, TENTH)
    assert ledger.total.cost == 1
    assert ledger.left == 0
    with pytest.raises(PrivacyError, match=r"allows a privacy cost of 1 in total, of which 1 is spent"):
        ledger.charge(costing(Fraction(1, 2**140)), ROUNDED)
    assert len(ledger.entries) == 8


def test_amounts_are_exact_fractions(ledger):
    cost = privacy_cost(costing(Fraction(1, 3)))
    entries = [ledger.charge(costing(Fraction(1, 3)), ROUNDED) for _ in range(2)]
    assert [e.cost for e in entries] == [cost, cost]
    assert ledger.total.cost == 2 * cost
    stored = json.loads(rows(ledger.path)[1][1])
    assert Fraction(stored["cost"]) == cost
    with pytest.raises(PrivacyError):  # costs are rounded up, so the third third passes the limit by 2^-160
        ledger.charge(costing(Fraction(1, 3)), ROUNDED)


@settings(max_examples=6)
@given(st.lists(st.tuples(st.fractions(Fraction(1, 1000), Fraction(1, 4)), st.booleans()), max_size=6))
def test_every_measurement_that_fits_is_charged_and_no_other(spent):
    """Against the obvious rule: add up, and compare with what the noises used so far allow."""
    limit = qs.ApproxDP(2.0, 1e-3)
    total, gaussian, expected = Fraction(0), True, []
    for cost, discrete in spent:
        plan = costing(cost)
        allowed = limit.privacy_cost if gaussian and not discrete else limit.discrete_privacy_cost
        expected.append(total + privacy_cost(plan) <= Fraction(allowed))
        if expected[-1]:
            total, gaussian = total + privacy_cost(plan), gaussian and not discrete
    with tempfile.TemporaryDirectory() as folder:
        ledger = qs.Ledger(f"{folder}/x", limit=limit)
        found = []
        for cost, discrete in spent:
            try:
                ledger.charge(costing(cost), DISCRETE if discrete else ROUNDED)
            except PrivacyError:
                found.append(False)
            else:
                found.append(True)
        assert (found, ledger.total.cost) == (expected, total)


def test_the_entry_tells_the_plan_the_unit_and_the_data(path):
    ledger = qs.Ledger(path, limit=qs.zCDP(10, records_per_person=3), label="survey 2024")
    plan = costing(1, records_per_person=3)
    entry = ledger.charge(plan, DISCRETE)
    assert entry.plan == plan_digest(plan)
    assert (entry.unit.neighbours, entry.unit.records_per_person) == ("add_remove", 3)
    assert (entry.label, entry.noise) == ("survey 2024", "discrete")
    assert qs.Ledger(path).entries == (entry,)
    assert Entry.from_json(entry.to_json(), entry.previous) == entry


@pytest.mark.parametrize("unit", [{"neighbours": "replace_one"}, {"records_per_person": 2}], ids=str)
def test_units_are_never_mixed(ledger, unit, path):
    with pytest.raises(PrivacyError, match="cannot be added"):
        ledger.charge(costing(TENTH, **unit), ROUNDED)
    with pytest.raises(BudgetError, match="limit"):
        qs.Ledger(path, limit=qs.PrivacyCost(1.0, **unit))
    assert ledger.entries == ()


def test_another_limit_or_label_is_refused(path, ledger):
    for limit in (qs.PrivacyCost(2.0), qs.zCDP(0.5)):  # the second allows as much, and says it differently
        with pytest.raises(BudgetError, match="has the limit"):
            qs.Ledger(path, limit=limit)
    with pytest.raises(BudgetError, match="is about 'people'"):
        qs.Ledger(path, label="others")
    again = qs.Ledger(path, limit=qs.PrivacyCost(1.0), label="people")
    assert again == ledger


def test_the_table_stays_closed_if_the_plan_costs_more_than_its_budget(ledger):
    plan = costing(TENTH, qs.PrivacyCost(float(TENTH) / 2))
    with pytest.raises(PrivacyError, match="more than"):
        ledger.charge(plan, ROUNDED)
    assert ledger.entries == ()


def test_a_measurement_that_costs_nothing_is_an_entry_too(path):
    """The number of records under replace-one neighbours, which is public."""
    ledger = qs.Ledger(path, limit=qs.zCDP(1, neighbours="replace_one"))
    schema = qs.Schema.of(a=2)
    plan = IntegerPlan(schema, qs.zCDP(1, neighbours="replace_one"), (), (), 1000)
    assert ledger.charge(plan, ROUNDED).cost == 0
    assert len(ledger.entries) == 1


def test_what_could_not_be_read_again_is_not_written(ledger):
    for person in ("x" * 1001, "", 3):
        with pytest.raises(FileError):
            ledger.charge(costing(TENTH), ROUNDED, person)
    assert ledger.entries == ()
    ledger.charge(costing(TENTH), ROUNDED, "line\nbreak \ud800 é")
    assert ledger.entries[0].person == "line\nbreak \ud800 é"


def test_noise_that_protects_nobody_is_refused(ledger):
    with pytest.raises(PrivacyError, match="protects nobody"):
        ledger.charge(costing(TENTH), DISTRIBUTIONS["gaussian"])


def test_totals_are_those_of_one_gaussian_mechanism():
    total = Total.of([(Fraction(1, 10), ROUNDED)] * 5)
    assert total.rho == Fraction(1, 4)
    assert total.mu == pytest.approx(0.5**0.5)
    assert Fraction(total.mu) ** 2 >= total.cost
    assert total.epsilon_at(1e-6) == epsilon(0.5, 1e-6)
    mixed = total.plus(Fraction(1, 2), DISCRETE)
    assert (mixed.cost, mixed.mu) == (1, None)
    assert mixed.epsilon_at(1e-6) == zcdp_epsilon(0.5, 1e-6) > Total(Fraction(1)).epsilon_at(1e-6)
    assert Total().epsilon_at(1e-6) == 0


@pytest.mark.parametrize(
    "limit", [qs.zCDP(0.5), qs.PrivacyCost(1.0), qs.ApproxDP(1.0, 1e-6), qs.GaussianDP(1)]
)
def test_one_discrete_noise_makes_the_limit_that_of_zcdp(limit, path):
    """With Gaussian noises alone, the limit is spent by the Gaussian formulas; with another, through zCDP."""
    assert Total().allowed(limit) == Fraction(limit.privacy_cost)
    mixed = Total(Fraction(0), is_gaussian=False)
    if isinstance(limit, qs.GaussianDP):
        ledger = qs.Ledger(path, limit=limit)
        with pytest.raises(BudgetError, match="discrete"):
            ledger.charge(costing(TENTH), DISCRETE)
    else:
        assert mixed.allowed(limit) == Fraction(limit.discrete_privacy_cost) <= Fraction(limit.privacy_cost)


def test_a_late_discrete_noise_is_refused_if_the_zcdp_limit_is_passed_by_then(path):
    limit = qs.ApproxDP(1.0, 1e-6)
    gaussian, discrete = Fraction(limit.privacy_cost), Fraction(limit.discrete_privacy_cost)
    ledger = qs.Ledger(path, limit=limit)
    ledger.charge(costing((gaussian + discrete) / 2), ROUNDED)
    with pytest.raises(PrivacyError, match="allows"):
        ledger.charge(costing(Fraction(1, 10**9)), DISCRETE)
    ledger.charge(costing((gaussian - discrete) / 4), ROUNDED)


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


KINDS_OF_EDITS = (
    "a smaller cost",
    "and its digest",
    "one removed",
    "removed and renumbered",
    "two exchanged",
    "another limit",
    "another label",
    "other spelling",
    "no text",
    "bytes",
    "nothing",
)


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


@pytest.mark.parametrize("kind", KINDS_OF_EDITS)
def test_an_edited_past_is_found(ledger, path, kind):
    for _ in range(3):
        ledger.charge(costing(TENTH), ROUNDED)
    assert set(edits(path)) == set(KINDS_OF_EDITS)
    edit(path, *edits(path)[kind])
    for look in (ledger.verify, lambda: ledger.charge(costing(TENTH), ROUNDED), lambda: qs.Ledger(path)):
        with pytest.raises(FileError, match=r"changed or removed|no first entry"):
            look()


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.just("0" * 64),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
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


def test_the_file_is_in_wal_mode_and_all_of_it_is_in_the_file(ledger, path, tmp_path):
    entry = ledger.charge(costing(TENTH), ROUNDED)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    assert [p.name for p in tmp_path.iterdir()] == ["people.ledger"]
    shutil.copy(path, tmp_path / "copy")
    assert qs.Ledger(tmp_path / "copy").entries == (entry,)


def test_a_ledger_in_another_mode_is_refused(ledger, path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    with pytest.raises(FileError, match="WAL"):
        ledger.charge(costing(TENTH), ROUNDED)


def test_it_is_synced_before_it_returns(ledger, monkeypatch):
    said = []

    def connected(file, mode):
        connection = real(file, mode)
        connection.set_trace_callback(said.append)
        said.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        return connection

    real = ledger_file._connected
    monkeypatch.setattr(ledger_file, "_connected", connected)
    ledger.charge(costing(TENTH), ROUNDED)
    assert 2 in said  # FULL
    assert said.index("BEGIN IMMEDIATE") < said.index("COMMIT")


@pytest.mark.parametrize("given", [None, 3, "", b"x"], ids=repr)
def test_odd_paths(given):
    with pytest.raises(FileError, match="path"):
        qs.Ledger(given, limit=qs.zCDP(1))


def test_odd_arguments(path):
    for limit in (1.0, "zCDP(1)", qs.zCDP, object()):
        with pytest.raises(BudgetError, match="limit"):
            qs.Ledger(path, limit=limit)
    for label in ("", "a\nb", "x" * 201, 3):
        with pytest.raises(BudgetError, match="label"):
            qs.Ledger(path, limit=qs.zCDP(1), label=label)
    assert not path.exists()


def test_a_mistyped_path_makes_no_new_ledger(path):
    with pytest.raises(FileError, match=r"no file .* state limit="):
        qs.Ledger(path)
    assert not path.exists()


def test_a_missing_folder_and_a_folder(tmp_path):
    with pytest.raises(FileError, match=r"folder .* does not exist"):
        qs.Ledger(tmp_path / "none" / "x.ledger", limit=qs.zCDP(1))
    with pytest.raises(FileError, match="not a file"):
        qs.Ledger(tmp_path, limit=qs.zCDP(1))


def test_foreign_files_are_refused_and_unchanged(tmp_path):
    text, database = tmp_path / "text", tmp_path / "database"
    text.write_text("sex,age\n" * 1000)
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE entries (number, content, digest)")
    connection.commit()
    connection.close()
    for file in (text, database):
        before = file.read_bytes()
        for limit in (None, qs.zCDP(1)):
            with pytest.raises(FileError, match="not a"):
                qs.Ledger(file, limit=limit)
        assert file.read_bytes() == before


def test_an_unfinished_creation_is_completed(path):
    path.touch()
    with pytest.raises(FileError, match="not a ledger"):
        qs.Ledger(path)
    assert qs.Ledger(path, limit=qs.zCDP(1)).entries == ()


def test_a_symbolic_link_is_the_same_ledger(ledger, path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    qs.Ledger(link).charge(costing(TENTH), ROUNDED)
    assert len(ledger.entries) == 1
    assert qs.Ledger(link) == ledger


def test_a_hard_link_is_refused(ledger, path, tmp_path):
    os.link(path, tmp_path / "second")
    for look in (lambda: qs.Ledger(path), lambda: ledger.charge(costing(TENTH), ROUNDED)):
        with pytest.raises(FileError, match="hard link"):
            look()


def test_a_file_replaced_or_removed_while_open(ledger, path):
    path.unlink()
    with pytest.raises(FileError, match="no file"):
        ledger.charge(costing(TENTH), ROUNDED)
    qs.Ledger(path, limit=qs.PrivacyCost(1.0))
    with pytest.raises(FileError, match="replaced"):
        ledger.charge(costing(TENTH), ROUNDED)


def test_threads_take_turns(ledger):
    """Twelve at once, for eight eighths: eight succeed."""
    with ThreadPoolExecutor(12) as pool:
        ends = list(pool.map(lambda _: attempt(ledger), range(12)))
    assert sum(ends) == 8
    assert ledger.total.cost == 1


def attempt(ledger):
    try:
        ledger.charge(costing(TENTH), ROUNDED)
    except PrivacyError:
        return False
    return True


def test_a_locked_file_is_waited_for_and_then_refused(ledger, path, monkeypatch):
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(ledger_file, "WAIT", 0.1)
    with pytest.raises(FileError, match=r"locked for .* nothing was measured"):
        ledger.charge(costing(TENTH), ROUNDED)
    monkeypatch.setattr(ledger_file, "WAIT", 30)
    threading.Timer(0.2, lambda: other.execute("COMMIT")).start()
    assert ledger.charge(costing(TENTH), ROUNDED).number == 1
    other.close()


SMALL_DISK = """
import resource, sys
from tests.ledgers import ROUNDED, costing
import querysmasher as qs
ledger = qs.Ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    ledger.charge(costing(0.125), ROUNDED)
except qs.FileError as error:
    print(error)
"""


def test_a_full_disk_charges_nothing(ledger, path):
    for _ in range(3):
        ledger.charge(costing(TENTH), ROUNDED)
    ran = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", SMALL_DISK, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert "nothing was measured" in ran.stdout
    assert len(ledger.entries) == 3


def without_rights(work):
    """Do something as a user who owns nothing, and return whether it went well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="changes to a user without rights")
@pytest.mark.parametrize("folder_mode", [0o755, 0o777])
def test_a_user_without_the_right_to_write_can_look_and_not_charge(folder_mode):
    with tempfile.TemporaryDirectory() as folder:
        ledger = qs.Ledger(f"{folder}/x", limit=qs.PrivacyCost(1.0))
        ledger.charge(costing(TENTH), ROUNDED)
        Path(folder).chmod(folder_mode)
        ledger.path.chmod(0o644)

        def work():
            with pytest.raises(FileError, match="nothing was measured"):
                ledger.charge(costing(TENTH), ROUNDED)
            return len(ledger.entries) == len(qs.Ledger(ledger.path, limit=qs.PrivacyCost(1.0)).entries) == 1

        assert without_rights(work)
        assert [p.name for p in Path(folder).iterdir()] == ["x"]  # nothing that would stop others
        ledger.charge(costing(TENTH), ROUNDED)


def test_the_words(ledger):
    ledger.charge(costing(TENTH), ROUNDED)
    text = repr(ledger)
    assert "rho = 0.0625 of 0.5" in text
    assert "mu = 0.3536" in text
    assert f"epsilon = {epsilon(0.125, 1e-6):.4g} at delta = 1e-06" in text


def test_it_can_be_shown_when_it_is_gone(ledger, path):
    path.unlink()
    assert "cannot be used: ledger: no file" in repr(ledger)


def test_it_can_be_sent_to_another_process(ledger):
    again = pickle.loads(pickle.dumps(ledger))  # noqa: S301 - our own
    again.charge(costing(TENTH), ROUNDED)
    assert len(ledger.entries) == 1


def test_frozen(ledger):
    with pytest.raises(AttributeError):
        ledger.limit = qs.zCDP(2)


def test_every_budget_is_a_limit(tmp_path):
    amounts = {"epsilon": 1.0, "delta": 1e-9}
    for name, kind in KINDS.items():
        values = [amounts.get(a, 0.3) for a in kind._amounts]
        limit = kind(*values, neighbours="replace_one", records_per_person=2)
        assert qs.Ledger(tmp_path / name, limit=limit).limit == limit
        assert qs.Ledger(tmp_path / name).limit == limit


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


def test_a_whole_budget_is_charged_before_phases_are_planned(ledger):
    """The cost is all that the budget allows; the entry names the digest of what is asked for."""
    request = "ab" * 32
    entry = ledger.charge_budget(qs.PrivacyCost(0.75), request, ROUNDED)
    assert (entry.cost, entry.plan, ledger.entries) == (Fraction(3, 4), request, (entry,))
    approximate = qs.ApproxDP(0.1, 1e-6)
    second = ledger.charge_budget(approximate, request, DISCRETE)
    assert second.cost == Fraction(approximate.discrete_privacy_cost)
    with pytest.raises(PrivacyError, match="Nothing was measured"):
        ledger.charge_budget(qs.PrivacyCost(0.75), request, ROUNDED)
    with pytest.raises(PrivacyError, match="cannot be added"):
        ledger.charge_budget(qs.PrivacyCost(0.01, records_per_person=2), request, ROUNDED)
    with pytest.raises(PrivacyError, match="request: expected"):
        ledger.charge_budget(qs.PrivacyCost(0.01), "not a digest", ROUNDED)
    with pytest.raises(PrivacyError, match="protects nobody"):
        ledger.charge_budget(qs.PrivacyCost(0.01), request, DISTRIBUTIONS["gaussian"])
    assert ledger.entries == (entry, second)
