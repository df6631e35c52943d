"""A ledger of what was spent on one table, kept in one SQLite file.

Formal guarantee: as long as every measurement of a table is charged to the same file, all of them together,
however many processes run at once and however they end, satisfy the ledger's limit for its unit of privacy:
if measurements publish exact counts, for neighbours that agree on those of all entries (`Chain.exact`).

Proof. `charge` runs in one transaction that excludes all other writers (BEGIN IMMEDIATE). It reads all
entries, checks their chain of digests, adds the exact cost of the new plan, and commits only if the exact
sum is at most the limit. So no committed state exceeds the limit, and two processes cannot both spend what is
left once. `measure` opens the table after `charge` returned, that is, after the commit was synced to the disk
(write-ahead log, synchronous = FULL). So whatever a measurement reveals is in the ledger, also if the
process, or the machine, stops at any moment; what was charged and never measured counts as spent. Costs add
as `Total` states. The cost is `accounting.privacy_cost` of the integer plan, or all that the budget allows
for measurements in phases (`phases`), which refuse to spend more; the caller has no say in it.

Limits. SQLite's locks and its write-ahead log need a local file system: on NFS and other network file systems
neither the exclusion nor the sync is reliable. A copy of the file is another ledger: what is charged to one
copy is missing from the other. Whoever may write the file may also delete it, or rewrite the whole chain. The
digest of an entry, which every release carries, reveals all of this later: see `querysmasher verify`.

The file is one table of an SQLite database in WAL mode, and every function opens it anew.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from filelock import FileLock

from querysmasher.errors import (
    BudgetError,
    FileError,
    PrivacyError,
    QuerySmasherError,
    Remedy,
    as_given,
    explained,
)
from querysmasher.privacy.accounting import check_budget, privacy_cost
from querysmasher.privacy.budget import KINDS, Budget, number, readable
from querysmasher.privacy.discovery import Discovery
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.entries import DELTA, Chain, Entry, Opening, Total, canonical, digest, plan_digest
from querysmasher.privacy.integer_plan import IntegerPlan


@dataclass(frozen=True)
class Ledger:
    """A file that records what every measurement of a table spends, and enforces a limit on the sum.

    Every method opens the file again, so threads and processes can share a ledger.

    Args:
        path: the file. Without `limit`, it must exist.
        limit: what all measurements together may spend, and for which neighbours and records per person. A
            file that does not exist is created with this limit; an existing ledger must have the same limit.
        delta: with a limit that states no δ, the δ up to which it holds: all that discovered values may take.
        label: which data the ledger is about, by default the name of the file without its ending. An
            existing ledger must have the same label.
    """

    path: Path
    limit: Budget = field(kw_only=True)
    label: str = field(kw_only=True)
    identity: str = field(kw_only=True)
    delta: float = field(kw_only=True)

    @explained("qs.Ledger('people.ledger', limit=qs.zCDP(1))")
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit: Budget | None = None,
        delta: float | None = None,
        label: str | None = None,
    ) -> None:
        """Open a ledger, or create it."""
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise FileError(f"path: expected the path of a ledger, got {as_given(path)}")
        if limit is not None and type(limit) not in KINDS.values():
            raise BudgetError(f"limit: expected a budget such as zCDP(1), got {as_given(limit)}")
        if limit is not None and limit.exact:
            msg = "limit: expected a budget without exact counts, because every entry states its own, got "
            raise BudgetError(f"{msg}{limit!r}")
        if delta is not None:
            delta = number("delta", delta)
            if limit is None or limit.stated_delta is not None:
                msg = "delta: expected None, because it stands beside a limit that states none, got "
                raise BudgetError(f"{msg}{delta!r}; state it in limit=qs.ApproxDP(epsilon, delta)")
        if label is not None and (
            not isinstance(label, str) or not label.isprintable() or not 1 <= len(label) <= 200
        ):
            raise BudgetError(f"label: expected 1 to 200 printable characters, got {as_given(label)}")
        file = Path(os.path.realpath(path))  # otherwise two names of one file would have two logs
        check_place(file, limit is not None)
        if limit is not None:
            name = "".join(c if c.isprintable() else "\ufffd" for c in file.stem)[:200] or "data"
            create(file, Opening(secrets.token_hex(16), label or name, limit, _now(), delta or 0.0))
        opening = read(file).opening
        if limit is not None and opening.limit != limit:
            msg = f"limit: the ledger {str(file)!r} has the limit {opening.limit!r}, got {limit!r}"
            raise BudgetError(msg)
        if delta is not None and opening.delta != delta:
            raise BudgetError(f"delta: the ledger {str(file)!r} has {opening.delta!r}, got {delta!r}")
        if label is not None and opening.label != label:
            raise BudgetError(f"label: the ledger {str(file)!r} is about {opening.label!r}, got {label!r}")
        vars(self).update(path=file, limit=opening.limit, label=opening.label)
        vars(self).update(identity=opening.identity, delta=opening.delta)

    def charge(self, plan: IntegerPlan, noise: Distribution, person: str | None = None) -> Entry:
        """Record what a measurement will spend; refuse it if the sum would exceed the limit.

        `person` is the column that identifies the person of a record, if the measurement bounds the number of
        records per person by counting no more of them. It must be the same in all entries.

        Formal guarantee: on return, the entry is on the disk, and the exact sum of all costs in the file,
        including this one, is at most the limit. If an error is raised, nothing may be measured.
        """
        check_budget(plan, noise)
        return self._record(plan.budget, privacy_cost(plan), plan_digest(plan), noise, person)

    def charge_budget(
        self, budget: Budget, request: str, noise: Distribution, person: str | None = None
    ) -> Entry:
        """Record a whole budget before measurements in phases that are not planned yet; see `charge`.

        `request` is the digest of the request: 64 hexadecimal digits. The recorded cost is all that the
        budget allows with this noise, even if the phases spend less.
        """
        if type(request) is not str or not re.fullmatch(r"[0-9a-f]{64}", request):
            raise PrivacyError("request: expected the SHA-256 digest of the request, in hexadecimal digits")
        return self._record(budget, Fraction(noise.allowed_cost(budget)), request, noise, person)

    def charge_discovery(
        self, discovery: Discovery, column: str, noise: Distribution, person: str | None = None
    ) -> Entry:
        """Record what discovering the values of a column will spend, its δ included; see `charge`."""
        request = digest(canonical(discovery.to_json() | {"column": column}))
        return self._record(discovery.budget, discovery.cost, request, noise, person, discovery.delta)

    def _record(
        self,
        budget: Budget,
        cost: Fraction,
        plan_id: str,
        noise: Distribution,
        person: str | None,
        delta: Fraction = Fraction(0),
    ) -> Entry:
        """Write an entry in one transaction; refuse a cost or a δ that would pass the limit."""
        if not noise.is_private:
            msg = f"noise: {noise.name!r} protects nobody, so it has no cost that a ledger could record"
            raise PrivacyError(msg)
        self.check_unit(budget)
        check_place(self.path, may_create=False)
        with opened(self.path, "rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                raise FileError(f"ledger: {str(self.path)!r} is not in WAL mode; nothing was measured")
            chain = chain_of(connection, self.path)
            self._check_same(chain.opening)
            if chain.entries and chain.entries[0].person != person:
                was, now = (
                    "all records" if column is None else f"persons by {column!r}"
                    for column in (chain.entries[0].person, person)
                )
                raise PrivacyError(
                    f"ledger: the entries of {str(self.path)!r} are for {was}, this measurement is for "
                    f"{now}; their costs cannot be added. Nothing was measured"
                )
            after = chain.total.plus(cost, noise, delta)
            if self.limit.stated_delta is None and after.delta > Fraction(self.delta):
                left = readable(max(float(Fraction(self.delta) - chain.total.delta), 0), up=False)
                raise PrivacyError(
                    f"ledger: {str(self.path)!r} leaves delta = {left:.6g} for discovered "
                    f"values; these need {readable(float(delta)):.6g}. Nothing was measured",
                    None if self.delta else WITH_DELTA,
                )
            if after.cost > after.allowed(self.limit):
                words = replace(chain.total, is_gaussian=after.is_gaussian).left_words(self.limit)
                own = f" and delta = {readable(float(delta)):.6g}" if delta else ""
                raise PrivacyError(
                    f"ledger: {str(self.path)!r} leaves {words}; this measurement needs rho = "
                    f"{readable(float(cost) / 2):.6g}{own}. Nothing was measured"
                )
            entry = Entry(
                self.identity,
                len(chain.entries) + 1,
                _now(),
                self.label,
                budget.unit,
                cost,
                noise.name,
                plan_id,
                person,
                chain.head,
                delta,
            )
            insert(connection, entry)
            if chain_of(connection, self.path).entries != (*chain.entries, entry):
                msg = f"ledger: the entry cannot be written to {str(self.path)!r}; nothing was measured"
                raise FileError(msg)
            connection.execute("COMMIT")
        return entry

    def check_unit(self, budget: Budget) -> None:
        """Refuse a budget for another unit of privacy: costs for different units cannot be added."""
        if budget.unit.without_exact != self.limit.unit:
            unit, other = self.limit.unit, budget.unit
            raise PrivacyError(
                f"ledger: {str(self.path)!r} is for {unit.neighbours!r} neighbours and records_per_person = "
                f"{unit.records_per_person}, the budget for {other.neighbours!r} and "
                f"{other.records_per_person}; their costs cannot be added. Nothing was measured"
            )

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in order, after checking their chain of digests."""
        return self.verify().entries

    @property
    def total(self) -> Total:
        """What all entries spend together."""
        return self.verify().total

    @property
    def left(self) -> Fraction:
        """The remaining privacy cost under the limit, for the noise distributions used so far."""
        return self.total.left(self.limit)

    def verify(self, head: str | None = None) -> Chain:
        """Check the chain of digests and that the sum is within the limit; return all entries.

        Args:
            head: the digest of the last entry, noted earlier; it must still be in the chain. Without it, a
                chain that was completely rewritten, or whose last entries were removed, is not detected.
        """
        chain = read(self.path)
        self._check_same(chain.opening)
        if head is not None and head not in {chain.opening.digest, *(e.digest for e in chain.entries)}:
            raise FileError(
                f"head: no entry of {str(self.path)!r} has this digest: entries that existed were changed or "
                "removed, or it is the digest of another ledger"
            )
        if chain.exceeds:
            raise PrivacyError(f"ledger: the entries of {str(self.path)!r} spend more than its limit")
        return chain

    def _check_same(self, opening: Opening) -> None:
        ours = (self.identity, self.limit, self.label, self.delta)
        if (opening.identity, opening.limit, opening.label, opening.delta) != ours:
            raise FileError(f"ledger: {str(self.path)!r} was replaced by another ledger since it was opened")

    def __repr__(self) -> str:
        """Show the limit and what is spent, or that the file cannot be read."""
        try:
            chain = self.verify()
        except QuerySmasherError as error:
            return f"Ledger of {self.label!r} in {str(self.path)!r}, which cannot be used: {error}"
        total, delta = chain.total, self.limit.stated_delta or DELTA
        rho, epsilon = (readable(amount) for amount in (float(total.rho), total.epsilon_at(delta)))
        entries = "entry" if len(chain.entries) == 1 else "entries"
        mu = "" if total.mu is None else f", mu = {readable(total.mu):.6g}"
        mu = f" up to delta = {readable(float(total.delta)):.6g}" if total.delta else mu
        return (
            f"Ledger of {self.label!r}: {len(chain.entries):,} {entries} in {str(self.path)!r}\n"
            f"  limit  {self.limit!r}{f' up to delta = {self.delta!r}' if self.delta else ''}\n"
            f"  spent  rho = {rho:.6g}{mu}, epsilon = {epsilon:.6g} at delta = {delta!r}\n"
            f"  left   {total.left_words(self.limit)}"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


WAIT = 60.0
"""Maximum number of seconds to wait for other processes that write the same file."""

APPLICATION = 0x51534C47
"""The mark of a ledger among SQLite files."""

NEW = Remedy(
    "state limit= to create it: Ledger(path, limit=zCDP(1))",
    "create it with `querysmasher ledger FILE create --rho 1`, or state its limit in the spec, as in "
    'ledger = {path = "FILE", rho = 1}',
)

WITH_DELTA = Remedy(
    "use a ledger with a delta: Ledger(path, limit=zCDP(1), delta=1e-6)",
    'use a ledger with a delta, as in ledger = {path = "FILE", rho = 1, delta = 1e-6}',
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
    """Sync the names in a folder to the disk, if the system has a call for it."""
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
    if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":  # the last entry may be lost
        raise FileError(f"ledger: {str(file)!r} is damaged; the ledger can no longer be trusted")
    return chain


@contextmanager
def opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Open the file for one transaction; what is not committed at the end is undone."""
    if mode != "ro" and file.exists() and not _is_writable(file):  # SQLite would leave files
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
    log = file.with_name(f"{file.name}-wal")
    is_fixed = mode == "ro" and not (log.exists() and log.stat().st_size)
    # If no entries are in the log, a reader without the right to write tells SQLite so: it would otherwise
    # need a log of its own, which the writers might then not be allowed to use.
    uri = f"{file.as_uri()}?mode={mode}{'&immutable=1' if is_fixed else ''}"
    connection = sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level=None)
    try:
        for pragma in ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection
