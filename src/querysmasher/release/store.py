"""Where the noisy answers of a release are kept: in memory, or in one file on disk.

A file store appends arrays to a temporary file as they are measured and reads one back at a time, so a
release may be far larger than memory. The file has no name and goes with the store, or with the process.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Protocol

import numpy as np

from querysmasher.arrays import Numbers

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
    """Return a store fit for so many noisy numbers."""
    return MemoryStore() if numbers * 8 <= MEMORY_BYTES else FileStore()


def _discard(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk
        stream.close()
