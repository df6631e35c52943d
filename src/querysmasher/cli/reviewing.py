"""`querysmasher report`, `verify`, `compare` and `demo`: for readers of a release or a plan."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer

import querysmasher as qs
from querysmasher.cli.command import ExitCode
from querysmasher.cli.folder import load_any
from querysmasher.cli.output import (
    check_file,
    check_free,
    note,
    print_json,
    print_pairs,
    print_table,
    say,
    tell,
)
from querysmasher.cli.specs import opened
from querysmasher.comparison.chart import chart_format
from querysmasher.comparison.compare import WEIGHTED
from querysmasher.demo import run_demo
from querysmasher.planning.objectives.objective import INSUFFICIENT, aimed_of, check_objective
from querysmasher.privacy.distributions import distribution_of
from querysmasher.privacy.ledger import Ledger
from querysmasher.release.comparing import FAILED
from querysmasher.release.outputs import PAGE
from querysmasher.release.verify import verify as verified
from querysmasher.report.charts import check_charts
from querysmasher.report.page import checked_path


def report(what: Path, out: Path | None, force: bool, as_json: bool) -> None:
    """Write a page about a release, a saved plan, or the plan of a spec file."""
    if out is None:
        out = what / PAGE if what.is_dir() else Path(PAGE)
    checked_path(out)
    check_file(out, force)
    subject: Any = opened(what).plan() if what.suffix == ".toml" else load_any(what)
    subject.report(out)
    if as_json:
        print_json({"written": str(out)})
    else:
        say(f"Written: {out}")


def verify(release: Path, ledger: Path | None, as_json: bool) -> None:
    """Check a published release."""
    verdict = verified(release, None if ledger is None else Ledger(ledger))
    if as_json:
        print_json(verdict.to_json())
    else:
        typer.echo(str(verdict))
    if not verdict.ok:
        raise typer.Exit(int(ExitCode.PRIVACY if verdict.outcome == FAILED else ExitCode.NOT_VERIFIED))


def compare(
    spec: Path,
    objective: str | None,
    chart: Path | None,
    rehearsal: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare the expected error of the spec's queries with that of other mechanisms."""
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
    allowed = distribution_of(read.measuring.noise).allowed_cost(budget) * read.answer_share
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
    print_pairs([("Queries", workload.size_in_words), ("Guarantee", read.promise(budget))])
    print_table(result.head[:-1], [cells[:-1] for cells in words.values()])
    if result.is_weighted:
        tell(WEIGHTED)
    print_pairs([(title, cells[-1]) for title, cells in words.items() if cells[-1]])
    if result.rehearsed is not None:
        say(repr(result.rehearsed))


def demo(folder: Path, made_up: bool, as_json: bool) -> None:
    """Run every step on a table."""
    result = run_demo(folder, made_up=made_up, quiet=as_json)
    if as_json:
        print_json(result)
