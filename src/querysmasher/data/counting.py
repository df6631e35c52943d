"""From codes to dense tables of counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querysmasher.data.blocks import Block, blocks
from querysmasher.data.encoding import Code
from querysmasher.errors import TooLargeError
from querysmasher.privacy.counter import Counts
from querysmasher.privacy.sets import AttributeSet, lower_marginals
from querysmasher.schema import Schema

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


def _combined(block: Block, codes: Codes, prefixes: list[tuple[str, NDArray[Any]]]) -> NDArray[Any]:
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
