"""A plan in a terminal or a notebook: its facts and its table of expected errors."""

from __future__ import annotations

from collections.abc import Sequence

from querysmasher.formatting import columns
from querysmasher.html import notebook, table
from querysmasher.planning.planned import Planned
from querysmasher.report.expectations import HEADER, Expectation, by_kind, expect, facts

MOST_ROWS = 12
"""Maximum number of groups with a row each; more groups are shown by kind."""

MOST_GROUPS = 1_000
"""Maximum number of groups whose errors are predicted just to show the plan."""


def plan_text(plan: Planned) -> str:
    """Return the plan as text."""
    named = facts(plan)
    width = max(len(name) for name, _ in named)
    lines = [f"Plan for {plan.workload}", *(f"  {name:{width}}  {text}" for name, text in named)]
    rows = _rows(plan)
    if rows:
        lines += [f"  {line}" for line in columns([HEADER, *(row.cells() for row in rows)])]
    return "\n".join(lines)


def plan_notebook(plan: Planned) -> str:
    """Return the plan as HTML for a notebook."""
    rows = _rows(plan)
    return notebook(
        f"Plan for {plan.workload.query_count:,} queries",
        table(["", ""], facts(plan)),
        table(HEADER, [row.cells() for row in rows], numbers=[1, 2, 3, 4]) if rows else None,
    )


def _rows(plan: Planned) -> Sequence[Expectation]:
    """Return a row per group or, if these are many, per kind; none if predicting them takes long."""
    if len(plan.workload.groups) > MOST_GROUPS:
        return ()
    rows = list(expect(plan))
    if len(rows) > MOST_ROWS:
        rows = by_kind(rows)
    return rows if len(rows) <= MOST_ROWS else ()
