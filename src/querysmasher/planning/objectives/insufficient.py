"""A budget that does not suffice: which targets are missed by how much, and which budget would meet them."""

from __future__ import annotations

from collections.abc import Sequence

from querysmasher.arrays import in_order
from querysmasher.errors import PlanError, Remedy
from querysmasher.formatting import number
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.privacy.rates import readable
from querysmasher.workload.target import Target

MET = 1 + 1e-9
"""A target is met by a plan that ignores it if no standard error exceeds it by more than this factor."""

MOST_NAMED = 4
"""Maximum number of groups that an error names."""

PRINTED = 1 + 1e-5
"""Factor by which a cost is larger when it is printed: another plan may cost a little more."""

Missed = Sequence[tuple[str, float, Target]]
"""Groups that miss their target: their name, largest standard error and target."""


class InsufficientError(PlanError):
    """A budget under which no plan that was found meets all targets."""

    def __init__(self, best: Plan, factor: float, missed: Missed, cost: float | None = None) -> None:
        """Take the plan that misses least, by which factor, and what is missed without targets.

        `cost` is the least cost at which all targets are met; by default it follows from the factor.
        """
        self.best, self.factor, self.missed = best, factor, missed
        given = best.budget.privacy_cost
        least = factor / (1 + best.gap)
        certain = f"; no plan of its kind misses by less than {least:.4g}" if least > 1 else ""
        problem = (
            f"budget: it does not suffice for the targets, which the best plan misses by a factor of "
            f"{said_factor(factor)}{certain}. Planned without targets, {_listed(missed)}. "
        )
        cost = PRINTED * (given * factor**2 if cost is None else cost)
        if cost > limits().most_cost:
            problem += (
                f"Meeting all targets would take a privacy cost of {cost:.3g}, more than "
                f"{limits().most_cost:g}, at which no privacy is left"
            )
            remedy = Remedy(
                "use looser targets, or insufficient='scale' to miss all by this factor",
                "use looser targets, or [plan] insufficient = 'scale' to miss all by this factor",
            )
        else:
            problem += (
                f"All targets are met by a privacy cost of {readable(cost):.6g} "
                f"({_in_terms_of(best.budget, cost)}), "
                f"instead of {given:.6g}"
            )
            remedy = Remedy(
                "use that budget, `least_budget`, looser targets, or insufficient='scale' to miss all by "
                "this factor",
                "use that budget, [budget] least = true, looser targets, or [plan] insufficient = 'scale' to "
                "miss all by this factor",
            )
        super().__init__(problem, remedy)

    def costing(self, cost: float) -> InsufficientError:
        """Return the same error with the least cost that is known to meet all targets."""
        return InsufficientError(self.best, self.factor, self.missed, cost)


def missed_targets(plan: Plan) -> list[tuple[str, float, Target]]:
    """Return the groups that miss their target: their name, largest standard error and target."""
    return [
        (one.group.describe(), one.std, one.group.target)
        for one in plan.extremes or ()
        if one.group.target is not None and one.ratio > MET
    ]


def _listed(missed: Missed) -> str:
    """Return the groups that miss their targets most, with both errors."""
    worst = in_order([-std / target.std for _, std, target in missed])
    listed = (
        f"{name}: standard error {number(std)}, target {number(target.std)}"
        for name, std, target in (missed[place] for place in worst[:MOST_NAMED])
    )
    more = f"; and {len(missed) - MOST_NAMED} more" if len(missed) > MOST_NAMED else ""
    return "; ".join(listed) + more


def _in_terms_of(budget: Budget, cost: float) -> str:
    """Return a cost in the definition of privacy of a budget."""
    same = PrivacyCost(cost)
    delta = budget.stated_delta
    if delta is not None:
        return f"epsilon = {readable(same.epsilon_at(delta) * PRINTED):.6g} at delta = {delta!r}"
    return f"{budget.letter} = {readable(getattr(same, budget.letter)):.6g}"


def said_factor(factor: float) -> str:
    """Return a factor above one in four digits, or in as many as show that it is."""
    if factor < 1 + 1e-6:
        return "less than 1.000001"
    return next(text for digits in range(4, 8) if (text := f"{factor:.{digits}g}") != "1")
