"""The unit of privacy: which tables must be hard to distinguish, and how far their answers differ."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from querysmasher.errors import BudgetError, as_given, suggestion

NEIGHBOURS = ("add_remove", "replace_one")


@dataclass(frozen=True)
class Unit:
    """Which tables are neighbours.

    Args:
        neighbours: "add_remove" (one table has additional records) or "replace_one" (records differ; their
            number is the same, and public).
        records_per_person: maximum number of records of one person, all of which may differ.
    """

    neighbours: str = "add_remove"
    records_per_person: int = 1

    def __post_init__(self) -> None:
        """Check both, and convert the number to a plain integer."""
        if not isinstance(self.neighbours, str) or self.neighbours not in NEIGHBOURS:
            msg = f"neighbours: expected 'add_remove' or 'replace_one', got {as_given(self.neighbours)}"
            msg += suggestion(self.neighbours, NEIGHBOURS)
            raise BudgetError(msg)
        records = self.records_per_person
        whole = isinstance(records, int | np.integer) and not isinstance(records, bool)
        if not whole or not 1 <= records <= 10**9:
            msg = f"records_per_person: expected an integer from 1 to 10^9, got {as_given(records)}"
            raise BudgetError(msg)
        object.__setattr__(self, "neighbours", str(self.neighbours))
        object.__setattr__(self, "records_per_person", int(records))

    @property
    def total_is_public(self) -> bool:
        """Whether neighbours have the same number of records, so that it need not be protected."""
        return self.neighbours == "replace_one"

    def change(self, attributes: Collection[object] | None = None) -> int:
        """Return the factor by which max_j ‖B_j‖² bounds ‖B (x - x')‖² over neighbours x, x'.

        B_j is the j-th column of a strategy B on some attributes; on none, B measures only the number of
        records. Adding or removing r records moves Bx by at most r max_j ‖B_j‖, replacing them by at most
        twice that, and the number of records not at all. For replaced records, `pairs` has closer bounds.
        """
        if not self.total_is_public:
            return self.records_per_person**2
        total = attributes is not None and not attributes
        return 0 if total else 4 * self.records_per_person**2

    def describe(self, person: str | None = None) -> str:
        """Return in plain words for which tables a guarantee holds, and whom it protects.

        Args:
            person: the column that says to whom a record belongs, if the number of records per person was
                bounded by counting no more of them.
        """
        change, public = "adding or removing", ""
        if self.total_is_public:
            change, public = "replacing", ", with the same, public number of records"
        whom, unit = "one record", "the record. A person with several records is protected less"
        if self.records_per_person > 1:
            whom = f"all records of one person, who has at most {self.records_per_person}"
            unit = "the person"
        if person is not None:
            counted = "1 is" if self.records_per_person == 1 else f"{self.records_per_person} are"
            whom = f"all records of one person (a value of {person!r}), of which at most {counted} counted"
            unit = "the person, however many records a person has"
        return f"for any two tables that differ by {change} {whom}{public}. The unit of privacy is {unit}."
