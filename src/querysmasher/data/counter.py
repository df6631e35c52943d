"""What every engine offers, and how much memory it may take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import DataError

Counts = NDArray[np.int64]
"""A dense table of exact counts: one axis per attribute."""


class Counter(Protocol):
    """A table that can be counted. What it returns is exact, hence for `privacy/measurement` only."""

    def marginals(self, sets: Sequence[tuple[str, ...]]) -> Iterator[Counts]:
        """Yield the counts of each attribute set, in the order given; the empty set is the total."""
        ...

    def records(self) -> int:
        """Return how many records are counted."""
        ...


@dataclass(frozen=True)
class Limits:
    """How much is held at a time; the answers do not depend on it.

    Attributes:
        read_rows: rows read from a file or a frame in one step.
        chunk_rows: encoded rows counted in one step.
        keep_bytes: encoded rows are kept between steps up to this size (one byte per record and attribute
            of fewer than 256 values), and read anew for each batch of marginals beyond it.
        batch_cells: cells of the marginals counted in one pass over the rows, 8 bytes each.
    """

    read_rows: int = 2**17
    chunk_rows: int = 2**20
    keep_bytes: int = 2**30
    batch_cells: int = 2**24

    def __post_init__(self) -> None:
        """Check that each limit is a whole number of at least 1, or 0 for what is kept."""
        for field in fields(self):
            given, least = getattr(self, field.name), 0 if field.name == "keep_bytes" else 1
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                msg = f"{field.name}: expected a whole number of at least {least}, got {given!r}"
                raise DataError(msg)
