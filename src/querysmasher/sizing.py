"""Plans for estimates of a table whose size nobody stated: measure the size first, and share the rest by it.

Formal guarantee: that of `privacy.phases`. The number of records is measured with noise at its share of the
budget, or it is public. What is measured then depends on the table only through this noisy number. Both
phases, and the errors of the estimate if they are bought, add their exact costs, and none may exceed the
budget. The same noisy number gives the same second phase, so that `verify` plans it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from querysmasher.errors import BudgetError
from querysmasher.journal import Journal
from querysmasher.planning.estimating import size_share, sized_costs
from querysmasher.planning.plan import Plan
from querysmasher.planning.residual_plan import Place
from querysmasher.privacy.dropped import rounded_down
from querysmasher.release.release import Release

PARTS = "parts of tables"
"""The name of the phase that follows the number of records."""

LEAST_COST = 1e-12
"""Minimum privacy cost: the noise of its smallest shares can be drawn."""


def size_options(plan: Plan, cost: float) -> dict[str, float]:
    """Return the options of a measurement that learns the size first; refuse a budget too small for it."""
    if not plan.sizes_first:
        return {}
    if cost < LEAST_COST:
        raise BudgetError(
            f"plan: expected a privacy cost of at least {LEAST_COST:g} to measure the number of records "
            f"first, got {plan.budget!r}; state a rough number of records when planning"
        )
    return {"size_share": size_share(plan.budget)}


def measure_sized(journal: Journal, compared: Sequence[Place]) -> Release:
    """Measure the number of records, then what is best for such a table, then errors of the estimate."""
    whole, before = rounded_down(journal.phases.left), journal.phases.spent
    reserve = journal.options["error_share"] * whole
    budget = whole - reserve
    size = journal.measure_size(journal.options["size_share"] * budget)
    spare = budget - float(journal.phases.spent - before)
    journal.measure(PARTS, sized_costs(journal.asked, journal.budget, size, spare))
    return journal.ended(compared, reserve)
