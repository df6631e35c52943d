"""Equivalent groups of a workload: their clusters of families, and the terms of their variances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querysmasher.workload.groups import Group

Clusters = tuple[tuple[int, ...], ...]
"""The families of every cluster of a group, by index."""


@dataclass(frozen=True, slots=True)
class Term:
    """A class of attribute sets, and the column of every cluster on them."""

    set_class: int
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """Equivalent groups: a representative, its clusters and its terms."""

    group: Group
    members: Sequence[int]
    """The indices of the groups."""
    scopes: tuple[int, ...]
    clusters: Clusters
    terms: tuple[Term, ...]


def joined_clusters(count: int, tied: list[tuple[int, ...]]) -> Clusters:
    """Return the clusters of `count` families, given the families that each component ties."""
    sets = [{place} for place in range(count)]
    for places in tied:
        touched = [s for s in sets if not s.isdisjoint(places)]
        if len(touched) > 1:
            sets = [s for s in sets if s.isdisjoint(places)] + [set().union(*touched)]
    return tuple(tuple(sorted(s)) for s in sorted(sets, key=min))
