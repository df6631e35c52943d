"""What the targets cost, on the page about a plan: the counterpart of its slider for ε."""

from __future__ import annotations

from typing import Any

from querysmasher.formatting import error, number, shortened
from querysmasher.html import Html, element, join, scrolling, table
from querysmasher.planning.planned import Planned
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.report.charts import cost_curve
from querysmasher.report.expectations import largest_errors
from querysmasher.report.guarantees import delta_of, scientific
from querysmasher.report.page import chart
from querysmasher.workload.workload import Target

MULTIPLES = (4.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25)
"""How many times looser or tighter than asked the targets of the table are."""

ROUNDING = 0.006
"""Fraction by which rounding to integers may change a cost: it multiplies errors by up to about 1.003."""


def closest(plan: Planned) -> float | None:
    """Return the largest error relative to its target; None if there are no targets or it is not known.

    One for a plan of least cost, whose small reserve for rounding belongs to what the targets cost.
    """
    extremes = largest_errors(plan) or ()
    if extremes and plan.least_cost is not None:
        return 1.0
    return max((one.ratio for one in extremes if one.group.target is not None), default=None)


def cost_of(plan: Planned, ratio: float, multiple: float) -> Budget:
    """Return what the plan costs with its noise scaled until it meets `multiple` times its targets.

    Variances are inversely proportional to the cost.
    """
    return PrivacyCost(plan.budget.privacy_cost * (ratio / multiple) ** 2)


def target_section(plan: Planned, ratio: float, *, with_curve: bool) -> Html:
    """Show the cost of looser and tighter targets."""
    delta = scientific(delta_of(plan.budget))
    one = _common(plan)
    explorer = [
        element(
            "div",
            element("label", "target ±" if one else "targets ×", for_="target"),
            element(
                "input", type="range", id="target-slider", min="0", max="1000", step="1", aria_label="targets"
            ),
            element("input", type="number", id="target", min="0", step="any"),
            element("button", "as asked", type="button", id="asked-targets"),
            element("output", id="cost", for_="target-slider target"),
            class_="control",
        ),
        chart("costs", f"The ε at which this plan, its noise scaled, meets its targets. δ is {delta}."),
    ]
    return join(
        [
            element(
                "p",
                "What would other targets cost? Variances are inversely proportional to the privacy cost: "
                "targets twice as wide cost a quarter of ρ, half of μ and about half of ε. A plan for other "
                "targets is rounded to other integers, and may cost up to "
                f"{ROUNDING:.1%} more or less than here.",
                " Move the targets, and ε and every error under “Expected error” follow."
                if with_curve
                else None,
            ),
            *(explorer if with_curve else ()),
            scrolling(
                table(
                    ["Targets", f"ε at δ = {delta}", "ρ", "μ", "Privacy cost"],
                    [_row(plan, ratio, multiple, one) for multiple in MULTIPLES],
                    numbers=[1, 2, 3, 4],
                    class_="costs",
                )
            ),
            element("p", _certified(plan)),
        ]
    )


def target_data(
    plan: Planned, ratio: float, curve: tuple[float, list[float], list[float]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the section for the page's script, and its chart."""
    start, grid, factors = curve
    one = _common(plan)
    unit = 1.0 if one is None else one.amount
    at = "" if one is None or one.level is None else f" at {100 * one.level:g}%"
    title = "targets, as multiples of those asked for" if one is None else f"target: ±{at}"
    ratio = shortened(ratio, 9)
    targets = [shortened(unit * ratio * factor, 6) for factor in factors]
    points = [{"target": t, "epsilon": e} for t, e in zip(targets, grid, strict=True)]
    data = {"ratio": ratio, "unit": unit, "cost": plan.budget.privacy_cost}
    return data, cost_curve(points, unit * ratio, start, title, unit)


def _common(plan: Planned) -> Target | None:
    """Return the target of all groups that have one, or None if they differ."""
    targets = {group.target for group in plan.workload if group.target is not None}
    return targets.pop() if len(targets) == 1 else None


def _row(plan: Planned, ratio: float, multiple: float, one: Target | None) -> tuple[str, ...]:
    budget = cost_of(plan, ratio, multiple)
    level = "" if one is None or one.level is None else f" at {100 * one.level:g}%"
    name = f"× {multiple:g}" if one is None else f"{error(multiple * one.amount)}{level}"
    amounts = budget.epsilon_at(delta_of(plan.budget)), budget.rho, budget.mu, budget.privacy_cost
    return name + (" (as asked)" if multiple == 1 else ""), *map(number, amounts)


def _certified(plan: Planned) -> str:
    if plan.least_cost is not None:
        return (
            "Certified: every plan of its kind that meets the targets as asked has a privacy cost of at "
            f"least {number(plan.least_cost)}."
        )
    return (
        "These are costs of this plan with its noise scaled as a whole. A plan made for other targets may "
        "cost less."
    )
