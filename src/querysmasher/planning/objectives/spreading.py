"""Multipliers of one search as those of another: of merged families, or added to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.objectives.multipliers import Multipliers, Scopes
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload


def spread(multipliers: Multipliers, workload: Workload, scopes: Scopes) -> Multipliers:
    """Return the same multipliers for a workload that merges some families, with its scopes."""
    rows = list(Multipliers.even(workload, scopes).rows)
    for group, own, other, others in zip(
        multipliers.workload, multipliers.scopes.of_group, workload, scopes.of_group, strict=True
    ):
        found = spread_rows(group, [multipliers.rows[s] for s in own], other)
        for s, u in zip(others, found, strict=True):
            rows[s] = rows[s] if u is None or scopes.scopes[s].fixed else u
    return Multipliers(workload, scopes, multipliers.groups, tuple(rows))


def spread_rows(group: Group, rows: Sequence[Array], other: Group) -> list[Array | None]:
    """Return products of the values of a group's rows, family by family of another that merges some of them.

    None stands for a family that merges others, or in another order.
    """
    own = {names: values for (names, _), values in zip(group.parts(), rows, strict=True)}
    result: list[Array | None] = []
    for names, family in other.parts():
        product: Array = np.ones(1)
        left = names
        while left and (first := next((n for n in own if n and left[: len(n)] == n), None)):
            product, left = np.multiply.outer(product, own[first]).ravel(), left[len(first) :]
        result.append(product if not left and len(product) == family.rows else None)
    return result


def plus(own: Multipliers, other: Multipliers, part: float) -> Multipliers:
    """Return the sum with others of the same scopes, which add this part to the sum of all groups.

    Where groups share a scope, its rows are those of their sum.
    """
    added = part * float(own.groups.sum()) / float(other.groups.sum()) * other.groups
    rows = []
    for number, (u, v) in enumerate(zip(own.rows, other.rows, strict=True)):
        users = [place for place, scopes in enumerate(own.scopes.of_group) if number in scopes]
        a, b = float(own.groups[users].sum()), float(added[users].sum())
        rows.append((a * u + b * v) / (a + b) if a + b > 0 else u)
    return replace(own, groups=own.groups + added, rows=tuple(rows))
