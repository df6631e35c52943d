"""The engine for tables that this process reads: frames, files, DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from querysmasher.data.counter import Limits
from querysmasher.data.counting import Codes, Tally, batches, check_cells
from querysmasher.data.persons import bounded
from querysmasher.data.rows import RowEncoder
from querysmasher.privacy.counter import Counts
from querysmasher.privacy.sets import AttributeSet


class ScanCounter:
    """Counts batches of rows, reading them once if their codes fit in memory."""

    def __init__(self, rows: RowEncoder, read: Callable[[], Generator[Any]], limits: Limits) -> None:
        """Count what `read` yields: Arrow record batches, the same rows at each call."""
        self.rows = self._rows = rows
        self.read = self._read = read
        self._limits = limits
        self._kept: list[Codes] | None = None
        self._records: int | None = None
        self._out: Counts | None = None

    def __repr__(self) -> str:
        """Name the attributes without showing records."""
        return f"ScanCounter({', '.join(self._rows.names)})"

    def marginals(self, sets: Sequence[AttributeSet]) -> Iterator[Counts]:
        """Yield the exact counts of each attribute set, in order; reading starts with the first."""
        checked = self._rows.check_sets(sets)
        return self._marginals(checked, check_cells(self._rows.schema, checked))

    def records(self) -> int:
        """Return the exact number of records that are counted."""
        if self._records is None:
            for _ in self._chunks():
                pass
        assert self._records is not None  # noqa: S101 - a whole scan sets it
        return self._records

    def left_out(self) -> Counts:
        """Return exactly how many were left out, as `Counter` says."""
        self.records()
        assert self._out is not None  # noqa: S101 - a whole scan sets it
        return self._out

    def _marginals(self, sets: Sequence[AttributeSet], cells: Sequence[int]) -> Iterator[Counts]:
        for batch in batches(sets, cells, self._limits.batch_cells):
            tally = Tally(self._rows.schema, batch)
            with closing(self._chunks()) as chunks:
                for codes in chunks:
                    tally.add(codes)
            yield from tally.tables()

    def _counted(self) -> Generator[Codes]:
        """Iterate over the records that are counted: all, or at most some of each person."""
        bound = self._rows.bound
        return self._encoded() if bound is None else bounded(bound, self._encoded, self._limits)

    def _encoded(self) -> Generator[Codes]:
        """Iterate over all records."""
        with closing(self._read()) as read:  # or a refused scan would keep its source open
            yield from self._rows.chunks(read, self._limits.chunk_rows)

    def _chunks(self) -> Generator[Codes]:
        """Iterate over all rows, and keep their codes if they fit; a failed scan keeps nothing."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Codes] = []
        rows, size = 0, 0
        out = self._rows.nothing_left_out
        with closing(self._counted()) as read:
            for codes in read:
                rows += codes.rows
                size += codes.size
                out = out if codes.out is None else out + codes.out
                if size <= self._limits.keep_bytes:
                    kept.append(codes)
                else:
                    kept.clear()
                yield codes
        self._records, self._out = rows, out
        if size <= self._limits.keep_bytes:
            self._kept = kept
