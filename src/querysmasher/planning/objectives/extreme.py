"""The largest standard error of a group, and the query that attains it."""

from __future__ import annotations

from dataclasses import dataclass

from querysmasher.schema import Schema
from querysmasher.text import one_line
from querysmasher.workload.groups import Group


@dataclass(frozen=True)
class Extreme:
    """The largest standard error of a group's queries, and the rows of a query that has it."""

    group: Group
    std: float
    rows: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """The standard error relative to the target, which is one for a group without any."""
        return self.std / (1.0 if self.group.target is None else self.group.target.std)

    def query(self, schema: Schema) -> str:
        """Return the query in words."""
        each = [
            one_line(family.labels([schema[n] for n in names])[row])
            for (names, family), row in zip(self.group.parts(), self.rows, strict=True)
        ]
        return " and ".join(filter(None, each)) or "total"
