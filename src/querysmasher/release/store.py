"""Where the noisy answers of a release are kept: in memory, or in one file on disk.

A file store appends arrays to a temporary file as they are measured and reads one back at a time, so a
release may be far larger than memory. The file has no name and goes with the store, or with the process.
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
"""Releases up to this size are kept in memory."""


class Store(Protocol):
    """Noisy answers by the number of their attribute set."""

    def __getitem__(self, number: int) -> Numbers:
        """Return the answers of one attribute set, as one axis."""
        ...


class MemoryStore(dict[int, Numbers]):
    """Answers in memory."""

    def put(self, number: int, answers: Numbers) -> None:
        """Keep the answers of one attribute set."""
        self[number] = answers.ravel()


class FileStore:
    """Answers in a temporary file, which goes when the store goes."""

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
        """Read the answers of one attribute set back."""
        start, size, dtype = self._places[number]
        self._stream.seek(start)
        answers = np.empty(size, dtype=dtype)
        if self._stream.readinto(answers.data) != answers.nbytes:
            msg = "the temporary file of the release was cut short"
            raise OSError(msg)
        return answers

    def __iter__(self) -> Iterator[int]:
        """Go through the numbers kept."""
        return iter(self._places)


def new_store(numbers: int) -> MemoryStore | FileStore:
    """Return a store fit for so many noisy numbers, on a disk with room for them."""
    size = numbers * 8
    if size <= MEMORY_BYTES:
        return MemoryStore()
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < size:
        msg = (
            f"the measurements take {size / 1e6:,.1f} MB, and the temporary folder {folder!r} has "
            f"{free / 1e6:,.1f} MB left; nothing was measured. TMPDIR names another folder"
        )
        raise FileError(msg)
    return FileStore()


def _discard(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk
        stream.close()
