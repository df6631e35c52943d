"""The file of a ledger: one table of an SQLite database in WAL mode.

Every function opens the file anew. Writers exclude each other; a commit returns after the disk has it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from querysmasher.errors import FileError, Remedy
from querysmasher.privacy.entries import Chain, Entry, Opening, canonical

WAIT = 60.0
"""Maximum number of seconds to wait for other processes that write the same file."""

APPLICATION = 0x51534C47
"""The mark of a ledger among SQLite files."""

NEW = Remedy(
    "state limit= to create it: Ledger(path, limit=zCDP(1))",
    "create it with `querysmasher ledger FILE create --rho 1`, or state its limit in the spec, as in "
    'ledger = {path = "FILE", rho = 1}',
)

_TABLES = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, content TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TRIGGER unchanged BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END;
CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are final'); END;
"""


def check_place(file: Path, may_create: bool) -> None:
    """Refuse a path at which there cannot be a ledger."""
    if not file.parent.is_dir():
        raise FileError(f"ledger: the folder {str(file.parent)!r} does not exist")
    if not file.exists():
        if may_create:
            return
        raise FileError(f"ledger: no file {str(file)!r}", NEW)
    if not file.is_file():
        raise FileError(f"ledger: {str(file)!r} is not a file")
    if not file.stat().st_size:
        raise FileError(
            f"ledger: {str(file)!r} is empty, and an empty file is no ledger: if it was one, what was spent "
            "is lost; if it never was, delete it"
        )
    if file.stat().st_nlink > 1:
        raise FileError(
            f"ledger: {str(file)!r} has a second name (a hard link), under which SQLite would not see what "
            "is written here; delete one of the names"
        )


def create(file: Path, opening: Opening) -> None:
    """Write entry 0 to a new file, unless the file is there already.

    The file gets its name when it is complete, so that no other process sees it empty, also if this one is
    killed. Creators exclude each other by a lock, which is removed when there is a ledger.
    """
    if file.exists():
        return
    lock = FileLock(file.with_name(f"{file.name}.new.lock"), timeout=WAIT)
    try:
        with lock:
            if not file.exists():
                _write_new(file, opening)
    except (OSError, NotImplementedError) as error:
        cause = type(error).__name__
    else:
        with suppress(OSError):  # from now on the ledger is there, and nobody needs the lock
            Path(lock.lock_file).unlink(missing_ok=True)
        return
    raise FileError(f"ledger: {str(file)!r} cannot be created ({cause}); nothing was measured")


def _write_new(file: Path, opening: Opening) -> None:
    new = file.with_name(f"{file.name}.new")
    for ending in ("", "-wal", "-shm", "-journal"):  # of a creator that was killed
        new.with_name(f"{new.name}{ending}").unlink(missing_ok=True)
    with opened(new, "rwc") as connection:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            msg = f"ledger: the file system of {str(file)!r} does not support a write-ahead log"
            raise FileError(f"{msg}; use a local disk")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.strip().split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        insert(connection, opening)
        chain_of(connection, file)  # what cannot be read again is not written
        connection.execute("COMMIT")
    new.rename(file)
    _sync(file.parent)


def _sync(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system has a call for it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_writable(file: Path) -> bool:
    """Return whether SQLite may write the file and its log beside it."""
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def insert(connection: sqlite3.Connection, entry: Opening | Entry) -> None:
    """Append an entry, inside a transaction."""
    row = (entry.number, canonical(entry.to_json()), entry.digest)
    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", row)


def read(file: Path) -> Chain:
    """Return all entries, checked."""
    check_place(file, may_create=False)
    with opened(file, "rw" if _is_writable(file) else "ro") as connection:
        return chain_of(connection, file)


def chain_of(connection: sqlite3.Connection, file: Path) -> Chain:
    """Return all entries, checked, inside a transaction."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise FileError(f"ledger: {str(file)!r} is not a ledger")
    chain = Chain.of(connection.execute("SELECT * FROM entries ORDER BY number"), str(file))
    if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":  # or the last entry may be lost
        raise FileError(f"ledger: {str(file)!r} is damaged; the ledger can no longer be trusted")
    return chain


@contextmanager
def opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open the file for one transaction; what is not committed at the end is undone."""
    if mode != "ro" and file.exists() and not _is_writable(file):  # or SQLite would leave files beside it
        raise FileError(f"ledger: {str(file)!r}, or its folder, may not be written; nothing was measured")
    try:
        with closing(_connected(file, mode)) as connection:
            yield connection
    except sqlite3.Error as error:
        cause = str(error)
    except UnicodeDecodeError:  # in the text of a statement, or of an error about it
        cause = "it is damaged"
    else:
        return
    if "locked" in cause or "busy" in cause:
        cause = f"other processes kept it locked for {WAIT:.0f} seconds"
    raise FileError(f"ledger: {str(file)!r} cannot be used ({cause}); nothing was measured")


def _connected(file: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode={mode}{'' if mode != 'ro' or _has_log(file) else '&immutable=1'}",
        uri=True,
        timeout=WAIT,
        isolation_level=None,
    )
    try:
        for pragma in ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _has_log(file: Path) -> bool:
    """Return whether entries are in the log beside the file.

    If not, a reader without the right to write tells SQLite so: it would otherwise need a log of its own,
    which the writers might then not be allowed to use.
    """
    log = file.with_name(f"{file.name}-wal")
    return log.exists() and log.stat().st_size > 0
