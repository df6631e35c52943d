"""A workload that needs no measurement."""

from __future__ import annotations

from querysmasher.errors import PlanError


class NothingToMeasureError(PlanError):
    """A workload whose queries are all zero, or ask only for what is public."""

    def __init__(self, which: str = "all its queries", *, public: bool = False) -> None:
        """Say which queries, and whether they ask only for the public number of records."""
        why = "are zero"
        if public:
            why = "ask only for the number of records, which these neighbours make public"
        super().__init__(f"workload: {which} {why}, so there is nothing to measure")
        self.public = public
