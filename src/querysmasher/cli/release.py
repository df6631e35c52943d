"""`querysmasher release`: measures a table as planned and writes what may be published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querysmasher.cli.answer import example_for
from querysmasher.cli.estimates import write_estimates
from querysmasher.cli.guard import guarded
from querysmasher.cli.output import note, opened, say
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
from querysmasher.errors import PlanError

if TYPE_CHECKING:
    from querysmasher.cli.draft import Draft
    from querysmasher.planning.plan import Plan
    from querysmasher.release.release import Release
    from querysmasher.spec import Spec


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "release",
        short_help="Measure the table and write what may be published.",
        epilog=examples(
            "querysmasher release",
            "querysmasher release survey.toml --data people.parquet --out published --answers csv",
            "querysmasher release survey.toml --plan survey.plan --json",
        ),
    )(release)


@guarded
def release(
    spec: SpecPath = SPEC,
    data: DataPath = None,
    out: OutPath = None,
    answers: Annotated[
        AnswerFormat | None, typer.Option(help="Format of the answers, instead of the one in the spec.")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan for this spec that `plan --save` wrote.")] = None,
    resume: Resume = None,
    error_share: ErrorShare = None,
    seed: Seed = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Plan, measure the table, and write a folder that may be published. This spends the budget.

    The folder appears only when it is complete. If a step fails after the measurement, the draft is kept, and
    --resume completes it. The folder contains the noisy measurements (release.qs), the plan (plan.qs), a
    summary (summary.json) and, by default, the answers to all queries. Every measurement spends the budget
    again.
    """
    from querysmasher.cli.draft import drafting, resuming
    from querysmasher.cli.folder import PLAN

    read = opened(spec).buying(error_share)
    folder = read.folder if out is None else out
    form = form_of(read, answers)
    command = command_line("release", spec, out)
    if resume is not None:
        planned, measured = _left_over(resume, read)
        with resuming(folder, resume, force, command) as draft, draft.spent():
            summary, names = _finish(draft, read, planned, measured, form)
    else:
        read, source = checked(read, data, seed, folder, force=force, command=command)
        planned = _planned(read) if plan is None else _stored(plan, read)
        with drafting(folder, force, command, 8 * planned.measurements) as draft:
            planned.save(draft.folder / PLAN)
            measured = read.measure(planned, source.open(), seed=seed)
            with draft.spent():
                measured = described(measured, read, draft.folder / PLAN)
                draft.keep(measured)
                summary, names = _finish(draft, read, planned, measured, form)
    print_release(folder, names, summary, measured, _achieved(summary), as_json=as_json)
    if not as_json:
        example = example_for(measured)
        say(f"Next: `querysmasher answer {folder}" + (f' "{example}"`' if example else "`"))


def _planned(read: Spec) -> Plan:
    """Plan, with a note if it takes long."""
    from querysmasher.cli.estimate import estimate

    guess = estimate(read.workload, read.searches_centres)
    if guess.is_big:
        note(f"This is a large task: {guess}.")
    return read.plan()


def _stored(path: Path, read: Spec) -> Plan:
    """Return a plan saved by `plan --save`; refuse one for another spec."""
    from querysmasher.cli.folder import load_plan

    stored = load_plan(path)
    same = (stored.asked or stored.workload) == read.workload and stored.purpose == read.planning.purpose
    if not same or not read.fits(stored.budget):
        what = "budget" if same else "workload"
        msg = f"--plan: {str(path)!r} has a different {what} than {read.path.name}; plan again"
        raise PlanError(msg)
    return stored


def _finish(
    draft: Draft, read: Spec, planned: Plan, measured: Release, form: str
) -> tuple[dict[str, Any], list[str]]:
    """Write the other files of the release folder and publish it; return its summary and its files."""
    from querysmasher.cli.folder import PLAN, RELEASE, SUMMARY
    from querysmasher.release.published import exploration_summary, planned_summary, summary_of

    summary = {
        **summary_of(measured),
        **exploration_summary(measured),
        **planned_summary(planned, measured),
    }
    names = [RELEASE, PLAN, SUMMARY]
    if not (draft.folder / PLAN).is_file():
        planned.save(draft.folder / PLAN)
    names += write_answers(draft, read, measured, form)
    if read.estimate is not None or measured.asked is not None:
        own = None if read.estimate is None else read.estimate.answers
        names += write_estimates(measured.estimate(), draft.folder, own or form)
    publish(draft, summary)
    return summary, names


def _left_over(path: Path, read: Spec) -> tuple[Plan, Release]:
    """Return the plan and the release that a run left behind; refuse those of another spec."""
    from querysmasher.cli.folder import PLAN, load_plan, load_release

    measured = load_release(path)
    fits = read.fits(measured.plan.budget)
    explored = measured.exploration is not None and measured.exploration.was_explored
    same = not explored and (measured.asked or measured.workload) == read.workload
    check_left_over(path, measured, read, workload=same, budget=fits)
    stored = (path if path.is_dir() else path.parent) / PLAN
    return load_plan(stored) if stored.is_file() else read.plan(), measured


def _achieved(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return how many queries are answered, and how well, in words."""
    answers = f"{summary['queries']:,} queries"
    if "expected_error" in summary:
        answers += f", expected error ± {summary['expected_error']:.3g}"
    estimate = summary.get("estimate")
    return [("Answers", answers), *([("Error", estimate["error"])] if estimate else [])]
