"""The table of expected errors, with targets and the queries that have the largest errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from querysmasher.formatting import columns
from querysmasher.report.expectations import HEADER, Expectation
from querysmasher.schema import Schema

LONGEST = 60
"""Maximum number of characters of a query in the table."""


@dataclass(frozen=True)
class ExpectedTable:
    """Rows of expected errors; targets and queries have a column where there are any."""

    rows: Sequence[Expectation]
    schema: Schema

    QUERY: ClassVar[str] = "largest error of"

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns."""
        return (*HEADER, *["target"] * self._aimed, *[self.QUERY] * self._searched)

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The rows as strings, under `header`."""
        return [
            (*row.cells(), *[_target(row)] * self._aimed, *[self._query(row)] * self._searched)
            for row in self.rows
        ]

    def lines(self) -> list[str]:
        """Return the table as text; queries stand to the left of their column, numbers to the right."""
        lines = [self.header, *self.cells]
        if not self._searched:
            return columns(lines)
        numbers = columns(line[:-1] for line in lines)
        width = max(map(len, numbers))
        return [f"{left:{width}}  {line[-1]}".rstrip() for left, line in zip(numbers, lines, strict=True)]

    @property
    def _aimed(self) -> bool:
        return any(group.target is not None for row in self.rows for group in row.groups)

    @property
    def _searched(self) -> bool:
        return any(row.extreme is not None for row in self.rows)

    def _query(self, row: Expectation) -> str:
        """Return a query that has the largest error of a row, in words."""
        said = "" if row.extreme is None else row.extreme.query(self.schema)
        return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def _target(row: Expectation) -> str:
    """Return the target of the groups of a row, if they have one."""
    targets = {group.target for group in row.groups}
    if len(targets) > 1:
        return "several"
    (one,) = targets
    return "" if one is None else str(one)
