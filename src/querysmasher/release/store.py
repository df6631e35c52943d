"""Noisy answers of a release: where they are kept, and how repeated measurements are combined.

A file store appends arrays to a temporary file as they are measured and reads one back at a time, so a
release may be far larger than memory. The file has no name and is deleted with the store or the process.

Several phases may measure an attribute set by the same strategies, each time with independent noise.
Measurements z_i of the same rows, with noise variances v_i, are combined into Σ_i w_i z_i with weights w_i in
proportion to 1/v_i: unbiased, and of the least variance of all unbiased combinations.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from querysmasher.arrays import Array, Numbers
from querysmasher.errors import FileError
from querysmasher.files import Lazy
from querysmasher.privacy.distributions import Distribution
from querysmasher.privacy.integer_plan import IntegerPlan

MEMORY_BYTES = 2**29
"""Maximum size of a release that is kept in memory."""


class MemoryStore(dict[int, Numbers]):
    """Answers in memory."""

    def put(self, number: int, answers: Numbers) -> None:
        """Keep the answers of one attribute set."""
        self[number] = answers.ravel()


class FileStore:
    """Answers in a temporary file, which is deleted with the store."""

    def __init__(self) -> None:
        """Open an empty file, without a buffer that could fail to be written when it is closed."""
        self._stream = tempfile.TemporaryFile(prefix="querysmasher-", buffering=0)  # noqa: SIM115
        self._parts: dict[int, tuple[int, int, np.dtype[Any]]] = {}
        weakref.finalize(self, self._stream.close)

    def put(self, number: int, answers: Numbers) -> None:
        """Append the answers of one attribute set."""
        start = self._stream.seek(0, os.SEEK_END)
        data = answers.tobytes()
        if self._stream.write(data) != len(data):  # a full disk takes a part, and refuses the next
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._parts[number] = start, answers.size, answers.dtype

    def __getitem__(self, number: int) -> Numbers:
        """Read the answers of one attribute set."""
        start, size, dtype = self._parts[number]
        self._stream.seek(start)
        answers = np.fromfile(self._stream, dtype, size)
        if answers.size != size:
            raise OSError("the temporary file of the release is truncated")
        return answers

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers kept."""
        return iter(self._parts)


@dataclass(frozen=True, eq=False)
class LoadedStore:
    """Answers in the file of a saved release, of the expected sizes, read one set at a time."""

    _arrays: Sequence[Lazy]
    _sizes: Sequence[int]
    _dtype: np.dtype[Any]

    def __getitem__(self, number: int) -> Numbers:
        """Return the answers of one attribute set."""
        answers = self._arrays[number].fetch()
        fits = answers.dtype == self._dtype and answers.shape == (self._sizes[number],)
        if not fits or not np.isfinite(answers).all():
            raise FileError("the file of the release does not contain the answers it declares")
        return answers


Store = MemoryStore | FileStore | LoadedStore
"""Noisy answers by the index of their attribute set, as one axis each."""


def new_store(numbers: int) -> MemoryStore | FileStore:
    """Return a store for the given number of noisy values; refuse a disk without space for them."""
    size = numbers * 8
    if size <= MEMORY_BYTES:
        return MemoryStore()
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < size:
        raise FileError(
            f"the measurements take {size / 1e6:,.1f} MB, and the temporary folder {folder!r} has "
            f"{free / 1e6:,.1f} MB left; nothing was measured. Set TMPDIR to another folder"
        )
    return FileStore()


def repeats(plan: IntegerPlan) -> list[tuple[int, ...]]:
    """Return the indexes of the measurements of each attribute set by the same strategies, in order."""
    numbers: dict[object, list[int]] = {}
    for number, measured in enumerate(plan.measured):
        numbers.setdefault((measured.attributes, measured.blocks), []).append(number)
    return [tuple(repeated) for repeated in numbers.values()]


def weights(plan: IntegerPlan, numbers: tuple[int, ...]) -> list[float]:
    """Return the weights of repeated measurements, which sum to one."""
    precisions = [1 / plan.measured[number].variance for number in numbers]
    total = sum(precisions, Fraction(0))
    return [float(precision / total) for precision in precisions]


def combined_answers(plan: IntegerPlan, store: Store, numbers: tuple[int, ...]) -> Array:
    """Return the best combination of the noisy answers of repeated measurements."""
    weighted = zip(weights(plan, numbers), numbers, strict=True)
    return np.asarray(sum(weight * store[number] for weight, number in weighted))


def combined_noise(plan: IntegerPlan, noise: Distribution, numbers: tuple[int, ...]) -> tuple[float, float]:
    """Return the noise of the combination, as `IntegerPlan.noise` does for one measurement."""
    weighted = zip(weights(plan, numbers), numbers, strict=True)
    parts = [(weight**2, plan.noise(plan.measured[number], noise)) for weight, number in weighted]
    first, second = (sum(square * variances[k] for square, variances in parts) for k in (0, 1))
    return first, second
