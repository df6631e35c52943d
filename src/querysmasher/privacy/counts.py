"""Exact counts: how a table provides them, and which tables of counts suffice for all others.

They leave `measurement` only with noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from querysmasher.schema import Schema

Counts = NDArray[np.int64]
"""A dense table of exact counts: one axis per attribute."""


class Counter(Protocol):
    """A table that can be counted. Its results are exact, so they are for `measurement` only."""

    def marginals(self, sets: Sequence[tuple[str, ...]]) -> Iterator[Counts]:
        """Yield the counts of each attribute set, in the order given; the empty set is the total."""
        ...

    def sums(self, asked: Sequence[Sums]) -> Iterator[Counts]:
        """Yield a table of exact sums for each of `asked`, in the order given."""
        ...

    def records(self) -> int:
        """Return the number of counted records."""
        ...

    def left_out(self) -> Counts:
        """Return how many records were dropped or, with persons, how many are in each bin of `Dropped`."""
        ...


AttributeSet = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the records in each cell of some attributes, for tables too large to be counted in full.

    Every record adds the product of one integer per attribute in `rows`: the entry of its value.
    """

    by: AttributeSet
    rows: Mapping[str, NDArray[np.int64]]

    @property
    def largest(self) -> int:
        """Upper bound on the absolute value of what a record adds."""
        return math.prod(int(np.abs(row).max()) for row in self.rows.values())


def maximal_sets(sets: Sequence[AttributeSet]) -> list[AttributeSet]:
    """Return the sets that no other set contains, in the order given.

    >>> maximal_sets([(), ("a",), ("a", "b"), ("c",), ("b", "a")])
    [('a', 'b'), ('c',)]
    """
    index = _Index()
    kept = []
    for number in sorted(range(len(sets)), key=lambda number: -len(sets[number])):
        if index.first_covering(sets[number]) is None:
            index.add(sets[number])
            kept.append(number)
    return [sets[number] for number in sorted(kept)]


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
    for subset in sets:
        wanted.setdefault(frozenset(subset), []).append(subset)
    for key, axes, counts in _summed(table, names, 0, list(wanted)):
        for subset in wanted[key]:
            yield subset, counts.transpose([axes.index(name) for name in subset])


def _summed(
    table: Counts, names: AttributeSet, axis: int, wanted: list[frozenset[str]]
) -> Iterator[tuple[frozenset[str], AttributeSet, Counts]]:
    """Process axis by axis: sum over it for the sets without it, keep it for those with it."""
    if axis == len(names):
        yield from ((subset, names, table) for subset in wanted)
        return
    name = names[axis]
    without = [subset for subset in wanted if name not in subset]
    if without:
        rest = names[:axis] + names[axis + 1 :]
        yield from _summed(np.asarray(table.sum(axis=axis)), rest, axis, without)
    if len(without) < len(wanted):
        yield from _summed(table, names, axis + 1, [subset for subset in wanted if name in subset])


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


KEPT_CELLS = 2**26
"""Maximum number of cells kept between phases, 8 bytes each; beyond it, every phase counts again."""


class CountedOnce:
    """A table that is counted once, for several phases of measurement: smaller sets follow from the largest.

    The exact counts of the largest attribute sets stay in this object, which only `measurement` reads, until
    the last phase is over. If they do not fit, every phase counts the table again: the guarantee is the same,
    because it holds for whatever counts each phase sees of a table that does not change; only time is lost.
    """

    def __init__(
        self, schema: Schema, counter: Counter, sets: Sequence[AttributeSet], most: int = KEPT_CELLS
    ) -> None:
        """Take a table, and the attribute sets that phases will probably ask for."""
        self._schema = schema
        self._counter = counter
        self._sets = maximal_sets(list(sets))
        self._fits = sum(math.prod(schema.shape(names)) for names in self._sets) <= most
        self._kept: dict[AttributeSet, Counts] = {}

    def __repr__(self) -> str:
        """Return the attribute sets, and nothing about the table."""
        return f"CountedOnce({self._sets})"

    def records(self) -> int:
        """Return the number of counted records."""
        return self._counter.records()

    def sums(self, asked: Sequence[Sums]) -> Iterator[Counts]:
        """Yield tables of sums, which are not kept."""
        return self._counter.sums(asked)

    def left_out(self) -> Counts:
        """Return the counts of records that were left out."""
        return self._counter.left_out()

    def marginals(self, sets: Sequence[AttributeSet]) -> Iterator[Counts]:
        """Yield the counts of each attribute set, in the order given."""
        try:
            covers = smallest_covers(self._schema, sets, self._sets if self._fits else [])
        except KeyError:  # a set was not announced, or its counts do not fit
            yield from self._counter.marginals(sets)
            return
        if not self._kept:
            self._kept = dict(zip(self._sets, self._counter.marginals(self._sets), strict=True))
        cover = {names: large for large, members in covers.items() for names in members}
        for names in sets:
            ((_, counts),) = lower_marginals(cover[names], self._kept[cover[names]], [names])
            yield counts
