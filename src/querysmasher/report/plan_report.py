"""The page about a plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from querysmasher.errors import PlanError
from querysmasher.formatting import count, number, share
from querysmasher.html import Html, element, join, search_box, table
from querysmasher.planning.limit import dimension
from querysmasher.planning.planned import Planned
from querysmasher.report.charts import CONFIG, budget_bars, error_curve, error_spread
from querysmasher.report.expectations import Expectation, optimum, overall
from querysmasher.report.guarantees import delta_of, epsilon_words, guarantee, scientific
from querysmasher.report.page import chart, checked_path, figures, page, write_page
from querysmasher.report.plan_data import epsilon_curve, error_rows, shares, shares_by_way, tenths
from querysmasher.report.words import group_words, schema_table, workload_table

GROUPS = 2_000
"""Maximum number of groups on a page: those with the largest errors."""

KINDS = 24
SETS = 15
"""Maximum number of attribute sets in the budget's chart; more are combined by their number of attributes."""

LISTED = 200
"""Maximum number of attribute sets in the list of shares."""

QUICK = 100
"""Maximum dimension for which `plan.limit()` takes about a second and is computed by default."""

LEVELS = (1, 5, 10, 20, 30)
"""Coefficients of variation in %, for the smallest count that is that reliable."""


def write_plan_report(
    plan: Planned, path: str | os.PathLike[str], limit: bool | None = None, title: str | None = None
) -> Path:
    """Write the page about a plan and return its path."""
    target = checked_path(path)
    if limit not in (None, True, False):
        msg = f"limit: expected True, False or None (only if it is quick), got {limit!r}"
        raise PlanError(msg)
    return write_page(target, plan_page(plan, limit, title or "Privacy plan"))


def plan_page(plan: Planned, limit: bool | None, title: str) -> str:
    """Return the page as text."""
    groups, kinds = error_rows(plan)
    known = overall(groups)
    rmse = plan.rmse if known is None else known
    curve = epsilon_curve(plan.budget)
    sections = [
        ("guarantee", "The guarantee", guarantee(plan.budget)),
        ("asked", "What is asked", _asked(plan)),
        ("error", "Expected error", _error(plan, groups, with_curve=curve is not None)),
        ("budget", "Where the budget goes", _budget(plan)),
        ("optimal", "How good is this plan", _optimal(plan, limit)),
    ]
    data = _data(plan, groups, kinds, rmse, curve)
    return page("plan", title, _summary(plan, rmse), sections, data)


def _summary(plan: Planned, rmse: float) -> Html:
    figure, remark = epsilon_words(plan.budget)
    workload = plan.workload
    return join(
        [
            element(
                "p",
                f"{count(workload.query_count, 'count')} about {count(len(workload.schema), 'attribute')}, "
                "to be published under differential privacy. No data has been read: everything below is "
                "known in advance.",
                class_="lead",
            ),
            figures(
                ("Budget", figure, remark),
                ("Queries", f"{workload.query_count:,}", f"in {count(len(workload.groups), 'group')}"),
                ("Expected error", f"± {number(rmse)}", "root mean square, in records"),
                ("Above the optimum", f"≤ {share(plan.gap)}", "certified"),
                (
                    "Measured",
                    f"{plan.measurements:,}",
                    f"noisy numbers on {count(len(plan.measured), 'attribute set')}",
                ),
            ),
        ]
    )


def _asked(plan: Planned) -> Html:
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


def _error(plan: Planned, groups: list[Expectation], *, with_curve: bool) -> Html:
    delta = scientific(delta_of(plan.budget))
    control = element(
        "div",
        element("label", "ε", for_="epsilon"),
        element("input", type="range", id="slider", min="0", max="1000", step="1", aria_label="epsilon"),
        element("input", type="number", id="epsilon", min="0", step="any"),
        element("button", "as planned", type="button", id="reset"),
        element("output", id="factor", for_="slider epsilon"),
        class_="control sticky",
    )
    explorer = [
        element(
            "p",
            "How does the error depend on the budget? Move ε, and every error on this page follows: the "
            f"noise is proportional to one over the root of the privacy cost. δ stays at {delta}.",
        ),
        control,
        chart(
            "curve",
            "Expected error against ε. The line is the root mean square over all queries; the band reaches "
            "from the most accurate group to the least accurate.",
        ),
    ]
    without = [element("p", "This budget is too far from common values of ε to draw error against ε.")]
    left_out = len(groups) - GROUPS
    options = (element("option", f"{s}%", value=str(s / 100), selected=s == 10) for s in LEVELS)
    return join(
        [
            element(
                "p",
                "Errors are standard errors, in records: a published count is within one standard error of "
                "the truth two times out of three, and within two 19 times out of 20. They do not depend on "
                "the data.",
            ),
            *(explorer if with_curve else without),
            element("h3", "By kind of query"),
            chart(
                "spread",
                join(
                    [
                        "Bar: the middle half of the queries; line: from 5% to 95%; tick: the median; ",
                        element("span", "dot", class_="dot"),
                        ": root mean square. Large groups are sampled.",
                    ]
                ),
            ),
            element("h3", "By group"),
            element(
                "p",
                "The last column has the smallest count whose coefficient of variation (standard error "
                "divided by the count) is at most ",
                element("select", *options, id="cv", aria_label="coefficient of variation"),
                ". Click on a heading to sort.",
            ),
            search_box(
                "filter",
                "found",
                "Filter, e.g. by attribute",
                "Filter groups",
                element("select", id="ways", aria_label="Attributes at a time"),
            ),
            element("div", element("table", id="groups"), class_="scroll"),
            element("button", "Show more", type="button", id="more"),
            element(
                "p",
                f"The {left_out:,} groups with the smallest errors are not on this page.",
                class_="note",
            )
            if left_out > 0
            else None,
        ]
    )


def _budget(plan: Planned) -> Html:
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


def _optimal(plan: Planned, limit: bool | None) -> Html:
    gap = share(plan.gap)
    certificate = (
        f"The weighted error of this plan is certified to be at most {gap} above {optimum(plan)}. The "
        "certificate is a lower bound, by duality, on the error of every such plan."
    )
    texts = [certificate]
    wanted = dimension(plan.workload) <= QUICK if limit is None else limit
    if wanted:
        said = str(plan.limit())
        texts.append(f"{said[0].upper()}{said[1:]}.")
    else:
        texts.append(
            "The limit of all matrix mechanisms was not computed for this page; plan.limit() computes it if "
            "the workload is small enough."
        )
    return join(element("p", text) for text in texts)


def _data(
    plan: Planned,
    groups: list[Expectation],
    kinds: list[Expectation],
    rmse: float,
    curve: tuple[float, list[float], list[float]] | None,
) -> dict[str, Any]:
    shown = sorted(groups, key=lambda row: -(row.rmse or 0)) if len(groups) > GROUPS else groups
    known = [row.rmse for row in groups if row.rmse] or [rmse]
    charts: dict[str, Any] = {"shares": budget_bars(_share_rows(plan))}
    spread = [row for row in kinds if row.spread and row.rmse][:KINDS]
    if spread:
        lowest = min(row.spread[0] for row in spread if row.spread)
        highest = max(row.spread[-1] for row in spread if row.spread)
        charts["spread"] = error_spread(
            [_spread_row(i, row) for i, row in enumerate(spread)], log=lowest > 0 and highest > 30 * lowest
        )
    data: dict[str, Any] = {
        "config": CONFIG,
        "charts": charts,
        "rmse": rmse,
        "groups": [
            [
                group_words(r.group),
                len(r.attributes),
                r.queries,
                _short(r.rmse),
                [_short(q) for q in r.spread] if r.spread else None,
            ]
            for r in shown[:GROUPS]
        ],
        "all_groups": len(groups),
    }
    if curve is not None:
        start, grid, factors = curve
        data["curve"] = {"start": start, "grid": grid, "factors": factors}
        points = zip(grid, factors, strict=True)
        charts["curve"] = error_curve(
            [
                {"epsilon": e, "error": rmse * f, "low": min(known) * f, "high": max(known) * f}
                for e, f in points
            ],
            start,
            rmse,
        )
    return data


def _share_rows(plan: Planned) -> list[dict[str, Any]]:
    rows = shares(plan, SETS) if len(plan.measured) <= SETS else shares_by_way(plan)
    written = tenths([part for _, _, part in rows])
    return [
        {"place": place, "label": label, "share": 100 * part, "said": said}
        for place, ((label, _, part), said) in enumerate(zip(rows, written, strict=True))
    ]


def _spread_row(place: int, row: Expectation) -> dict[str, Any]:
    where = f"{count(len(row.groups), 'group')}, {count(row.queries, 'query', 'queries')}"
    quantiles = {f"q{i}": _short(q) for i, q in enumerate(row.spread or ())}
    kind = row.label.replace("|", "¦")
    label = f"{row.label} ({where})"
    return {"key": f"{place}|{kind}|{where}", "label": label, "rmse": _short(row.rmse), **quantiles}


def _short(value: float | None) -> float | None:
    """Return five significant digits, enough for the page."""
    return None if value is None else float(f"{value:.5g}")
