"""A release folder: its files, and how to read them."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from querysmasher.cli.output import check_free
from querysmasher.endings import starting
from querysmasher.errors import FileError
from querysmasher.planning.plan import Plan
from querysmasher.release.outputs import DESCRIPTION, ERRORS, PAGE, PLAN, RELEASE, SUMMARY, tables
from querysmasher.release.release import Release

KNOWN = {RELEASE, PLAN, SUMMARY, DESCRIPTION, ERRORS, PAGE, *tables()}
"""The files a release folder can have."""


def check_folder(path: Path, force: bool) -> None:
    """Refuse to overwrite a release folder without `force`, and anything else always."""
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        what = "a file" if path.exists() else "a broken link"
        raise FileError(f"{str(path)!r} is {what}; expected a folder that does not exist yet")
    if path.is_dir() and not any(path.iterdir()):
        return
    strangers = sorted(p.name for p in path.iterdir() if p.name not in KNOWN) if path.is_dir() else []
    if strangers:
        raise FileError(
            f"{str(path)!r} contains {strangers[0]!r}, which is not part of a release; choose another folder"
        )
    if path.is_dir() and not force:
        raise FileError(
            f"{str(path)!r} already has a release. Query that one, or choose another folder; --force "
            "replaces it, and measuring spends the budget again"
        )
    check_free(path, force)


def remove(folder: Path) -> None:
    """Remove a folder, or a link to one, even if interrupted again."""
    if folder.is_symlink():
        folder.unlink()
        return
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
        raise FileError(f"{str(path)!r} is not a release folder: it has no {name!r} in it")
    if not path.exists():
        raise FileError(f"no folder or file {str(path)!r}{starting(path)}")
    return path / name if path.is_dir() else path
