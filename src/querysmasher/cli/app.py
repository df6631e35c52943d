"""The command `querysmasher`: every subcommand with its options and its help; other modules run them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from querysmasher import __version__
from querysmasher.cli import command as declared
from querysmasher.cli.command import (
    SPEC,
    Action,
    AnswerFormat,
    DataPath,
    ErrorShare,
    ExitCode,
    Force,
    Number,
    OutPath,
    ReleasePath,
    Resume,
    Seed,
    SpecPath,
)

app = typer.Typer(
    name="querysmasher",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="""\b
A first tour, in an empty folder:
  querysmasher init --example            writes a spec file and an example table
  querysmasher plan                      predicts the error of every count, without data
  querysmasher release                   measures the table and writes the folder out/
  querysmasher answer out "age >= 18"    queries the release, as often as you like

\b
Exit codes:
"""
    + "\n".join(f"  {code:>3}  {code.meaning}" for code in ExitCode),
)
command = partial(declared.command, app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def querysmasher(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Publish many counts about people under differential privacy, with the error known in advance."""


@command(
    "specs",
    "Write a first spec file.",
    "querysmasher init",
    "querysmasher init --example",
    "querysmasher init survey.toml --codebook codebook.csv",
)
def init(
    spec: SpecPath = SPEC,
    codebook: Annotated[
        Path | None,
        typer.Option(help="Take the attributes from this CSV or JSON file with attribute, kind and values."),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Also write people.csv, a table of fictitious people.")
    ] = False,
    force: Force = False,
) -> None:
    """Write a commented, valid spec file for you to edit.

    The schema is never read from the data, because the values in a table reveal something about people.
    """


@command(
    "specs",
    "Predict the error of every count, without data.",
    "querysmasher plan",
    "querysmasher plan survey.toml --all",
    "querysmasher plan survey.toml --save survey.plan",
    "querysmasher plan --json | jq .expected_error",
)
def plan(
    spec: SpecPath = SPEC,
    every: Annotated[
        bool, typer.Option("--all", help="Show every group of queries, even if there are many.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Save the plan to this file, for `release --plan`.")
    ] = None,
    force: Force = False,
) -> None:
    """Plan without data: show the expected error of every group of queries, and the guarantee in words.

    This measures nothing and spends no budget. Plan as often as you like, and change the spec until the
    errors suit you.
    """


@command(
    "custody",
    "Show the custodian what in the table does not fit.",
    "querysmasher check",
    "querysmasher check survey.toml --data people.parquet",
)
def check(spec: SpecPath = SPEC, data: DataPath = None) -> None:
    """Show what in the table does not fit the schema. For the custodian only.

    The output shows values of single records. It is for those who may see the table, and must not be
    published. The command inspects all columns that the queries use: missing columns, types, missing values,
    values outside the schema, records without a person, and public totals that disagree. It says what
    `release` would do with this spec: whether it would refuse the table, and how many records it would drop
    or leave out. It writes nothing and spends no budget. Correct the schema from public knowledge only,
    never from what is shown here.
    """


@command(
    "releasing",
    "Measure the table and write what may be published.",
    "querysmasher release",
    "querysmasher release survey.toml --data people.parquet --out published --answers csv",
    "querysmasher release survey.toml --plan survey.plan --json",
)
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
) -> None:
    """Plan, measure the table, and write a folder that may be published. This spends the budget.

    The folder appears only when it is complete. If a step fails after the measurement, the draft is kept, and
    --resume completes it. The folder contains the noisy measurements (release.qs), the plan (plan.qs), a
    summary (summary.json) and, by default, the answers to all queries. Every measurement spends the budget
    again.
    """


@command(
    "releasing",
    "Measure the table in phases, for estimates of sparse tables.",
    "querysmasher explore",
    "querysmasher explore survey.toml --data people.parquet --out published --answers csv",
)
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
) -> None:
    """Explore the table and write a folder that may be published. This spends the budget.

    The workload must consist of marginals. The command measures in phases. Each phase uses the noisy results
    of earlier phases to measure what improves the estimates most. The folder contains the noisy measurements
    (release.qs), unbiased answers to the measured queries, estimates of the whole workload, their errors
    (errors.csv) and a summary (summary.json). Every exploration spends the budget again.
    """


@command(
    "querying",
    "Query a release: value, standard error, interval.",
    "querysmasher answer out",
    "querysmasher answer out \"age >= 18 and sex == 'F'\"",
    'querysmasher answer out "age < 18" "18 <= age < 65" "age >= 65" --level 0.9',
    "querysmasher answer out \"sex in ['F', 'M']\" --json",
    'querysmasher answer out "[hours-per-week] >= 40"',
    "querysmasher answer out --mean income --by sex",
    'querysmasher answer out --share "age >= 65" --of "sex == \'F\'"',
)
def answer(
    release: ReleasePath,
    predicates: Annotated[
        list[str] | None,
        typer.Argument(help='What to count: "age >= 18". Without a predicate, list possible queries.'),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Probability that an interval covers the figure without noise.")
    ] = 0.95,
    mean: Annotated[
        list[str] | None, typer.Option(metavar="NUMBER", help="The mean of a number. May be repeated.")
    ] = None,
    total: Annotated[
        list[str] | None, typer.Option(metavar="NUMBER", help="The sum of a number. May be repeated.")
    ] = None,
    median: Annotated[
        list[str] | None, typer.Option(metavar="NUMBER", help="The median of a number. May be repeated.")
    ] = None,
    quantile: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER", help="Quantiles of a number, by default quartiles. May be repeated."),
    ] = None,
    probability: Annotated[
        list[float] | None, typer.Option(help="With --quantile: a probability such as 0.9. May be repeated.")
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(metavar="PREDICATE", help="The fraction of records with a predicate. May be repeated."),
    ] = None,
    of: Annotated[
        str | None, typer.Option(metavar="PREDICATE", help="With --share: of which records.")
    ] = None,
    difference: Annotated[
        bool, typer.Option("--difference", help="The count of one predicate minus that of another.")
    ] = False,
    ratio: Annotated[
        bool, typer.Option("--ratio", help="The count of one predicate divided by that of another.")
    ] = False,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="ATTRIBUTE", help="Statistics by groups of an attribute. May be repeated."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="PREDICATE", help="Statistics of numbers: among which records.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(help="Of bins: `midpoint` to let intervals cover the noise only, not places in bins."),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Biased estimates, non-negative and without standard errors.")
    ] = False,
) -> None:
    """Query a release: counts of predicates, or statistics, with standard errors and intervals.

    This reads only the release, not the data, and has no privacy cost: ask as often as you like. Predicates
    compare attributes with values and are joined by `and`, `or`, `not`. Strings and dates need quotes, and
    names with spaces or special characters need brackets: "[hours-per-week] >= 40". If one predicate cannot
    be answered, the others still are.
    """


@command(
    "querying",
    "Draw synthetic records that follow the estimates of a release.",
    "querysmasher microdata out",
    "querysmasher microdata out --records 1000 --seed 1 --weights --out people.csv",
)
def microdata(
    release: ReleasePath,
    records: Annotated[
        int | None, typer.Option(help="How many records.", show_default="the estimated number")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; its ending states the format.",
            show_default="microdata.parquet, in the release folder if RELEASE is one",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draw the records of this seed.", show_default="a random seed")
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Add a column of weights: their sums are closer to the tables.")
    ] = False,
    force: Force = False,
) -> None:
    """Draw synthetic records whose tables follow the estimates of a release, and describe them.

    This reads only the release, not the data, and has no privacy cost. The records do not describe real
    people, and contain no more information than the estimates. A description beside the file states the seed,
    the error of the records and what they are good for. `verify` draws the records of a folder again.
    """


@command(
    "reviewing",
    "Write a page about a plan or a release.",
    "querysmasher report out",
    "querysmasher report release.toml --out plan.html",
    "querysmasher report survey.plan --out plan.html",
)
def report(
    what: Annotated[Path, typer.Argument(help="A release folder, a saved plan, or a spec file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write.",
            show_default="report.html, in the release folder if WHAT is one",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write a page about a release or a plan: errors, budget shares, the guarantee.

    For a spec file, this plans first. It reads no data and spends no budget.
    """


@command(
    "reviewing",
    "Check a published release, without data.",
    "querysmasher verify out",
    "querysmasher verify out --ledger people.ledger --json",
)
def verify(
    release: ReleasePath,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that should contain the entry of the release.")
    ] = None,
) -> None:
    """Check a published release: its digests, its exact privacy cost, every file, its entry in a ledger.

    This needs neither data nor a plan, and can be run by anyone who has the folder. It prints a verdict to
    paste into a review. The exit code is 0 if every check passed, 3 if one failed, and 7 if none failed but
    one could not be made.
    """


@command(
    "custody",
    "Show or check a ledger of what was spent.",
    "querysmasher ledger people.ledger create --rho 1 --label 'people, 2024'",
    "querysmasher ledger people.ledger",
    "querysmasher ledger people.ledger --at-delta 1e-9 --json",
    "querysmasher ledger people.ledger verify",
)
def ledger(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.show,
    head: Annotated[
        str | None,
        typer.Option(help="With `verify`: a digest noted earlier, which must still be in the chain."),
    ] = None,
    at_delta: Annotated[
        float | None,
        typer.Option(help="The delta at which epsilon is shown; by default that of the limit, or 1e-6."),
    ] = None,
    rho: Number = None,
    mu: Number = None,
    epsilon: Number = None,
    delta: Number = None,
    cost: Number = None,
    neighbours: Annotated[str, typer.Option(help="With `create`: add_remove or replace_one.")] = "add_remove",
    records_per_person: Annotated[
        int, typer.Option(help="With `create`: maximum number of records per person.")
    ] = 1,
    label: Annotated[str | None, typer.Option(help="With `create`: a label of the data.")] = None,
) -> None:
    """Show what was spent and what is left, check that no entry was changed, or create a ledger.

    A ledger records the exact cost of every measurement before the table is opened, and refuses a measurement
    that would exceed the limit. This command reads no data and spends no budget.
    """


@command(
    "reviewing",
    "Compare the expected error with that of other mechanisms.",
    "querysmasher compare",
    "querysmasher compare survey.toml --chart methods.svg",
)
def compare(
    spec: SpecPath = SPEC,
    objective: Annotated[
        str | None,
        typer.Option(help="What all mechanisms minimise, as in the spec, which is the default."),
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Also write a chart to this file.")] = None,
    rehearsal: Annotated[
        Path | None,
        typer.Option(help="A table of the same kind that is NOT private: also compare estimates on it."),
    ] = None,
    force: Force = False,
) -> None:
    """Compare the expected error of the spec's queries with that of other mechanisms, at the same budget.

    The table is ordered by the mean error, or by the largest error if that is the objective. With `least =
    true` in the spec, it compares how closely the mechanisms meet the targets.

    This reads no data, except a rehearsal table, and spends no budget.
    """


@command(
    "studio",
    "Open a spec in the browser: see the errors while you decide.",
    "querysmasher studio",
    "querysmasher studio survey.toml --port 8100 --no-browser",
)
def studio(
    spec: SpecPath = SPEC,
    port: Annotated[
        int, typer.Option(help="The port on this machine; by default a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Open a local page in the browser, in which you describe, decide and publish without writing code.

    Every change shows the new errors and is saved in the spec file, which the other commands read as well.
    The page is reached from this machine only, and with the secret address that the command prints. It opens
    no path outside the folder of the spec file.
    """


@command(
    "reviewing",
    "Run every step on a public table.",
    "querysmasher demo",
    "querysmasher demo --made-up --json",
)
def demo(
    folder: Annotated[Path, typer.Option(help="Where to write the pages.")] = Path("demo-output"),
    made_up: Annotated[
        bool, typer.Option("--made-up", help="Use fictitious people, even if the real table is installed.")
    ] = False,
) -> None:
    """Plan a workload without data; then plan, measure and answer a table, and compare with the truth.

    The demo writes two pages: one about the plan, one about the release.

    The table is public and part of the optional package causaldata. Without this package, the people are
    fictitious.
    """
