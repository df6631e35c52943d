"""Equivalent groups of a workload: their clusters of families, and the terms of their variances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from querysmasher.workload.groups import Group

Integers = NDArray[np.intp]

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
    ties: frozenset[tuple[int, ...]] = frozenset()
    """The sets of several families that strategies tie on one attribute set."""


def joined_clusters(count: int, tied: list[tuple[int, ...]]) -> Clusters:
    """Return the clusters of `count` families, given the families that each component ties."""
    sets = [{place} for place in range(count)]
    for places in tied:
        touched = [s for s in sets if not s.isdisjoint(places)]
        if len(touched) > 1:
            sets = [s for s in sets if s.isdisjoint(places)] + [set().union(*touched)]
    return tuple(tuple(sorted(s)) for s in sorted(sets, key=min))


def padded(entries: Sequence[Entry], ones: int, nothing: int) -> tuple[Integers, Integers]:
    """Return the class and the columns of all terms, filled with a class `nothing` and a column `ones`."""
    terms = max(len(e.terms) for e in entries)
    clusters = max(len(e.clusters) for e in entries)
    classes = np.full((len(entries), terms), nothing, dtype=np.intp)
    columns = np.full((len(entries), clusters, terms), ones, dtype=np.intp)
    for row, entry in enumerate(entries):
        for place, term in enumerate(entry.terms):
            classes[row, place] = term.set_class
            columns[row, : len(term.columns), place] = term.columns
    return classes, columns
