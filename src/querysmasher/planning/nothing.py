"""A workload that needs no measurement."""

from __future__ import annotations

from querysmasher.errors import PlanError

NOTHING = "so there is nothing to measure"
PUBLIC = "ask only for the number of records, which these neighbours make public"


def nothing_to_measure(which: str = "all its queries", *, public: bool = False) -> PlanError:
    """Return an error that says which queries are zero, or ask only for what is public."""
    return PlanError(f"workload: {which} {PUBLIC if public else 'are zero'}, {NOTHING}")


def is_nothing_to_measure(error: PlanError) -> bool:
    """Return whether an error says that nothing needs to be measured."""
    return str(error).endswith(NOTHING)


def is_public(error: PlanError) -> bool:
    """Return whether that is because what is asked for is public."""
    return PUBLIC in str(error)
