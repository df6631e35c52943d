"""Families of a group that strategies tie on an attribute set: their variances do not factor."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.solution import Blocks, Measured
from querysmasher.planning.strategies import AxisRows, AxisStrategy
from querysmasher.workload.family import Family


@dataclass(frozen=True, eq=False, slots=True)
class LineRows:
    """What a family leaves on an attribute that has a centre of its own, not written out."""

    family: Family
    strategy: AxisStrategy
    summed: bool
    """Whether only the sum over all queries is needed."""

    def variances(self) -> Array:
        """Return the variances at σ² = 1, or their sum."""
        if self.summed:
            return np.array([self.strategy.loss(self.family, weighted=False)])
        return self.strategy.query_variances(self.family)

    def written_out(self) -> Array:
        """Return the rows."""
        rows = self.family.matrix()
        return rows - (rows @ self.strategy.centre)[:, None]


@dataclass(frozen=True, eq=False, slots=True)
class Share:
    """What one family of a group leaves on the attributes it keeps: rows, or a factor per query."""

    place: int
    kept: tuple[int, ...]
    key: Hashable
    written: Array | None
    line: LineRows | None = None

    @property
    def rows(self) -> Array:
        """The rows, written out."""
        if self.written is not None:
            return self.written
        assert self.line is not None  # noqa: S101 - one of both is there
        return self.line.written_out()


@dataclass(frozen=True, eq=False, slots=True)
class Tied:
    """Families that no strategy ties to others: their indices, their rows, and the strategies on their axes.

    A family that keeps no attribute stands alone, without strategies.
    """

    places: tuple[int, ...]
    factors: tuple[AxisRows, ...]
    blocks: Blocks
    key: Hashable
    """What the variances depend on, besides the strategies."""
    line: LineRows | None = None
    """The only family, if it is about an attribute with a centre of its own."""


def tied(measured: Measured, shares: list[Share]) -> Iterator[Tied]:
    """Iterate over the sets of families that no strategy on an attribute set ties to others."""
    for share in shares:
        if not share.kept:
            yield Tied((share.place,), (((), share.rows),), (), (share.key, ()))
    axis_of = {attribute: axis for axis, attribute in enumerate(measured.attributes)}
    open_shares = [share for share in shares if share.kept]
    open_blocks = list(measured.blocks)
    while open_shares:
        members, axes = [], {axis_of[a] for a in open_shares[0].kept}
        blocks: list[tuple[tuple[int, ...], int]] = []
        size = -1
        while len(axes) != size:  # grow until nothing more is tied
            size = len(axes)
            blocks = [b for b in open_blocks if axes & set(b[0])]
            members = [s for s in open_shares if axes & {axis_of[a] for a in s.kept}]
            axes |= {a for b in blocks for a in b[0]} | {axis_of[a] for s in members for a in s.kept}
        open_shares = [s for s in open_shares if s not in members]
        open_blocks = [b for b in open_blocks if b not in blocks]
        if len(members) == 1 and members[0].line is not None:
            yield Tied((members[0].place,), (), tuple(blocks), (members[0].key, ()), members[0].line)
            continue
        order = sorted(axes)
        factors = tuple((tuple(order.index(axis_of[a]) for a in s.kept), s.rows) for s in members)
        placed = tuple((tuple(order.index(a) for a in on), number) for on, number in blocks)
        asked = tuple((s.key, on) for s, (on, _) in zip(members, factors, strict=True))
        yield Tied(tuple(s.place for s in members), factors, placed, (asked, placed))
