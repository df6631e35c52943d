"""Checks of matrices and weights that users pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from querysmasher.arrays import Array
from querysmasher.errors import WorkloadError, as_given
from querysmasher.schema import Schema

LARGEST = 1e100
"""Maximum absolute value of an entry; weighted sums of larger squares might overflow."""


EXAMPLE = "schema = qs.Schema([qs.Categorical('sex', ['F', 'M']), qs.Ordinal('age', range(100))])"


def check_schema(schema: object) -> None:
    """Refuse what is not a schema, as the first argument of a function that builds queries."""
    if not isinstance(schema, Schema):
        msg = (
            f"schema: expected a Schema as first argument, got {as_given(schema)}; state it first: {EXAMPLE}"
        )
        raise WorkloadError(msg)


def frozen_array(name: str, given: ArrayLike, ndim: int) -> Array:
    """Return a read-only float copy of `given`, refusing wrong dimensions and non-finite entries."""
    try:
        array = np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise WorkloadError(f"{name}: expected numbers, got {type(given).__name__}") from None
    if array.ndim != ndim:
        msg = f"{name}: expected {ndim} dimension{'s' * (ndim > 1)}, got {array.ndim}"
        rows = "; write one list per query, as in [[1, 0, 0], [0, 1, 1]]" if ndim == 2 else ""
        raise WorkloadError(msg + rows)
    if not np.all(np.isfinite(array)):
        raise WorkloadError(f"{name}: every entry must be finite")
    if np.any(np.abs(array) > LARGEST):
        raise WorkloadError(f"{name}: every entry must be at most {LARGEST:g} in absolute value")
    array.flags.writeable = False
    return array


def checked_weight(weight: object) -> float:
    """Return one weight as a plain number, refusing what is not positive and finite."""
    check_weights("weight", weight)  # type: ignore[arg-type]
    if np.ndim(weight):  # type: ignore[arg-type]
        raise WorkloadError(f"weight: expected one number, got {as_given(weight)}")
    return float(weight)  # type: ignore[arg-type]


def check_weights(name: str, weights: ArrayLike) -> None:
    """Refuse weights that are not positive finite numbers."""
    try:
        array = np.asarray([[]] if isinstance(weights, str | bool) else weights, dtype=float)
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim > 1:
        raise WorkloadError(f"{name}: expected a number, such as 2, got {as_given(weights)}") from None
    bad = array[~(np.isfinite(array) & (array > 0))]
    if bad.size:
        msg = f"{name}: expected positive finite numbers, got {bad.flat[0]} (omit the query instead)"
        raise WorkloadError(msg)
