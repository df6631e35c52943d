"""Labels: the values of attributes, as users give them, as predicates write them and as JSON."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from typing import Any

from querysmasher.errors import SchemaError, as_given

Label = str | int | float | bool | date
"""Types of the values of an attribute."""


def literal(value: object) -> str:
    """Return a value as predicates and messages write it: strings and dates in quotes.

    >>> literal("F"), literal(3), literal(date(2024, 3, 1))
    ("'F'", '3', "'2024-03-01'")
    """
    return repr(str(value)) if type(value) is date else repr(value)


def plain(value: Label) -> Any:
    """Return a label as JSON; a date is marked as such, to distinguish it from a string."""
    return {"date": str(value)} if isinstance(value, date) else value


def from_plain(value: Any) -> Any:
    """Return the label that `plain` returned as JSON."""
    if not isinstance(value, dict) or set(value) != {"date"}:
        return value
    try:
        return date.fromisoformat(value["date"])
    except (TypeError, ValueError):
        raise SchemaError(f"date: expected a string such as '2024-03-01', got {value['date']!r}") from None


def checked_label(name: str, value: Any, quoted: bool = True) -> Label:
    """Return a value of the attribute `name` as a plain Python label; refuse an invalid one.

    Messages quote it if `quoted`.
    """
    if type(value) is int or type(value) is str:  # nearly all values, of which there may be a million
        return value
    if getattr(getattr(value, "dtype", None), "kind", "") == "M" and value.ndim == 0:
        day = value.astype("datetime64[D]")
        if day != value:  # also true of what is not a time
            raise _no_day(name, value if quoted else None)
        value = day
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar
    if isinstance(value, datetime):
        midnight = datetime.combine(value.date(), time.min) if value == value else None  # noqa: PLR0124 - NaT
        if value.tzinfo is not None or value != midnight:
            raise _no_day(name, value if quoted else None)
        return value.date()
    if not isinstance(value, str | int | float | bool | date):
        got = as_given(value) if quoted or value is None else f"values of type {type(value).__name__}"
        raise SchemaError(f"values of attribute {name!r}: expected strings, numbers or dates, got {got}")
    if isinstance(value, float) and math.isnan(value):
        raise SchemaError(f"values of attribute {name!r}: NaN is not allowed as a value")
    return value


def _no_day(name: str, value: object) -> SchemaError:
    got = "" if value is None else f", got {value}"
    return SchemaError(f"values of attribute {name!r}: expected dates without time or time zone{got}")
