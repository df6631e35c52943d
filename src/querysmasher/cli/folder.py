"""A release folder: its files, how to read them, and the draft in which they are written.

A draft is the folder NAME.unfinished-XXXX beside its target NAME, and is locked while a command writes it. A
command that ends deletes its draft, unless the draft already has a release. So an unlocked draft with a
release is what an unfinished run left behind.

The lock is a file beside the draft, because some systems cannot rename a folder with an open file in it. It
is released when the process ends in any way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from querysmasher.cli.command import CutShortError
from querysmasher.cli.output import check_free, note
from querysmasher.endings import starting
from querysmasher.errors import FileError
from querysmasher.planning.plan import Plan
from querysmasher.progress import Bar
from querysmasher.release.outputs import (
    DESCRIPTION,
    ERRORS,
    PAGE,
    PLAN,
    RELEASE,
    SUMMARY,
    beside,
    is_statistic,
    records,
    tables,
)
from querysmasher.release.release import Release

KNOWN = {RELEASE, PLAN, SUMMARY, DESCRIPTION, ERRORS, PAGE, *tables(), *records(), *map(beside, records())}
"""The files a release folder can have, beside those of statistics."""

MARK = "unfinished-"

PATIENCE = 1.0
"""Seconds to wait for another process that tests whether a folder is locked."""


def load_release(path: Path) -> Release:
    """Read the release of a folder, or of a file."""
    return Release.load(_file(path, RELEASE))


def load_plan(path: Path) -> Plan:
    """Read the plan of a folder, or of a file."""
    return Plan.load(_file(path, PLAN))


def load_any(path: Path) -> Plan | Release:
    """Read a release folder, or a file with a plan or a release."""
    try:
        return load_release(path)
    except FileError as error:
        if path.is_file() and "querysmasher plan" in str(error):
            return load_plan(path)
        raise


def _file(path: Path, name: str) -> os.PathLike[str]:
    if path.is_dir() and not (path / name).is_file():
        raise FileError(f"{str(path)!r} is not a release folder: it has no {name!r} in it")
    if not path.exists():
        raise FileError(f"no folder or file {str(path)!r}{starting(path)}")
    return path / name if path.is_dir() else path


@dataclass(frozen=True)
class Draft:
    """A release folder that is being written, and its target."""

    folder: Path
    target: Path
    before: object
    """What was at the target when the draft was created."""
    command: str
    """The command line, without --resume."""

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Make every error in this context say that the budget is spent, and where the release is."""
        try:
            yield
        except CutShortError:
            raise
        except BaseException as error:  # noqa: BLE001 - also an interruption
            raise self._cut_short(error, self.folder if _has_release(self.folder) else None) from None

    def keep(self, measured: Release) -> None:
        """Save a release here; if that fails, save it in a temporary folder and raise the error."""
        try:
            with Bar("Saving", None):
                measured.save(self.folder / RELEASE)
        except OSError as error:
            raise self._cut_short(error, _keep_elsewhere(measured)) from None

    def publish(self) -> None:
        """Move the folder to its target, unless another run has written it."""
        old = _beside(self.target, "replaced-")
        try:
            if _identity(self.target) == self.before:
                if self.before is not None:
                    self.target.rename(old)
                if _identity(old) == self.before:
                    try:
                        self.folder.rename(self.target)
                    except OSError:
                        if _identity(self.target) is None:
                            raise  # otherwise another run has written the target
        finally:
            if _identity(self.target) is None and _identity(old) is not None:
                old.rename(self.target)
        if self.folder.exists():
            msg = f"{str(self.target)!r} was written by another run in the meantime and is left unchanged."
            raise FileError(msg)
        remove(old)

    def _cut_short(self, error: BaseException, kept: Path | None) -> CutShortError:
        """Return the error of a run that has spent the budget; `kept` is where its release is."""
        left = "The table was measured, but its release is lost: count the budget as spent."
        if kept is not None:
            left = (
                f"The table was measured, and the budget is spent. The release is kept in {str(kept)!r}: "
                f"`{self.command} --resume {shlex.quote(str(kept))}` completes the folder at no further "
                "privacy cost."
            )
        return CutShortError(error, left, kept)


@contextmanager
def drafting(path: Path, force: bool, command: str, size: int) -> Iterator[Draft]:
    """Create a draft for a release folder, on a disk with space for `size` bytes."""
    check_taken(path, force, command)
    free, parent = shutil.disk_usage(path.absolute().parent).free, path.absolute().parent
    if free < size:
        raise FileError(
            f"the release takes {size / 1e6:,.1f} MB, and {str(parent)!r} has {free / 1e6:,.1f} MB left; "
            "nothing was measured"
        )
    for lost in (draft for draft in _drafts(path) if not is_held(draft) and not _has_release(draft)):
        remove(lost)
        _forget(lost)
        note(
            f"An earlier run for {str(path)!r} was killed before it saved its release, and nothing is "
            "left of it. To be safe, count its budget as spent."
        )
    folder = _beside(path, MARK)
    with held(folder):  # before other runs can see it
        folder.mkdir()
        try:
            yield Draft(folder, path, _identity(path), command)
        finally:
            if not _has_release(folder):
                remove(folder)


@contextmanager
def resuming(path: Path, left: Path, force: bool, command: str) -> Iterator[Draft]:
    """Open the draft that a run left behind, or a copy of it if it is not beside the folder."""
    check_folder(path, force)
    source = left if left.is_dir() else left.parent
    if is_held(source):
        raise FileError(f"another run is writing {str(source)!r} right now; wait for it")
    here = next((draft for draft in _drafts(path) if draft.samefile(source)), None)
    folder = here or _beside(path, MARK)
    with held(folder):
        if here is None:
            folder.mkdir()
            try:
                for name in filter(lambda name: (source / name).is_file(), (PLAN, RELEASE)):
                    shutil.copyfile(source / name, folder / name)
            except BaseException:
                remove(folder)
                raise
        for part in folder.iterdir():  # begun by a run that was killed
            if part.name not in (PLAN, RELEASE):
                part.unlink()
        yield Draft(folder, path, _identity(path), command)


def _identity(path: Path) -> object:
    """Return a fingerprint that changes if a folder or its release is replaced; None without a folder."""
    try:
        inode = os.lstat(path).st_ino
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError):
        release = (path / RELEASE).stat()
        return inode, release.st_ino, release.st_mtime_ns
    return inode


def _has_release(folder: Path) -> bool:
    return (folder / RELEASE).is_file()


def _keep_elsewhere(measured: Release) -> Path | None:
    """Save a release in a temporary folder and return its path, or None if that fails as well."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        spare = Path(tempfile.mkdtemp(prefix="querysmasher-"))
        stack.callback(remove, spare)
        measured.save(spare / RELEASE)
        stack.pop_all()
        return spare
    return None


def _drafts(path: Path) -> list[Path]:
    """Return the drafts beside a release folder."""
    parent = path.parent if path.name else path.absolute().parent
    mark = f"{path.absolute().name}.{MARK}"
    return sorted(p for p in parent.iterdir() if p.name.startswith(mark) and p.is_dir())


def _beside(path: Path, mark: str) -> Path:
    """Return a new path beside another, with `mark` in its name."""
    path = path if path.name else path.absolute()
    return path.with_name(f"{path.name}.{mark}{secrets.token_hex(3)}")


def check_folder(path: Path, force: bool) -> None:
    """Refuse to overwrite a release folder without `force`, and anything else always."""
    if not path.is_dir():
        if path.exists() or path.is_symlink():
            what = "a file" if path.exists() else "a broken link"
            raise FileError(f"{str(path)!r} is {what}; expected a folder that does not exist yet")
        check_free(path, force)
        return
    names = sorted(p.name for p in path.iterdir())
    stranger = next((name for name in names if not (name in KNOWN or is_statistic(name))), None)
    if stranger is not None:
        raise FileError(
            f"{str(path)!r} contains {stranger!r}, which is not part of a release; choose another folder"
        )
    if names and not force:
        raise FileError(
            f"{str(path)!r} already has a release. Query that one, or choose another folder; --force "
            "replaces it, and measuring spends the budget again"
        )


def check_writable(path: Path, force: bool, command: str) -> None:
    """Refuse a path where no release folder can be written, or that `check_taken` refuses."""
    check_taken(path, force, command)
    for folder in filter(_has_release, _drafts(path)):
        note(f"Left unchanged: {str(folder)!r}, the release of an earlier run that did not finish.")
    parent = path.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{path.absolute().name}.") as tried:
            (Path(tried) / RELEASE).write_bytes(bytes(4096))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise FileError(f"cannot write in {str(parent)!r} ({why}); nothing was measured") from None


def check_taken(path: Path, force: bool, command: str) -> None:
    """Refuse a path that another run is writing, or for which a release was already measured.

    `command` is the command line that, with --resume, completes such a release.
    """
    check_folder(path, force)
    drafts = _drafts(path)
    if any(map(is_held, drafts)):
        msg = f"another run is writing {str(path)!r} right now; wait for it, or choose another folder"
        raise FileError(msg)
    left = next(filter(_has_release, drafts), None)
    if left is not None and not force:
        name = shlex.quote(str(left))
        raise FileError(
            f"an earlier run measured the table for {str(path)!r} and spent the budget, but did not finish. "
            f"Its release is complete, in {str(left)!r}: `{command} --resume {name}` completes the folder "
            f"at no further privacy cost, and `querysmasher answer {name}` queries the draft. To measure "
            "again, which spends the budget again, delete the draft, or use --force"
        )


def remove(folder: Path) -> None:
    """Remove a folder, or a link to one, even if interrupted again."""
    if folder.is_symlink():
        folder.unlink()
        return
    with contextlib.suppress(KeyboardInterrupt):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder for the duration of this context, if its disk has locks."""
    lock = FileLock(_lock(folder), timeout=PATIENCE)
    with contextlib.suppress(OSError, NotImplementedError, Timeout):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        _forget(folder)


def is_held(folder: Path) -> bool:
    """Return whether a process has locked a folder."""
    if not _lock(folder).exists():
        return False
    try:
        with FileLock(_lock(folder), timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return False


def _forget(folder: Path) -> None:
    """Remove the lock of a folder that no process has locked."""
    with contextlib.suppress(OSError):
        _lock(folder).unlink(missing_ok=True)


def _lock(folder: Path) -> Path:
    return folder.absolute().with_name(f".{folder.absolute().name}.lock")
