"""Synthetic records as users read them: frames, files and streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from querysmasher.attributes import Attribute
from querysmasher.endings import check_ending
from querysmasher.errors import TooLargeError
from querysmasher.estimate.synthesis import Codes, Synthesis
from querysmasher.files import replacing
from querysmasher.formatting import one_line
from querysmasher.progress import Bar
from querysmasher.release.outputs import format_of
from querysmasher.release.tidy import frame_of, value_type

ENDINGS = (".parquet", ".csv", ".csv.gz", ".arrow", ".feather")
"""Allowed endings of file names."""

MAX_FRAME = 50_000_000
"""Maximum number of records of a frame; `write` streams more to a file."""

MOST = 10**10
"""Maximum number of records."""


@dataclass(frozen=True, eq=False, repr=False)
class Microdata:
    """Synthetic records: nobody's, drawn from an estimate so that their low-order tables follow it.

    Iterating yields Arrow tables, one block after the other, in constant memory: always the same ones. The
    columns are the attributes; a binned attribute has the middle of its bin.
    """

    synthesis: Synthesis
    attributes: tuple[Attribute, ...]
    count: int
    seed: int
    about: Mapping[str, Any]

    note: ClassVar[str] = "synthetic records that follow an estimate: shrunk, not unbiased, and nobody's"

    def __len__(self) -> int:
        """Count the records."""
        return self.count

    def __iter__(self) -> Iterator[Any]:
        """Iterate over blocks of records, as Arrow tables."""
        for block in self.synthesis.blocks(self.count, self.seed):
            yield self._table(block)

    def to_frame(self, backend: Any = "pyarrow") -> Any:
        """Return all records as a data frame of any eager backend of narwhals that is installed."""
        if self.count > MAX_FRAME:
            msg = f"to_frame: {self.count:,} records do not fit in memory; use write(path), or iterate"
            raise TooLargeError(msg)
        return frame_of(pa.concat_tables([self._schema.empty_table(), *self]), backend)

    def write(self, path: str | os.PathLike[str], progress: bool | None = None) -> None:
        """Write the records to a file, block by block, in constant memory.

        The name ends in .parquet, .csv, .csv.gz, .arrow or .feather.
        """
        check_ending(path, ENDINGS)
        form = format_of(path)
        about = {**self.about, "note": self.note}
        with (
            replacing(Path(path)) as temporary,
            form.write(temporary, self._schema, about) as (write, _),
            Bar("Writing", None, progress),
        ):
            for table in self:
                write(table if form.safe is str else self._safe(table, form.safe))

    @property
    def _schema(self) -> Any:
        return pa.schema([(one_line(a.name), _column(a).type) for a in self.attributes])

    def _table(self, block: Codes) -> Any:
        columns = [_column(a).take(pa.array(block[:, i])) for i, a in enumerate(self.attributes)]
        return pa.table(columns, schema=self._schema)

    def _safe(self, table: Any, safe: Callable[[str], str]) -> Any:
        """Return a table whose texts are safe to read for the programs that open such a file."""
        for place, field in enumerate(table.schema):
            if field.type == pa.string():
                texts = pa.array([safe(value) for value in table.column(place).to_pylist()], pa.string())
                table = table.set_column(place, field, texts)
        return table

    def __repr__(self) -> str:
        """Say what the records are."""
        return f"Microdata of {self.count:,} records ({self.note})"


def _column(attribute: Attribute) -> Any:
    """Return the values of an attribute as they stand in records."""
    if attribute.edges is not None:
        return pa.array([(a + b) / 2 for a, b in pairwise(attribute.edges)], pa.float64())
    kind = value_type(attribute.values)
    return pa.array(list(map(str, attribute.values)) if kind == pa.string() else list(attribute.values), kind)
