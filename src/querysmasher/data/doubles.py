"""Frames in memory in which several columns have one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from querysmasher.data.foreign import check_columns
from querysmasher.errors import DataError


def without_doubles(native: Any, names: Sequence[str]) -> Any:
    """Return a pandas or Arrow frame without names that are there twice, which narwhals takes no part of.

    Where a needed column is there twice, the frame is refused.
    """
    if isinstance(native, pa.Table):
        columns = native.column_names
    elif type(native).__module__.split(".")[0] == "pandas" and hasattr(native, "columns"):
        columns = list(native.columns)
    else:
        return native
    times = Counter(columns)
    if len(times) == len(columns):
        return native
    check_columns(names, columns)
    chosen = list(names) or [column for column in columns if times[column] == 1][:1]
    if not chosen:
        msg = "data: every column is there more than once"
        raise DataError(msg)
    return native.select(chosen) if isinstance(native, pa.Table) else native[chosen]
