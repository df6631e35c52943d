"""A release folder: what is in it, and how it appears all at once or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from querysmasher.errors import FileError
from querysmasher.planning.plan import Plan
from querysmasher.release.release import Release

RELEASE, PLAN, SUMMARY, ANSWERS = "release.qs", "plan.qs", "summary.json", "answers"
KNOWN = {RELEASE, PLAN, SUMMARY, f"{ANSWERS}.parquet", f"{ANSWERS}.csv", "report.html"}
"""The files a release folder can have."""


def check_free(path: Path, force: bool) -> None:
    """Refuse a path where something is already, or whose folder does not exist."""
    if not path.absolute().parent.is_dir():
        msg = f"the folder {str(path.absolute().parent)!r} does not exist; make it first"
        raise FileError(msg)
    if path.exists() and not force:
        msg = f"{str(path)!r} is there already; --force replaces it"
        raise FileError(msg)


def check_folder(path: Path, force: bool) -> None:
    """Refuse to write a release folder where one is, or where, even with force, anything else is."""
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        what = "a file" if path.exists() else "a link to nothing"
        msg = f"{str(path)!r} is {what}; expected a folder that is yet to be written"
        raise FileError(msg)
    if path.is_dir() and not any(path.iterdir()):
        return
    strangers = sorted(p.name for p in path.iterdir() if p.name not in KNOWN) if path.is_dir() else []
    if strangers:
        msg = f"{str(path)!r} holds {strangers[0]!r}, which is no part of a release; choose another folder"
        raise FileError(msg)
    if path.is_dir() and not force:
        msg = (
            f"{str(path)!r} holds a release already. Ask that one, or choose another folder; --force "
            "replaces it, and measuring spends the budget once more"
        )
        raise FileError(msg)
    check_free(path, force)


@contextmanager
def replacing_folder(path: Path, force: bool) -> Iterator[Path]:
    """Give a temporary folder beside `path`, which takes its place if all goes well and goes if not.

    What is at `path` by then, as another run may have written it meanwhile, is looked at once more.
    """
    path = path.absolute()
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    old = temporary / "old"
    new = temporary / "new"
    try:
        new.mkdir()
        yield new
        check_folder(path, force)
        try:
            if path.exists():
                path.rename(old)
            new.rename(path)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise
    finally:
        _remove(temporary)


def _remove(folder: Path) -> None:
    """Remove a folder, also when interrupted once more."""
    with contextlib.suppress(KeyboardInterrupt):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


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
        msg = f"{str(path)!r} is no release folder: there is no {name!r} in it"
        raise FileError(msg)
    if not path.exists():
        msg = f"there is no folder or file {str(path)!r}"
        raise FileError(msg)
    return path / name if path.is_dir() else path
