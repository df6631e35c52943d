"""Limits on plans meant for estimates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class EstimateLimits:
    """Limits on plans meant for estimates."""

    usual_records: int = 30_000
    """The number of records for which a plan states errors if none is given."""
    size_share: float = 0.01
    """Share of the budget by which `measure` learns the number of records if none is given."""
    table_share: float = 0.08
    """Minimum share of the budget for which larger tables themselves are measured."""
