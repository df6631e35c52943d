"""Kinds of families by name, and workloads as plain data: each family once, groups as arrays of numbers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from querysmasher.errors import WorkloadError
from querysmasher.fields import cut, floats, items, text
from querysmasher.schema import Schema
from querysmasher.workload.families import ONE_ATTRIBUTE, CircleBeside, Intervals
from querysmasher.workload.family import Family
from querysmasher.workload.hierarchy import Hierarchy
from querysmasher.workload.joint import AbsDifference, Affine, RandomQueries, Rows
from querysmasher.workload.sum import Sum
from querysmasher.workload.workload import Group, Target, Workload

T = TypeVar("T")

FAMILIES: ChainMap[str, type[Family]] = ChainMap(
    {
        cls.name: cls
        for cls in (Affine, AbsDifference, RandomQueries, Rows, Sum, Intervals, CircleBeside, Hierarchy)
    },
    cast("dict[str, type[Family]]", ONE_ATTRIBUTE),
)
"""Kinds of families by name, as in files. A new kind needs a file and a name here, or in
`ONE_ATTRIBUTE` if its name and the number of values define it."""


def family_from_json(data: Mapping[str, Any]) -> Family:
    """Rebuild a family from what `Family.to_json` returned."""
    fields = dict(data)
    return FAMILIES[text(fields.pop("family"))].from_json(fields)


def workload_to_data(workload: Workload) -> dict[str, Any]:
    """Return plain data with arrays, from which `workload_from_data` rebuilds the workload."""
    numbers: dict[Family, int] = {}
    for group in workload:
        for family in group.families:
            numbers.setdefault(family, len(numbers))
    targets = [g.target for g in workload]
    return {
        "schema": workload.schema.to_json(),
        "families": [family.to_json() for family in numbers],
        "group_families": ragged([[numbers[f] for f in g.families] for g in workload]),
        "group_attributes": ragged(workload.schema.positions(g.attributes) for g in workload),
        "group_weights": np.array([g.weight for g in workload]),
        # zero stands for none
        "group_targets": np.array([0.0 if t is None else t.amount for t in targets]),
        "group_levels": np.array([0.0 if t is None or t.level is None else t.level for t in targets]),
    }


def workload_from_data(data: dict[str, Any]) -> Workload:
    """Rebuild a workload from what `workload_to_data` returned."""
    schema = Schema.from_json(items(data["schema"]))
    families = [family_from_json(f) for f in items(data["families"])]
    names = _chosen(data["group_attributes"], schema.names)
    products = _chosen(data["group_families"], families)
    weights, targets = floats(data["group_weights"], 1).tolist(), _targets(data, len(names))
    groups = zip(names, products, weights, targets, strict=True)
    return Workload(schema, tuple(Group(*fields) for fields in groups))


def _targets(data: dict[str, Any], count: int) -> list[Target | None]:
    """Return the target of every group; files from before there were targets have none."""
    if "group_targets" not in data:
        return [None] * count
    amounts, levels = (floats(data[name], 1).tolist() for name in ("group_targets", "group_levels"))
    pairs = zip(amounts, levels, strict=True)
    return [Target(amount, level or None) if amount else None for amount, level in pairs]


def ragged(rows: Any) -> dict[str, Any]:
    """Return rows of integers of different lengths as two flat arrays."""
    rows = list(rows)
    return {
        "lengths": np.array([len(r) for r in rows], dtype=np.int64),
        "values": np.array([x for r in rows for x in r], dtype=np.int64),
    }


def unragged(data: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the rows that `ragged` flattened."""
    return cut(data["lengths"], data["values"])


def _chosen(numbers: dict[str, Any], of: Sequence[T]) -> list[tuple[T, ...]]:
    """Return rows of the items that rows of numbers refer to."""
    rows = unragged(numbers)
    if any(not 0 <= number < len(of) for row in rows for number in row):
        raise WorkloadError("a number refers to nothing")
    return [tuple(of[number] for number in row) for row in rows]
