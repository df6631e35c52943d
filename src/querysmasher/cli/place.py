"""Checks of where a release folder is written, before measuring, and of what earlier runs left there."""

from __future__ import annotations

import secrets
import shlex
import shutil
import tempfile
from pathlib import Path

from querysmasher.cli.folder import check_folder, remove
from querysmasher.cli.lock import forget, is_held
from querysmasher.cli.output import note
from querysmasher.errors import FileError
from querysmasher.release.outputs import RELEASE

MARK = "unfinished-"


def drafts(path: Path) -> list[Path]:
    """Return the drafts beside a release folder: see `querysmasher.cli.draft`."""
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
        msg = f"cannot write in {str(parent)!r} ({why}); nothing was measured"
        raise FileError(msg) from None


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
        msg = (
            f"an earlier run measured the table for {str(path)!r} and spent the budget, but did not finish. "
            f"Its release is complete, in {str(left[0])!r}: `{command} --resume {name}` completes the folder "
            f"at no further privacy cost, and `querysmasher answer {name}` queries it as it is. To measure "
            "again, which spends the budget again, delete it, or use --force"
        )
        raise FileError(msg)


def check_room(path: Path, size: int) -> None:
    """Refuse a disk without space for a release of `size` bytes."""
    parent = path.absolute().parent
    free = shutil.disk_usage(parent).free
    if free < size:
        msg = (
            f"the release takes {size / 1e6:,.1f} MB, and {str(parent)!r} has {free / 1e6:,.1f} MB left; "
            "nothing was measured"
        )
        raise FileError(msg)


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
