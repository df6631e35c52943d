"""Limits on plans for the largest error, for targets and for the least budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObjectiveLimits:
    """Limits on plans for the largest error, for targets and for the least budget."""

    objective_gap: float = 0.33
    """The certified gap at which the search ends, in tolerances, grows by this amount with every plan."""
    objective_steps: int = 60
    """Maximum number of plans with other weights."""
    promised_gap: float = 0.01
    """The gap that is promised: a search with a larger one goes on three times as long."""
    objective_patience: int = 4
    """Number of plans in a row that hardly narrow the gap, after which the search ends."""
    objective_narrowing: float = 0.95
    """Fraction of the gap that such a plan leaves at least."""
    centre_steps: int = 6
    """Number of the first of these plans that choose centres, within targets."""
    sharing_rounds: int = 20
    """Maximum number of times that queries join when the budget is shared anew."""
    newton_steps: int = 60
    """Maximum number of interior-point steps in each."""
    alike_noise: float = 1e-3
    """Sets with the same strategies share a class if their noise variances differ by this fraction."""
    rough_search: float = 3e-4
    """Fraction by which a rough search may miss the largest variance, per cluster."""
    most_scopes: int = 120
    """Maximum number of scopes; beyond, families on attributes that are nearly alike share theirs."""
    added_cells: int = 3_000
    """Maximum number of cells of a group whose weights may be a sum of products."""
    merged_values: int = 600
    """Maximum number of cells of families that are merged into one, for a multiplier of every query."""
    merged_work: float = 2e9
    """Maximum of cells³ of them, in all groups that differ."""
    merged_numbers: int = 10_000_000
    """Maximum number of entries of their queries, written out."""
    rounding_rounds: int = 3
    """Maximum number of times that rounding is made up for: other noise is rounded otherwise."""
