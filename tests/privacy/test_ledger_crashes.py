"""Many processes charge one ledger and are killed at any moment: it is never overspent, and nothing escapes.

`python -m tests.privacy.test_ledger_crashes 200` runs 200 rounds and prints what happened.
"""

import os
import random
import signal
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.errors import PrivacyError
from querysmasher.privacy.accounting import privacy_cost
from tests.builders import UNIFORM
from tests.ledgers import ROUNDED, costing

PROCESSES = 12
LIMIT = qs.PrivacyCost(1.0)
EACH = Fraction(1, 64)


def spend(path, opened):
    """Charge until nothing is left; after each charge, note that the table was opened."""
    ledger = qs.Ledger(path, limit=LIMIT)
    plan = costing(EACH)
    while True:
        try:
            entry = ledger.charge(plan, ROUNDED)
        except PrivacyError:
            return
        os.write(opened, entry.digest.encode() + b"\n")


def in_a_process(work, *arguments):
    """Run `work` in a child, and return its number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child):
    """How a child ended: 0 well, a negative number by that signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def one_round(folder, seed):
    """Start processes, kill some, let others finish; return the numbers of kills, entries, tables opened."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    path, notes = folder / "people.ledger", folder / "opened"
    opened = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    children = [in_a_process(spend, path, opened) for _ in range(PROCESSES)]
    doomed = chance.sample(children, chance.randrange(1, PROCESSES))
    for child in doomed:
        time.sleep(chance.expovariate(1 / 0.01))
        os.kill(child, signal.SIGKILL)
    ends = {child: ended(child) for child in children}
    assert {ends[c] for c in children if c not in doomed} == {0}
    assert ended(in_a_process(spend, path, opened)) == 0  # whoever comes after the crashes goes on
    os.close(opened)
    entries = qs.Ledger(path).verify().entries
    tables = notes.read_text().split()
    assert len(set(tables)) == len(tables)
    assert set(tables) <= {entry.digest for entry in entries}, "a table was opened without an entry"
    assert sum(entry.cost for entry in entries) == 1, "overspent, or not all spent"
    return sum(end == -signal.SIGKILL for end in ends.values()), len(entries), len(tables)


@pytest.mark.slow
def test_killed_processes_never_overspend_and_never_escape(tmp_path):
    kills = 0
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        found, entries, tables = one_round(folder, number)
        kills += found
        assert entries == 1 / EACH >= tables
    assert kills > 0


class Telling(pd.DataFrame):
    """A table that notes when it is opened."""

    notes = ""

    @property
    def columns(self):
        if type(self).notes:
            Path(type(self).notes).touch()
        return super().columns


def wait_for(notes):
    """Wait until the table was opened."""
    end = time.monotonic() + 60
    while not notes.exists() and time.monotonic() < end:
        time.sleep(0.001)


def measure_once(path, notes, plan, table):
    telling = Telling(table)
    Telling.notes = notes
    qs.measure(plan, telling, ledger=qs.Ledger(path))


@pytest.mark.slow
def test_measurements_killed_at_any_moment_are_in_the_ledger(tmp_path):
    """Whatever opened the table has an entry, and the sum of all entries stays within the limit."""
    plan = qs.plan(qs.marginals(qs.Schema.of(a=3, b=4), 2), qs.zCDP(0.05), **UNIFORM)
    table = pd.DataFrame({"a": [0, 1, 2] * 50, "b": [0, 1, 2] * 50})
    path = tmp_path / "people.ledger"
    ledger = qs.Ledger(path, limit=qs.zCDP(1))
    chance = random.Random(7)  # noqa: S311
    opened = 0
    for number in range(12):
        notes = tmp_path / f"opened{number}"
        before = len(ledger.entries)
        child = in_a_process(measure_once, path, str(notes), plan, table)
        if number % 2:
            time.sleep(chance.uniform(0, 0.06))
        else:
            wait_for(notes)
        os.kill(child, signal.SIGKILL)
        ended(child)
        assert len(ledger.entries) - before in ((1,) if notes.exists() else (0, 1))
        opened += notes.exists()
    assert opened >= 6
    assert ledger.total.cost <= 2
    release = qs.measure(plan, table, ledger=ledger)
    assert release.entry == ledger.entries[-1]
    assert release.entry.cost == privacy_cost(release.plan)


if __name__ == "__main__":
    rounds = int(sys.argv[1])
    started = time.perf_counter()
    totals = [0, 0, 0]
    for seed in range(rounds):
        with tempfile.TemporaryDirectory() as made:
            totals = [a + b for a, b in zip(totals, one_round(Path(made), seed), strict=True)]
    print(  # noqa: T201
        f"{rounds} rounds of {PROCESSES + 1} processes, {totals[0]} killed; {totals[1]} entries, {totals[2]} "
        f"tables opened, all with an entry; overspent: 0; {time.perf_counter() - started:.0f} s"
    )
