"""The page about a plan: the guarantee, expected errors, the cost of targets, the certificate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from querysmasher.arrays import first_largest, in_order
from querysmasher.errors import PlanError, as_given
from querysmasher.formatting import count, error, number, settled, share, shortened
from querysmasher.guarantees import delta_of, epsilon_words, scientific
from querysmasher.html import Html, element, join, scrolling, table
from querysmasher.planning.limit import dimension
from querysmasher.planning.objectives.variances import Extreme
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget, PrivacyCost
from querysmasher.report.charts import CONFIG, budget_bars, cost_curve, error_curve, error_spread
from querysmasher.report.expectations import (
    Expectation,
    is_met,
    largest_errors,
    optimum,
    overall,
    persons,
    purpose,
)
from querysmasher.report.page import checked_path, figures, guarantee, markup, page, paragraph, write_page
from querysmasher.report.plan_data import epsilon_curve, error_rows, shares, shares_by_way, tenths
from querysmasher.report.words import group_words, schema_table, workload_table
from querysmasher.workload.workload import Target

SETS = 15
"""Maximum number of attribute sets in the budget's chart; more are combined by their number of attributes."""

LISTED = 200
"""Maximum number of attribute sets in the list of shares."""

QUICK = 100
"""Maximum dimension for which `plan.limit()` takes about a second and is computed by default."""


def write_plan_report(
    plan: Plan, path: str | os.PathLike[str], limit: bool | None = None, title: str | None = None
) -> Path:
    """Write the page about a plan and return its path."""
    target = checked_path(path)
    if limit not in (None, True, False):
        msg = f"limit: expected True, False or None (only if it is quick), got {as_given(limit)}"
        raise PlanError(msg)
    return write_page(target, plan_page(plan, limit, title or "Privacy plan"))


def plan_page(plan: Plan, limit: bool | None, title: str) -> str:
    """Return the page as text."""
    groups, kinds = error_rows(plan)
    known = overall(groups)
    rmse = shortened(plan.rmse if known is None else known, 9)
    curve, ratio = epsilon_curve(plan.budget), closest(plan)
    targets = None if ratio is None else target_section(plan, ratio, with_curve=curve is not None)
    sections = [
        ("guarantee", "The guarantee", guarantee(plan.budget)),
        ("asked", "What is asked", _asked(plan)),
        ("error", "Expected error", error_section(plan, groups, with_curve=curve is not None)),
        *([] if targets is None else [("targets", "What the targets cost", targets)]),
        ("budget", "Where the budget goes", _budget(plan)),
        ("optimal", "How good is this plan", _optimal(plan, limit)),
    ]
    errors, charts = error_data(plan, groups, kinds, rmse, curve)
    charts["shares"] = budget_bars(_share_rows(plan))
    data = {"config": CONFIG, "charts": charts, **errors}
    if curve is not None and ratio is not None:
        data["targets"], charts["costs"] = target_data(plan, ratio, curve)
    return page("plan", title, _summary(plan, rmse), sections, data)


def _summary(plan: Plan, rmse: float) -> Html:
    figure, remark = epsilon_words(plan.budget)
    if plan.budget.stated_delta is None:
        delta = delta_of(plan.budget)
        epsilon = f"ε = {number(plan.budget.epsilon_at(delta))}"
        if plan.least_cost is None:
            remark += f"; {epsilon} at δ = {scientific(delta)}"
        else:  # nobody chose its digits
            figure, remark = epsilon, f"at δ = {scientific(delta)}, the least that meets the targets"
    workload = plan.workload
    return join(
        [
            element(
                "p",
                f"{count(workload.query_count, 'count')} about {count(len(workload.schema), 'attribute')}, "
                "to be published under differential privacy. No data has been read: everything below is "
                f"known in advance{', for 30,000 records' if plan.sizes_first else ''}.",
                class_="lead",
            ),
            *(
                element("p", element("strong", f"{name.capitalize()}: "), text)
                for name, text in (*purpose(plan), *persons(plan))
            ),
            figures(
                ("Budget", figure, remark),
                ("Queries", f"{workload.query_count:,}", f"in {count(len(workload.groups), 'group')}"),
                ("Expected error", f"± {number(rmse)}", "root mean square, in records"),
                *_largest(plan),
                ("Above optimum", f"≤ {share(plan.gap)}", "certified"),
                (
                    "Measured",
                    f"{plan.measurements:,}",
                    f"noisy numbers on {count(len(plan.measured), 'attribute set')}",
                ),
            ),
        ]
    )


def _largest(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Return the largest error and whether the targets are met, as key figures."""
    extremes = largest_errors(plan)
    if extremes is None:
        return
    worst = extremes[first_largest([one.std for one in extremes])]
    yield "Largest error", f"± {number(worst.std)}", f"of {worst.query(plan.workload.schema)}"
    aimed = [one for one in extremes if one.group.target is not None]
    if aimed:
        ratio = settled(max(one.ratio for one in aimed))
        missed = sum(not is_met(one.ratio) for one in aimed)
        said = f"in {missed:,} of {count(len(aimed), 'group')}, by a factor of {ratio:.4g}"
        yield ("Targets", "missed", said) if missed else ("Targets", "met", f"the closest at {ratio:.1%}")


def _asked(plan: Plan) -> Html:
    weights = {g.weight for g in plan.workload}
    return markup(
        "asked",
        schema=schema_table(plan.workload.schema),
        weights=" Some queries have more weight than others." if len(weights) > 1 else None,
        workload=workload_table(plan.workload.groups),
    )


def _budget(plan: Plan) -> Html:
    if len(plan.measured) <= SETS:
        return markup("budget", caption=None, listed=None)
    rows = shares(plan, LISTED)
    written = tenths([part for _, _, part in rows])
    listed = table(
        ["Attribute set", "Share of the budget"],
        [(label, said) for (label, _, _), said in zip(rows, written, strict=True)],
        numbers=[1],
    )
    summary = f"The attribute sets one by one ({min(LISTED, len(plan.measured)):,} of {len(plan.measured):,})"
    return markup(
        "budget",
        caption=element("figcaption", "By number of attributes at a time."),
        listed=element("details", element("summary", summary), scrolling(listed)),
    )


def _optimal(plan: Plan, limit: bool | None) -> Html:
    relative = ", relative to its target," if plan.workload.has_targets else ""
    what = "The weighted error" if plan.objective == "mean" else f"The largest error{relative}"
    certified = f"{what} of this plan is certified to be within {share(plan.gap)} of {optimum(plan)}."
    bound = "The certificate is a lower bound, by duality, on the error of every such plan."
    texts = [f"{certified} {bound}"]
    wanted = dimension(plan.workload) <= QUICK if limit is None else limit
    if wanted:
        said = str(plan.limit())
        texts.append(f"{said[0].upper()}{said[1:]}.")
    else:
        texts.append("The limit of all matrix mechanisms was not computed for this page.")
    return join(element("p", text) for text in texts)


def _share_rows(plan: Plan) -> list[dict[str, Any]]:
    rows = shares(plan, SETS) if len(plan.measured) <= SETS else shares_by_way(plan)
    written = tenths([part for _, _, part in rows])
    return [
        {"place": place, "label": label, "share": shortened(100 * part, 9), "said": said}
        for place, ((label, _, part), said) in enumerate(zip(rows, written, strict=True))
    ]


GROUPS = 2_000
"""Maximum number of groups on a page: those with the largest errors."""

KINDS = 24
"""Maximum number of kinds in the chart of errors by kind."""


def error_section(plan: Plan, groups: list[Expectation], *, with_curve: bool) -> Html:
    """Explain and show errors against ε, by kind and by group."""
    without = element("p", "This budget is too far from common values of ε to draw error against ε.")
    searched, left_out = largest_errors(plan) is not None, len(groups) - GROUPS
    aimed = searched and plan.workload.has_targets
    note = f"The {left_out:,} groups with the smallest errors are not on this page."
    return markup(
        "errors",
        curve=markup("curve", delta=scientific(delta_of(plan.budget))) if with_curve else without,
        largest="Under each group stands a query that has its largest error. " if searched else None,
        aimed="Below a target is the largest error as a share of it. " if aimed else None,
        left_out=paragraph(note, "note") if left_out > 0 else None,
    )


def error_data(
    plan: Plan,
    groups: list[Expectation],
    kinds: list[Expectation],
    rmse: float,
    curve: tuple[float, list[float], list[float]] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the section for the page's script, and its charts."""
    by_error = in_order([-(row.rmse or 0.0) for row in groups])
    shown = [groups[place] for place in by_error] if len(groups) > GROUPS else groups
    known = [row.rmse for row in groups if row.rmse] or [rmse]
    extremes = {id(one.group): one for one in largest_errors(plan) or ()}
    charts: dict[str, Any] = {}
    spread = [row for row in kinds if row.spread and row.rmse][:KINDS]
    if spread:
        lowest = min(row.spread[0] for row in spread if row.spread)
        highest = max(row.spread[-1] for row in spread if row.spread)
        charts["spread"] = error_spread(
            [_spread_row(i, row) for i, row in enumerate(spread)], log=lowest > 0 and highest > 30 * lowest
        )
    data: dict[str, Any] = {
        "rmse": rmse,
        "groups": [_group_row(row, extremes.get(id(row.group)), plan) for row in shown[:GROUPS]],
        "all_groups": len(groups),
    }
    if curve is not None:
        start, grid, factors = curve
        data["curve"] = {"start": start, "grid": grid, "factors": factors}
        points = zip(grid, factors, strict=True)
        drawn = {"error": rmse, "low": min(known), "high": max(known)}
        charts["curve"] = error_curve(
            [{"epsilon": e, **{name: _short(one * f) for name, one in drawn.items()}} for e, f in points],
            start,
            rmse,
        )
    return data, charts


def _group_row(row: Expectation, extreme: Extreme | None, plan: Plan) -> dict[str, Any]:
    """Return a group with its mean error, its largest, the query that has that, and its target."""
    found: dict[str, Any] = {
        "label": group_words(row.group),
        "ways": len(row.attributes),
        "queries": row.queries,
        "rmse": _short(row.rmse),
        "spread": [_short(q) for q in row.spread] if row.spread else None,
    }
    if extreme is not None:
        found["largest"] = _short(extreme.std)
        found["query"] = extreme.query(plan.workload.schema)
        if extreme.group.target is not None:  # in nine digits: a target is met to a fraction of 1e-6
            found["target"], found["ratio"] = str(extreme.group.target), shortened(extreme.ratio, 9)
    return found


def _spread_row(place: int, row: Expectation) -> dict[str, Any]:
    where = f"{count(len(row.groups), 'group')}, {count(row.queries, 'query', 'queries')}"
    quantiles = {f"q{i}": _short(q) for i, q in enumerate(row.spread or ())}
    kind = row.label.replace("|", "¦")
    label = f"{row.label} ({where})"
    return {"key": f"{place}|{kind}|{where}", "label": label, "rmse": _short(row.rmse), **quantiles}


def _short(value: float | None) -> float | None:
    """Return five significant digits, enough for the page."""
    return None if value is None else shortened(value, 5)


MULTIPLES = (4.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25)
"""How many times looser or tighter than asked the targets of the table are."""

ROUNDING = 0.006
"""Fraction by which rounding to integers may change a cost: it multiplies errors by up to about 1.003."""


def closest(plan: Plan) -> float | None:
    """Return the largest error relative to its target; None if there are no targets or it is not known.

    One for a plan of least cost, whose small reserve for rounding belongs to what the targets cost.
    """
    extremes = largest_errors(plan) or ()
    if extremes and plan.least_cost is not None:
        return 1.0
    return max((one.ratio for one in extremes if one.group.target is not None), default=None)


def cost_of(plan: Plan, ratio: float, multiple: float) -> Budget:
    """Return what the plan costs with its noise scaled until it meets `multiple` times its targets.

    Variances are inversely proportional to the cost.
    """
    return PrivacyCost(plan.budget.privacy_cost * (ratio / multiple) ** 2)


def target_section(plan: Plan, ratio: float, *, with_curve: bool) -> Html:
    """Show the cost of looser and tighter targets."""
    delta, one = scientific(delta_of(plan.budget)), _common(plan)
    explorer = markup("target-explorer", label="target ±" if one else "targets ×", delta=delta)
    follow = " Move the targets, and ε and every error under “Expected error” follow."
    rows = [_row(plan, ratio, multiple, one) for multiple in MULTIPLES]
    header = ["Targets", f"ε at δ = {delta}", "ρ", "μ", "Privacy cost"]
    return markup(
        "targets",
        rounding=f"{ROUNDING:.1%}",
        follow=follow if with_curve else None,
        explorer=explorer if with_curve else None,
        costs=table(header, rows, numbers=[1, 2, 3, 4], class_="costs"),
        certified=_certified(plan),
    )


def target_data(
    plan: Plan, ratio: float, curve: tuple[float, list[float], list[float]]
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


def _common(plan: Plan) -> Target | None:
    """Return the target of all groups that have one, or None if they differ."""
    targets = {group.target for group in plan.workload if group.target is not None}
    return targets.pop() if len(targets) == 1 else None


def _row(plan: Plan, ratio: float, multiple: float, one: Target | None) -> tuple[str, ...]:
    budget = cost_of(plan, ratio, multiple)
    level = "" if one is None or one.level is None else f" at {100 * one.level:g}%"
    name = f"× {multiple:g}" if one is None else f"{error(multiple * one.amount)}{level}"
    amounts = budget.epsilon_at(delta_of(plan.budget)), budget.rho, budget.mu, budget.privacy_cost
    return name + (" (as asked)" if multiple == 1 else ""), *map(number, amounts)


def _certified(plan: Plan) -> str:
    if plan.least_cost is not None:
        return (
            "Certified: every plan of its kind that meets the targets as asked has a privacy cost of at "
            f"least {number(plan.least_cost)}."
        )
    return (
        "These are costs of this plan with its noise scaled as a whole. A plan made for other targets may "
        "cost less."
    )
