"""Attribute sets: which to count, and which follow from those."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from querysmasher.privacy.counter import Counts
from querysmasher.schema import Schema

AttributeSet = tuple[str, ...]


def maximal_sets(sets: Sequence[AttributeSet]) -> list[AttributeSet]:
    """Return the sets that no other set contains, in the order given.

    >>> maximal_sets([(), ("a",), ("a", "b"), ("c",), ("b", "a")])
    [('a', 'b'), ('c',)]
    """
    order = sorted(range(len(sets)), key=lambda place: -len(sets[place]))
    index = _Index()
    kept = []
    for place in order:
        if index.first_covering(sets[place]) is None:
            index.add(sets[place])
            kept.append(place)
    return [sets[place] for place in sorted(kept)]


def smallest_covers(
    schema: Schema, sets: Sequence[AttributeSet], maximal: Sequence[AttributeSet]
) -> dict[AttributeSet, list[AttributeSet]]:
    """Assign each set to the covering set with the fewest cells; raise `KeyError` if nothing covers it.

    >>> schema = Schema.of(a=9, b=3, c=2)
    >>> smallest_covers(schema, [("b",), ("a",)], [("a", "b"), ("b", "c")])
    {('a', 'b'): [('a',)], ('b', 'c'): [('b',)]}
    """
    sizes = dict(zip(schema.names, schema.sizes, strict=True))
    ordered = sorted(maximal, key=lambda names: math.prod(sizes[name] for name in names))
    index = _Index()
    for names in ordered:
        index.add(names)
    covers: dict[AttributeSet, list[AttributeSet]] = {names: [] for names in maximal}
    for names in sets:
        first = index.first_covering(names)
        if first is None:
            raise KeyError(f"no set covers {names!r}")
        covers[ordered[first]].append(names)
    return covers


def lower_marginals(
    names: AttributeSet, table: Counts, sets: Sequence[AttributeSet]
) -> Iterator[tuple[AttributeSet, Counts]]:
    """Yield each set with its counts, summed from the table of a larger set, in no particular order.

    Sums are shared between the sets. The counts of the whole set are a view of the table itself.

    >>> import numpy as np
    >>> dict(lower_marginals(("a", "b"), np.array([[1, 2], [3, 4]]), [("b",), ("b", "a")]))["b",]
    array([4, 6])
    """
    wanted: dict[frozenset[str], list[AttributeSet]] = {}
    for one in sets:
        wanted.setdefault(frozenset(one), []).append(one)
    for found, axes, counts in _summed(table, names, 0, list(wanted)):
        for one in wanted[found]:
            yield one, counts.transpose([axes.index(name) for name in one])


def _summed(
    table: Counts, names: AttributeSet, axis: int, wanted: list[frozenset[str]]
) -> Iterator[tuple[frozenset[str], AttributeSet, Counts]]:
    """Process axis by axis: sum over it for the sets without it, keep it for those with it."""
    if axis == len(names):
        yield from ((found, names, table) for found in wanted)
        return
    name = names[axis]
    without = [one for one in wanted if name not in one]
    if without:
        rest = names[:axis] + names[axis + 1 :]
        yield from _summed(np.asarray(table.sum(axis=axis)), rest, axis, without)
    if len(without) < len(wanted):
        yield from _summed(table, names, axis + 1, [one for one in wanted if name in one])


class _Index:
    """An index of sets: bit i of an attribute is set if set i contains it."""

    def __init__(self) -> None:
        self._holders: dict[str, int] = {}
        self._count = 0

    def add(self, names: AttributeSet) -> None:
        for name in names:
            self._holders[name] = self._holders.get(name, 0) | 1 << self._count
        self._count += 1

    def first_covering(self, names: AttributeSet) -> int | None:
        """Return the index of the first added set that contains all the names."""
        bits = (1 << self._count) - 1
        for name in names:
            bits &= self._holders.get(name, 0)
        return (bits & -bits).bit_length() - 1 if bits else None
