"""The interface of a table for measuring: exact counts, which leave `measurement` only with noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""A dense table of exact counts: one axis per attribute."""


class Counter(Protocol):
    """A table that can be counted. Its results are exact, so they are for `measurement` only."""

    def marginals(self, sets: Sequence[tuple[str, ...]]) -> Iterator[Counts]:
        """Yield the counts of each attribute set, in the order given; the empty set is the total."""
        ...

    def records(self) -> int:
        """Return the number of counted records."""
        ...

    def left_out(self) -> Counts:
        """Return how many records were dropped; with persons, how many of these lack some, by `dropped`."""
        ...
