"""The page about a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from querysmasher.arrays import first_largest
from querysmasher.errors import PlanError, as_given
from querysmasher.formatting import count, number, settled, share, shortened
from querysmasher.html import Html, element, join, table
from querysmasher.planning.limit import dimension
from querysmasher.planning.plan import Plan
from querysmasher.report.charts import CONFIG, budget_bars
from querysmasher.report.expectations import is_met, largest_errors, optimum, overall, persons, purpose
from querysmasher.report.guarantees import delta_of, epsilon_words, guarantee, scientific
from querysmasher.report.page import chart, checked_path, figures, page, write_page
from querysmasher.report.plan_data import epsilon_curve, error_rows, shares, shares_by_way, tenths
from querysmasher.report.plan_errors import error_data, error_section
from querysmasher.report.plan_targets import closest, target_data, target_section
from querysmasher.report.words import schema_table, workload_table

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
    sections = [
        ("guarantee", "The guarantee", guarantee(plan.budget)),
        ("asked", "What is asked", _asked(plan)),
        ("error", "Expected error", error_section(plan, groups, with_curve=curve is not None)),
        *_targets(plan, ratio, with_curve=curve is not None),
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


def _targets(plan: Plan, ratio: float | None, *, with_curve: bool) -> list[tuple[str, str, Html]]:
    if ratio is None:
        return []
    return [("targets", "What the targets cost", target_section(plan, ratio, with_curve=with_curve))]


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
    return join(
        [
            element("p", "The table’s attributes and their possible values, stated in advance and public:"),
            schema_table(plan.workload.schema),
            element("h3", "Queries"),
            element(
                "p",
                "Every query is a number of records. “Identity” counts the records with each value, “prefix” "
                "those up to each value, “range” those from one value to another, and “circular” those in "
                "ranges that may wrap around. The total counts all records; × takes every combination.",
                " Some queries have more weight than others." if len(weights) > 1 else None,
            ),
            workload_table(plan.workload.groups),
        ]
    )


def _budget(plan: Plan) -> Html:
    few = len(plan.measured) <= SETS
    rows = shares(plan, LISTED)
    written = tenths([part for _, _, part in rows])
    listed = table(
        ["Attribute set", "Share of the budget"],
        [(label, said) for (label, _, _), said in zip(rows, written, strict=True)],
        numbers=[1],
    )
    summary = f"The attribute sets one by one ({min(LISTED, len(plan.measured)):,} of {len(plan.measured):,})"
    return join(
        [
            element(
                "p",
                "The privacy costs of the attribute sets add up. On each set, only what its subsets do not "
                "determine is measured, so that all answers are consistent.",
            ),
            chart("shares", None if few else "By number of attributes at a time."),
            None
            if few
            else element("details", element("summary", summary), element("div", listed, class_="scroll")),
        ]
    )


def _optimal(plan: Plan, limit: bool | None) -> Html:
    gap = share(plan.gap)
    certificate = (
        f"{_minimised(plan)} of this plan is certified to be at most {gap} above {optimum(plan)}. The "
        "certificate is a lower bound, by duality, on the error of every such plan."
    )
    texts = [certificate]
    wanted = dimension(plan.workload) <= QUICK if limit is None else limit
    if wanted:
        said = str(plan.limit())
        texts.append(f"{said[0].upper()}{said[1:]}.")
    else:
        texts.append("The limit of all matrix mechanisms was not computed for this page.")
    return join(element("p", text) for text in texts)


def _minimised(plan: Plan) -> str:
    """Name what the plan minimises, which its certificate is about."""
    relative = ", relative to its target," if plan.workload.has_targets else ""
    return "The weighted error" if plan.objective == "mean" else f"The largest error{relative}"


def _share_rows(plan: Plan) -> list[dict[str, Any]]:
    rows = shares(plan, SETS) if len(plan.measured) <= SETS else shares_by_way(plan)
    written = tenths([part for _, _, part in rows])
    return [
        {"place": place, "label": label, "share": shortened(100 * part, 9), "said": said}
        for place, ((label, _, part), said) in enumerate(zip(rows, written, strict=True))
    ]
