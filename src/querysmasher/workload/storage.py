"""Workloads as plain data: each family once, groups as arrays of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from querysmasher.errors import WorkloadError
from querysmasher.fields import cut, floats, integers, items, number, text, whole
from querysmasher.schema import Schema
from querysmasher.workload.checks import LARGEST
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family
from querysmasher.workload.groups import Group
from querysmasher.workload.intervals import Intervals
from querysmasher.workload.joint import AbsDifference, Affine, Random
from querysmasher.workload.rows import Rows
from querysmasher.workload.target import Target
from querysmasher.workload.tree import Hierarchy
from querysmasher.workload.workload import Workload

FAMILIES: dict[str, type[Family]] = {
    **ONE_ATTRIBUTE,
    **{cls.name: cls for cls in (Affine, AbsDifference, Random, Rows, Intervals, Hierarchy)},
}

_PAIRS = (Affine, AbsDifference)


def family_from_json(data: Mapping[str, Any]) -> Family:
    """Rebuild a family from what `Family.to_json` returned."""
    fields = dict(data)
    cls = FAMILIES[text(fields.pop("family"))]
    shape = fields["shape"] = tuple(whole(n, 1) for n in items(fields["shape"]))
    single = (*ONE_ATTRIBUTE.values(), Intervals)
    if (cls in single and len(shape) != 1) or (cls in _PAIRS and len(shape) != 2):
        msg = "a family has another number of axes"
        raise WorkloadError(msg)
    if cls is Random:
        whole(fields["count"], 1)
        whole(fields["seed"])
        fields["p"] = number(fields["p"], 5e-324, 1)
    if cls is Intervals:
        integers(fields["first"], 1)
        integers(fields["last"], 1)
        if fields["row_weights"] is not None:
            floats(fields["row_weights"], 1)
    if cls is Rows:
        floats(fields["array"], 2)
        text(fields["title"])
        if fields["row_labels"] is not None:
            fields["row_labels"] = tuple(map(text, items(fields["row_labels"])))
    if cls is Hierarchy:
        fields = _tree_fields(fields)
    return cls(**fields)


def _tree_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Check the types of a tree's fields."""
    if len(fields["shape"]) != 1 or not isinstance(fields["leaves"], bool):
        msg = "a hierarchy is not on one attribute"
        raise WorkloadError(msg)
    names = tuple(tuple(items(level)) for level in items(fields["names"]))
    if not all(isinstance(name, str | int | float | bool) for level in names for name in level):
        msg = "a name of a group is neither text nor a number"
        raise WorkloadError(msg)
    words, weights = ("titles", "row_labels"), fields["level_weights"]
    if weights is not None:
        weights = tuple(number(weight, 5e-324, LARGEST) for weight in items(weights))
    return fields | {
        "groups": tuple(integers(own, 1) for own in items(fields["groups"])),
        "names": names,
        "level_weights": weights,
        **{key: None if fields[key] is None else tuple(map(text, items(fields[key]))) for key in words},
    }


def workload_to_data(workload: Workload) -> dict[str, Any]:
    """Return plain data with arrays, from which `workload_from_data` rebuilds the workload."""
    numbers: dict[Family, int] = {}
    for group in workload:
        for family in group.families:
            numbers.setdefault(family, len(numbers))
    places = [workload.schema.positions(g.attributes) for g in workload]
    targets = [g.target for g in workload]
    return {
        "schema": workload.schema.to_json(),
        "families": [family.to_json() for family in numbers],
        "group_families": ragged([[numbers[f] for f in g.families] for g in workload]),
        "group_attributes": ragged(places),
        "group_weights": np.array([g.weight for g in workload]),
        # zero stands for none
        "group_targets": np.array([0.0 if t is None else t.amount for t in targets]),
        "group_levels": np.array([0.0 if t is None or t.level is None else t.level for t in targets]),
    }


def workload_from_data(data: dict[str, Any]) -> Workload:
    """Rebuild a workload from what `workload_to_data` returned."""
    schema = Schema.from_json(items(data["schema"]))
    families = [family_from_json(f) for f in items(data["families"])]
    places, chosen = unragged(data["group_attributes"]), unragged(data["group_families"])
    _check_numbers(places, len(schema))
    _check_numbers(chosen, len(families))
    groups = zip(
        places, chosen, floats(data["group_weights"], 1).tolist(), _targets(data, len(places)), strict=True
    )
    return Workload(
        schema,
        tuple(
            Group(tuple(schema.names[p] for p in places), tuple(families[f] for f in own), weight, target)
            for places, own, weight, target in groups
        ),
    )


def _targets(data: dict[str, Any], count: int) -> list[Target | None]:
    """Return the target of every group; files from before there were targets have none."""
    if "group_targets" not in data:
        return [None] * count
    amounts, levels = (floats(data[name], 1).tolist() for name in ("group_targets", "group_levels"))
    pairs = zip(amounts, levels, strict=True)
    known = {pair: Target(pair[0], pair[1] or None) if pair[0] else None for pair in set(pairs)}
    return [known[pair] for pair in zip(amounts, levels, strict=True)]


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


def _check_numbers(rows: list[tuple[int, ...]], count: int) -> None:
    if any(not 0 <= number < count for row in rows for number in row):
        msg = "a number refers to nothing"
        raise WorkloadError(msg)
