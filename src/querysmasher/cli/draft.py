"""A release folder while it is written, which keeps what was measured if a later step fails.

A draft is beside the folder that it becomes, as NAME.unfinished-XXXX, and is locked while a command writes
it. Until it has a release, it is deleted when the command ends; from then on it is never deleted. So an
unlocked draft is what an unfinished run left behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from querysmasher.cli.folder import check_folder, remove
from querysmasher.cli.guard import CutShortError
from querysmasher.cli.lock import held, is_held
from querysmasher.cli.place import MARK, beside, check_room, check_taken, drafts, forget_lost
from querysmasher.errors import FileError
from querysmasher.progress import Bar
from querysmasher.release.outputs import PLAN, RELEASE
from querysmasher.release.release import Release


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
        msg = f"another run is writing {str(folder)!r} right now; wait for it"
        raise FileError(msg)
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
    try:
        spare = Path(tempfile.mkdtemp(prefix="querysmasher-"))
    except OSError:
        return None
    try:
        measured.save(spare / RELEASE)
    except OSError:
        remove(spare)
        return None
    except BaseException:
        remove(spare)
        raise
    return spare
