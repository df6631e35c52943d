"""Hierarchies on one attribute, such as counties and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import literal
from querysmasher.errors import WorkloadError
from querysmasher.schema import Schema
from querysmasher.workload.families import Identity
from querysmasher.workload.rows import HIERARCHY, Rows


def hierarchy(
    schema: Schema, attribute: str, *levels: Mapping[Any, Any] | Sequence[Any], leaves: bool = True
) -> Rows:
    """Return the queries of a hierarchy: one per group of each level, and one per value (`leaves`).

    A level maps every value of the attribute to its group (or lists the groups in the order of the
    values). Use the result as the family of that attribute.

    >>> schema = Schema.of(county=4)
    >>> print(hierarchy(schema, "county", {0: "north", 1: "north", 2: "south", 3: "south"}).rows)
    6
    """
    a = schema[attribute]
    rows: list[Array] = []
    labels: list[str] = []
    if not levels and not leaves:
        msg = "levels: expected at least one level, or leaves=True"
        raise WorkloadError(msg)
    for number, level in enumerate(levels, start=1):
        if isinstance(level, Mapping):
            missing = [v for v in a.values if v not in level]
            if missing:
                msg = (
                    f"level {number} of the hierarchy on {attribute!r} has no group for value "
                    f"{literal(missing[0])}"
                )
                raise WorkloadError(msg)
            level = [level[v] for v in a.values]  # noqa: PLW2901
        try:
            groups = list(level)
            distinct = dict.fromkeys(groups)
        except TypeError:
            msg = f"level {number} of the hierarchy on {attribute!r}: its groups are not strings or numbers"
            raise WorkloadError(msg) from None
        if len(groups) != a.size:
            msg = (
                f"level {number} of the hierarchy on {attribute!r}: expected {a.size} groups, one per "
                f"value, got {len(groups)}"
            )
            raise WorkloadError(msg)
        for group in distinct:
            rows.append(np.array([g == group for g in groups], dtype=float))
            labels.append(f"{a.name} in {group!r}")
    if leaves:
        rows.extend(np.eye(a.size))
        labels.extend(Identity((a.size,)).labels([a]))
    return Rows((a.size,), np.array(rows), row_labels=tuple(labels), title=HIERARCHY)
