"""Indexes that a user gives, checked."""

from __future__ import annotations

from operator import index

from querysmasher.errors import OutOfRangeError, WorkloadError, as_given


def index_in(size: int, place: object, what: str) -> int:
    """Return an index from 0 on; refuse what is not an integer, or out of range.

    >>> index_in(3, -1, "figures")
    2
    """
    try:
        own = index(place)  # type: ignore[arg-type]
    except TypeError:
        raise WorkloadError(f"{what}[…]: expected an integer, got {as_given(place)}") from None
    if not -size <= own < size:
        raise OutOfRangeError(f"{what}[…]: expected an integer from {-size:,} to {size - 1:,}, got {own:,}")
    return own % size
