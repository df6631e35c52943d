"""Checks of plain data from an untrusted file: a value of another type or range raises `ValueError`.

A file may be complete, with a valid checksum, and still not be written by this library.
"""

from __future__ import annotations

import re
from fractions import Fraction
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querysmasher.errors import OutOfRangeError, WorkloadError, as_given


def whole(value: object, low: int = 0, high: int | None = None) -> int:
    """Return an integer from `low` to `high`; neither True nor 1.0 is one."""
    if type(value) is not int or value < low or (high is not None and value > high):
        raise ValueError
    return value


def number(value: object, low: float, high: float) -> float:
    """Return a number from `low` to `high`."""
    if type(value) not in (int, float) or not low <= value <= high:  # type: ignore[operator]
        raise ValueError
    return float(value)  # type: ignore[arg-type]


def text(value: object, allowed: tuple[str, ...] = ()) -> str:
    """Return a string, one of `allowed` if given."""
    if type(value) is not str or (allowed and value not in allowed):
        raise ValueError
    return value


def fraction(value: object) -> Fraction:
    """Return a positive fraction; refuse other notations, such as 1e999999999, which would take forever."""
    if not re.fullmatch(r"[0-9]{1,60}(/[0-9]{1,60})?", text(value)):
        raise ValueError
    return Fraction(text(value))


def word(value: object) -> str:
    """Return a short, printable string."""
    if type(value) is not str or not value.isprintable() or len(value) > 500:
        raise ValueError
    return value


def items(value: object) -> list[Any]:
    """Return a list."""
    if type(value) is not list:
        raise ValueError
    return value


def wholes(value: object, high: int | None = None) -> tuple[int, ...]:
    """Return a list of integers from 0 to `high` as a tuple."""
    return tuple(whole(item, 0, high) for item in items(value))


def floats(value: object, ndim: int | None = None) -> NDArray[np.float64]:
    """Return an array of finite floating-point numbers with the given number of axes."""
    array = _array(value, np.dtype(np.float64), ndim)
    if not np.isfinite(array).all():
        raise ValueError
    return array


def integers(value: object, ndim: int | None = None) -> NDArray[np.int64]:
    """Return an array of integers with the given number of axes."""
    return _array(value, np.dtype(np.int64), ndim)


def _array(value: object, dtype: np.dtype[Any], ndim: int | None) -> NDArray[Any]:
    if type(value) is not np.ndarray or value.dtype != dtype or ndim not in (None, value.ndim):
        raise ValueError
    return value


def cut(lengths: object, values: object) -> list[tuple[int, ...]]:
    """Split `values` into consecutive tuples of these lengths, with none left over."""
    sizes, flat = integers(lengths, 1), integers(values, 1)
    if sizes.size and (sizes.min() < 0 or sizes.max() > flat.size):
        raise ValueError
    ends = np.cumsum(sizes).tolist()
    if (ends[-1] if ends else 0) != flat.size:
        raise ValueError
    listed = flat.tolist()
    return [tuple(listed[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def index_in(size: int, given: object, what: str) -> int:
    """Return an index, counted from 0; refuse what is not an integer, or out of range.

    >>> index_in(3, -1, "figures")
    2
    """
    try:
        position = index(given)  # type: ignore[arg-type]
    except TypeError:
        raise WorkloadError(f"{what}[…]: expected an integer, got {as_given(given)}") from None
    if not -size <= position < size:
        raise OutOfRangeError(
            f"{what}[…]: expected an integer from {-size:,} to {size - 1:,}, got {position:,}"
        )
    return position % size
