"""Memory limits of an engine."""

from __future__ import annotations

from dataclasses import dataclass, fields

from querysmasher.errors import DataError


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
