"""`querysmasher compare`: compares the expected error with that of other mechanisms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import note, opened, print_json, print_pairs, print_table, say, tell
from querysmasher.cli.words import SPEC, AsJson, Force, SpecPath, examples
from querysmasher.extras import check_charts
from querysmasher.planning.objectives import INSUFFICIENT


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "compare",
        short_help="Compare the expected error with that of other mechanisms.",
        epilog=examples("querysmasher compare", "querysmasher compare survey.toml --chart methods.svg"),
    )(compare)


@guarded
def compare(
    spec: SpecPath = SPEC,
    objective: Annotated[
        str | None, typer.Option(help="mean or worst, for all mechanisms; by default the spec's.")
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Also write a chart to this file.")] = None,
    rehearsal: Annotated[
        Path | None,
        typer.Option(help="A table of the same kind that is NOT private: also compare estimates on it."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compare the expected error of the spec's queries with that of other mechanisms, at the same budget.

    The table is ordered by the mean error, or by the largest one if that is the objective. At the least
    budget that meets all targets, it compares how closely the mechanisms meet them.

    This reads no data, except a rehearsal table, and spends no budget.
    """
    import querysmasher as qs
    from querysmasher.cli.expectations import left_for_answers, promised
    from querysmasher.cli.folder import check_free
    from querysmasher.comparison.chart import chart_format
    from querysmasher.comparison.compare import WEIGHTED
    from querysmasher.planning.objectives.objective import aimed_of, check_objective
    from querysmasher.privacy.distributions import distribution_of

    read = opened(spec)
    if objective is not None:
        check_objective(objective, INSUFFICIENT[0])
    if chart is not None:
        check_charts()
        chart_format(chart)
        check_free(chart, force)
    budget, workload = read.plan().budget if read.least else read.budget, read.workload
    table = None if rehearsal is None else read.table(rehearsal).open()
    goal = objective or read.planning.objective
    if read.least and objective is None:
        goal, workload = "worst", aimed_of(workload)
    allowed = distribution_of(read.measuring.noise).allowed_cost(budget)
    allowed *= left_for_answers(read)
    result = qs.compare(workload, budget, objective=goal, rehearsal=table)
    result = result.scaled(math.sqrt(budget.privacy_cost / allowed))  # as `plan` shows errors
    if chart is not None:
        result.chart(chart)
        note(f"Written: {chart}")
    if as_json:
        rows = result.to_json()
        seen = result.rehearsed
        print_json(rows if seen is None else {"mechanisms": rows, "rehearsal": seen.to_json()})
        return
    words = {row.title: result.cells(row) for row in result.rows}
    asked = str(workload).removeprefix("Workload(").removesuffix(")")
    print_pairs([("Asked", asked), ("Guarantee", promised(read, budget))])
    print_table(result.head[:-1], [cells[:-1] for cells in words.values()])
    if result.is_weighted:
        tell(WEIGHTED)
    print_pairs([(title, cells[-1]) for title, cells in words.items() if cells[-1]])
    if result.rehearsed is not None:
        say(repr(result.rehearsed))
