"""Locks on folders, released when the process ends, however it ends.

The lock is a file beside the folder, because a folder with an open file cannot be renamed on every system.
The folder may be renamed between a name with a leading dot and the same name without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

PATIENCE = 1.0
"""Seconds to wait for a process that only looks whether a folder is locked."""


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
