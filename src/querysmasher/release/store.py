"""Storage of the noisy answers of a release: in memory, or in one file on disk.

A file store appends arrays to a temporary file as they are measured and reads one back at a time, so a
release may be far larger than memory. The file has no name and is deleted with the store or the process.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Protocol

import numpy as np

from querysmasher.arrays import Numbers
from querysmasher.errors import FileError

MEMORY_BYTES = 2**29
"""Maximum size of a release that is kept in memory."""


class Store(Protocol):
    """Noisy answers by the index of their attribute set."""

    def __getitem__(self, number: int) -> Numbers:
        """Return the answers of one attribute set, as one axis."""
        ...


class MemoryStore(dict[int, Numbers]):
    """Answers in memory."""

    def put(self, number: int, answers: Numbers) -> None:
        """Keep the answers of one attribute set."""
        self[number] = answers.ravel()


class FileStore:
    """Answers in a temporary file, which is deleted with the store."""

    def __init__(self) -> None:
        """Open an empty file."""
        self._stream = tempfile.TemporaryFile(prefix="querysmasher-")  # noqa: SIM115 - the store closes it
        self._places: dict[int, tuple[int, int, str]] = {}
        self._end = 0
        self._close = weakref.finalize(self, _discard, self._stream)

    def put(self, number: int, answers: Numbers) -> None:
        """Append the answers of one attribute set."""
        flat = np.ascontiguousarray(answers).ravel()
        self._stream.seek(self._end)
        self._stream.write(flat.data)
        self._places[number] = (self._end, flat.size, flat.dtype.str)
        self._end += flat.nbytes

    def __getitem__(self, number: int) -> Numbers:
        """Read the answers of one attribute set."""
        start, size, dtype = self._places[number]
        self._stream.seek(start)
        answers = np.empty(size, dtype=dtype)
        if self._stream.readinto(answers.data) != answers.nbytes:
            msg = "the temporary file of the release is truncated"
            raise OSError(msg)
        return answers

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers kept."""
        return iter(self._places)


def new_store(numbers: int) -> MemoryStore | FileStore:
    """Return a store for the given number of noisy values; refuse a disk without space for them."""
    size = numbers * 8
    if size <= MEMORY_BYTES:
        return MemoryStore()
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < size:
        msg = (
            f"the measurements take {size / 1e6:,.1f} MB, and the temporary folder {folder!r} has "
            f"{free / 1e6:,.1f} MB left; nothing was measured. Set TMPDIR to another folder"
        )
        raise FileError(msg)
    return FileStore()


def _discard(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk
        stream.close()
