"""The file of a ledger: where it stands, who may write it, full disks, locks, odd files and paths."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import querysmasher as qs
from querysmasher.errors import BudgetError, FileError, PrivacyError
from querysmasher.privacy import ledger as ledgers
from tests.ledgers import ROUNDED, TENTH, costing


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

    real = ledgers._connected
    monkeypatch.setattr(ledgers, "_connected", connected)
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


def test_an_empty_file_is_no_ledger(ledger, path):
    """It may have lost its entries, so it does not become a new ledger, whose limit is unspent."""
    ledger.charge(costing(TENTH), ROUNDED)
    path.write_bytes(b"")
    for look in (
        lambda: qs.Ledger(path),
        lambda: qs.Ledger(path, limit=qs.PrivacyCost(1.0)),
        lambda: ledger.charge(costing(TENTH), ROUNDED),
        lambda: ledger.entries,
    ):
        with pytest.raises(FileError, match="is empty, and an empty file is no ledger"):
            look()
    assert path.read_bytes() == b""


def test_an_unfinished_creation_is_completed(path, monkeypatch):
    """A process that is killed before the ledger is complete leaves no file of its name."""
    monkeypatch.setattr(ledgers, "_sync", lambda folder: pytest.fail("killed"))
    real = Path.rename
    monkeypatch.setattr(Path, "rename", lambda *names: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        qs.Ledger(path, limit=qs.zCDP(1))
    assert not path.exists()
    assert [file.name for file in path.parent.iterdir()] != []
    monkeypatch.undo()
    assert Path.rename is real
    assert qs.Ledger(path, limit=qs.zCDP(1)).entries == ()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


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
    monkeypatch.setattr(ledgers, "WAIT", 0.1)
    with pytest.raises(FileError, match=r"locked for .* nothing was measured"):
        ledger.charge(costing(TENTH), ROUNDED)
    monkeypatch.setattr(ledgers, "WAIT", 30)
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
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # which would be too large a file
        cwd=Path(__file__).parents[2],
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


def test_it_can_be_shown_when_it_is_gone(ledger, path):
    path.unlink()
    assert "cannot be used: ledger: no file" in repr(ledger)
