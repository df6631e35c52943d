"""`querysmasher explore`: measures a table in phases and writes estimates beside unbiased answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querysmasher.cli.estimates import write_estimates
from querysmasher.cli.guard import guarded
from querysmasher.cli.output import opened, say
from querysmasher.cli.publishing import (
    AnswerFormat,
    check_left_over,
    checked,
    command_line,
    described,
    form_of,
    print_release,
    publish,
    write_answers,
)
from querysmasher.cli.words import (
    SPEC,
    AsJson,
    DataPath,
    ErrorShare,
    Force,
    OutPath,
    Resume,
    Seed,
    SpecPath,
    examples,
)
from querysmasher.errors import SpecError

if TYPE_CHECKING:
    from querysmasher.cli.draft import Draft
    from querysmasher.release.release import Release
    from querysmasher.spec import Spec


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "explore",
        short_help="Measure the table in phases, for estimates of sparse tables.",
        epilog=examples(
            "querysmasher explore",
            "querysmasher explore survey.toml --data people.parquet --out published --answers csv",
        ),
    )(explore)


@guarded
def explore(
    spec: SpecPath = SPEC,
    data: DataPath = None,
    out: OutPath = None,
    answers: Annotated[
        AnswerFormat | None,
        typer.Option(help="Format of answers and estimates, instead of the one in the spec."),
    ] = None,
    resume: Resume = None,
    error_share: ErrorShare = None,
    seed: Seed = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Explore the table and write a folder that may be published. This spends the budget.

    The workload must consist of marginals. The budget is spent in phases, each planned from the noisy results
    of those before it, where it pays for estimates. The folder contains the noisy measurements (release.qs),
    unbiased answers to what was measured, estimates of everything in the workload, their errors (errors.csv)
    and a summary (summary.json). Every exploration spends the budget again.
    """
    from querysmasher.cli.draft import drafting, resuming

    read = opened(spec).buying(error_share)
    if read.least:
        msg = f"{read.path.name}: budget: expected an amount to explore a table, got least = true"
        raise SpecError(msg)
    folder = read.folder if out is None else out
    form = form_of(read, answers)
    command = command_line("explore", spec, out)
    if resume is not None:
        measured = _left_over(resume, read)
        with resuming(folder, resume, force, command) as draft, draft.spent():
            summary, names = _finish(draft, read, measured, form)
    else:
        read, source = checked(read, data, seed, folder, force=force, command=command)
        with drafting(folder, force, command, 0) as draft:
            measured = read.explore(source.open(), seed=seed)
            with draft.spent():
                measured = described(measured, read)
                draft.keep(measured)
                summary, names = _finish(draft, read, measured, form)
    achieved = [("Error", summary["estimate"]["error"])]
    print_release(folder, names, summary, measured, achieved, as_json=as_json)
    if not as_json:
        say(f"Next: `querysmasher report {folder}`")


def _finish(draft: Draft, read: Spec, measured: Release, form: str) -> tuple[dict[str, Any], list[str]]:
    """Write the other files of the release folder and publish it; return its summary and its files."""
    from querysmasher.cli.folder import RELEASE, SUMMARY
    from querysmasher.release.published import exploration_summary, summary_of

    summary = {**summary_of(measured), **exploration_summary(measured)}
    names = [RELEASE, SUMMARY]
    names += write_answers(draft, read, measured, form)
    own = read.estimate.answers if read.estimate is not None else None
    names += write_estimates(measured.estimate(), draft.folder, own or form)
    publish(draft, summary)
    return summary, names


def _left_over(path: Path, read: Spec) -> Release:
    """Return the release that a run left behind; refuse that of another spec."""
    from querysmasher.cli.folder import load_release

    measured = load_release(path)
    explored = measured.exploration is not None and measured.exploration.was_explored
    asked = explored and measured.asked == read.workload
    check_left_over(path, measured, read, workload=asked, budget=measured.plan.budget == read.budget)
    return measured
