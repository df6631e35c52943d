"""Frames in memory with repeated column names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from querysmasher.data.foreign import check_columns


def without_doubles(native: Any, names: Sequence[str]) -> Any:
    """Return a pandas or Arrow frame with only the needed columns, if a name is repeated.

    Refuse a frame in which a needed column is repeated.
    """
    if isinstance(native, pa.Table):
        columns = native.column_names
    elif type(native).__module__.split(".")[0] == "pandas" and hasattr(native, "columns"):
        columns = list(native.columns)
    else:
        return native
    if len(set(columns)) == len(columns):
        return native
    check_columns(names, columns)
    places = [columns.index(name) for name in names] or [0]  # one column at least, to know the number of rows
    return native.select(places) if isinstance(native, pa.Table) else native.iloc[:, places]
