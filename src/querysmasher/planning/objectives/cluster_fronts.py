"""The fronts of every cluster of an entry: the rows on which its largest variance can be attained."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import TIE, Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.entry import Entry
from querysmasher.planning.objectives.front import front

Integers = NDArray[np.intp]


class ClusterFronts:
    """The fronts of all clusters, each found once."""

    def __init__(self, entries: Sequence[Entry], columns: Sequence[Array]) -> None:
        """Take the entries of a table and its columns."""
        self._entries, self._columns = entries, columns
        self._fronts: dict[Hashable, tuple[Integers, Array]] = {}
        self._of_entries: dict[tuple[int, bool], list[tuple[Integers, Array]]] = {}

    def of(self, number: int, *, rough: bool) -> list[tuple[Integers, Array]]:
        """Return the front of every cluster of an entry: indices of rows, and these rows × terms."""
        if (number, rough) not in self._of_entries:
            entry = self._entries[number]
            self._of_entries[number, rough] = [
                self._of_cluster(entry, place, rough=rough) for place in range(len(entry.clusters))
            ]
        return self._of_entries[number, rough]

    def _of_cluster(self, entry: Entry, place: int, *, rough: bool) -> tuple[Integers, Array]:
        columns = [term.columns[place] for term in entry.terms]
        if not columns:  # all queries are zero
            return np.zeros(1, dtype=np.intp), np.zeros((1, 0))
        distinct, alone = tuple(sorted(set(columns))), len(entry.clusters) == 1
        key = distinct, alone or rough, alone
        if key not in self._fronts:
            table = np.stack([self._columns[c] for c in distinct], axis=1)
            if alone:
                index = (
                    front(table, TIE, limits().compared_rows)
                    if len(table) > limits().short_cluster
                    else np.arange(len(table))
                )
            else:
                index = front(table, limits().rough_search if rough else TIE)
            self._fronts[key] = index, table[index]
        index, table = self._fronts[key]
        return index, table[:, [distinct.index(c) for c in columns]]
