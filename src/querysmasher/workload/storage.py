"""Workloads as plain data: families once each, groups as arrays of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from querysmasher.schema import Schema
from querysmasher.workload.families import ONE_ATTRIBUTE, Family
from querysmasher.workload.groups import Group
from querysmasher.workload.joint import AbsDifference, Affine, Random
from querysmasher.workload.rows import Rows
from querysmasher.workload.workload import Workload

FAMILIES: dict[str, type[Family]] = {
    **ONE_ATTRIBUTE,
    **{cls.name: cls for cls in (Affine, AbsDifference, Random, Rows)},
}


def family_from_json(data: Mapping[str, Any]) -> Family:
    """Rebuild a family from what `Family.to_json` returned."""
    fields = dict(data)
    cls = FAMILIES[fields.pop("family")]
    fields["shape"] = tuple(fields["shape"])
    if fields.get("row_labels") is not None:
        fields["row_labels"] = tuple(fields["row_labels"])
    return cls(**fields)


def workload_to_data(workload: Workload) -> dict[str, Any]:
    """Return plain data, with arrays in it, from which `workload_from_data` rebuilds the workload."""
    numbers: dict[Family, int] = {}
    for group in workload:
        for family in group.families:
            numbers.setdefault(family, len(numbers))
    places = [workload.schema.positions(g.attributes) for g in workload]
    return {
        "schema": workload.schema.to_json(),
        "families": [family.to_json() for family in numbers],
        "group_families": ragged([[numbers[f] for f in g.families] for g in workload]),
        "group_attributes": ragged(places),
        "group_weights": np.array([g.weight for g in workload]),
    }


def workload_from_data(data: dict[str, Any]) -> Workload:
    """Rebuild a workload from what `workload_to_data` returned."""
    schema = Schema.from_json(data["schema"])
    families = [family_from_json(f) for f in data["families"]]
    groups = zip(
        unragged(data["group_attributes"]),
        unragged(data["group_families"]),
        data["group_weights"].tolist(),
        strict=True,
    )
    return Workload(
        schema,
        tuple(
            Group(tuple(schema.names[p] for p in places), tuple(families[f] for f in own), weight)
            for places, own, weight in groups
        ),
    )


def ragged(rows: Any) -> dict[str, Any]:
    """Return rows of whole numbers of various lengths as two flat arrays."""
    rows = list(rows)
    return {
        "lengths": np.array([len(r) for r in rows], dtype=np.int64),
        "values": np.array([x for r in rows for x in r], dtype=np.int64),
    }


def unragged(data: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the rows that `ragged` made flat."""
    ends = np.cumsum(data["lengths"]).tolist()
    values = data["values"].tolist()
    return [tuple(values[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
