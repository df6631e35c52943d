"""A release folder while it is written, which keeps what was measured if a later step fails.

A draft is beside the folder that it becomes, as NAME.unfinished-XXXX, and is locked while a command writes
it. Until it has a release, it is deleted when the command ends; from then on it is never deleted. So an
unlocked draft is what an unfinished run left behind.

The lock is a file beside the draft, because a folder with an open file cannot be renamed on every system. It
is released when the process ends, however it ends. The draft may be renamed between a name with a leading
dot and the same name without it.
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
from querysmasher.cli.folder import check_folder, remove
from querysmasher.cli.output import note
from querysmasher.errors import FileError
from querysmasher.progress import Bar
from querysmasher.release.outputs import PLAN, RELEASE
from querysmasher.release.release import Release

MARK = "unfinished-"

PATIENCE = 1.0
"""Seconds to wait for a process that only looks whether a folder is locked."""


@dataclass(frozen=True)
class Draft:
    """A folder that is being written, and its target."""

    folder: Path
    target: Path
    before: object
    """What was at the target when the draft was created."""
    command: str
    """The command line, without --resume."""

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Add to every error in this context that the budget is spent, and where the release is."""
        try:
            yield
        except CutShortError:
            raise
        except BaseException as error:  # noqa: BLE001 - also an interruption
            kept = self.folder if (self.folder / RELEASE).is_file() else None
            raise CutShortError(error, self._what_is_left(kept), kept) from None

    def keep(self, measured: Release) -> None:
        """Save a release here; if that fails, save it in a temporary folder and raise the error."""
        try:
            with Bar("Saving", None):
                measured.save(self.folder / RELEASE)
        except OSError as error:
            kept = _keep_elsewhere(measured)
            raise CutShortError(error, self._what_is_left(kept), kept) from None

    def publish(self) -> None:
        """Move the folder to its target, unless another run has written it."""
        old = beside(self.target, "replaced-")
        try:
            if _identity(self.target) == self.before:
                if self.before is not None:
                    self.target.rename(old)
                if _identity(old) == self.before:
                    self._move()
        finally:
            if _identity(self.target) is None and _identity(old) is not None:
                old.rename(self.target)
        if self.folder.exists():
            msg = f"{str(self.target)!r} was written by another run in the meantime and is left unchanged."
            raise FileError(msg)
        remove(old)

    def _move(self) -> None:
        try:
            self.folder.rename(self.target)
        except OSError:
            if _identity(self.target) is None:
                raise  # else the target is now a folder with files

    def _what_is_left(self, kept: Path | None) -> str:
        if kept is None:
            return "The table was measured, but its release is lost: count the budget as spent."
        return (
            f"The table was measured, and the budget is spent. The release is kept in {str(kept)!r}: "
            f"`{self.command} --resume {shlex.quote(str(kept))}` completes the folder at no further "
            "privacy cost."
        )


@contextmanager
def drafting(path: Path, force: bool, command: str, size: int) -> Iterator[Draft]:
    """Create a draft for a release folder, on a disk with space for `size` bytes."""
    check_taken(path, force, command)
    check_room(path, size)
    forget_lost(path)
    before = _identity(path)
    draft = beside(path, MARK)
    hidden = draft.with_name(f".{draft.name}")
    hidden.mkdir()
    with held(hidden):  # only then visible to other runs
        hidden.rename(draft)
        try:
            yield Draft(draft, path, before, command)
        finally:
            if not (draft / RELEASE).is_file():
                remove(draft)


@contextmanager
def resuming(path: Path, left: Path, force: bool, command: str) -> Iterator[Draft]:
    """Open the draft that a run left behind, or a copy of it if it is not beside the folder."""
    check_folder(path, force)
    folder = left if left.is_dir() else left.parent
    if is_held(folder):
        raise FileError(f"another run is writing {str(folder)!r} right now; wait for it")
    here = next((d for d in drafts(path) if d.samefile(folder)), None)
    draft = here or beside(path, MARK)
    hidden = here or _copy(folder, draft.with_name(f".{draft.name}"))
    with held(hidden):  # and only then in sight of other runs
        hidden.rename(draft)
        for part in draft.iterdir():  # what a run that was killed had begun
            if part.name not in (PLAN, RELEASE):
                part.unlink()
        yield Draft(draft, path, _identity(path), command)


def _copy(folder: Path, target: Path) -> Path:
    """Copy what a run left behind to a new folder, or leave nothing there."""
    target.mkdir()
    try:
        for name in (PLAN, RELEASE):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, target / name)
    except BaseException:
        remove(target)
        raise
    return target


def _identity(path: Path) -> object:
    """Return a fingerprint that changes if a folder, or its release, is replaced; None if there is none."""
    try:
        found: list[object] = [os.lstat(path).st_ino]
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError):
        release = (path / RELEASE).stat()
        found += [release.st_ino, release.st_mtime_ns]
    return tuple(found)


def _keep_elsewhere(measured: Release) -> Path | None:
    """Save a release in a temporary folder and return its path, or None if that fails as well."""
    spare = None
    try:
        spare = Path(tempfile.mkdtemp(prefix="querysmasher-"))
        measured.save(spare / RELEASE)
    except BaseException as error:
        if spare is not None:
            remove(spare)
        if isinstance(error, OSError):
            return None
        raise
    return spare


def drafts(path: Path) -> list[Path]:
    """Return the drafts beside a release folder."""
    parent = path.parent if path.name else path.absolute().parent
    mark = f"{path.absolute().name}.{MARK}"
    return sorted(p for p in parent.iterdir() if p.name.startswith(mark) and p.is_dir())


def beside(path: Path, mark: str) -> Path:
    """Return a new path beside another, with `mark` in its name."""
    path = path if path.name else path.absolute()
    return path.with_name(f"{path.name}.{mark}{secrets.token_hex(3)}")


def check_place(path: Path, force: bool, command: str) -> None:
    """Refuse a path where no release folder can be written; see also `check_taken`."""
    check_taken(path, force, command)
    for folder in _left(path):
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

    `command` is the command line; with --resume it completes what an earlier run left behind.
    """
    check_folder(path, force)
    for folder in drafts(path):
        if is_held(folder):
            msg = f"another run is writing {str(path)!r} right now; wait for it, or choose another folder"
            raise FileError(msg)
    left = _left(path)
    if left and not force:
        name = shlex.quote(str(left[0]))
        raise FileError(
            f"an earlier run measured the table for {str(path)!r} and spent the budget, but did not finish. "
            f"Its release is complete, in {str(left[0])!r}: `{command} --resume {name}` completes the folder "
            f"at no further privacy cost, and `querysmasher answer {name}` queries it as it is. To measure "
            "again, which spends the budget again, delete it, or use --force"
        )


def check_room(path: Path, size: int) -> None:
    """Refuse a disk without space for a release of `size` bytes."""
    parent = path.absolute().parent
    free = shutil.disk_usage(parent).free
    if free < size:
        raise FileError(
            f"the release takes {size / 1e6:,.1f} MB, and {str(parent)!r} has {free / 1e6:,.1f} MB left; "
            "nothing was measured"
        )


def forget_lost(path: Path) -> None:
    """Remove and report drafts of runs that were killed before they had a release."""
    for folder in drafts(path):
        if not is_held(folder) and not (folder / RELEASE).is_file():
            remove(folder)
            forget(folder)
            note(
                f"An earlier run for {str(path)!r} was killed before it saved its release, and nothing is "
                "left of it. To be safe, count its budget as spent."
            )


def _left(path: Path) -> list[Path]:
    return [folder for folder in drafts(path) if (folder / RELEASE).is_file()]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder for the duration of this context, if its disk has locks."""
    lock = FileLock(_beside(folder), timeout=PATIENCE)
    with contextlib.suppress(OSError, NotImplementedError, Timeout):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        forget(folder)


def is_held(folder: Path) -> bool:
    """Return whether a process has locked a folder."""
    if not _beside(folder).exists():
        return False
    try:
        with FileLock(_beside(folder), timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return False


def forget(folder: Path) -> None:
    """Remove the lock of a folder that no process has locked."""
    with contextlib.suppress(OSError):
        _beside(folder).unlink(missing_ok=True)


def _beside(folder: Path) -> Path:
    folder = folder.absolute()
    return folder.with_name(f".{folder.name.removeprefix('.')}.lock")
