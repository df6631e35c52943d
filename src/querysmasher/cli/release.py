"""`querysmasher release`: measure a table as planned, and write what may be published."""

from __future__ import annotations

import enum
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import note, print_json, print_pairs, say
from querysmasher.cli.words import SPEC, AsJson, Force, SpecPath, examples
from querysmasher.text import escaped

if TYPE_CHECKING:
    from querysmasher.cli.expectations import Expectations
    from querysmasher.planning.plan import Plan
    from querysmasher.release.release import Release
    from querysmasher.spec import Spec

SPENT = (
    "Every measuring spends the budget anew: releases of the same people add up, also those that are "
    "replaced or thrown away. Ask this release again instead, which costs nothing."
)


class AnswerFormat(enum.StrEnum):
    """How answers to all queries are written."""

    parquet = "parquet"
    csv = "csv"
    none = "none"


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
    data: Annotated[Path | None, typer.Option(help="The table, instead of the one in the spec.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder, instead of the one in the spec.")] = None,
    answers: Annotated[
        AnswerFormat | None, typer.Option(help="How to write the answers, instead of what the spec says.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="A plan that `plan --save` kept, made for this spec.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For tests only: the release then protects nobody, and says so.", min=0)
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Plan, measure the table, and write a folder that may be published. This spends the budget.

    The folder appears when it is whole, or not at all. It holds the noisy measurements (release.qs), the
    plan (plan.qs), a summary (summary.json) and, unless you say otherwise, the answers to all queries.
    Every measuring spends the budget anew.
    """
    from querysmasher.cli.estimate import estimate
    from querysmasher.cli.expectations import Expectations
    from querysmasher.cli.folder import check_folder, replacing_folder
    from querysmasher.spec import read_spec

    read = _with_data(read_spec(spec), data)
    folder = read.folder if out is None else out
    form = read.output.answers if answers is None else answers.value
    check_folder(folder, force)
    source = read.source
    assert source is not None  # noqa: S101 - _with_data has raised
    source.check()
    guess = estimate(read.workload, read.searches_centres)
    if guess.is_big:
        note(f"This is large: {guess}.")
    planned = read.plan() if plan is None else _stored(plan, read)
    measured = read.measure(planned, source.open(), seed=seed)
    summary = _summary(Expectations(planned, read), measured)
    with replacing_folder(folder, force) as temporary:
        names = _write(temporary, planned, measured, summary, form)
    if as_json:
        print_json({"folder": str(folder), "files": names, **summary, "note": SPENT})
        return
    print_pairs(
        [
            ("Guarantee", measured.guarantee),
            ("Answers", f"{summary['queries']:,} queries, standard error ± {summary['expected_error']:.3g}"),
            ("Written", ", ".join(str(folder / name) for name in names)),
            ("Remember", SPENT),
        ]
    )
    say(f'Next: `querysmasher answer {folder} "{_hint(read)}"`')


def _with_data(read: Spec, data: Path | None) -> Spec:
    """Return the spec with the table named on the command line, if one is."""
    from querysmasher.errors import SpecError
    from querysmasher.spec.source import Source

    if data is not None:
        return replace(read, source=Source(data))
    if read.source is None:
        msg = f"{read.path.name}: data: missing; name the table under [data], or with --data"
        raise SpecError(msg)
    return read


def _stored(path: Path, read: Spec) -> Plan:
    """Return a plan kept by `plan --save`, if it was made for this spec."""
    from querysmasher.cli.folder import load_plan
    from querysmasher.errors import PlanError

    stored = load_plan(path)
    if stored.workload != read.workload or stored.budget != read.budget:
        what = "budget" if stored.workload == read.workload else "workload"
        msg = f"--plan: {str(path)!r} was made for another {what} than that of {read.path.name}; plan again"
        raise PlanError(msg)
    return stored


def _summary(expected: Expectations, measured: Release) -> dict[str, Any]:
    """Return what is known of a release, all of it public."""
    from querysmasher import __version__

    return {
        "querysmasher": __version__,
        "guarantee": measured.guarantee,
        "private": measured.noise.is_private,
        "budget": measured.plan.budget.to_json(),
        "noise": measured.noise.description,
        "queries": measured.workload.query_count,
        "expected_error": expected.rmse,
        "gap": expected.plan.gap,
        "schema": measured.plan.schema.to_json(),
    }


def _write(folder: Path, planned: Plan, measured: Release, summary: dict[str, Any], form: str) -> list[str]:
    """Write the files of a release folder, and return their names."""
    from querysmasher.cli.folder import ANSWERS, PLAN, RELEASE, SUMMARY
    from querysmasher.progress import Bar

    names = [RELEASE, PLAN, SUMMARY]
    with Bar("Saving", 3) as bar:
        measured.save(folder / RELEASE)
        bar.advance()
        planned.save(folder / PLAN)
        bar.advance()
        text = escaped(json.dumps(summary, indent=2, ensure_ascii=False)) + "\n"
        (folder / SUMMARY).write_text(text, encoding="utf-8")
    if form != "none":
        names.append(f"{ANSWERS}.{form}")
        measured.write(measured.workload, folder / names[-1])
    return names


def _hint(read: Spec) -> str:
    """Return a predicate that this release can answer."""
    first = read.workload.groups[0].attributes or read.schema.names
    attribute = read.schema[first[0]]
    return f"{attribute.name} == {attribute.values[0]!r}"
