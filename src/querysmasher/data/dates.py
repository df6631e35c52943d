"""Columns of dates: complete days, however the column stores them.

A date matches a date32 or date64 value of that day, and a timestamp at its midnight. A timestamp with a
time zone is read in that zone. Any other time of day matches no date.
"""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

EPOCH = date(1970, 1, 1)
TICKS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
"""Number of units per day."""

NO_DAY = np.iinfo(np.int64).min
"""Code for a missing value, or one that is not a complete day."""


def is_date_column(kind: Any) -> bool:
    """Return whether a column of this Arrow type holds dates or timestamps."""
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def days(column: Any) -> NDArray[np.int64]:
    """Return the day number of each value of a date column, counted from 1970, or `NO_DAY`."""
    kind = column.type
    if pa.types.is_date32(kind):
        return np.asarray(column.cast(pa.int32()).cast(pa.int64()).fill_null(NO_DAY))
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    if getattr(kind, "tz", None) is not None:
        pc.local_timestamp(pa.scalar(0, kind))  # which refuses an unknown zone, even if there is no record
        column = pc.local_timestamp(column)
    ticks = np.asarray(column.cast(pa.int64()).fill_null(NO_DAY))
    whole, rest = np.divmod(ticks, TICKS[unit])
    return np.where((rest == 0) & (ticks != NO_DAY), whole, NO_DAY)


def day_number(value: date) -> int:
    """Return a date as the number of its day, counted from 1970."""
    return (value - EPOCH).days


def midnight(value: object) -> object:
    """Return a timestamp at midnight as its date, in its own time zone; any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    nanoseconds = getattr(value, "nanosecond", 0)  # pandas' timestamps have them
    return value.date() if value.time() == time(0) and not nanoseconds else value
