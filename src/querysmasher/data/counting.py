"""From codes to dense tables of counts.

A pass over the rows costs as much for a table of 10 cells as for one of 60 000. So sets with few cells are
counted together, as one table over all their attributes, and summed from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.data.encoding import Code
from querysmasher.errors import DataError, TooLargeError
from querysmasher.privacy.counts import AttributeSet, Counts, lower_marginals
from querysmasher.schema import Schema


@dataclass(frozen=True)
class Limits:
    """Maximum sizes held in memory at a time; the counts do not depend on them.

    Attributes:
        read_rows: rows read from a file or a frame in one step.
        chunk_rows: encoded rows counted in one step.
        keep_bytes: encoded rows are kept between steps up to this size (one byte per record and attribute
            of fewer than 256 values); beyond it, they are read again for each batch of marginals.
        batch_cells: cells of the marginals counted in one pass over the rows, 8 bytes each.
        people_bytes: records held to choose those of each person; a larger table is read once for each share
            of the persons.
    """

    read_rows: int = 2**17
    chunk_rows: int = 2**20
    keep_bytes: int = 2**30
    batch_cells: int = 2**24
    people_bytes: int = 2**30

    def __post_init__(self) -> None:
        """Check that each limit is an integer of at least 1, or 0 for what is kept."""
        for field in fields(self):
            given, least = getattr(self, field.name), 0 if field.name == "keep_bytes" else 1
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise DataError(f"{field.name}: expected an integer of at least {least}, got {given!r}")


JOINED_CELLS = 2**16 - 1  # measured: beyond it, counting and summing cost more than the passes saved
SHARED_CELLS = 2**20  # a table with more cells than a chunk has rows is counted in place, alone
MOST_AXES = 32  # numpy has at most 64


@dataclass(frozen=True)
class JointTable:
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


def blocks(sets: Sequence[AttributeSet], sizes: Mapping[str, int]) -> list[JointTable]:
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
            block = JointTable(axes, tuple(sets[m] for m in members), tuple(sizes[name] for name in axes))
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
        room = JOINED_CELLS / cells
        block: list[int] = []
        wanted = list(self._sets[place])
        while wanted:
            rank = wanted.pop(0)
            block.append(rank)
            holders = self._holders[rank]
            missing[holders] -= 1  # below 0 where the set is closed
            last[holders] -= rank
            if not wanted and len(block) < MOST_AXES:
                gains = np.bincount(last[missing == 1], minlength=len(self._sizes))
                fitting = np.where(self._sizes <= room, gains, 0)
                best = int(np.argmax(fitting))
                if fitting[best]:
                    wanted = [best]
                    room /= self._sizes[best]
        members = np.flatnonzero(self.open & (missing == 0))
        self.open[members] = False
        return sorted(block), members.tolist()


MOST_CELLS = 2**31 - 1


@dataclass(frozen=True, repr=False)
class Codes:
    """Records as one column of codes per attribute."""

    columns: Mapping[str, Code]
    rows: int
    names: Any = None
    """The names of the persons, an Arrow array, while it is not decided which records are counted."""
    unknown: NDArray[np.bool_] | None = None
    """Which records of these persons have values outside the domain, if some do: they are not counted."""
    out: Counts | None = None
    """How many were left out beside these records, as `Counter.left_out` counts them; None for nothing."""

    def where(self, kept: NDArray[np.bool_]) -> Codes:
        """Return some of the records."""
        if kept.all():
            return self
        names = None if self.names is None else self.names.filter(pa.array(kept))
        columns = {name: column[kept] for name, column in self.columns.items()}
        unknown = None if self.unknown is None else self.unknown[kept]
        return Codes(columns, int(kept.sum()), names, unknown)

    @property
    def size(self) -> int:
        """Size of the columns in bytes."""
        return sum(column.nbytes for column in self.columns.values())

    def __repr__(self) -> str:
        """Name the attributes without showing records."""
        return f"Codes({', '.join(self.columns)})"


class Tally:
    """Counts on several attribute sets, to which chunks of records are added."""

    def __init__(self, schema: Schema, sets: Sequence[AttributeSet]) -> None:
        """Start from zero, for one table per set."""
        needed = schema.positions(dict.fromkeys(name for one in sets for name in one))
        ordered = sorted(needed, key=lambda place: (schema.sizes[place], place))
        self._sizes = {schema.names[place]: schema.sizes[place] for place in ordered}
        rank = {name: r for r, name in enumerate(self._sizes)}
        self._sets = [(one, tuple(sorted(one, key=rank.__getitem__))) for one in sets]
        self._tables: dict[AttributeSet, Counts] = {}
        self._blocks = blocks(list(dict.fromkeys(own for _, own in self._sets)), self._sizes)

    def __repr__(self) -> str:
        """Show the number of attribute sets without showing counts."""
        return f"Tally({len(self._sets)} attribute sets)"

    def add(self, codes: Codes) -> None:
        """Count further records."""
        prefixes: list[tuple[str, NDArray[Any]]] = []
        for block in self._blocks if codes.rows else ():
            code = _combined(block, codes, prefixes)
            if block.alone:
                table = self._tables.setdefault(block.names, np.zeros(block.shape, np.int64))
                np.add.at(table.reshape(-1), code, 1)
                continue
            table = np.bincount(code, minlength=block.cells).reshape(block.shape)
            for names, counts in lower_marginals(block.names, table, block.members):
                if names in self._tables:
                    self._tables[names] += counts
                else:
                    self._tables[names] = counts

    def tables(self) -> Iterator[Counts]:
        """Yield the table of each set, its axes in the order in which the set was given."""
        for given, own in self._sets:
            shape = [self._sizes[name] for name in own]
            table = self._tables.get(own)
            table = np.zeros(shape, np.int64) if table is None else table
            yield np.array(table.transpose([own.index(name) for name in given]), dtype=np.int64, order="C")


def check_cells(schema: Schema, sets: Sequence[AttributeSet]) -> list[int]:
    """Return the number of cells of each set; refuse a set that exceeds any memory."""
    cells = [prod(schema.shape(one)) for one in sets]
    for one, count in zip(sets, cells, strict=True):
        if count > MOST_CELLS:
            msg = f"sets: the marginal on {one!r} has {count:.3g} cells; at most {MOST_CELLS} can be counted"
            raise TooLargeError(msg)
    return cells


def batches(
    sets: Sequence[AttributeSet], cells: Sequence[int], most_cells: int
) -> Iterator[Sequence[AttributeSet]]:
    """Split the sets into batches of at most `most_cells` cells, or of a single set."""
    start, held = 0, 0
    for place, count in enumerate(cells):
        if place > start and held + count > most_cells:
            yield sets[start:place]
            start, held = place, 0
        held += count
    if start < len(sets):
        yield sets[start:]


def _combined(block: JointTable, codes: Codes, prefixes: list[tuple[str, NDArray[Any]]]) -> NDArray[Any]:
    """Return each record's cell in the block, reusing the combinations of the previous block."""
    shared = 0
    for (name, _), own in zip(prefixes, block.names, strict=False):
        if name != own:
            break
        shared += 1
    del prefixes[shared:]
    for axis in range(shared, len(block.names)):
        name, size = block.names[axis], block.shape[axis]
        code: NDArray[Any] = codes.columns[name]
        if prefixes:
            dtype = np.min_scalar_type(prod(block.shape[: axis + 1]))
            code = np.add(np.multiply(prefixes[-1][1], size, dtype=dtype), code, dtype=dtype)
        prefixes.append((name, code))
    return prefixes[-1][1] if prefixes else np.zeros(codes.rows, np.uint8)
