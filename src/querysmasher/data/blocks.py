"""Which attribute sets to count in one pass over the rows.

A pass costs as much for a table of 10 cells as for one of 60 000. So sets with few cells are counted
together, as one table over all their attributes, and summed from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from querysmasher.privacy.sets import AttributeSet

JOINED_CELLS = 2**16 - 1  # measured: beyond it, counting and summing cost more than the passes saved
SHARED_CELLS = 2**20  # a table with more cells than a chunk has rows is counted in place, alone
MOST_AXES = 32  # numpy has at most 64


@dataclass(frozen=True)
class Block:
    """A table counted in one pass, and the attribute sets that are summed from it."""

    names: AttributeSet
    members: tuple[AttributeSet, ...]
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Number of cells of the table."""
        return prod(self.shape)

    @property
    def alone(self) -> bool:
        """Whether the table is counted for a single attribute set."""
        return self.cells > SHARED_CELLS


def blocks(sets: Sequence[AttributeSet], sizes: Mapping[str, int]) -> list[Block]:
    """Distribute the sets among blocks, greedily, starting with the largest set.

    A block adds the attribute that completes the most open sets, as long as it has few cells.

    Args:
        sets: different sets, the names of each in the order of `sizes`.
        sizes: the attributes' sizes, the smallest first, so that sums run over long rows.

    Returns:
        Blocks in an order in which neighbours begin with the same attributes.
    """
    order = {name: rank for rank, name in enumerate(sizes)}
    names = list(sizes)
    cover = _Cover([[order[name] for name in one] for one in sets], list(sizes.values()))
    cells = [prod(sizes[name] for name in one) for one in sets]
    found = []
    for place in sorted(range(len(sets)), key=lambda place: (cells[place], len(sets[place])), reverse=True):
        if cover.open[place]:
            ranks, members = cover.take(place, cells[place])
            axes = tuple(names[rank] for rank in ranks)
            block = Block(axes, tuple(sets[m] for m in members), tuple(sizes[name] for name in axes))
            found.append((ranks, block))
    return [block for _, block in sorted(found, key=lambda pair: pair[0])]


class _Cover:
    """The open sets, and how many attributes each lacks in the current block."""

    def __init__(self, sets: list[list[int]], sizes: list[int]) -> None:
        self.open = np.ones(len(sets), dtype=bool)
        self._sets = sets
        self._sizes = np.array(sizes, dtype=np.float64)
        self._lengths = np.array([len(one) for one in sets], dtype=np.int64)
        self._sums = np.array([sum(one) for one in sets], dtype=np.int64)
        holders: list[list[int]] = [[] for _ in sizes]
        for place, one in enumerate(sets):
            for rank in one:
                holders[rank].append(place)
        self._holders = [np.array(places, dtype=np.int64) for places in holders]

    def take(self, place: int, cells: int) -> tuple[list[int], list[int]]:
        """Build a block from one open set, close the sets it covers, and return both."""
        if cells > SHARED_CELLS:
            self.open[place] = False
            return self._sets[place], [place]
        missing = np.where(self.open, self._lengths, -1)  # attributes of the set outside the block
        last = self._sums.copy()  # their sum: the attribute itself once one is missing
        gains = np.bincount(last[missing == 1], minlength=len(self._sizes))
        room = JOINED_CELLS / cells
        block: list[int] = []
        wanted = list(self._sets[place])
        while wanted:
            rank = wanted.pop(0)
            block.append(rank)
            gains += self._include(rank, missing, last)
            gains[rank] = 0
            if not wanted and len(block) < MOST_AXES:
                fitting = np.where(self._sizes <= room, gains, 0)
                fitting[block] = 0
                best = int(np.argmax(fitting))
                if fitting[best]:
                    wanted = [best]
                    room /= self._sizes[best]
        members = np.flatnonzero(missing == 0)
        self.open[members] = False
        return sorted(block), members.tolist()

    def _include(self, rank: int, missing: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add an attribute to the block, and return how many sets each other attribute now completes."""
        holders = self._holders[rank]
        holders = holders[missing[holders] > 0]
        missing[holders] -= 1
        last[holders] -= rank
        return np.bincount(last[holders[missing[holders] == 1]], minlength=len(self._sizes))
