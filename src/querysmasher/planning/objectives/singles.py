"""Entries of one cluster with few rows: their largest variances, of many entries at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from querysmasher.arrays import Array
from querysmasher.planning.limits import limits
from querysmasher.planning.objectives.entry import Entry


class Singles:
    """The columns of entries of one cluster, stacked: entries × terms × rows."""

    def __init__(self, entries: Sequence[Entry], columns: Sequence[Array]) -> None:
        """Take the entries of a table and its columns."""
        alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, entry in enumerate(entries):
            if len(entry.clusters) == 1 and entry.terms and entry.group.rows <= limits().short_cluster:
                alike[len(entry.terms), entry.group.rows].append(number)
        self._stacks: list[tuple[NDArray[np.intp], Array]] = []
        for (terms, rows), numbers in alike.items():
            if limits().single_entries <= len(numbers) <= limits().single_numbers // (terms * rows):
                stack = np.array([[columns[term.columns[0]] for term in entries[n].terms] for n in numbers])
                self._stacks.append((np.array(numbers), stack))

    def peaks(self, noise: Array) -> Iterator[tuple[int, tuple[float, Array]]]:
        """Iterate over entries with their largest variances and its terms, given the noise of all terms."""
        for numbers, stack in self._stacks:
            own = noise[numbers, : stack.shape[1]]
            values = np.einsum("et,etr->er", own, stack)
            rows = values.argmax(axis=1)
            each = np.arange(len(numbers))
            found = zip(values[each, rows].tolist(), stack[each, :, rows], strict=True)
            yield from zip(numbers.tolist(), found, strict=True)
