"""A plan in a terminal or a notebook: its facts and its table of expected errors."""

from __future__ import annotations

from collections.abc import Sequence

from querysmasher.html import notebook, table
from querysmasher.planning.plan import Plan
from querysmasher.report.expectations import Expectation, by_kind, expect, facts
from querysmasher.report.expected_table import ExpectedTable
from querysmasher.report.guarantees import equivalents

MOST_ROWS = 12
"""Maximum number of groups with a row each; more groups are shown by kind."""

MOST_GROUPS = 1_000
"""Maximum number of groups whose errors are predicted just to show the plan."""


def plan_text(plan: Plan) -> str:
    """Return the plan as text."""
    named = _facts(plan)
    width = max(len(name) for name, _ in named)
    lines = [f"Plan for {plan.workload}", *(f"  {name:{width}}  {text}" for name, text in named)]
    rows = _rows(plan)
    if rows:
        lines += [f"  {line}" for line in ExpectedTable(rows, plan.workload.schema).lines()]
    return "\n".join(lines)


def plan_notebook(plan: Plan) -> str:
    """Return the plan as HTML for a notebook."""
    rows = _rows(plan)
    listed = ExpectedTable(rows, plan.workload.schema)
    return notebook(
        f"Plan for {plan.workload.query_count:,} queries",
        table(["", ""], _facts(plan)),
        table(listed.header, listed.cells, numbers=[1, 2, 3, 4]) if rows else None,
    )


def _facts(plan: Plan) -> list[tuple[str, str]]:
    """Return what holds for the plan; a least budget in other definitions of privacy, too."""
    named = facts(plan)
    if plan.least_cost is not None:
        place = next(i for i, (name, _) in enumerate(named) if name == "measures")
        named.insert(place, ("in other words", equivalents(plan.budget)))
    return named


def _rows(plan: Plan) -> Sequence[Expectation]:
    """Return a row per group or, if these are many, per kind; none if predicting them takes long."""
    if len(plan.workload.groups) > MOST_GROUPS:
        return ()
    rows = list(expect(plan))
    if len(rows) > MOST_ROWS:
        rows = by_kind(rows)
    return rows if len(rows) <= MOST_ROWS else ()
