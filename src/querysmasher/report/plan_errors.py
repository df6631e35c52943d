"""The expected errors on the page about a plan: the section and its numbers."""

from __future__ import annotations

from typing import Any

from querysmasher.arrays import in_order
from querysmasher.formatting import count, shortened
from querysmasher.html import Html, element, join, search_box
from querysmasher.planning.objectives.variances import Extreme
from querysmasher.planning.plan import Plan
from querysmasher.report.charts import error_curve, error_spread
from querysmasher.report.expectations import Expectation, largest_errors
from querysmasher.report.guarantees import delta_of, scientific
from querysmasher.report.page import chart
from querysmasher.report.words import group_words

GROUPS = 2_000
"""Maximum number of groups on a page: those with the largest errors."""

KINDS = 24
"""Maximum number of kinds in the chart of errors by kind."""

LEVELS = (1, 5, 10, 20, 30)
"""Coefficients of variation in %, for the smallest count that is that reliable."""


def error_section(plan: Plan, groups: list[Expectation], *, with_curve: bool) -> Html:
    """Explain and show errors against ε, by kind and by group."""
    without = [element("p", "This budget is too far from common values of ε to draw error against ε.")]
    return join(
        [
            element(
                "p",
                "Errors are standard errors, in records: a published count is within one standard error of "
                "the truth two times out of three, and within two 19 times out of 20. They do not depend on "
                "the data.",
            ),
            *(_explorer(plan) if with_curve else without),
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
            *_by_group(plan, len(groups) - GROUPS),
        ]
    )


def _explorer(plan: Plan) -> list[Html]:
    """Show errors against ε, which the reader may move."""
    control = element(
        "div",
        element("label", "ε", for_="epsilon"),
        element("input", type="range", id="slider", min="0", max="1000", step="1", aria_label="epsilon"),
        element("input", type="number", id="epsilon", min="0", step="any"),
        element("button", "as planned", type="button", id="reset"),
        element("output", id="factor", for_="slider epsilon"),
        class_="control sticky",
    )
    return [
        element(
            "p",
            "How does the error depend on the budget? Move ε, and every error in this section follows: the "
            "noise is proportional to one over the root of the privacy cost. δ stays at "
            f"{scientific(delta_of(plan.budget))}, and the figures at the top of the page stay as planned.",
        ),
        control,
        chart(
            "curve",
            "Expected error against ε. The line is the root mean square over all queries; the band reaches "
            "from the most accurate group to the least accurate.",
        ),
    ]


def _by_group(plan: Plan, left_out: int) -> list[Html | None]:
    """Show the errors of every group, except for so many."""
    searched = largest_errors(plan) is not None
    aimed = searched and plan.workload.has_targets
    options = (element("option", f"{s}%", value=str(s / 100), selected=s == 10) for s in LEVELS)
    return [
        element("h3", "By group", id="by-group"),
        element(
            "p",
            "Under each group stands a query that has its largest error. " if searched else None,
            "Below a target is the largest error as a share of it. " if aimed else None,
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
        element("p", f"The {left_out:,} groups with the smallest errors are not on this page.", class_="note")
        if left_out > 0
        else None,
    ]


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
