"""Data frames of a library that the user names, with nulls where a value is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import narwhals as nw
import pyarrow as pa

from querysmasher.errors import WorkloadError, as_given, suggestion
from querysmasher.formatting import one_line

NUMBERS = ("value", "std", "low", "high", "cv", "flag")
"""Columns of every frame and file of figures, after those that say what each is about."""


BACKENDS = ("pyarrow", "pandas", "polars")


def column_names(names: Sequence[str], reserved: Sequence[str] = NUMBERS) -> list[str]:
    """Return the names of attributes as names of columns; one that is taken gets an underscore.

    >>> column_names(["age", "value"])
    ['age', 'value_']
    """
    taken = set(reserved)
    found = []
    for name in names:
        free = name
        while free in taken or (free != name and free in names):
            free += "_"
        taken.add(free)
        found.append(free)
    return found


def frame(columns: Mapping[str, Any], backend: Any) -> Any:
    """Return a data frame of Arrow arrays; `backend` is any eager backend of narwhals that is installed."""
    return frame_of(pa.table(dict(columns)), backend)


def frame_of(table: Any, backend: Any) -> Any:
    """Return an Arrow table as a data frame of a library."""
    try:
        if nw.Implementation.from_backend(backend) is nw.Implementation.PANDAS:
            return _pandas(table)
        return nw.from_arrow(table, backend=backend).to_native()
    except (ImportError, ValueError, TypeError, AttributeError):
        msg = (
            f"backend: expected an installed dataframe library such as {', '.join(map(repr, BACKENDS))}, got "
        )
        raise WorkloadError(f"{msg}{as_given(backend)}{suggestion(backend, BACKENDS)}") from None


def _pandas(table: Any) -> Any:
    """Return a pandas frame in which integers with nulls remain integers."""
    pd = nw.Implementation.PANDAS.to_native_namespace()
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    made = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and column.type in nullable:
            made[name] = column.to_pandas(types_mapper=nullable.get)
    return made


def value_type(values: Sequence[object]) -> Any:
    """Return the Arrow type that holds values of an attribute: their own, or text if they are mixed."""
    kinds = {type(v) for v in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int} and all(-(2**63) <= v < 2**63 for v in values):  # type: ignore[operator]
        return pa.int64()
    if kinds <= {int, float} and float in kinds:
        return pa.float64()
    return pa.date32() if kinds == {date} else pa.string()


def value_column(values: Sequence[object], places: Sequence[int | None]) -> Any:
    """Return a column of the values at `places`, null where there is none."""
    kind = value_type(values)
    texts = [one_line(str(v)) for v in values] if kind == pa.string() else list(values)
    return pa.array(texts, kind).take(pa.array(places, pa.int64()))
