"""What families on one attribute say about themselves where its values stand on a line.

Values, prefixes and all ranges have closed forms. A family adds itself to those it consists of, and asks for
the errors that it needs, so that nothing else distinguishes kinds of families.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array

Places = NDArray[np.int64]
"""Indexes of values."""


@dataclass(eq=False)
class LineSums:
    """Weights of queries with a closed form, added up over families."""

    values: Array
    """Weights of the single values."""
    prefixes: Array
    """Weights of all prefixes."""
    ranges: float = 0.0
    """The weight of every range."""
    circular: float = 0.0
    """The weight of every circular range."""


class LineErrors(Protocol):
    """The variances of queries about one attribute."""

    @property
    def values(self) -> Array:
        """The variance of every value's count."""

    @property
    def prefixes(self) -> Array:
        """The variance of every prefix."""

    def of_spans(self, first: Places, last: Places) -> Array:
        """Return the variances of sums of consecutive values."""

    def of_rows(self, rows: Array) -> Array:
        """Return the variances of any queries, given as rows."""

    def all_ranges(self) -> float:
        """Return the sum of the variances of all ranges."""

    def all_circular(self) -> float:
        """Return the sum of the variances of all circular ranges."""
