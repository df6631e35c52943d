"""From codes to dense tables of counts.

A pass over the rows takes as long for a table of 10 cells as for one of 60,000. So several small tables are
sums of one larger table over all their attributes, which is counted in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.data.encoding import Code
from querysmasher.errors import TooLargeError
from querysmasher.privacy.counts import AttributeSet, Counts, Sums, lower_marginals
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
        people_bytes: records held to choose those of each person; a larger table is read once for each part
            of the persons.
    """

    read_rows: int = 2**17
    chunk_rows: int = 2**20
    keep_bytes: int = 2**30
    batch_cells: int = 2**24
    people_bytes: int = 2**30


JOINED_CELLS = 2**16 - 1  # measured: beyond it, counting and summing cost more than the passes saved
TOGETHER_CELLS = 2**20  # the rows of a chunk; a table with more cells is counted alone, record by record
MOST_AXES = 32  # numpy has at most 64


def blocks(
    sets: Sequence[AttributeSet], sizes: Mapping[str, int]
) -> list[tuple[AttributeSet, list[AttributeSet]]]:
    """Return tables to count in one pass each, and the sets that are sums of each table.

    A table starts with the largest set that is left. It greedily adds the attribute that completes the most
    other sets, as long as it has few cells. The names of each set are in the order of `sizes`, the smallest
    first, so that sums run over long rows.
    """
    cells = {names: prod(sizes[name] for name in names) for names in sets}
    left = sorted(sets, key=lambda names: (cells[names], len(names)), reverse=True)
    has = np.array([[name in names for name in sizes] for names in left], dtype=bool)
    lengths = np.array([*sizes.values()])
    tables = []
    while left:
        axes, lacks = has[0].copy(), has & ~has[0]
        room, alone = JOINED_CELLS / cells[left[0]], cells[left[0]] > TOGETHER_CELLS
        while not alone and lacks.any() and axes.sum() < MOST_AXES:
            gains = lacks[lacks.sum(axis=1) == 1].sum(axis=0) * (lengths <= room)
            best = int(gains.argmax())
            if not gains[best]:
                break
            axes[best], lacks[:, best] = True, False
            room /= lengths[best]
        covered = np.arange(len(left)) == 0 if alone else ~lacks.any(axis=1)
        tables.append((tuple(compress(sizes, axes)), [*compress(left, covered)]))
        left, has = [*compress(left, ~covered)], has[~covered]
    return tables


MOST_CELLS = 2**31 - 1


@dataclass(frozen=True, repr=False)
class Codes:
    """Records as one column of codes per attribute."""

    columns: Mapping[str, Code]
    rows: int
    names: Any = None
    """The names of the persons, an Arrow array, until it is decided which records are counted."""
    unknown: NDArray[np.bool_] | None = None
    """Which records of these persons have values outside the domain: they are not counted."""
    out: Counts | None = None
    """How many other records were left out, as `Counter.left_out` counts them; None for nothing."""

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
        needed = schema.positions(dict.fromkeys(name for names in sets for name in names))
        by_size = sorted(needed, key=lambda position: (schema.sizes[position], position))
        self._sizes = {schema.names[position]: schema.sizes[position] for position in by_size}
        self._sets = [(names, tuple(name for name in self._sizes if name in names)) for names in sets]
        self._tables: dict[AttributeSet, Counts] = {}
        self._blocks = blocks(list(dict.fromkeys(ordered for _, ordered in self._sets)), self._sizes)

    def __repr__(self) -> str:
        """Show the number of attribute sets without showing counts."""
        return f"Tally({len(self._sets)} attribute sets)"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tables."""
        return [tuple(self._sizes[name] for name in names) for names, _ in self._sets]

    def add(self, codes: Codes) -> None:
        """Count further records."""
        for axes, members in self._blocks if codes.rows else ():
            code: NDArray[Any] = np.zeros(codes.rows, np.uint8)  # each record's cell in the block
            shape = [self._sizes[name] for name in axes]
            for axis, name in enumerate(axes):
                dtype = np.min_scalar_type(prod(shape[: axis + 1]))
                code = np.add(np.multiply(code, shape[axis], dtype=dtype), codes.columns[name], dtype=dtype)
            if prod(shape) > TOGETHER_CELLS:
                table = self._tables.setdefault(axes, np.zeros(shape, np.int64))
                np.add.at(table.reshape(-1), code, 1)
                continue
            table = np.bincount(code, minlength=prod(shape)).reshape(shape)
            for names, counts in lower_marginals(axes, table, members):
                self._tables[names] = self._tables[names] + counts if names in self._tables else counts

    def tables(self) -> Iterator[Counts]:
        """Yield the table of each set, its axes in the order in which the set was given."""
        for names, ordered in self._sets:
            table = self._tables.get(ordered, np.zeros([self._sizes[name] for name in ordered], np.int64))
            yield np.array(table.transpose([ordered.index(name) for name in names]), np.int64, order="C")


class Adder:
    """Sums of integers of the records in each cell, to which chunks of records are added."""

    def __init__(self, schema: Schema, asked: Sequence[Sums]) -> None:
        """Start from zero, for one table per `Sums`."""
        self._asked = asked
        self._tables = [np.zeros(schema.shape(sums.by), np.int64) for sums in asked]

    def __repr__(self) -> str:
        """Show the number of tables without showing sums."""
        return f"Adder({len(self._asked)} tables)"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tables."""
        return [table.shape for table in self._tables]

    def add(self, codes: Codes) -> None:
        """Add further records, chunk by chunk: doubles add integers up exactly below 2^53."""
        for sums, table in zip(self._asked, self._tables, strict=True):
            columns = [codes.columns[name] for name in sums.by]
            cell = np.ravel_multi_index(columns, table.shape) if columns else np.zeros(codes.rows, np.intp)
            entries = [row[codes.columns[name]] for name, row in sums.rows.items()]
            each = entries[0] if len(entries) == 1 else np.prod(entries, axis=0)
            flat = table.reshape(-1)
            if table.size <= TOGETHER_CELLS and codes.rows * sums.largest < 2**53:
                flat += np.bincount(cell, each.astype(np.float64), table.size).astype(np.int64)
            else:
                np.add.at(flat, cell, each)

    def tables(self) -> Iterator[Counts]:
        """Yield the table of each `Sums`."""
        yield from self._tables


def check_cells(schema: Schema, sets: Sequence[AttributeSet]) -> list[int]:
    """Return the number of cells of each set; refuse a set with more than `MOST_CELLS`."""
    cells = [prod(schema.shape(names)) for names in sets]
    for names, count in zip(sets, cells, strict=True):
        if count > MOST_CELLS:
            raise TooLargeError(
                f"sets: the marginal on {names!r} has {count:.3g} cells; at most {MOST_CELLS} can be counted"
            )
    return cells


def batches(
    sets: Sequence[AttributeSet], cells: Sequence[int], most_cells: int
) -> Iterator[Sequence[AttributeSet]]:
    """Split the sets into batches of at most `most_cells` cells, or of a single set."""
    start, held = 0, 0
    for stop, count in enumerate(cells):
        if stop > start and held + count > most_cells:
            yield sets[start:stop]
            start, held = stop, 0
        held += count
    if start < len(sets):
        yield sets[start:]
