"""The layout of a cross-table: which cell stands where, under which labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from querysmasher.attributes import Attribute
from querysmasher.errors import WorkloadError
from querysmasher.formatting import one_line
from querysmasher.release.frame import frame
from querysmasher.statistics.figures import Column

MAX_ROWS, MAX_COLUMNS = 40, 16
"""Maximum number of rows and columns printed."""

TOTAL = "Total"


@dataclass(frozen=True, eq=False)
class Layout:
    """One attribute or several, the last of which forms the columns; totals are the last entry of an axis."""

    attributes: tuple[Attribute, ...]
    shape: tuple[int, ...]
    """The number of entries of each axis: the values of its attribute, and one more with totals."""

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The value of every attribute in each cell, in row-major order."""
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        return tuple(Column.of(a, own.tolist()) for a, own in zip(self.attributes, places, strict=True))

    @property
    def labels(self) -> list[str]:
        """The labels of the columns as readers see them."""
        return [*self.attributes[-1].shown, TOTAL][: self.shape[-1]]

    def index(self, key: Any) -> int:
        """Return the index of a cell by the value of each attribute; None stands for all values."""
        wanted = key if isinstance(key, tuple) else (key,)
        if len(wanted) != len(self.attributes):
            names = ", ".join(a.name for a in self.attributes)
            msg = f"table[…]: expected one value for each of {names}, got {len(wanted)}"
            raise WorkloadError(msg)
        places = []
        for value, attribute, size in zip(wanted, self.attributes, self.shape, strict=True):
            if value is None and size == attribute.size:
                msg = "table[…]: the table has no totals; ask for it with totals=True"
                raise WorkloadError(msg)
            places.append(attribute.size if value is None else attribute.position(value))
        return int(np.ravel_multi_index(places, self.shape))

    def wide(self, long: Any, column: str, backend: Any) -> Any:
        """Return one row per row of the table, from an Arrow table with one row per cell."""
        if len(self.attributes) == 1:
            return frame({name: long[name] for name in (long.column_names[0], column)}, backend)
        width = self.shape[-1]
        stub = long.column_names[: len(self.attributes) - 1]
        made = {name: long[name].take(pa.array(range(0, len(long), width))) for name in stub}
        for place, label in enumerate(self.labels):
            if label in made:
                msg = (
                    f"wide: the value {label!r} of {self.attributes[-1].name!r} is also the name of a column"
                )
                raise WorkloadError(msg)
            made[label] = long[column].take(pa.array(range(place, len(long), width)))
        return frame(made, backend)

    def shown(self, cells: Callable[[slice], Iterable[str]], what: str) -> tuple[list[str], list[list[str]]]:
        """Return the header and the first rows as text; `cells` maps a range of cells to their texts."""
        if len(self.attributes) == 1:
            header = [one_line(self.attributes[0].heading), what]
            labels = map(one_line, self.labels[:MAX_ROWS])
            return header, [[a, b] for a, b in zip(labels, cells(slice(0, MAX_ROWS)), strict=True)]
        width = self.shape[-1]
        stubs = [_stub(c, width) for c in self.columns[:-1]]
        rows = []
        for i, parts in enumerate(zip(*stubs, strict=True)):
            if i == MAX_ROWS:
                break
            own = slice(i * width, i * width + min(width, MAX_COLUMNS))
            rows.append([" × ".join(parts), *cells(own)])
        names = " × ".join(one_line(a.heading) for a in self.attributes[:-1])
        header = [f"{names} \\ {one_line(self.attributes[-1].heading)}", *map(one_line, self.labels)]
        return header[: MAX_COLUMNS + 1], rows

    def cut(self) -> Iterator[str]:
        """Iterate over a note on rows and columns that are not printed, if there are any."""
        size = int(np.prod(self.shape))
        rows, columns = (size, 1) if len(self.shape) == 1 else (size // self.shape[-1], self.shape[-1])
        if rows > MAX_ROWS or columns > MAX_COLUMNS:
            yield f"… of {rows:,} rows and {columns:,} columns; to_frame() returns all"


def _stub(column: Column, width: int) -> Sequence[str]:
    """Return the labels of the rows that one attribute gives."""
    texts = (column.text(i) for i in range(0, len(column.places), width))
    return [TOTAL if column.places[i * width] is None else text for i, text in enumerate(texts)]
